"""A trace as nodes in program order, each with what it has to wait for.

Nodes ``2 r`` and ``2 r + 1`` are the begin and the end of host event ``r``; device work ``r`` is
the one node ``2 r``, which stands for its end. Each track is a sequence of nodes. A node comes
``gap`` after the one before it on its track, and not before any of its dependencies (node, delay).
Which of these made an event begin when it did the trace does not say; what it says has to agree
with them. So constants are chosen such that a replay without edits gives each recorded time to the
ns, and such that what did not bind (a queue that was never empty) would bind with a usual delay.

Not known, and so left as recorded: how long a collective would have waited for other ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from detector import vocabulary
from detector.replay import waits
from detector.replay.edits import Edit, Times
from detector.replay.program import Program
from detector.trace import HOST_CATS, Bool, Cat, Int64, Trace

BURST_NS = 100_000  # idle for so long, a second thread begins anew when the first has got so far
_LATENCY_NS, _GAP_NS, _DELAY_NS = 5_000, 1_000, 3_000  # where the trace shows none
_IDLE_NS = 20_000  # a stream that was idle for so long started its next work upon the launch
_SEEN_NS = 2_000  # a later start than this takes a reason
_LOW = 0.25  # of the observed; the longer ones had causes that the trace does not show
_HIDDEN_NS = 200_000  # an event of another stream, a queue of before the recording
_NEARLY = 0.8  # of a thread's time: the rest are hooks and calls between the ops
_NEAR_NS = 6_000  # work of another stream that ended so shortly before may be that reason


@dataclass(frozen=True)
class Typical:
    """What the host and the device usually take between cause and effect, ns."""

    latency: int  # from a launch call to its kernel on an idle stream
    gap: int  # between two kernels of a full queue
    delay: int  # from the end of awaited work to the end of the call that waits


class Graph:
    """The program of a trace. Reusable: `replay` changes nothing in it."""

    def __init__(self, trace: Trace, typical: bool = False) -> None:
        """``typical``: one latency, gap and delay for the whole trace instead of each event's."""
        self.trace = trace
        self.uniform = typical
        self.is_host: Bool = np.isin(trace.cat, HOST_CATS)
        self.is_work: Bool = trace.is_device_work
        self.timed: Bool = self.is_host | self.is_work
        rows = np.arange(len(trace))
        launched = self.is_work & (trace.launch >= 0)
        self.issued: Int64 = trace.start[np.where(launched, trace.launch, rows)]  # of device work
        for works in self.streams.values():  # what no call here launched was queued before
            known = trace.launch[works] >= 0
            if known.any():
                self.issued[works[: int(np.argmax(known))]] = trace.start.min()
        self.gap: Int64 = np.zeros(2 * len(trace), np.int64)
        self.dur: Int64 = np.zeros(2 * len(trace), np.int64)
        self.origin: Int64 = np.repeat(trace.start, 2)
        self.origin[1::2] = trace.end
        self.deps: dict[int, tuple[tuple[int, int], ...]] = {}
        self.covering: dict[int, set[int]] = {}  # waits for all issued so far on these streams
        self.across: set[int] = set()  # nodes whose first dependency is on another thread
        self._build()

    def replay(self, edits: list[Edit] | tuple[Edit, ...] = ()) -> Times:
        """All times after these edits. Raises Stuck where they make events wait in a circle."""
        program = Program(self)
        program.change(edits)
        return program.run()

    # -- tracks --------------------------------------------------------------------------------
    @cached_property
    def streams(self) -> dict[int, Int64]:
        """Rows of device work by track, in stream order."""
        return self._by_track(np.flatnonzero(self.is_work))

    @cached_property
    def threads(self) -> dict[int, Int64]:
        """Nodes of host events by track, in program order."""
        return {k: self._boundaries(rows) for k, rows in self._host_rows.items()}

    @cached_property
    def _host_rows(self) -> dict[int, Int64]:
        return self._by_track(np.flatnonzero(self.is_host))

    def _by_track(self, rows: Int64) -> dict[int, Int64]:
        track = self.trace.track[rows]
        return {int(k): rows[track == k] for k in np.unique(track)}

    def _boundaries(self, rows: Int64) -> Int64:
        """Begins and ends in order: of one time ends first, inner before outer."""
        start, end = self.trace.start[rows], self.trace.end[rows]
        order = np.arange(len(rows))
        point = start == end
        time = np.concatenate([start, end])
        late = np.concatenate([np.ones(len(rows), np.bool_), point])  # not an end of something
        rank = np.concatenate([order, np.where(point, order, -order)])
        last = np.concatenate([np.zeros(len(rows), np.bool_), point])
        nodes = np.concatenate([2 * rows, 2 * rows + 1])
        return np.asarray(nodes[np.lexsort((last, rank, late, time))])

    @cached_property
    def first(self) -> int:
        """The thread that launches most, else does most, but the backward engine's own only if
        there is no other; -1 without host events."""
        if not self._host_rows:
            return -1
        t = self.trace
        launching = np.unique(t.launch[self.is_work & (t.launch >= 0)])
        counts = np.bincount(t.track[launching], minlength=len(t.tracks))
        engines = self._engines()
        return max(
            self._host_rows,
            key=lambda k: (not engines[k], counts[k], len(self._host_rows[k])),
        )

    def _engines(self) -> Bool:
        """By track whether nearly all of its time is backward."""
        t = self.trace
        top = np.flatnonzero(self.is_host & (t.parent < 0))
        used = np.unique(t.name[top])
        backward = [i for i in used.tolist() if vocabulary.HOST["backward"].search(t.names[i])]
        mine = np.isin(t.name[top], backward)
        whole = np.bincount(t.track[top], t.dur[top], len(t.tracks))
        part = np.bincount(t.track[top[mine]], t.dur[top[mine]], len(t.tracks))
        return np.asarray((part > 0) & (part >= _NEARLY * whole))

    @cached_property
    def busiest(self) -> int:
        """The stream with the most work; -1 without one."""
        return max(self.streams, key=lambda k: len(self.streams[k]), default=-1)

    def issued_before(self, track: int, time: int) -> int:
        """Index in a stream of the last work issued up to ``time``; -1 where none was."""
        return int(np.searchsorted(self._issued_from[track], time, "right")) - 1

    @cached_property
    def _issued_from(self) -> dict[int, Int64]:
        """The earliest issue of this work and all behind it: in order, whoever issues."""
        return {
            k: np.minimum.accumulate(self.issued[rows][::-1])[::-1]
            for k, rows in self.streams.items()
        }

    @cached_property
    def works_of(self) -> dict[int, list[int]]:
        """Rows of device work by the row of the call that issued them."""
        found: dict[int, list[int]] = {}
        rows = np.flatnonzero(self.is_work & (self.trace.launch >= 0))
        for row, call in zip(rows.tolist(), self.trace.launch[rows].tolist(), strict=True):
            found.setdefault(call, []).append(row)
        return found

    @cached_property
    def own(self) -> Int64:
        """Of each host event its time less that of the events right inside it, ns."""
        inner = self.is_host & (self.trace.parent >= 0)
        own = self.trace.dur.copy()
        np.subtract.at(own, self.trace.parent[inner], self.trace.dur[inner])
        return np.maximum(own, 0)

    # -- constants -----------------------------------------------------------------------------
    def _build(self) -> None:
        for nodes in self.threads.values():
            times = self.origin[nodes]
            self.gap[nodes[1:]] = np.diff(times)
        for track in self.threads:
            if track != self.first:
                self._attach(track)
        self._streams()
        for node, dep in waits.between_streams(self):
            self.deps[node] = (*self.deps.get(node, ()), dep)
        for node, own, deps, tracks in waits.found(self):
            self.deps[node] = (*self.deps.get(node, ()), *deps)
            self.gap[node] = min(self.gap[node], own)
            if tracks:
                self.covering[node] = tracks

    @cached_property
    def typical(self) -> Typical:
        """Lower quartiles over those events of which the cause is plain."""
        latency, gap = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for rows in self.streams.values():
            since, between = self._observed(rows)
            known = self.trace.launch[rows] >= 0
            latency.append(since[known & (between > _IDLE_NS)])
            gap.append(between[known & (since > _IDLE_NS) & (between < _IDLE_NS)])
        delays = waits.delays(self)
        return Typical(
            _usual(np.concatenate(latency), _LATENCY_NS),
            max(0, _usual(np.concatenate(gap), _GAP_NS)),  # overlaps are launched as such
            _usual(delays, _DELAY_NS),
        )

    def _observed(self, rows: Int64) -> tuple[Int64, Int64]:
        """ns from issue to start, and from the end of the work before to the start."""
        t = self.trace
        since = t.start[rows] - self.issued[rows]
        between = np.full(len(rows), np.iinfo(np.int64).max // 4)  # nothing before the first
        between[1:] = t.start[rows[1:]] - t.end[rows[:-1]]
        return since, between

    def _streams(self) -> None:
        for track, rows in self.streams.items():
            since, between = self._observed(rows)
            known = self.trace.launch[rows] >= 0
            latency = np.where(known, np.minimum(since, self.typical.latency), since)
            gap = np.where(known, np.minimum(between, self.typical.gap), between)
            if self.uniform:
                latency[known], gap[known] = self.typical.latency, self.typical.gap
                latency[0] = since[0]  # behind a queue of before the recording
            self.dur[2 * rows] = self.trace.dur[rows]
            for i, row in enumerate(rows.tolist()):
                self._place(track, row, int(since[i]), int(between[i]), int(latency[i]), i > 0)
                self.gap[2 * row] = gap[i] if known[i] else min(gap[i], between[i])
            self._explain(track, rows, known, since, between, latency)
            self.gap[2 * rows[0]] = self.typical.gap  # of what an edit puts before it

    def _place(
        self, track: int, row: int, since: int, between: int, latency: int, follows: bool
    ) -> None:
        launch = int(self.trace.launch[row])
        if launch >= 0 and self.is_host[launch]:
            self.deps[2 * row] = ((2 * launch, latency),)
        elif not follows and self.first >= 0:
            self._follow(2 * row, int(self.trace.start[row]))

    def _explain(
        self, track: int, rows: Int64, known: Bool, since: Int64, between: Int64, latency: Int64
    ) -> None:
        """Starts that neither the launch nor the work before accounts for: other streams, or an
        edge of its own length."""
        gap = self.gap[2 * rows]
        reach = np.maximum(self.issued[rows] + latency, self.trace.start[rows] - between + gap)
        late = self.trace.start[rows] - reach
        for i in np.flatnonzero(known & (late > 0)).tolist():
            row = int(rows[i])
            if late[i] > _SEEN_NS and (cause := self._cause(track, row)) is not None:
                delay = int(self.trace.start[row] - self.trace.end[cause])
                wanted = self.typical.gap if self.uniform else delay
                self.deps[2 * row] = (*self.deps.get(2 * row, ()), (2 * cause, wanted))
            elif not self.uniform:
                self._stretch(row, i, int(since[i]), int(between[i]), latency)

    def _stretch(self, row: int, i: int, since: int, between: int, latency: Int64) -> None:
        by_launch = self.issued[row] + latency[i]
        by_stream = self.trace.start[row] - between + self.gap[2 * row]
        if by_launch >= by_stream and 2 * row in self.deps:
            launch = self.deps[2 * row][0][0]
            self.deps[2 * row] = ((launch, since), *self.deps[2 * row][1:])
        else:
            self.gap[2 * row] = between

    def _cause(self, track: int, row: int) -> int | None:
        """The work of another stream of the same device whose end set this one off."""
        start, issued = int(self.trace.start[row]), int(self.issued[row])
        best, best_end = None, start - _NEAR_NS
        for other, rows in self.streams.items():
            if other == track or self.trace.device[rows[0]] != self.trace.device[row]:
                continue
            ends = self._ends[other]
            i = int(np.searchsorted(ends, start, "right")) - 1
            if i >= 0 and ends[i] > best_end and self.issued[rows[i]] <= issued:
                best, best_end = int(rows[i]), int(ends[i])
        return best

    @cached_property
    def _ends(self) -> dict[int, Int64]:
        return {k: np.maximum.accumulate(self.trace.end[rows]) for k, rows in self.streams.items()}

    # -- second threads ------------------------------------------------------------------------
    @cached_property
    def _first_times(self) -> Int64:
        return self.origin[self.threads[self.first]]

    def _follow(self, node: int, time: int) -> None:
        """Let a node begin when the first thread has got as far as it had then."""
        i = int(np.searchsorted(self._first_times, time, "right")) - 1
        if i >= 0:
            at = int(self.threads[self.first][i])
            self.deps[node] = ((at, time - int(self._first_times[i])),)
            self.gap[node] = 0
            self.across.add(node)

    def _attach(self, track: int) -> None:
        """Where a second thread begins anew, and where the first waits for it (the backward)."""
        nodes = self.threads[track]
        times, gaps = self.origin[nodes], self.gap[nodes]
        depth = np.cumsum(np.where(nodes % 2 == 0, 1, -1)) - np.where(nodes % 2 == 0, 1, -1)
        begins = (gaps > BURST_NS) & (depth == 0)
        begins[0] = True
        reached = np.searchsorted(self._first_times, times, "right")
        begins[1:] &= np.diff(reached) > 0  # the first thread got ahead meanwhile
        for i in np.flatnonzero(begins).tolist():
            self._follow(int(nodes[i]), int(times[i]))
        self._join(nodes, times)

    def _join(self, nodes: Int64, times: Int64) -> None:
        """The first thread's gaps that this thread fills: there it waits for it."""
        mine, at = self.threads[self.first], self._first_times
        gap = np.diff(at)
        for i in np.flatnonzero(gap > BURST_NS // 2).tolist():
            a, b = np.searchsorted(times, (at[i], at[i + 1]), "right")
            if b - a < 2 or times[b - 1] - times[a] < 0.5 * gap[i]:
                continue
            after = int(at[i + 1] - times[b - 1])
            self.gap[mine[i + 1]] = min(int(gap[i]), _SEEN_NS)
            node = int(mine[i + 1])
            self.deps[node] = (*self.deps.get(node, ()), (int(nodes[b - 1]), after))
            self.across.add(node)
            if a and 2 * (nodes[a] // 2) == nodes[a] and int(nodes[a]) not in self.deps:
                self._follow(int(nodes[a]), int(times[a]))


def calls(trace: Trace, kind: str) -> Int64:
    """Rows of runtime and driver calls of a kind of ``vocabulary.CALLS``."""
    rows = trace.rows(Cat.RUNTIME, Cat.DRIVER)
    used = np.unique(trace.name[rows])
    pattern = vocabulary.CALLS[kind]
    wanted = [i for i in used.tolist() if pattern.search(trace.names[i])]
    return np.asarray(rows[np.isin(trace.name[rows], wanted)])


def _usual(values: Int64, otherwise: int) -> int:
    values = values[values < _HIDDEN_NS]
    return int(np.quantile(values, _LOW, method="lower")) if len(values) else otherwise
