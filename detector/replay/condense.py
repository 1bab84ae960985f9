"""A smaller program with the same replays: events that no repair touches are merged.

An event of a thread that no repair names, that waits for nothing and that nothing waits for only
takes time. A run, successive nodes of such events, becomes one node whose gap is the sum of theirs.
One repair, the one of most events (the pace of the whole host), may shorten the gaps inside runs,
too: it then shortens the gap of the run to the sum of the shorter gaps. Every node that the time or
the repair of another depends on is kept, so replays of any of the repairs together come out the
same to the ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from detector.index_sets import among, union
from detector.replay.columns import Columns
from detector.replay.repair import Repair, joined
from detector.replay.solve import Deps, Sequences, cap
from detector.trace import Bool, Int32, Int64

UInt64 = npt.NDArray[np.uint64]


class Condensed:
    """``columns``: the smaller program; its rows are those that are kept, in order, and then one
    for each run. ``repairs``: the same repairs, of these rows."""

    def __init__(self, whole: Columns, repairs: Sequence[Repair], start: int, edges: Int64) -> None:
        """``start``, ns: a replay may take only those rows of a repair that begin since then;
        ``edges``, ns: the times up to which replays are measured."""
        others, widest, gap = _flattened(whole, repairs, start)
        stays = _staying(whole, others, edges)
        kept = stays[::2] | stays[1::2]
        for repair in others:
            for named in repair.rows:
                kept[named] = True
        kept[whole.served[1]] = True

        nodes = whole.sequences.nodes
        in_run = ~stays[nodes]
        last = np.flatnonzero(in_run & ~np.append(in_run[1:], False))
        rows = np.flatnonzero(kept)
        self._row = np.full(len(kept) + 1, -1, np.int32)  # the last place takes -1
        self._row[rows] = np.arange(len(rows), dtype=np.int32)
        took = [_sums(gaps[nodes], in_run, last) for gaps in (whole.gap, gap)]
        begins, ends = np.append(gap[2 * rows], took[1]), gap[2 * rows + 1]
        del gap  # as long as the whole program
        self.columns = self._columns(whole, stays, rows, nodes[last], took[0])

        self.repairs = [repair.of_rows(self._renumbered) for repair in others]
        if widest >= 0:
            shorter = _caps(self.columns.gap, begins, ends)
            self.repairs[widest] = joined([self.repairs[widest], shorter])

    def _renumbered(self, rows: Int64) -> Int64:
        return self._row[rows].astype(np.int64)

    def _columns(
        self, whole: Columns, stays: Bool, rows: Int32 | Int64, last: Int32, took: Int64
    ) -> Columns:
        """``stays``: by node; ``rows``: of these and of repairs; ``last``: the last node of each
        run; ``took``: its gap. A run has a row whose begin it is; that row has no end."""
        first = len(rows)
        node = np.full(len(whole.gap), -1, np.int32)  # by old node
        for side in (0, 1):
            mine = np.flatnonzero(stays[side::2])
            node[2 * mine + side] = 2 * self._row[mine] + side
        node[last] = 2 * np.arange(first, first + len(last), dtype=np.int32)

        rows = np.append(rows.astype(np.int32), last // 2)
        deps = _dependencies(whole.deps, node, 2 * len(rows))
        sequences, order = _relabelled(whole.sequences, node), _renamed(whole.order, node)
        del node  # as long as the whole program

        old = np.repeat(2 * rows, 2)
        old[1::2] += 1
        old[2 * first :] = np.repeat(last, 2)
        gap = whole.gap[old]
        gap[2 * first :: 2] = took
        del old
        begin, end = whole.begin[rows], whole.end[rows]
        begin[first:] = whole.recorded(last)
        start, parent = whole.start[rows], self._row[whole.parent[rows]]
        start[first:], parent[first:] = whole.start[-1:], -1  # last, so that nothing cuts runs off
        calls = self._row[whole.calls[rows]]
        left_out = np.ones(len(gap), np.bool_)
        left_out[sequences.nodes] = False
        return Columns(
            start,
            parent,
            self._row[whole.launch[rows]],
            whole.in_op[rows],
            whole.is_host[rows],
            whole.is_work[rows],
            whole.program[rows],
            np.where(calls < 0, np.arange(len(rows), dtype=np.int32), calls),
            begin,
            end,
            gap,
            deps,
            sequences,
            order,
            left_out,
        )


def _sums(values: Int64, counts: Bool, last: Int64) -> Int64:
    """Of those values that count, up to each of the places ``last`` since the one before it."""
    values[~counts] = 0
    return np.diff(np.cumsum(values, out=values)[last], prepend=0)


def _caps(gap: Int64, idle: Int64, tail: Int64) -> Repair:
    """Gaps before the begins and the ends of rows as short as these, which are no longer."""
    begins, ends = gap[::2], gap[1::2][: len(tail)]
    early, late = np.flatnonzero(idle < begins), np.flatnonzero(tail < ends)
    return Repair(idle=(early, idle[early]), tail=(late, tail[late]))


def _relabelled(old: Sequences, new: Int32) -> Sequences:
    """The nodes that stay, by their new numbers."""
    stay = [_renamed(old.of(k), new) for k in range(len(old.ptr) - 1)]
    ptr = np.cumsum([0, *map(len, stay)], dtype=np.int32)
    return Sequences(np.concatenate([old.nodes[:0], *stay]), ptr)


def _renamed(nodes: Int32, new: Int32) -> Int32:
    found = new[nodes]
    return np.asarray(found[found >= 0])


def _dependencies(deps: Deps, new: Int32, count: int) -> Deps:
    ptr = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(new[deps.node], minlength=count), out=ptr[1:])
    return Deps(ptr, new[deps.on], deps.delay, deps.kind)


# -- the repair of most events ---------------------------------------------------------------------


def _flattened(
    whole: Columns, repairs: Sequence[Repair], start: int
) -> tuple[list[Repair], int, Int64]:
    """The repairs, without what the widest does to gaps; its place among them, -1 for none; and the
    gaps after it.

    A shorter own time is a matter of gaps where no other repair changes it: none that shortens the
    own time of the same row, and none that removes a wait, whose time counts as own time.
    """
    others = list(repairs)
    widest = max(range(len(repairs)), key=lambda i: sum(map(len, repairs[i].rows)), default=-1)
    if widest < 0 or any(len(r) and whole.start[r[0]] < start for r in repairs[widest].rows):
        return others, -1, whole.gap
    mine, rest = repairs[widest], [*repairs[:widest], *repairs[widest + 1 :]]
    rows, most = mine.own
    shared = [one.own[0] for one in rest] + [one.unwait for one in repairs]
    alone = ~among(rows, union(whole.served[1], *shared))
    gap = whole.gap.copy()
    cap(rows[alone], most[alone], *whole.parts(), gap)
    idle, longest = mine.idle
    gap[2 * idle] = np.minimum(gap[2 * idle], longest)
    own = rows[~alone], most[~alone]
    others[widest] = replace(mine, own=own, idle=Repair().idle)
    return others, widest, gap


# -- what stays ------------------------------------------------------------------------------------


def _staying(whole: Columns, repairs: Sequence[Repair], edges: Int64) -> Bool:
    """The nodes that stay."""
    deps, nodes, ptr = whole.deps, whole.sequences.nodes, whole.sequences.ptr
    stays = np.zeros(len(whole.gap), np.bool_)
    stays[::2] = whole.is_work
    stays[deps.node] = stays[deps.on] = True
    launch = whole.launch[whole.is_work]
    stays[2 * launch[launch >= 0]] = True
    stays[nodes[ptr[:-1][np.diff(ptr) > 0]]] = True  # where each thread begins
    for first, end in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True):
        reached = np.searchsorted(whole.recorded(nodes[first:end]), edges, "right") - 1
        stays[nodes[first + reached[reached >= 0]]] = True
    shorter = np.zeros(len(whole.parent) + 1, np.bool_)  # the last place takes "no parent"
    for repair in repairs:
        shorter[repair.own[0]] = True
        stays[2 * repair.idle[0]] = True
        for rows in (repair.own[0], repair.tail[0], repair.unwait):
            stays[2 * rows + 1] = True
    stays[::2] |= shorter[whole.parent]  # own time lies around what is right inside, too
    removed = union(*(whole.calls[repair.remove] for repair in repairs))
    place = whole.places()
    after = np.minimum(place[2 * removed + 1] + 1, len(nodes) - 1)
    stays[nodes[after]] = True
    both = np.append(removed, _reaching_out(whole, removed, place))
    stays[2 * both] = stays[2 * both + 1] = True
    return stays


def _reaching_out(whole: Columns, removed: Int64, place: Int32) -> Int64:
    """Rows of which one end lies inside an event that goes and one outside: they stay then.

    What a node lies inside is known by a sum of random numbers.
    """
    if not len(removed):
        return removed
    number = _random(removed)
    inside = np.zeros(len(whole.sequences.nodes) + 1, np.uint64)  # by place
    inside[place[2 * removed]] += number
    inside[place[2 * removed + 1] + 1] -= number
    np.cumsum(inside, out=inside)
    begin, end = inside[place[::2]], inside[place[1::2]]
    return np.flatnonzero(whole.is_host & (begin != end))


def _random(rows: Int64) -> UInt64:
    """A number of 64 bits for each row: the finalizer of splitmix64."""
    x = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
