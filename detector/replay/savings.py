"""What a program saves without a fault: replays in which things go or take less.

Nothing moves to another place, so the order in which a graph computes stays valid, and a repair is
three changed columns: gaps, durations and which dependencies count. What goes stays in the columns
as a node that takes no time and waits for nothing of its own: whoever waited for it waits for what
came before it. Every change of a pure removal takes time or a reason to wait away, so no event
comes later, and more removals never save less (a property test).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from detector.index_sets import distinct, union
from detector.replay.columns import LAUNCH, SERVED, STREAM, WAIT, Columns
from detector.replay.repair import Repair
from detector.replay.solve import Stuck, UInt8, cap, take_out, times
from detector.replay.waits import OWN_NS
from detector.trace import Bool, Int32, Int64

_CALL_NS = 20_000  # the interpreter's way from one call to the next, at most


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
    """Replays of one program after repairs. What they share is computed once, on demand."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        timed = columns.start[columns.is_host | columns.is_work]
        self.floor = int(timed.min()) if len(timed) else 0
        self.nodes = columns.sequences.nodes
        self.prev = columns.sequences.before(len(columns.gap))
        self._known_last: dict[int | None, Int32] = {}
        self._known_ends: dict[int | None, int] = {}

    @cached_property
    def _buffers(self) -> tuple[Int64, Int64]:
        """For changed columns: new ones for each replay would cost as much as its times."""
        return np.empty_like(self.columns.gap), np.empty_like(self.columns.gap)

    @cached_property
    def _origin(self) -> Int64:
        return np.stack([self.columns.begin, self.columns.end], axis=1).ravel()

    @cached_property
    def _dur(self) -> Int64:
        """Of device work, by node; a host event's lies between its two nodes."""
        columns, dur = self.columns, np.zeros_like(self.columns.gap)
        dur[::2][columns.is_work] = (columns.end - columns.begin)[columns.is_work]
        return dur

    @cached_property
    def _times(self) -> Int64:
        return np.full_like(self.columns.gap, -1)

    @cached_property
    def _place(self) -> Int32:
        return self.columns.places()

    @cached_property
    def _parts(self) -> tuple[Int32, Int32]:
        return self.columns.parts()

    # -- replays -------------------------------------------------------------------------------
    def times(self, repair: Repair, start: Int64, end: Int64) -> Times:
        """All times after a repair; ``start``, ``end``: as recorded, ns."""
        columns = self.columns
        changed = self._changed(repair)
        at = self._at(changed)
        start, end = start.copy(), end.copy()
        host, work = np.flatnonzero(columns.is_host), np.flatnonzero(columns.is_work)
        start[host], end[host] = at[2 * host], at[2 * host + 1]
        start[work], end[work] = at[2 * work] - changed.dur[2 * work], at[2 * work]
        timed = columns.is_host | columns.is_work
        return Times(start, end, ~changed.gone[::2], timed)

    def _at(self, changed: Changed) -> Int64:
        columns = self.columns
        return times(
            columns.order,
            self.prev,
            changed.gap,
            changed.dur,
            columns.deps,
            changed.mute,
            self._origin,
            self.floor,
            out=self._times,
        )

    # -- what they save ------------------------------------------------------------------------

    def saved(self, repair: Repair, span: tuple[int, int] | None) -> int:
        """See `Graph.saved`."""
        until = None if span is None else span[1]
        if span is not None:
            repair = repair.since(self.columns.start, span[0])
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
            recorded = self.columns.recorded(self._lasts(until))
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
        columns, nodes = self.columns, self.nodes
        mine = columns.program[nodes // 2]
        if until is not None:
            mine &= columns.recorded(nodes) <= until
        followed = np.append(mine[1:] & (self.prev[nodes[1:]] == nodes[:-1]), False)
        return nodes[mine & ~(followed & columns.is_host[nodes // 2])]

    def _reached(self, done: Int64, edges: Int64) -> Int64:
        """When the last node that was recorded up to each edge comes; ``done``: when all up to each
        of `_by_time` have come."""
        last = np.searchsorted(self._by_time[1], edges, "right") - 1
        reached = np.maximum(done[last], self.floor) if len(done) else edges
        return np.where(last >= 0, reached, self.floor)

    @cached_property
    def _by_time(self) -> tuple[Int32, Int64]:
        nodes = self.nodes[self.columns.program[self.nodes // 2]]
        recorded = self.columns.recorded(nodes)
        order = np.argsort(recorded, kind="stable")
        return nodes[order], recorded[order]

    # -- edits ---------------------------------------------------------------------------------
    def _changed(self, repair: Repair) -> Changed:
        """The columns after a repair. Raises Stuck where it is of no row of its kind."""
        self._check(repair)
        columns = self.columns
        gap, dur = self._buffers
        np.copyto(gap, columns.gap)
        np.copyto(dur, self._dur)
        mute = np.zeros(len(gap), np.uint8)
        self._unwait(repair, gap, mute)
        self._own(repair, gap, mute)
        rows, most = repair.idle
        gap[2 * rows] = np.minimum(gap[2 * rows], most)
        rows, most = repair.tail
        gap[2 * rows + 1] = np.minimum(gap[2 * rows + 1], most)
        rows, most = repair.work
        dur[2 * rows] = np.minimum(dur[2 * rows], most)
        gone = self._gone(repair, gap, mute)
        self._drop(repair, gap, dur, mute, gone)
        return Changed(gap, dur, mute, gone)

    def _check(self, repair: Repair) -> None:
        columns = self.columns
        host = repair.remove, repair.own[0], repair.unwait, repair.idle[0], repair.tail[0]
        work = repair.drop, repair.work[0]
        for rows in filter(len, host):
            _check(rows, columns.is_host, "host program")
        for rows in filter(len, work):
            _check(rows, columns.is_work, "device work")

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
        node, owner = self.columns.served
        if not len(node):
            return
        capped = np.zeros(len(self.columns.start), np.bool_)
        capped[rows] = True
        mute[node[capped[owner]]] |= SERVED

    def _gone(self, repair: Repair, gap: Int64, mute: UInt8) -> Bool:
        """Takes host rows out with all inside. What went."""
        gone = self.columns.left_out.copy()
        if not len(repair.remove):
            return gone
        rows = distinct(self.columns.calls[repair.remove])
        place = self._place
        first, last = place[2 * rows], place[2 * rows + 1]
        order = np.argsort(first, kind="stable")
        first, reach = first[order], np.maximum.accumulate(last[order])
        outer = np.append(True, first[1:] > reach[:-1])
        until = reach[np.append(outer[1:], True)]
        lead = 2 * rows[order[outer]]
        left = self._left(lead, until, gap)
        take_out(first[outer], until, self.nodes, gone, gap, mute, WAIT | SERVED)
        gap[lead] = left
        return gone

    def _left(self, lead: Int64, last: Int64, gap: Int64) -> Int64:
        """What is left of the time before events that go, from node ``lead`` to place ``last``:
        outside an op the interpreter's way to the next call is shorter by one call."""
        after = self.nodes[np.minimum(last + 1, len(self.nodes) - 1)]
        follows = self.prev[after] == self.nodes[last]
        between = ~self.columns.in_op[lead // 2]
        shorter = np.minimum(np.minimum(gap[lead], gap[after]), _CALL_NS)
        return np.where(follows & between, gap[lead] - shorter, gap[lead])

    def _drop(self, repair: Repair, gap: Int64, dur: Int64, mute: UInt8, gone: Bool) -> None:
        """Takes device work out. What overlapped it overlaps nothing else that stands there now."""
        work, begun = self._launched
        rows = union(work[gone[begun]], repair.drop)
        mine = 2 * rows
        gone[mine] = True
        shorter = self._dur[mine]
        room = gap[mine] + shorter
        gap[mine] = np.minimum(0, room)
        overlaps = self._overlaps[~gone[self._overlaps]]
        if len(overlaps):
            took = np.zeros(len(gap), np.int64)  # by how much a node may come earlier than it did
            shrunk = 2 * repair.work[0]
            took[shrunk] = self._dur[shrunk] - dur[shrunk]
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
        work = np.flatnonzero(self.columns.is_work & (self.columns.launch >= 0))
        return work, 2 * self.columns.launch[work].astype(np.int64)

    @cached_property
    def _overlaps(self) -> Int64:
        """Device work that began before the one ahead of it had ended."""
        work = 2 * np.flatnonzero(self.columns.is_work)
        return np.asarray(work[self.columns.gap[work] < 0])


def _check(rows: Int64, kind: Bool, wanted: str) -> None:
    """``rows``: ascending."""
    if rows[0] < 0 or rows[-1] >= len(kind):
        known = (rows >= 0) & (rows < len(kind))
        raise Stuck(f"row {rows[~known][0]} is no {wanted}")
    right = kind[rows]
    if not right.all():
        raise Stuck(f"row {rows[~right][0]} is no {wanted}")
