"""Judged time and the windows that tile it.

Judged is the steady state: the marked steps without warm-up, else regular bursts of work, else
the whole span without the profiler's own tail. A window is a fixed cut of it, with a wide one
around it for context.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from detector import vocabulary
from detector.activity import Activity
from detector.intervals import Intervals
from detector.trace import Bool, Cat, Int64, Step, Trace

MAX_WINDOWS: Final = 20_000
NEIGHBOURS: Final = 4  # windows on either side, where no step gives the context

FAR_LONGER: Final = 2.0  # a warm-up step, against the median of the steps after it
MOST_WARMUP: Final = 5
SET_UP: Final = 0.1  # share of the span; less before the first launch is no set-up
BREAK: Final = 4.0  # a gap between bursts, against the longest gap inside one
LONE: Final = 2.0  # so many times its work lasts the gap after a burst of one piece, by BREAK
MOST_BURSTS: Final = 200
REGULAR: Final = 2.0  # this factor from their median lie ...
MOST: Final = 0.8  # ... at least so many of the bursts' periods


@dataclass(frozen=True)
class Judged:
    """The time that is judged, ns. ``steps`` are the steady ones; ``warmup`` are left out."""

    start: int
    end: int
    steps: tuple[Step, ...]
    how: Literal["markers", "bursts", "whole"]
    warnings: tuple[str, ...] = ()
    warmup: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Window:
    """A cut of the judged time, ns; ``step`` indexes ``Judged.steps``; outer is its context."""

    start: int
    end: int
    step: int | None
    outer_start: int
    outer_end: int


# -- judged time ---------------------------------------------------------------------------------


def judge_time(trace: Trace) -> Judged:
    """The steady state of a trace, and in plain words what stands against judging it."""
    warnings = [] if trace.is_device_work.any() else ["no device records"]
    steps = _disjoint(trace.steps)
    if steps:
        return _by_markers(trace, steps, warnings)
    start, end = _work_span(trace)
    begin = _first_launch(trace, start)
    if begin - start > SET_UP * (end - start):
        warnings.append("set-up before the first launch is not judged")
        start = begin
    bursts = _bursts(trace, start, end)
    if bursts:
        warnings.append("no step markers: judged by bursts of activity")
        warmup, steady = _warmup(trace, bursts)
        return Judged(steady[0].start, end, steady, "bursts", tuple(warnings), warmup)
    warnings.append("no step markers and no regular bursts: judged as a whole")
    warnings.append("fewer than two steps: no steady state")
    return Judged(start, end, (), "whole", tuple(warnings))


def _by_markers(trace: Trace, steps: tuple[Step, ...], warnings: list[str]) -> Judged:
    warmup, steady = _warmup(trace, steps)
    if len(steady) < 2:
        warnings.append("fewer than two steps: no steady state")
    last = steady[-1]
    end = max(min(last.end, _work_span(trace)[1]), last.start + 1)
    return Judged(steady[0].start, end, steady, "markers", tuple(warnings), warmup)


def _disjoint(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """In time order, without those that begin inside another (nested or repeated markers)."""
    kept: list[Step] = []
    for step in sorted(steps, key=lambda step: (step.start, -step.end)):
        if step.end > step.start and (not kept or step.start >= kept[-1].end):
            kept.append(step)
    return tuple(kept)


def _work_span(trace: Trace) -> tuple[int, int]:
    """From the first work to the last; the synchronise of the profiler's own stop is no work."""
    work = np.isin(trace.cat, (Cat.CPU_OP, Cat.KERNEL, Cat.GPU_MEMCPY, Cat.GPU_MEMSET))
    work |= np.isin(trace.cat, (Cat.RUNTIME, Cat.DRIVER)) & ~_synchronises(trace)
    if not work.any():
        work = ~np.isin(trace.cat, (Cat.OVERHEAD, Cat.OTHER))
    if not work.any():
        return 0, 0
    return int(trace.start[work].min()), int(trace.end[work].max())


def _first_launch(trace: Trace, start: int) -> int:
    """Where the device first gets work; ``start`` on a CPU run."""
    rows = np.flatnonzero(trace.is_device_work)
    if not len(rows):
        return start
    launch = trace.launch[rows]
    first = trace.start[rows].min()
    return int(min(first, trace.start[launch[launch >= 0]].min(initial=first)))


def _synchronises(trace: Trace) -> Bool:
    """Which rows are calls that wait for the device."""
    called = np.unique(trace.name[trace.rows(Cat.RUNTIME, Cat.DRIVER)])
    waits = np.zeros(len(trace.names), np.bool_)
    waits[called] = [bool(vocabulary.CALLS["sync"].search(trace.names[i])) for i in called]
    return waits[trace.name] if len(waits) else np.zeros(len(trace), np.bool_)


