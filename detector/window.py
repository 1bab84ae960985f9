"""Analyzed time and the windows that tile it.

The analyzed time is the steady state: the marked steps without warm-up, else the iterations that
end with an optimizer's step, else regular bursts of work, else the whole span without the
profiler's own tail. Where the device lags behind the host, it ends with the last work that the
steps launched. A window is a fixed cut of it, with a wide window around it for context.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from detector.activity import Activity
from detector.errors import TraceError
from detector.intervals import Intervals, count_within
from detector.trace import DEVICE_WORK, Bool, Cat, Int64, Step, Trace

MAX_WINDOWS: Final = 20_000
LONGEST_SPAN: Final = 2**62  # ns, 146 years: differences of times, and their sums, stay int64
NEIGHBORS: Final = 4  # windows on either side, where no step gives the context

FAR_LONGER: Final = 2.0  # a warm-up step, against the median of the steps after it
MOST_WARMUP: Final = 5  # steps
SET_UP: Final = 0.1  # share of the span: less time before the first work is no set-up
BREAK: Final = 4.0  # a gap between bursts is longer than any gap inside one by this factor ...
LONE: Final = 2.0  # ... or, where every gap is between bursts, than this many median bursts
MOST_BURSTS: Final = 200
MOST: Final = 0.8  # bursts are regular where this share of their periods ...
REGULAR: Final = 2.0  # ... is within this factor of the median


@dataclass(frozen=True)
class AnalyzedTime:
    """The time that is analyzed, ns. ``steps`` are the steady ones; ``warmup`` are left out."""

    start: int
    end: int
    steps: tuple[Step, ...]
    how: Literal["markers", "updates", "bursts", "whole"]
    warnings: tuple[str, ...] = ()
    warmup: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Window:
    """A cut of the analyzed time, ns; ``step`` indexes its steps; outer is the context."""

    start: int
    end: int
    step: int | None
    outer_start: int
    outer_end: int


# -- analyzed time ---------------------------------------------------------------------------------


def analyzed_time(trace: Trace, activity: Activity | None = None) -> AnalyzedTime:
    """The steady state of a trace, with warnings in plain words about how it was found.

    ``activity``: the trace's, where it exists already. Raises TraceError where events lie more
    than ``LONGEST_SPAN`` apart.
    """
    _check_span(trace)
    activity = activity or Activity(trace)
    warnings = [] if activity.has_device else ["device activity unavailable"]
    steps = _disjoint(trace.steps)
    if steps:
        return _by_markers(activity, steps, warnings)
    start, end = _work_span(activity)
    begin = _loop_begins(activity, start)
    if begin - start > SET_UP * (end - start):
        warnings.append("not analyzed: set-up before the first launch")
        start = begin
    start = _after_stall(activity, start, end, warnings)
    if updates := _updates(activity, start, end):
        warnings.append("no step markers: optimizer steps are taken for steps")
        return _steady(activity, updates, end, "updates", warnings)
    if bursts := _bursts(trace, start, end):
        warnings.append("no step markers: bursts of activity are taken for steps")
        return _steady(activity, bursts, end, "bursts", warnings)
    warnings.append("no step markers and no regular bursts: analyzed as a whole")
    warnings.append("warm-up could not be separated; findings may be warm-up effects")
    return AnalyzedTime(start, end, (), "whole", tuple(warnings))


def _steady(
    activity: Activity,
    steps: tuple[Step, ...],
    end: int,
    how: Literal["updates", "bursts"],
    warnings: list[str],
) -> AnalyzedTime:
    warmup, steady = _warmup(activity, steps)
    return AnalyzedTime(steady[0].start, end, steady, how, tuple(warnings), warmup)


def _check_span(trace: Trace) -> None:
    if len(trace):
        first = int(trace.start.min())
        last = int(trace.start.max()) + int(trace.dur.max())  # no event ends later
        if last - first > LONGEST_SPAN or last >= 2**63:
            raise TraceError(
                f"{trace.source.path}: the times of its events, {first / 1e3:.6g} to "
                f"{last / 1e3:.6g} us, lie too far apart"
            )


def _by_markers(activity: Activity, steps: tuple[Step, ...], warnings: list[str]) -> AnalyzedTime:
    warmup, steady = _warmup(activity, steps)
    last = steady[-1]
    end = max(min(last.end, _work_span(activity)[1]), _done(activity, last))
    start = _after_stall(activity, steady[0].start, end, warnings)
    steady = tuple(step for step in steady if step.end > start) or (last,)
    if len(steady) < 2:
        warnings.append("fewer than two steps: warm-up could not be separated")
    start = max(start, steady[0].start)
    return AnalyzedTime(start, end, steady, "markers", tuple(warnings), warmup)


def _done(activity: Activity, step: Step) -> int:
    """When the device finished what was launched before the end of this step."""
    work = np.flatnonzero(activity.trace.is_device_work)
    launched = work[activity.called(work) < step.end]
    return int(activity.trace.end[launched].max(initial=step.start + 1))


def _after_stall(activity: Activity, start: int, end: int, warnings: list[str]) -> int:
    """``start``; or, where the device was stalled for most of the time until then, the end of that.

    See ``Activity.stalled``.
    """
    stalled = activity.stalled.clip(start, end)
    most = 2 * np.cumsum(stalled.end - stalled.start) > stalled.end - start
    begin = int(stalled.end[most].max(initial=start))
    if begin - start <= SET_UP * (end - start):
        return start
    warnings.append("not analyzed: the start, where the GPU waits for set-up or unrecorded work")
    return begin


def _disjoint(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps in time order without those inside another (nested or repeated markers)."""
    kept: list[Step] = []
    for step in sorted(steps, key=lambda step: (step.start, -step.end)):
        if step.end > step.start and (not kept or step.start >= kept[-1].end):
            kept.append(step)
    return tuple(kept)


