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

from detector.index_sets import distinct
from detector.replay import streams, threads, waits
from detector.replay.columns import LAUNCH, SERVED, STREAM, THREAD, WAIT, Columns, recorded
from detector.replay.repair import Repair
from detector.replay.savings import Savings, Times
from detector.replay.solve import Deps, Sequences, Stuck, UInt8, arrange, sequences
from detector.trace import HOST_CATS, Bool, Cat, Int32, Int64, Trace

_LATENCY_NS, _GAP_NS, _DELAY_NS = 5_000, 1_000, 3_000  # where the trace shows none
_IDLE_NS = 20_000  # a stream that was idle for so long started its next work upon the launch
_LOW = 0.25  # of the observed; the longer ones had causes that the trace does not show
_HIDDEN_NS = 200_000  # an event of another stream, a queue of before the recording
_BUILT_IN = "<built-in "  # the frame that the interpreter opens to call what is not Python
_MOST_STREAMS = 64  # among which causes are sought: real programs use a dozen


@dataclass(frozen=True)
class Typical:
    """What the host and the device usually take between cause and effect, ns."""

    latency: int  # from a launch call to its kernel on an idle stream
    gap: int  # between two kernels of a full queue
    delay: int  # from the end of awaited work to the end of the call that waits


class Graph:
    """The program of a trace. Reusable: no replay changes anything in it."""

    def __init__(self, trace: Trace, typical: bool = False) -> None:
        """``typical``: one latency, gap and delay for the whole trace instead of each event's."""
        self.trace = trace
        self.uniform = typical
        self.is_host: Bool = trace.is_of(HOST_CATS)
        self.is_work: Bool = trace.is_device_work
        self.timed: Bool = self.is_host | self.is_work
        self.issued: Int64 = self._issued()  # of device work
        self.gap: Int64 = np.zeros(2 * len(trace), np.int64)
        self._build()

    # -- replays -------------------------------------------------------------------------------
    def solve(self, repair: Repair | None = None) -> Times:
        """All times after a repair. Raises Stuck where it is of no row of its kind."""
        return self._savings.times(repair or Repair(), self.trace.start, self.trace.end)

    def saved(self, repair: Repair, span: tuple[int, int] | None = None) -> int:
        """ns that the makespan loses; with ``span`` [start, end), by how much earlier the program
        gets to its end if what lies from its start on is repaired. Never negative."""
        return self._savings.saved(repair, span)

    def saved_between(self, repair: Repair, edges: Int64) -> Int64:
        """The ns that one replay saves between each two of the times ``edges``: n - 1 for n edges.

        Adds up to what is saved by the last edge. A part is negative where what was gained before
        it is lost in it again (a device that the host no longer holds up catches up later).
        """
        return self._savings.between(repair, edges)

    @cached_property
    def _savings(self) -> Savings:
        return Savings(self.columns)

    @cached_property
    def columns(self) -> Columns:
        """What replays of repairs need of it."""
        t = self.trace
        return Columns(
            t.start,
            t.parent,
            t.launch,
            (t.parent >= 0) & (t.cat == Cat.CPU_OP)[t.parent],
            self.is_host,
            self.is_work,
            self.program,
            self._calls,
            t.start,
            t.end,
            self.gap,
            self.deps,
            self.sequences,
            self.order,
            np.zeros(len(self.gap), np.bool_),
        )

    @property
    def _calls(self) -> Int32:
        """For each row the frame of the built-in that calls it and nothing else; else the row."""
        t = self.trace
        frames = t.rows(Cat.PYTHON_FUNCTION)
        used = distinct(t.name[frames]).tolist()
        built_in = np.zeros(len(t.names), np.bool_)
        built_in[[i for i in used if t.names[i].startswith(_BUILT_IN)]] = True
        alone = np.bincount(t.parent[t.parent >= 0], minlength=len(t)) == 1
        calls = np.zeros(len(t), np.bool_)
        calls[frames] = built_in[t.name[frames]] & alone[frames]
        rows = np.arange(len(t), dtype=np.int32)
        return np.where((t.parent >= 0) & calls[t.parent], t.parent, rows)

    # -- tracks --------------------------------------------------------------------------------
    @cached_property
    def streams(self) -> dict[int, Int64]:
        """Rows of device work by track, in stream order."""
        rows = np.flatnonzero(self.is_work)
        track = self.trace.track[rows]
        return {int(k): rows[track == k] for k in np.unique(track)}

    @cached_property
    def threads(self) -> dict[int, Int32]:
        """Nodes of host events by track, in program order."""
        found = self._host_sequences
        return {k: found.of(k) for k in np.flatnonzero(np.diff(found.ptr)).tolist()}

    @cached_property
    def _host_sequences(self) -> Sequences:
        t = self.trace
        return sequences(np.flatnonzero(self.is_host), t.start, t.dur, t.track, len(t.tracks))

    @cached_property
    def sequences(self) -> Sequences:
        """All nodes: first the threads', by track, then the streams'."""
        host = self._host_sequences
        works = [(2 * rows).astype(np.int32) for rows in self.streams.values()]
        ends = host.ptr[-1] + np.cumsum([len(w) for w in works], dtype=np.int32)
        return Sequences(
            np.concatenate([host.nodes, *works]), np.concatenate([host.ptr, ends], dtype=np.int32)
        )

    @cached_property
    def first(self) -> int:
        """The main thread; -1 without host events."""
        return threads.main(self)

    @cached_property
    def largest_streams(self) -> list[tuple[int, Int64, Int64]]:
        """(track, rows, when all up to each had ended) of those streams with the most work among
        which the causes of late starts are sought."""
        most = sorted(self.streams, key=lambda k: -len(self.streams[k]))[:_MOST_STREAMS]
        ends = self.trace.end
        return [(k, self.streams[k], np.maximum.accumulate(ends[self.streams[k]])) for k in most]

    @cached_property
    def busiest(self) -> int:
        """The stream with the most work; -1 without one."""
        return max(self.streams, key=lambda k: len(self.streams[k]), default=-1)

    def _issued(self) -> Int64:
        t = self.trace
        launched = self.is_work & (t.launch >= 0)
        issued: Int64 = t.start[np.where(launched, t.launch, np.arange(len(t)))]
        for works in self.streams.values():  # what no call here launched was queued before
            known = t.launch[works] >= 0
            if known.any():
                issued[works[: int(np.argmax(known))]] = t.start.min()
        return issued

    def issued_before(self, track: int, time: Int64) -> Int64:
        """Indices in a stream of the last work issued up to each ``time``; -1 where none was."""
        return np.asarray(np.searchsorted(self._issued_from[track], time, "right")) - 1

    @cached_property
    def _issued_from(self) -> dict[int, Int64]:
        """The earliest issue of this work and all behind it: in order, whoever issues."""
        return {
            k: np.minimum.accumulate(self.issued[rows][::-1])[::-1]
            for k, rows in self.streams.items()
        }

    # -- constants -----------------------------------------------------------------------------
    def _build(self) -> None:
        t = self.trace
        nodes = self._host_sequences.nodes
        same = np.ones(max(0, len(nodes) - 1), np.bool_)
        begins = self._host_sequences.ptr[1:-1]
        same[begins[(begins > 0) & (begins < len(nodes))] - 1] = False
        gaps = np.diff(self.recorded(nodes))
        self.gap[nodes[1:][same]] = gaps[same]
        across = threads.attach(self)
        device = streams.place(self)
        self.waits, awaited = waits.find(self)
        edges = [*across, *device, *waits.between_streams(self), awaited]
        self.deps = Deps.of(2 * len(t), edges, self._kinds)
        self.order = self._arrange()

    def _arrange(self) -> Int32:
        """All nodes, each after the one before it on its track and all that it waits for. Where
        clocks disagree so far that events wait in a circle, nobody waits for what was recorded
        later; if that is not enough, nobody waits at all."""
        deps, node = self.deps, self.deps.node
        later = self.recorded(deps.on) >= self.recorded(node)
        for left_out in (np.zeros(len(node), np.bool_), later, np.ones(len(node), np.bool_)):
            self.deps = self._without(deps, left_out)
            try:
                return arrange(self.sequences, self.deps)
            except Stuck:
                continue
        raise AssertionError("tracks alone are no circle")

    def _without(self, deps: Deps, left_out: Bool) -> Deps:
        """The dependencies without some; a node that lost one follows its predecessor as before."""
        if not left_out.any():
            return deps
        prev = self.sequences.before(len(self.gap))
        free = np.unique(deps.node[left_out])
        begins = np.where(self.is_work[free // 2], self.trace.start[free // 2], self.recorded(free))
        self.gap[free] = begins - self.recorded(prev[free])
        keep = ~left_out & ~np.isin(deps.node, free[prev[free] < 0])
        edge = deps.node[keep], deps.on[keep].astype(np.int64), deps.delay[keep]
        return Deps.of(len(self.gap), [edge], self._kinds)

    def recorded(self, nodes: Int64 | Int32) -> Int64:
        """The times of nodes as recorded; of device work its end."""
        return recorded(self.trace.start, self.trace.end, self.is_work, nodes)

    def _kinds(self, node: Int64, on: Int64) -> UInt8:
        """The kind of each dependency: what ``node`` waits for."""
        t = self.trace
        kind = np.full(len(node), THREAD, np.uint8)
        mine, its = self.is_work[node // 2], self.is_work[on // 2]
        kind[mine & its] = STREAM
        kind[~mine & its] = WAIT
        kind[mine & ~its & (t.launch[node // 2] == on // 2)] = LAUNCH
        kind[~mine & ~its & ~threads.working(self)[t.track[on // 2]]] = SERVED
        return kind

    @cached_property
    def program(self) -> Bool:
        """Rows of the program: device work, and host events of the threads that run it. The others
        fetch data or watch: where they are waited for, those who wait are late."""
        return self.is_work | (self.is_host & threads.working(self)[self.trace.track])

    @cached_property
    def typical(self) -> Typical:
        """Lower quartiles over those events of which the cause is plain."""
        latency, gap = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for rows in self.streams.values():
            since, between = self.observed(rows)
            known = self.trace.launch[rows] >= 0
            latency.append(since[known & (between > _IDLE_NS)])
            gap.append(between[known & (since > _IDLE_NS) & (between < _IDLE_NS)])
        return Typical(
            _usual(np.concatenate(latency), _LATENCY_NS),
            max(0, _usual(np.concatenate(gap), _GAP_NS)),  # overlaps are launched as such
            _usual(waits.delays(self), _DELAY_NS),
        )

    def observed(self, rows: Int64) -> tuple[Int64, Int64]:
        """For each work of a stream the ns from its issue to its start, and to its start from the
        end of the work before it."""
        t = self.trace
        since = t.start[rows] - self.issued[rows]
        between = np.full(len(rows), np.iinfo(np.int64).max // 4)  # nothing before the first
        between[1:] = t.start[rows[1:]] - t.end[rows[:-1]]
        return since, between


def _usual(values: Int64, otherwise: int) -> int:
    values = values[values < _HIDDEN_NS]
    if not len(values):
        return otherwise
    low = int(_LOW * (len(values) - 1))
    return int(np.partition(values, low)[low])