def _warmup(trace: Trace, steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The steps that only warm up, and the rest: at least one."""
    activity = Activity(trace)
    start = np.array([step.start for step in steps], np.int64)
    end = np.array([step.end for step in steps], np.int64)
    unlike = _busier(trace.start[activity.calls("alloc")], start, end)
    unlike |= _busier(trace.start[activity.host("compile")], start, end)
    length = end - start
    count = 0
    for i in range(min(len(steps) - 1, max(len(steps) // 2, 1), MOST_WARMUP)):
        rest = np.median(length[i + 1 :])
        longer = len(steps) - i > 2 and length[i] > FAR_LONGER * rest
        if not (steps[i].warmup or longer or (unlike[i] and length[i] > rest)):
            break
        count = i + 1
    return steps[:count], steps[count:]


def _busier(times: Int64, start: Int64, end: Int64) -> Bool:
    """Steps with such events although most later steps have none."""
    times = np.sort(times)
    count = np.searchsorted(times, end) - np.searchsorted(times, start)
    return np.array(
        [n > 0 and np.median(count[i + 1 :]) == 0 for i, n in enumerate(count[:-1])] + [False],
        np.bool_,
    )


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
    # Where every gap is long, there is none to tell them from but a share of the work between.
    ranked = np.append(ranked, np.median(work.end - work.start) * LONE)[: MOST_BURSTS + 1]
    drop = ranked[:-1] / np.maximum(ranked[1:], 1)
    if drop.max() < BREAK:
        return ()
    long = gaps >= ranked[int(np.argmax(drop))]
    edges = np.concatenate([[start], work.start[1:][long], [end]]).astype(np.int64)
    period = np.diff(edges).astype(np.float64)
    middle = np.median(period)
    off = np.sort(np.abs(np.log(period / middle)))
    if len(period) < 3 or off[int(MOST * (len(off) - 1))] > np.log(REGULAR):
        return ()
    return tuple(Step(f"burst {i}", int(a), int(b)) for i, (a, b) in enumerate(pairwise(edges), 1))


# -- windows -------------------------------------------------------------------------------------


def by_step(judged: Judged, parts: int = 8) -> tuple[Window, ...]:
    """Each step cut in equal parts, with the step as context; time between steps goes to the
    step before it. Many steps get fewer parts, so that windows stay below ``MAX_WINDOWS``.

    Raises ValueError where ``parts`` is not positive.
    """
    _check_positive("parts", parts)
    count = len(judged.steps)
    if not count:
        return ()
    parts = max(1, min(parts, MAX_WINDOWS // count))
    stride = -(-count // MAX_WINDOWS)
    edges = [step.start for step in judged.steps[::stride]] + [judged.end]
    edges[0] = judged.start
    return tuple(
        Window(int(a), int(b), i * stride, int(start), int(end))
        for i, (start, end) in enumerate(pairwise(edges))
        for a, b in pairwise(_cut(start, end, parts))
        if b > a
    )


def by_time(judged: Judged, count: int = 64) -> tuple[Window, ...]:
    """Equal windows over the judged time; context are ``NEIGHBOURS`` windows on either side.

    Raises ValueError where ``count`` is not positive.
    """
    _check_positive("count", count)
    edges = np.unique(_cut(judged.start, judged.end, min(count, MAX_WINDOWS)))
    last = len(edges) - 1
    steps = np.array([step.start for step in judged.steps], np.int64)
    step = np.searchsorted(steps, edges, side="right") - 1
    return tuple(
        Window(
            int(edges[i]),
            int(edges[i + 1]),
            int(step[i]) if step[i] >= 0 else None,
            int(edges[max(i - NEIGHBOURS, 0)]),
            int(edges[min(i + 1 + NEIGHBOURS, last)]),
        )
        for i in range(last)
    )


def _cut(start: int, end: int, parts: int) -> Int64:
    length = end - start
    return start + np.arange(parts + 1, dtype=np.int64) * length // parts


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

    def __call__(self, judged: Judged) -> tuple[Window, ...]:
        """The windows of this judged time."""
        if len(judged.steps) < 2:
            return by_time(judged, self.fallback)
        return by_step(judged, self.parts)


@dataclass(frozen=True)
class ByTime:
    """``by_time`` with a fixed count."""

    count: int = 64

    def __post_init__(self) -> None:
        _check_positive("count", self.count)

    def __call__(self, judged: Judged) -> tuple[Window, ...]:
        """The windows of this judged time."""
        return by_time(judged, self.count)