def _work_span(activity: Activity) -> tuple[int, int]:
    """From the first work to the last, without the synchronization in which the profiler stops."""
    trace = activity.trace
    work = trace.is_of((Cat.CPU_OP, Cat.RUNTIME, Cat.DRIVER, *DEVICE_WORK))
    work[activity.calls("sync")] = False
    if not work.any():
        work = ~trace.is_of((Cat.OVERHEAD, Cat.OTHER))
    if not work.any():
        return 0, 0
    return int(trace.start[work].min()), int(trace.end[work].max())


def _loop_begins(activity: Activity, start: int) -> int:
    """Where the device first gets work (on a CPU run: ``start``), or, if that is earlier, where the
    loader is first asked for a batch."""
    trace = activity.trace
    work = np.flatnonzero(trace.is_device_work)
    first = int(activity.called(work).min()) if len(work) else start
    asked = int(trace.start[activity.loader_rows].min(initial=LONGEST_SPAN))
    return min(first, max(start, asked))


def _warmup(
    activity: Activity, steps: tuple[Step, ...]
) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The steps that warm up, and the others, of which there is at least one."""
    trace = activity.trace
    start = np.array([step.start for step in steps], np.int64)
    end = np.array([step.end for step in steps], np.int64)
    most = min(len(steps) - 1, max(len(steps) // 2, 1), MOST_WARMUP)
    unlike = _busier(trace.start[activity.calls("alloc")], start, end, most)
    unlike |= _busier(trace.start[activity.host("compile")], start, end, most)
    length = end - start
    count = 0
    for i in range(most):
        rest = np.median(length[i + 1 :])
        longer = len(steps) - i > 2 and length[i] > FAR_LONGER * rest
        if not (steps[i].warmup or longer or (unlike[i] and length[i] > rest)):
            break
        count = i + 1
    return steps[:count], steps[count:]


def _busier(times: Int64, start: Int64, end: Int64, most: int) -> Bool:
    """Which of the first ``most`` steps have such events although most later steps have none."""
    count = count_within(times, start, end)
    return np.array(
        [count[i] > 0 and np.median(count[i + 1 :]) == 0 for i in range(most)], np.bool_
    )


def _updates(activity: Activity, start: int, end: int) -> tuple[Step, ...]:
    """Regular iterations of a training loop: each ends with an optimizer's step."""
    at = activity.trace.end[activity.host("optimizer_step")]
    edges = np.unique(np.append(at[(at > start) & (at < end)], (start, end)))
    period = np.diff(edges)
    if len(period) and period[-1] < np.median(period) / 2:  # the last one's own device work
        edges = np.delete(edges, -2)
    return _regular("iteration", edges)


def _bursts(trace: Trace, start: int, end: int) -> tuple[Step, ...]:
    """Regular bursts of device work (of ops, where there is none), each up to the next one."""
    rows = np.flatnonzero(trace.is_device_work)
    if not len(rows):
        rows = trace.rows(Cat.CPU_OP)
    work = Intervals.union(trace.start[rows], trace.end[rows])
    gaps = work.start[1:] - work.end[:-1]
    if not len(gaps):
        return ()
    ranked = np.sort(gaps)[::-1].astype(np.float64)
    # Where every gap is a break, there is no shorter one to compare it with.
    ranked = np.append(ranked, np.median(work.end - work.start) * LONE)[: MOST_BURSTS + 1]
    drop = ranked[:-1] / np.maximum(ranked[1:], 1)
    if drop.max() < BREAK:
        return ()
    long = gaps >= ranked[int(np.argmax(drop))]
    edges = np.concatenate([[start], work.start[1:][long], [end]]).astype(np.int64)
    return _regular("burst", edges)


