"""When each node of a program comes: after its track's one before, and after all that it awaits.

Loops over flat arrays, in C where that was built and in Python elsewhere, with the same results:
`sequences` puts the begins and ends of host events in order, `arrange` finds an order in which each
node comes after all it waits for, `times` computes, `cap` makes own times shorter, `take_out` takes
events out. Node ``2 r`` is the begin of row ``r`` and ``2 r + 1`` its end; device work is the one
node ``2 r``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import numpy.typing as npt

from detector.trace import Bool, Int32, Int64

LOOPS: ModuleType | None  # the compiled ones; without them those of this module serve
try:
    from detector.replay import _solve as LOOPS
except ImportError:
    LOOPS = None

UInt8 = npt.NDArray[np.uint8]
Edge = tuple[Int64, Int64, Int64]  # nodes, what each comes after, by how much, ns


Kind = Callable[[Int64, Int64], UInt8]


class Stuck(ValueError):
    """The edits make events wait for each other, or are not of this trace."""


def _no_kind(node: Int64, on: Int64) -> UInt8:
    return np.zeros(len(node), np.uint8)


@dataclass(frozen=True)
class Deps:
    """What each node waits for: ``on[ptr[n] : ptr[n + 1]]``, each ``delay`` ns earlier.

    ``kind``: one bit; a replay can leave out the kinds in a node's mask.
    """

    ptr: Int32
    on: Int32
    delay: Int64
    kind: UInt8

    @classmethod
    def of(cls, count: int, edges: Iterable[Edge], kind: Kind = _no_kind) -> Deps:
        """The dependencies of ``count`` nodes; those of one node stay in the order given.

        ``kind``: of nodes and what each waits for, the kinds of these dependencies.
        """
        parts = [np.concatenate(p) for p in zip(*edges, strict=True)] or [np.zeros(0, np.int64)] * 3
        node, on, delay = (part.astype(np.int64) for part in parts)
        order = np.argsort(node, kind="stable")
        ptr = np.zeros(count + 1, np.int32)
        np.cumsum(np.bincount(node, minlength=count), out=ptr[1:])
        node, on = node[order], on[order]
        return cls(ptr, on.astype(np.int32), delay[order], kind(node, on))

    @property
    def node(self) -> Int64:
        """The node that waits, of each."""
        count = np.diff(self.ptr)
        waiting = np.flatnonzero(count)
        return np.repeat(waiting, count[waiting])


def sequences(rows: Int64, start: Int64, dur: Int64, track: Int32, tracks: int) -> Sequences:
    """The nodes of host events ``rows`` by track, in program order: of one time ends first, inner
    before outer. ``start``, ``dur``, ``track``: of all rows, by start."""
    ptr = np.zeros(tracks + 1, np.int32)
    np.cumsum(2 * np.bincount(track[rows], minlength=tracks), out=ptr[1:])
    if LOOPS is None:
        return Sequences(_in_order(rows, start, dur, track), ptr)
    nodes = np.empty(2 * len(rows), np.int32)
    given = (np.ascontiguousarray(a) for a in (rows.astype(np.int32), start, dur, track, ptr))
    LOOPS.sequences(*given, nodes)
    return Sequences(nodes, ptr)


@dataclass(frozen=True)
class Sequences:
    """``nodes[ptr[k] : ptr[k + 1]]`` are those of sequence ``k``, in order."""

    nodes: Int32
    ptr: Int32

    def of(self, k: int) -> Int32:
        """The nodes of one."""
        return self.nodes[self.ptr[k] : self.ptr[k + 1]]

    def before(self, count: int) -> Int32:
        """For each of ``count`` nodes the one before it in its sequence; -1 for the first."""
        prev = np.full(count, -1, np.int32)
        prev[self.nodes[1:]] = self.nodes[:-1]
        prev[self.nodes[self.ptr[:-1][np.diff(self.ptr) > 0]]] = -1
        return prev


def _in_order(rows: Int64, start: Int64, dur: Int64, track: Int32) -> Int32:
    begin, end = start[rows], start[rows] + dur[rows]
    order = np.arange(len(rows))
    point = begin == end
    late = np.concatenate([np.ones(len(rows), np.bool_), point])  # not an end of something
    rank = np.concatenate([order, np.where(point, order, -order)])
    last = np.concatenate([np.zeros(len(rows), np.bool_), point])
    nodes = np.concatenate([2 * rows, 2 * rows + 1])
    time, on = np.concatenate([begin, end]), np.concatenate([track[rows]] * 2)
    return nodes[np.lexsort((last, rank, late, time, on))].astype(np.int32)


def arrange(program: Sequences, deps: Deps) -> Int32:
    """All nodes of the sequences, each after the one before it and all that it waits for.

    Walks each sequence as far as what it waits for is known, in turn. Raises Stuck where nodes
    wait for each other in a circle.
    """
    order = np.empty(len(program.nodes), np.int32)
    if LOOPS is None:
        done = _arranged(program, deps, order)
    else:
        done = LOOPS.arrange(program.nodes, program.ptr, deps.ptr, deps.on, order)
    if done < len(order):
        raise Stuck("the edits make events wait for each other")
    return order


def _arranged(program: Sequences, deps: Deps, order: Int32) -> int:
    nodes, ends = program.nodes.tolist(), program.ptr[1:].tolist()
    ptr, on = deps.ptr.tolist(), deps.on.tolist()
    known = [False] * (len(ptr) - 1)
    at, left = program.ptr[:-1].tolist(), list(range(len(ends)))
    out: list[int] = []
    before = -1
    while left and len(out) > before:
        before = len(out)
        for k in left:
            i = at[k]
            while i < ends[k] and all(known[d] for d in on[ptr[nodes[i]] : ptr[nodes[i] + 1]]):
                known[nodes[i]] = True
                out.append(nodes[i])
                i += 1
            at[k] = i
        left = [k for k in left if at[k] < ends[k]]
    order[: len(out)] = out
    return len(out)


def times(
    order: Int32,
    prev: Int32,
    gap: Int64,
    dur: Int64,
    deps: Deps,
    mute: UInt8,
    origin: Int64,
    floor: int,
    out: Int64 | None = None,
) -> Int64:
    """The time of every node, ns; -1 of those that are not in ``order``.

    A node comes ``gap`` after the one before it, and not before any that it waits for, and then
    takes ``dur``. ``mute``: the kinds of dependencies that it waits for no longer. One with neither
    comes at its ``origin``; at ``floor`` where it only has none any more. ``out``: to be filled,
    -1 everywhere or of another call for the same ``order``.
    """
    time = np.full(len(gap), -1, np.int64) if out is None else out
    if LOOPS is None:
        _timed(order, prev, gap, dur, deps, mute, origin, floor, time)
    else:
        low = np.array([floor], np.int64)
        LOOPS.times(
            order, prev, gap, dur, deps.ptr, deps.on, deps.delay, deps.kind, mute, origin, low, time
        )
    return time


def _timed(
    order: Int32,
    prev: Int32,
    gap: Int64,
    dur: Int64,
    deps: Deps,
    mute: UInt8,
    origin: Int64,
    floor: int,
    time: Int64,
) -> None:
    before, gaps, durs, masks = prev.tolist(), gap.tolist(), dur.tolist(), mute.tolist()
    ptr, on, delay = deps.ptr.tolist(), deps.on.tolist(), deps.delay.tolist()
    kind, origins, at = deps.kind.tolist(), origin.tolist(), time.tolist()
    for node in order.tolist():
        first, last = ptr[node], ptr[node + 1]
        known = [at[before[node]] + gaps[node]] if before[node] >= 0 else []
        known += [at[on[j]] + delay[j] for j in range(first, last) if not kind[j] & masks[node]]
        begin = max(known) if known else origins[node] if first == last else floor
        at[node] = begin + durs[node]
    time[:] = at


def cap(rows: Int64, most: Int64, ptr: Int32, nodes: Int32, gap: Int64) -> None:
    """Changes ``gap``: those of ``nodes[ptr[r] : ptr[r + 1]]`` to at most ``most`` ns together, of
    each row ``r``, all by the same share. No two rows have a node in common."""
    if LOOPS is not None:
        LOOPS.cap(rows, most, ptr, nodes, gap)
        return
    for row, limit in zip(rows.tolist(), most.tolist(), strict=True):
        mine = nodes[ptr[row] : ptr[row + 1]]
        now = int(gap[mine].sum())
        if now > limit:
            gap[mine] = (gap[mine].astype(float) * limit / now).astype(np.int64)


def take_out(
    first: Int32, last: Int32, nodes: Int32, gone: Bool, gap: Int64, mute: UInt8, kinds: int
) -> None:
    """Takes out the events of which both nodes lie in ``nodes[first : last + 1]`` of one of these
    ranges, which do not overlap: they are ``gone``, have no ``gap`` and do not wait for ``kinds``.
    """
    if LOOPS is not None:
        bits = np.array([kinds], np.uint8)
        LOOPS.take_out(first, last, nodes, gone.view(np.uint8), gap, mute, bits)
        return
    pairs = zip(first.tolist(), last.tolist(), strict=True)
    inside = np.concatenate([nodes[:0], *(nodes[a : b + 1] for a, b in pairs)])
    gone[inside] = True
    whole = gone[inside ^ 1]
    gone[inside[~whole]] = False  # halves of events that reach out of it
    gap[inside[whole]] = 0
    mute[inside[whole]] |= kinds
