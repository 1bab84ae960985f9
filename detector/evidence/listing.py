"""Events by name inside a span: how many, how long, and how that compares with the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from detector.evidence.sheet import Item, Kind
from detector.intervals import Intervals
from detector.kineto.nesting import nearest
from detector.trace import NS_PER_US, Int64, Trace

Floats = npt.NDArray[np.float64]


def around(trace: Trace, rows: Int64) -> Int64:
    """For each of ``rows``: the position of the nearest other one around it, or -1."""
    found = nearest(trace.parent, rows)
    parent = trace.parent[rows]
    return np.asarray(np.where(parent >= 0, found[parent], -1), np.int64)


@dataclass(frozen=True, eq=False)
class Sums:
    """Per key: events that start inside, their own time (ns) and bytes."""

    count: Floats
    own: Floats
    moved: Floats


class Listing:
    """Rows of one kind with a key each, an index into ``names``.

    Own time is an event's overlap with the span less that of the listed events inside it (as
    ``owner`` says, positions into ``rows``; None: nothing nests).
    """

    def __init__(
        self,
        trace: Trace,
        kind: Kind,
        rows: Int64,
        key: Int64,
        names: Sequence[str],
        owner: Int64 | None = None,
        user: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self.kind, self.names, self.user = kind, names, user
        self.start, self.end = trace.start[rows], trace.end[rows]
        self.key, self.owner = key, owner
        self.moved = np.maximum(trace.bytes[rows], 0)

    def inside(self, start: int, end: int) -> Int64:
        """Positions of the events that overlap [start, end)."""
        first, last = np.searchsorted(self.start, (start, end))
        running = np.flatnonzero(self.end[:first] > start)
        return np.concatenate([running, np.arange(first, last)])

    def own_time(self, at: Int64, overlap: Floats) -> Floats:
        """Overlap less the overlap of the listed events directly inside."""
        if self.owner is None or not len(at):
            return overlap
        low = int(at[0])
        owner = self.owner[at]
        nested = owner >= low
        taken = np.bincount(owner[nested] - low, overlap[nested], int(at[-1]) - low + 1)
        return np.maximum(overlap - taken[at - low], 0)

    def sums(self, start: int, end: int) -> Sums:
        """Totals by key of the part inside [start, end)."""
        at, n = self.inside(start, end), len(self.names)
        clipped = np.minimum(self.end[at], end) - np.maximum(self.start[at], start)
        overlap = clipped.astype(np.float64)
        key, fresh = self.key[at], self.start[at] >= start
        return Sums(
            _by_key(key[fresh], np.ones(int(fresh.sum())), n),
            _by_key(key, self.own_time(at, overlap), n),
            _by_key(key[fresh], self.moved[at][fresh].astype(np.float64), n),
        )

    def weigh(self, span: Intervals, start: int, end: int) -> Floats:
        """Per event position: own time that falls into ``span``, for events of [start, end)."""
        at = self.inside(start, end)
        low = np.maximum(self.start[at], start)
        high = np.maximum(np.minimum(self.end[at], end), low)
        weight = np.zeros(len(self.start))
        weight[at] = self.own_time(at, span.covered(low, high).astype(np.float64))
        return weight

    def items(
        self, start: int, end: int, whole: Sums, analyzed: int, most: int
    ) -> tuple[Item, ...]:
        """The most telling names of [start, end): by own time, by excess over the rest, by count.

        ``whole`` are the sums of the analyzed time and ``analyzed`` its length in ns.
        """
        here, length = self.sums(start, end), max(end - start, 1)
        share = here.own / length
        outside = analyzed - length
        rest = np.maximum(whole.own - here.own, 0) / outside if outside > 0 else None
        excess = share if rest is None else share - rest
        chosen = _round_robin([share, excess, here.count], most, here.own + here.count > 0)
        return tuple(
            Item(
                self.kind,
                self.names[k],
                int(here.count[k]),
                float(here.own[k]) / NS_PER_US,
                float(share[k]),
                None if rest is None else float(rest[k]),
                float(here.moved[k]) / 1e6,
                bool(self.user[k]) if self.user is not None else False,
            )
            for k in sorted(chosen, key=lambda k: (-here.own[k], k))
        )


def each_once(labels: Sequence[str]) -> tuple[list[str], Int64]:
    """The labels, each once, and for each of ``labels`` its place among them."""
    names = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return list(names), np.array([names[label] for label in labels], np.int64)


def _by_key(key: Int64, weight: Floats, n: int) -> Floats:
    return np.asarray(np.bincount(key, weight, n), np.float64)


def _round_robin(scores: Sequence[Floats], most: int, present: npt.NDArray[np.bool_]) -> list[int]:
    """Up to ``most`` keys: half by the first score, the others fill up in turns."""
    orders = [np.argsort(-score, kind="stable")[: most + 1] for score in scores]
    turns = [orders[0][: most // 2]]
    turns += [np.array([order[i]]) for i in range(len(orders[0])) for order in orders[::-1]]
    chosen = dict.fromkeys(int(k) for turn in turns for k in turn if present[k])
    return list(chosen)[:most]