def _regular(name: str, edges: Int64) -> tuple[Step, ...]:
    """The steps between these edges; none unless there are three and most are about as long."""
    edges = np.unique(edges[(edges >= edges[0]) & (edges <= edges[-1])])
    period = np.diff(edges).astype(np.float64)
    if len(period) < 3:
        return ()
    off = np.sort(np.abs(np.log(period / np.median(period))))
    if off[int(MOST * (len(off) - 1))] > np.log(REGULAR):
        return ()
    return tuple(Step(f"{name} {i}", int(a), int(b)) for i, (a, b) in enumerate(pairwise(edges), 1))


# -- windows -------------------------------------------------------------------------------------


def by_step(analyzed: AnalyzedTime, parts: int = 8) -> tuple[Window, ...]:
    """Each step cut in equal parts, with the step as context; time between steps belongs to the
    step before it. Many steps get fewer parts, so that there are at most ``MAX_WINDOWS``.

    Where the device lags behind the last step by a step or more, that time is cut as if it were
    more steps; its windows count as the last step's.

    Raises ValueError where ``parts`` is not positive.
    """
    _check_positive("parts", parts)
    count = len(analyzed.steps)
    if not count:
        return ()
    stride = -(-count // MAX_WINDOWS)
    edges = [step.start for step in analyzed.steps[::stride]] + [*_lag(analyzed), analyzed.end]
    edges[0] = analyzed.start
    parts = max(1, min(parts, MAX_WINDOWS // (len(edges) - 1)))
    return tuple(
        Window(int(a), int(b), min(i * stride, count - 1), int(start), int(end))
        for i, (start, end) in enumerate(pairwise(edges))
        for a, b in pairwise(_cut(start, end, parts))
        if b > a
    )


def _lag(analyzed: AnalyzedTime) -> list[int]:
    """Where step-long pieces of the time after the last step begin; none where it is shorter."""
    starts = np.array([step.start for step in analyzed.steps], np.int64)
    last = analyzed.steps[-1].end
    pieces = (analyzed.end - last) // int(np.median(np.diff(starts))) if len(starts) > 1 else 0
    return _cut(last, analyzed.end, min(pieces, len(starts)))[:-1].tolist() if pieces else []


def by_time(analyzed: AnalyzedTime, count: int = 64) -> tuple[Window, ...]:
    """Equal windows over the analyzed time; context: ``NEIGHBORS`` windows on either side.

    Raises ValueError where ``count`` is not positive.
    """
    _check_positive("count", count)
    edges = np.unique(_cut(analyzed.start, analyzed.end, min(count, MAX_WINDOWS)))
    last = len(edges) - 1
    steps = np.array([step.start for step in analyzed.steps], np.int64)
    step = np.searchsorted(steps, edges, side="right") - 1
    return tuple(
        Window(
            int(edges[i]),
            int(edges[i + 1]),
            int(step[i]) if step[i] >= 0 else None,
            int(edges[max(i - NEIGHBORS, 0)]),
            int(edges[min(i + 1 + NEIGHBORS, last)]),
        )
        for i in range(last)
    )


def _cut(start: int, end: int, parts: int) -> Int64:
    # start + i * length // parts, without that product: it overflows for a span of years, as of a
    # trace in which one event has lost its date.
    whole, rest = divmod(end - start, parts)
    i = np.arange(parts + 1, dtype=np.int64)
    return start + i * whole + i * rest // parts


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


@dataclass(frozen=True)
class ByStep:
    """``by_step`` where there are two steps or more, else ``by_time`` with ``fallback`` windows."""

    parts: int = 8
    fallback: int = 64

    def __post_init__(self) -> None:
        _check_positive("parts", self.parts)
        _check_positive("fallback", self.fallback)

    def __call__(self, analyzed: AnalyzedTime) -> tuple[Window, ...]:
        """The windows of this analyzed time."""
        if len(analyzed.steps) < 2:
            return by_time(analyzed, self.fallback)
        return by_step(analyzed, self.parts)


@dataclass(frozen=True)
class ByTime:
    """``by_time`` with a fixed count."""

    count: int = 64

    def __post_init__(self) -> None:
        _check_positive("count", self.count)

    def __call__(self, analyzed: AnalyzedTime) -> tuple[Window, ...]:
        """The windows of this analyzed time."""
        return by_time(analyzed, self.count)
