"""Windows tile the judged time, whatever the steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from detector.trace import Step
from detector.window import (
    MAX_WINDOWS,
    ByStep,
    ByTime,
    Judged,
    Window,
    by_step,
    by_time,
    judge_time,
)
from tests.random_traces import SEEDS, random_trace
from tests.traces import trace_of


@st.composite
def judged_times(draw: st.DrawFn) -> Judged:
    """Steps of any length with or without time between them; perhaps no step at all."""
    start = draw(st.integers(-(10**12), 2 * 10**18))
    steps: list[Step] = []
    at = start
    for i in range(draw(st.integers(0, 8))):
        length = draw(st.one_of(st.integers(1, 20), st.integers(1, 10**10)))
        steps.append(Step(str(i), at, at + length))
        at += length + draw(st.sampled_from((0, 0, 1, 12_345)))
    end = max(at, start + draw(st.integers(0, 10**9)))
    return Judged(start, end, tuple(steps), "markers" if steps else "whole")


def assert_tiles(windows: tuple[Window, ...], judged: Judged) -> None:
    if judged.end == judged.start:
        assert windows == ()
        return
    assert windows[0].start == judged.start
    assert windows[-1].end == judged.end
    assert all(a.end == b.start for a, b in pairwise(windows))
    for window in windows:
        assert window.start < window.end
        assert judged.start <= window.outer_start <= window.start
        assert window.end <= window.outer_end <= judged.end


@given(judged_times(), st.integers(1, 20))
def test_by_step_tiles_the_judged_time(judged: Judged, parts: int) -> None:
    windows = by_step(judged, parts)
    if not judged.steps:
        assert windows == ()
        return
    assert_tiles(windows, judged)
    for window in windows:
        assert window.step is not None
        step = judged.steps[window.step]
        ahead = judged.steps[window.step + 1 :]
        if ahead:
            assert (window.outer_start, window.outer_end) == (step.start, ahead[0].start)
        else:  # the last step, or a piece of the time in which the device lags behind it
            assert window.outer_start == step.start or window.outer_start >= step.end


@given(judged_times(), st.integers(1, 20))
def test_parts_of_a_step_are_equal(judged: Judged, parts: int) -> None:
    windows = by_step(judged, parts)
    for outer in {w.outer_start for w in windows}:
        lengths = [w.end - w.start for w in windows if w.outer_start == outer]
        assert max(lengths) - min(lengths) <= 1
        assert len(lengths) <= parts
    assert len({w.outer_start for w in windows}) <= 2 * len(judged.steps)


@given(judged_times(), st.integers(1, 200))
def test_by_time_tiles_the_judged_time(judged: Judged, count: int) -> None:
    windows = by_time(judged, count)
    assert_tiles(windows, judged)
    assert len(windows) <= count
    lengths = [w.end - w.start for w in windows]
    assert not lengths or max(lengths) - min(lengths) <= 1


@given(SEEDS, st.lists(st.integers(0, 350), max_size=7, unique=True))
def test_any_trace_can_be_judged_and_cut(seed: int, edges: list[int]) -> None:
    trace = random_trace(seed)
    steps = tuple(
        Step(str(i), a * 1_000, b * 1_000) for i, (a, b) in enumerate(pairwise(sorted(edges)))
    )
    judged = judge_time(replace(trace, steps=steps))
    assert judged.start < judged.end
    for steady in judged.steps:
        assert steady.start < judged.end
        assert steady.end > judged.start or len(judged.steps) == 1
    assert (judged.how == "markers") == bool(steps)
    assert_tiles(ByStep()(judged), judged)
    assert_tiles(ByTime()(judged), judged)


def test_many_steps_give_a_bounded_number_of_windows() -> None:
    for count in (10_000, 30_000):
        steps = tuple(Step(str(i), 1_000 * i, 1_000 * i + 900) for i in range(count))
        judged = Judged(0, 1_000 * count, steps, "markers")
        windows = by_step(judged, 8)
        assert count // 2 <= len(windows) <= MAX_WINDOWS
        assert_tiles(windows, judged)


def test_a_trace_without_events_has_no_windows() -> None:
    judged = judge_time(trace_of())
    assert (judged.start, judged.end, judged.how) == (0, 0, "whole")
    assert ByStep()(judged) == ()
