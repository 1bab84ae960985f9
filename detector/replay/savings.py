"""What a program saves without a fault: replays in which things go or take less.

Nothing moves to another place, so the order in which a graph computes stays valid, and a repair is
three changed columns: gaps, durations and which dependencies count. What goes stays in the columns
as a node that takes no time and waits for nothing of its own: whoever waited for it waits for what
came before it. Every change of a pure removal takes time or a reason to wait away, so no event
comes later, and more removals never save less (a property test).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from detector.index_sets import distinct, union
from detector.replay.repair import Repair
from detector.replay.solve import Stuck, UInt8, cap, take_out, times
from detector.replay.waits import OWN_NS
from detector.trace import Bool, Cat, Int32, Int64

if TYPE_CHECKING:
    from detector.replay.graph import Graph

# Kinds of dependencies, one bit each: a launch, a wait for device work, an event of another stream,
# a thread that follows or joins another, one that joins a thread that launches nothing.
LAUNCH, WAIT, STREAM, THREAD, SERVED = (1 << i for i in range(5))
_CALL_NS = 20_000  # the interpreter's way from one call to the next, at most
_BUILT_IN = "<built-in "  # the frame that the interpreter opens to call what is not Python


@dataclass(frozen=True)
class Times:
    """Where the trace's rows lie after a replay, ns.

    Meaningless where not ``keep``, and the recorded times where not ``timed`` (rows that are
    neither host program nor device work).
    """

    start: Int64
    end: Int64
    keep: Bool
    timed: Bool


@dataclass(frozen=True)
class Changed:
    """A graph's columns after a repair, until the next one; ``gone`` by node."""

    gap: Int64
    dur: Int64
    mute: UInt8
    gone: Bool


