"""A base: a real trace that a fault is put into, with what injectors ask of it.

Times are ns on the trace's axis, rows and tracks those of its Trace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import numpy as np

from dataset.inject.edits import Unfit
from dataset.inject.palette import Palette
from dataset.inject.raw import Raw
from detector import kineto, vocabulary
from detector.activity import Activity
from detector.intervals import Intervals
from detector.trace import HOST_CATS, Bool, Cat, Int64, Trace
from detector.window import analyzed_time

Where = Literal["main", "forward", "backward", "optimizer", "between_steps"]

PARTS: Final = 8  # of a trace with fewer than two steps
_BACKWARD: Final = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
_INTERPRETER: Final = re.compile(r"^<built-in ")  # a frame that runs no code of the program's
_OCCUPYING: Final = (Cat.CPU_OP, Cat.RUNTIME, Cat.DRIVER)  # nothing is put inside these
_ENOUGH: Final = 16  # places in the program's own code; with fewer, a library's serve as well


@dataclass(frozen=True)
class Span:
    """[start, end) ns."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """ns."""
        return self.end - self.start


class Base(Palette):
    """One opened base and its palette."""

    def __init__(self, path: str | Path, trace: Trace) -> None:
        super().__init__(trace, Activity(trace))
        self.path = Path(path)
        self.main = self._main_track()
        self.analyzed = analyzed_time(trace)
        self.name = self.path.name.removesuffix(".gz").removesuffix(".json")
        self.torch = str(trace.metadata.get("pytorch_version", ""))

    @classmethod
    def open(cls, path: str | Path) -> Base:
        """Read a base. Raises TraceError where it cannot be read, Unfit where it holds no host
        program."""
        base = cls(path, kineto.read(path))
        if base.main < 0 or not len(base.activity.of(Cat.CPU_OP)):
            raise Unfit(f"{path}: no host program in this trace")
        return base

    @cached_property
    def raw(self) -> Raw:
        """The file's own events. Raises Unfit where the file needs repair."""
        return Raw.open(self.path, self.trace)

    # -- steps -------------------------------------------------------------------------------
    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The analyzed steps, each up to the next; all analyzed time where there are none."""
        steps, end = self.analyzed.steps, self.analyzed.end
        edges = [self.analyzed.start, *(step.start for step in steps[1:]), end]
        return tuple(Span(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True) if b > a)

    @cached_property
    def parts(self) -> tuple[Span, ...]:
        """What "some" and "once" choose from: the steps; equal parts where there is but one."""
        if len(self.spans) > 1:
            return self.spans
        edges = np.linspace(self.analyzed.start, self.analyzed.end, PARTS + 1).astype(np.int64)
        return tuple(Span(int(a), int(b)) for a, b in zip(edges[:-1], edges[1:], strict=True))

    @property
    def step_ns(self) -> float:
        """The typical length of a step."""
        return float(np.median([span.length for span in self.spans]))

    # -- the program -------------------------------------------------------------------------
    def _main_track(self) -> int:
        """The thread of the training loop: that of the optimizer or the step markers, else the
        one that launches most without being the autograd engine's."""
        trace, activity = self.trace, self.activity
        rows = activity.host("optimizer_step")
        if not len(rows) and trace.steps:
            marks = activity.of(Cat.USER_ANNOTATION)
            rows = marks[np.isin(trace.start[marks], [step.start for step in trace.steps])]
        if len(rows):
            return int(np.bincount(trace.track[rows]).argmax())
        engine = np.unique(trace.track[self._backward_ops()])
        rows = activity.launches if activity.has_device else activity.aten
        rows = rows[~np.isin(trace.track[rows], engine)]
        share = 20 * len(rows) >= len(activity.launches)
        return (
            int(np.bincount(trace.track[rows]).argmax())
            if share and len(rows)
            else (activity.main_track)
        )

    def _backward_ops(self) -> Int64:
        return self.activity.named(self.activity.of(Cat.CPU_OP), _BACKWARD, Cat.CPU_OP)

    @cached_property
    def backward(self) -> int:
        """Track of the thread of the autograd engine; -1 where there is none of its own."""
        trace, rows = self.trace, self._backward_ops()
        rows = rows[trace.track[rows] != self.main]
        return int(np.bincount(trace.track[rows]).argmax()) if len(rows) else -1

    def host_rows(self, track: int) -> Int64:
        """Rows of the program on a host thread, by start."""
        if track not in self._host_rows:
            rows = self.activity.of(*HOST_CATS)
            self._host_rows[track] = rows[self.trace.track[rows] == track]
        return self._host_rows[track]

    @cached_property
    def _host_rows(self) -> dict[int, Int64]:
        return {}

    def ops(self, pattern: str | re.Pattern[str], span: Span | None = None) -> Int64:
        """Rows of the cpu_ops whose name matches (`re.search`) and that start in ``span``."""
        rows = self.activity.named(self.activity.of(Cat.CPU_OP), re.compile(pattern), Cat.CPU_OP)
        return rows if span is None else rows[self._starts_in(rows, span)]

    def _starts_in(self, rows: Int64, span: Span) -> Bool:
        start = self.trace.start[rows]
        return np.asarray((start >= span.start) & (start < span.end))

    def works(self, row: int) -> Int64:
        """Device rows that were issued in host event ``row``, in the order of their calls."""
        trace = self.trace
        calls, rows = self._issued
        first = np.searchsorted(calls, trace.start[row])
        last = np.searchsorted(calls, trace.end[row], side="right")
        inside = rows[first:last]
        found: Int64 = inside[trace.track[trace.launch[inside]] == trace.track[row]]
        return found

    @cached_property
    def _issued(self) -> tuple[Int64, Int64]:
        """Start of the calls that issued work, ascending, and the work of each."""
        rows = np.flatnonzero(self.trace.is_device_work & (self.trace.launch >= 0))
        start = self.trace.start[self.trace.launch[rows]]
        order = np.argsort(start, kind="stable")
        return start[order], rows[order]

    def children(self, row: int) -> Int64:
        """Rows of the events directly inside host event ``row``, in time order."""
        first, last = np.searchsorted(self._parents[0], [row, row + 1])
        found: Int64 = self._parents[1][first:last]
        return found

    @cached_property
    def _parents(self) -> tuple[Int64, Int64]:
        order = np.argsort(self.trace.parent, kind="stable")
        return self.trace.parent[order].astype(np.int64), order

    # -- places ------------------------------------------------------------------------------
    def gaps(
        self, span: Span, draw: np.random.Generator, count: int, where: Where = "main"
    ) -> list[int]:
        """At most ``count`` base times, ascending, at which code may be put on the thread.

        Each is the end of a top-level op (loader, frame of the interpreter), right after which
        the program's own code goes on: never inside an op or a runtime call, nor in
        ``Optimizer.*`` but for where="optimizer". "forward" is before the step's first backward
        work, "between_steps" before the step's first op. Empty where there is no such place.
        """
        track = self.backward if where == "backward" else self.main
        if track < 0:
            return []
        if where == "between_steps":
            if self._free_at(track, span.start + 1):
                return [span.start + 1]  # within the step's own marker
            return [int(t) for t in self._places(track, span, where, 1)[:1]]
        times = self._places(track, span, where, _ENOUGH)
        if len(times) <= count:
            return [int(t) for t in times]
        return sorted(int(t) for t in draw.choice(times, count, replace=False))

    def _places(self, track: int, span: Span, where: Where, enough: int) -> Int64:
        """Ends of ops and calls; those in the program's own frames where there are ``enough``."""
        ends = self._occupied(track).end
        kept = self._kept(ends, span, where)
        own = kept & self._own_code(track)
        return ends[own] if own.sum() >= enough else ends[kept]

    def _kept(self, times: Int64, span: Span, where: Where) -> Bool:
        inside = (times > span.start) & (times < span.end)
        if where == "forward":
            inside &= times <= self._backward_start(span)
        in_optimizer = self._optimizer.covered(times - 1, times) > 0
        return np.asarray(inside & (in_optimizer == (where == "optimizer")))

    @cached_property
    def _optimizer(self) -> Intervals:
        rows = [self.activity.host(kind) for kind in ("optimizer_step", "zero_grad")]
        return self.activity.spans(np.concatenate(rows))

    def _backward_start(self, span: Span) -> int:
        rows = self.ops(_BACKWARD, span)
        return int(self.trace.start[rows].min()) if len(rows) else span.end

    def _free_at(self, track: int, at: int) -> bool:
        occupied = self._occupied(track)
        return int(occupied.covered(np.array([at - 1]), np.array([at + 1]))[0]) == 0

    def _occupied(self, track: int) -> Intervals:
        """Time on this thread in which nothing can be put: ops, calls, loader, built-ins."""
        if track not in self._occupied_by_track:
            trace, activity = self.trace, self.activity
            frames = activity.named(
                activity.of(Cat.PYTHON_FUNCTION), _INTERPRETER, Cat.PYTHON_FUNCTION
            )
            rows = np.concatenate([activity.of(*_OCCUPYING), activity.loader_rows, frames])
            self._occupied_by_track[track] = activity.spans(rows[trace.track[rows] == track])
        return self._occupied_by_track[track]

    @cached_property
    def _occupied_by_track(self) -> dict[int, Intervals]:
        return {}

    def _own_code(self, track: int) -> Bool:
        """For each of those ends whether the frame around it is of the program's own."""
        if track not in self._own_code_by_track:
            self._own_code_by_track[track] = self._frame_at(track, self._occupied(track).end)
        return self._own_code_by_track[track]

    @cached_property
    def _own_code_by_track(self) -> dict[int, Bool]:
        return {}

    def _frame_at(self, track: int, times: Int64) -> Bool:
        trace = self.trace
        frames = self.activity.of(Cat.PYTHON_FUNCTION)
        frames = frames[trace.track[frames] == track]
        if not len(frames):
            return np.zeros(len(times), np.bool_)
        at = np.searchsorted(trace.start[frames], times, side="left") - 1
        current = np.where(at >= 0, frames[np.maximum(at, 0)], -1)
        while True:
            other = (trace.end[current] <= times) | (trace.cat[current] != Cat.PYTHON_FUNCTION)
            other &= current >= 0
            if not other.any():
                break
            current[other] = trace.parent[current[other]]
        library = self.activity.named(frames, vocabulary.LIBRARY_FRAME, Cat.PYTHON_FUNCTION)
        return np.asarray((current >= 0) & ~np.isin(current, library))
