"""When each node of a program comes: after its track's one before, and after all that it awaits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Deps = Mapping[int, Sequence[tuple[int, int]]]


class Stuck(ValueError):
    """The edits make events wait for each other, or are not of this trace."""


def solve(
    sequences: Mapping[int, Sequence[int]],
    gap: Sequence[int],
    dur: Sequence[int],
    deps: Deps,
    origin: Sequence[int],
) -> list[int | None]:
    """The time of every node; None where it is in no sequence. Raises Stuck.

    A node comes ``gap`` after the one before it on its track and not before any (node, delay) of
    its ``deps``, and then takes ``dur``. The first of a track, if it awaits nothing, comes at its
    ``origin``. Walks each track as far as what it waits for is known, in turn, until all are done.
    """
    time: list[int | None] = [None] * len(gap)
    at = dict.fromkeys(sequences, 0)
    now: dict[int, int | None] = dict.fromkeys(sequences)
    left = list(sequences)
    while left:
        moved = False
        for track in left:
            begun = at[track]
            sequence = sequences[track]
            at[track], now[track] = _walk(sequence, begun, now[track], time, gap, dur, deps, origin)
            moved |= at[track] > begun
        left = [track for track in left if at[track] < len(sequences[track])]
        if left and not moved:
            raise Stuck("the edits make events wait for each other")
    return time


def _walk(
    sequence: Sequence[int],
    i: int,
    now: int | None,
    time: list[int | None],
    gap: Sequence[int],
    dur: Sequence[int],
    deps: Deps,
    origin: Sequence[int],
) -> tuple[int, int | None]:
    while i < len(sequence):
        node = sequence[i]
        begin = None if now is None else now + gap[node]
        for on, delay in deps.get(node, ()):
            known = time[on]
            if known is None:
                return i, now
            if begin is None or known + delay > begin:
                begin = known + delay
        if begin is None:
            begin = origin[node]
        now = time[node] = begin + dur[node]
        i += 1
    return i, now