class Savings:
    """Replays of one graph after repairs. What they share is computed once, on demand."""

    def __init__(self, graph: Graph) -> None:
        self._graph = weakref.ref(graph)  # which has this: no circles
        t = graph.trace
        self.floor = int(t.start[graph.timed].min()) if graph.timed.any() else 0
        self.nodes = graph.sequences.nodes
        self.prev = graph.sequences.before(len(graph.gap))
        self._known_last: dict[int | None, Int32] = {}
        self._known_ends: dict[int | None, int] = {}
        self._buffers = np.empty_like(graph.gap), np.empty_like(graph.dur)
        self._times = np.full_like(graph.gap, -1)

    @property
    def graph(self) -> Graph:
        """The graph, which outlives this."""
        graph = self._graph()
        assert graph is not None
        return graph

    # -- replays -------------------------------------------------------------------------------
    def times(self, repair: Repair) -> Times:
        """All times after a repair."""
        graph, t = self.graph, self.graph.trace
        changed = self._changed(repair)
        at = self._at(changed)
        start, end = t.start.copy(), t.end.copy()
        host, work = np.flatnonzero(graph.is_host), np.flatnonzero(graph.is_work)
        start[host], end[host] = at[2 * host], at[2 * host + 1]
        start[work], end[work] = at[2 * work] - changed.dur[2 * work], at[2 * work]
        return Times(start, end, ~changed.gone[::2], graph.timed)

    def _at(self, changed: Changed) -> Int64:
        graph = self.graph
        return times(
            graph.order,
            self.prev,
            changed.gap,
            changed.dur,
            graph.deps,
            changed.mute,
            graph.origin,
            self.floor,
            out=self._times,
        )

    # -- what they save ------------------------------------------------------------------------

    def saved(self, repair: Repair, span: tuple[int, int] | None) -> int:
        """See `Graph.saved`."""
        until = None if span is None else span[1]
        if span is not None:
            repair = repair.since(self.graph.trace.start, span[0])
        if not repair:
            return 0
        after = self._last(self._at(self._changed(repair)), until)
        return self._ends(until) - after

    def between(self, repair: Repair, edges: Int64) -> Int64:
        """See `Graph.saved_between`."""
        nodes, recorded = self._by_time
        done = np.maximum.accumulate(self._at(self._changed(repair))[nodes])
        return -np.diff(self._reached(done, edges) - self._reached(recorded, edges))

    def _ends(self, until: int | None) -> int:
        """When the last of the program's events recorded up to ``until`` comes, as recorded."""
        if until not in self._known_ends:
            recorded = self.graph.recorded(self._lasts(until))
            self._known_ends[until] = int(recorded.max(initial=self.floor))
        return self._known_ends[until]

    def _last(self, at: Int64, until: int | None) -> int:
        """The same at the times ``at``."""
        return int(at[self._lasts(until)].max(initial=self.floor))

    def _lasts(self, until: int | None) -> Int32:
        if until not in self._known_last:
            self._known_last[until] = self._may_be_last(until)
        return self._known_last[until]

    def _may_be_last(self, until: int | None) -> Int32:
        """The program's nodes recorded up to ``until`` that can come last: all device work, as
        works overlap; on a thread the nodes after which no other of them comes."""
        graph, nodes = self.graph, self.nodes
        mine = graph.program[nodes // 2]
        if until is not None:
            mine &= graph.recorded(nodes) <= until
        followed = np.append(mine[1:] & (self.prev[nodes[1:]] == nodes[:-1]), False)
        return nodes[mine & ~(followed & graph.is_host[nodes // 2])]

    def _reached(self, done: Int64, edges: Int64) -> Int64:
        """When the last node that was recorded up to each edge comes; ``done``: when all up to each
        of `_by_time` have come."""
        last = np.searchsorted(self._by_time[1], edges, "right") - 1
        reached = np.maximum(done[last], self.floor) if len(done) else edges
        return np.where(last >= 0, reached, self.floor)

    @cached_property
    def _by_time(self) -> tuple[Int32, Int64]:
        nodes = self.nodes[self.graph.program[self.nodes // 2]]
        recorded = self.graph.recorded(nodes)
        order = np.argsort(recorded, kind="stable")
        return nodes[order], recorded[order]

    # -- edits ---------------------------------------------------------------------------------
    def _changed(self, repair: Repair) -> Changed:
        """The columns after a repair. Raises Stuck where it is of no row of its kind."""
        self._check(repair)
        graph = self.graph
        gap, dur = self._buffers  # new ones for each replay would cost as much as its times
        np.copyto(gap, graph.gap)
        np.copyto(dur, graph.dur)
        mute = np.zeros(len(gap), np.uint8)
        self._unwait(repair, gap, mute)
        self._own(repair, gap, mute)
        rows, most = repair.idle
        gap[2 * rows] = np.minimum(gap[2 * rows], most)
        rows, most = repair.work
        dur[2 * rows] = np.minimum(dur[2 * rows], most)
        gone = self._gone(repair, gap, mute)
        self._drop(repair, gap, dur, mute, gone)
        return Changed(gap, dur, mute, gone)

    def _check(self, repair: Repair) -> None:
        graph = self.graph
        host = repair.remove, repair.own[0], repair.unwait, repair.idle[0]
        work = repair.drop, repair.work[0]
        for rows in filter(len, host):
            _check(rows, graph.is_host, "host program")
        for rows in filter(len, work):
            _check(rows, graph.is_work, "device work")

    def _unwait(self, repair: Repair, gap: Int64, mute: UInt8) -> None:
        ends = 2 * repair.unwait + 1
        mute[ends] |= WAIT
        gap[ends] = np.minimum(gap[ends], OWN_NS)

    def _own(self, repair: Repair, gap: Int64, mute: UInt8) -> None:
        """Less own time, everywhere alike; and no wait for a thread that launches nothing."""
        rows, most = repair.own
        if not len(rows):
            return
        ptr, nodes = self._parts
        cap(rows, most, ptr, nodes, gap)
        node, owner = self._served
        if not len(node):
            return
        capped = np.zeros(len(self.graph.trace), np.bool_)
        capped[rows] = True
        mute[node[capped[owner]]] |= SERVED

    @cached_property
    def _parts(self) -> tuple[Int32, Int32]:
        """Nodes whose gap is a row's own time, by row: its end, and the begins right inside it."""
        t = self.graph.trace
        host = np.flatnonzero(self.graph.is_host).astype(np.int32)
        inner = host[t.parent[host] >= 0]
        owner = np.concatenate([t.parent[inner], host])
        nodes = np.concatenate([2 * inner, 2 * host + 1])
        ptr = np.append(0, np.cumsum(np.bincount(owner, minlength=len(t))))
        return ptr.astype(np.int32), nodes[np.argsort(owner, kind="stable")]

    @cached_property
    def _served(self) -> tuple[Int64, Int64]:
        """Nodes that wait for a thread that fetches, and the rows whose own time that is."""
        deps, parent = self.graph.deps, self.graph.trace.parent
        node = distinct(deps.node[(deps.kind & SERVED) > 0])
        owner = np.where(node % 2, node // 2, parent[node // 2])
        return node[owner >= 0], owner[owner >= 0]

    def _gone(self, repair: Repair, gap: Int64, mute: UInt8) -> Bool:
        """Takes host rows out with all inside. What went."""
        gone = np.zeros(len(gap), np.bool_)
        if not len(repair.remove):
            return gone
        rows = distinct(self._calls[repair.remove])
        first, last = self._place[2 * rows], self._place[2 * rows + 1]
        order = np.argsort(first, kind="stable")
        first, reach = first[order], np.maximum.accumulate(last[order])
        outer = np.append(True, first[1:] > reach[:-1])
        until = reach[np.append(outer[1:], True)]
        lead = 2 * rows[order[outer]]
        left = self._left(lead, until, gap)
        take_out(first[outer], until, self.nodes, gone, gap, mute, WAIT | SERVED)
        gap[lead] = left
        return gone

    @cached_property
    def _calls(self) -> Int64:
        """For each row the frame of the built-in that calls it and nothing else; else the row."""
        t = self.graph.trace
        frames = t.rows(Cat.PYTHON_FUNCTION)
        used = np.unique(t.name[frames]).tolist()
        built_in = [i for i in used if t.names[i].startswith(_BUILT_IN)]
        alone = np.bincount(t.parent[t.parent >= 0], minlength=len(t)) == 1
        calls = np.zeros(len(t), np.bool_)
        calls[frames] = np.isin(t.name[frames], built_in) & alone[frames]
        rows = np.arange(len(t))
        return np.where((t.parent >= 0) & calls[t.parent], t.parent, rows)

    def _left(self, lead: Int64, last: Int64, gap: Int64) -> Int64:
        """What is left of the time before events that go, from node ``lead`` to place ``last``:
        outside an op the interpreter's way to the next call is shorter by one call."""
        t = self.graph.trace
        after = self.nodes[np.minimum(last + 1, len(self.nodes) - 1)]
        follows = self.prev[after] == self.nodes[last]
        around = t.parent[lead // 2]
        between = (around < 0) | (t.cat[around] != Cat.CPU_OP)
        shorter = np.minimum(np.minimum(gap[lead], gap[after]), _CALL_NS)
        return np.where(follows & between, gap[lead] - shorter, gap[lead])

    @cached_property
    def _place(self) -> Int32:
        place = np.zeros(len(self.graph.gap), np.int32)
        place[self.nodes] = np.arange(len(self.nodes), dtype=np.int32)
        return place

    def _drop(self, repair: Repair, gap: Int64, dur: Int64, mute: UInt8, gone: Bool) -> None:
        """Takes device work out. What overlapped it overlaps nothing else that stands there now."""
        work, begun = self._launched
        rows = union(work[gone[begun]], repair.drop)
        mine = 2 * rows
        gone[mine] = True
        shorter = self.graph.dur[mine]
        room = gap[mine] + shorter
        gap[mine] = np.minimum(0, room)
        overlaps = self._overlaps[~gone[self._overlaps]]
        if len(overlaps):
            took = np.zeros(len(gap), np.int64)  # by how much a node may come earlier than it did
            shrunk = 2 * repair.work[0]
            took[shrunk] = self.graph.dur[shrunk] - dur[shrunk]
            took[mine] = np.maximum(0, room)
            self._part(overlaps, gap, took, gone)
        dur[mine] = 0
        mute[mine] |= LAUNCH | STREAM

    def _part(self, overlaps: Int64, gap: Int64, took: Int64, gone: Bool) -> None:
        """Overlaps of works that still stand end where the work that they overlapped went."""
        for node in overlaps.tolist():
            before, room = int(self.prev[node]), 0
            while before >= 0 and gone[before]:
                room += int(took[before])
                before = int(self.prev[before])
            room += int(took[before]) if before >= 0 else 0
            gap[node] = min(0, int(gap[node]) + room)

    @cached_property
    def _launched(self) -> tuple[Int64, Int64]:
        """Device work whose launch is known, and the node where that begins."""
        work = np.flatnonzero(self.graph.is_work & (self.graph.trace.launch >= 0))
        return work, 2 * self.graph.trace.launch[work].astype(np.int64)

    @cached_property
    def _overlaps(self) -> Int64:
        """Device work that began before the one ahead of it had ended."""
        work = 2 * np.flatnonzero(self.graph.is_work)
        return np.asarray(work[self.graph.gap[work] < 0])


def _check(rows: Int64, kind: Bool, wanted: str) -> None:
    """``rows``: ascending."""
    if rows[0] < 0 or rows[-1] >= len(kind):
        known = (rows >= 0) & (rows < len(kind))
        raise Stuck(f"row {rows[~known][0]} is no {wanted}")
    right = kind[rows]
    if not right.all():
        raise Stuck(f"row {rows[~right][0]} is no {wanted}")
