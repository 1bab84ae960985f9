"""What a signal is, and the signals of one trace."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np

from detector import vocabulary
from detector.activity import CALLS, HOST_NAMED, OP_DEPTH, Activity
from detector.index_sets import distinct
from detector.intervals import Intervals, count_within
from detector.signals.frames import owners, readable
from detector.signals.timeline import FOREVER, Timeline, timeline
from detector.trace import HOST_CATS, Bool, Cat, Int8, Int64, Trace

T = TypeVar("T")

_ENGINE: Final = 0.8  # a thread with this share of its launches in backward is the engine's


@dataclass(frozen=True)
class Signal:
    """A set of rows of a trace, in time order.

    ``label``: what the rows are called in documents. ``find`` never raises where the trace lacks
    what it looks for: the set is empty. ``is_gap``: a row stands for the stretch that it ends.
    """

    name: str
    label: str
    find: Callable[[Signals], Int64]
    is_gap: bool = False


class Signals:
    """The signals of one trace, over its ``activity``. Nothing here changes the trace."""

    def __init__(self, activity: Activity, table: Mapping[str, Signal]) -> None:
        self.trace: Trace = activity.trace
        self.activity: Activity = activity
        self._table = table
        self._rows: dict[str, Int64] = {}
        self._timelines: dict[int, Timeline] = {}
        self._once: dict[Callable[..., Any], Any] = {}

    def __getitem__(self, name: str) -> Int64:
        """The rows of a signal of the table. Raises KeyError for any other name."""
        if name not in self._rows:
            self._rows[name] = self._table[name].find(self)
        return self._rows[name]

    def spans(self, name: str) -> Intervals:
        """The union of a signal's times."""
        return self.activity.spans(self[name])

    def once(self, find: Callable[[Signals], T]) -> T:
        """What ``find`` gives for these signals, computed on first use."""
        if find not in self._once:
            self._once[find] = find(self)
        found: T = self._once[find]
        return found

    # -- threads -------------------------------------------------------------------------------

    def timeline(self, track: int) -> Timeline:
        """What this thread does at each time."""
        if track not in self._timelines:
            self._timelines[track] = timeline(self.trace, track)
        return self._timelines[track]

    @cached_property
    def main_thread(self) -> int:
        """The thread that runs the training or serving loop; -1 without host events.

        Steps, optimizer and loader run on it. Without any of them: the thread that launches most
        outside the backward engine, else ``Activity.main_track``.
        """
        a, trace = self.activity, self.trace
        marks = [a.host("optimizer_step"), a.loader_rows, self["step-marker"]]
        rows = np.concatenate(marks)
        if len(rows):
            return int(np.argmax(np.bincount(trace.track[rows], trace.dur[rows])))
        launched = trace.track[a.launches]
        if not len(launched):
            return a.main_track
        backward = a.host("backward")
        inside = a.spans(backward).covered(trace.start[a.launches], trace.start[a.launches] + 1)
        count = len(trace.tracks)
        own = np.bincount(trace.track[backward], minlength=count) > 0
        in_backward = np.bincount(launched, (inside > 0) & own[launched], count)
        all_launches = np.bincount(launched, minlength=count)
        engine = (all_launches > 0) & (in_backward >= _ENGINE * all_launches)
        outside = np.where(engine, 0, all_launches)
        return int(np.argmax(outside)) if outside.any() else a.main_track

    def on(self, rows: Int64, track: int) -> Int64:
        """The rows among ``rows`` on this thread."""
        found: Int64 = rows[self.trace.track[rows] == track]
        return found

    def enclosing(self, rows: Int64, pattern: re.Pattern[str]) -> Int64:
        """For each row the outermost cpu_op at or around it whose name matches; -1 for none.

        Looks as far up as ops nest; rows of -1 stay -1.
        """
        trace, at = self.trace, rows.astype(np.int64)
        found = np.full(len(rows), -1, np.int64)
        ops = self.cpu_ops
        matches = np.zeros(len(trace) + 1, np.bool_)  # the last place takes -1
        matches[self.activity.named(ops, pattern, Cat.CPU_OP)] = True
        for _ in range(OP_DEPTH):
            found = np.where(matches[at], at, found)
            at = np.where(at >= 0, trace.parent[at], -1).astype(np.int64)
            if (at < 0).all():
                break
        return found

    # -- names ---------------------------------------------------------------------------------

    @cached_property
    def frame_owner(self) -> Int8:
        """For each name whose Python frame it is; see ``frames``."""
        return owners(self.trace)

    @cached_property
    def readable_frame(self) -> Int8:
        """The same for a place to show: what a compiler wrote is nobody's own."""
        return readable(self.trace, self.frame_owner)

    def called(self, *kinds: str) -> Bool:
        """Whether each row is a runtime or driver call of one of these kinds."""
        flags = np.zeros(len(self.trace), np.bool_)
        for kind in kinds:
            flags[self.activity.calls(kind)] = True
        return flags

    @cached_property
    def own_time(self) -> Int64:
        """The time of each host event less that of the events right inside it, ns."""
        trace = self.trace
        inner = np.flatnonzero(trace.parent >= 0)
        spent = np.bincount(trace.parent[inner], trace.dur[inner], len(trace))
        return np.maximum(trace.dur - spent.astype(np.int64), 0)

    def named(self, rows: Int64, kind: str) -> Int64:
        """The rows among ``rows`` with a name of a kind of ``vocabulary.HOST``."""
        return self.activity.named(rows, vocabulary.HOST[kind])

    @cached_property
    def calls(self) -> Int64:
        """All runtime and driver calls."""
        return self.activity.of(*CALLS)

    @cached_property
    def host_events(self) -> Int64:
        """Ops, annotations and Python frames."""
        return self.activity.of(*HOST_NAMED)

    @cached_property
    def cpu_ops(self) -> Int64:
        """All cpu_ops."""
        return self.activity.of(Cat.CPU_OP)

    @cached_property
    def host_program(self) -> Int64:
        """Ops, annotations, Python frames and calls of all threads."""
        return self.activity.of(*HOST_CATS)

    # -- what lies in what ---------------------------------------------------------------------

    def are_inside(self, events: Int64, rows: Int64) -> Bool:
        """Which events begin in the time of one of these rows, on its thread; -1 does not."""
        trace, found = self.trace, np.zeros(len(events), np.bool_)
        for track in distinct(trace.track[rows]).tolist():
            mine = np.flatnonzero((events >= 0) & (trace.track[events] == track))
            spans = self.activity.spans(self.on(rows, track))
            found[mine] = spans.contain(trace.start[events[mine]])
        return found

    def inside(self, rows: Int64) -> Int64:
        """Host events that begin in the time of these, on their threads; they themselves too."""
        return self.host_program[self.are_inside(self.host_program, rows)]

    def count_inside(self, rows: Int64, events: Int64) -> Int64:
        """How many of these events begin in the time of each row, on its thread."""
        count = np.zeros(len(rows), np.int64)
        for track in distinct(self.trace.track[rows]).tolist():
            mine = self.trace.track[rows] == track
            count[mine] = self.count_during(rows[mine], self.on(events, track))
        return count

    def count_during(self, rows: Int64, events: Int64) -> Int64:
        """How many of these events begin in the time of each row, on any thread."""
        trace = self.trace
        return count_within(trace.start[events], trace.start[rows], trace.end[rows])

    def caller(self, work: Int64) -> Int64:
        """The call that launched each piece of device work; where only an ``External id`` joins it
        to the host (ROCm), its op; else -1."""
        launch = self.trace.launch[work]
        return np.where(launch >= 0, launch, self.trace.op[work]).astype(np.int64)

    @cached_property
    def idle_before(self) -> Int64:
        """For each host event how long its thread did nothing new right before it, ns."""
        before = np.zeros(len(self.trace), np.int64)
        program = self.host_program
        for track in distinct(self.trace.track[program]).tolist():
            rows = self.on(program, track)
            edge = self.timeline(track).edge
            start = self.trace.start[rows]
            last = edge[np.maximum(np.searchsorted(edge, start) - 1, 0)]
            before[rows] = np.where(last > -FOREVER, start - last, 0)
        return before
