"""Windows tile the analyzed time, whatever the steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from detector.trace import Step
from detector.window import (
    MAX_WINDOWS,
    AnalyzedTime,
    ByStep,
    ByTime,
    Window,
    analyzed_time,
    by_step,
    by_time,
)
from tests.random_traces import SEEDS, random_trace
from tests.traces import trace_of


@st.composite
def analyzed_times(draw: st.DrawFn) -> AnalyzedTime:
    """Steps of any length with or without time between them; perhaps no step at all."""
    start = draw(st.integers(-(10**12), 2 * 10**18))
    steps: list[Step] = []
    at = start
    for i in range(draw(st.integers(0, 8))):
        length = draw(st.one_of(st.integers(1, 20), st.integers(1, 10**10)))
        steps.append(Step(str(i), at, at + length))
        at += length + draw(st.sampled_from((0, 0, 1, 12_345)))
    end = max(at, start + draw(st.integers(0, 10**9)))
    return AnalyzedTime(start, end, tuple(steps), "markers" if steps else "whole")


def assert_tiles(windows: tuple[Window, ...], analyzed: AnalyzedTime) -> None:
    if analyzed.end == analyzed.start:
        assert windows == ()
        return
    assert windows[0].start == analyzed.start
    assert windows[-1].end == analyzed.end
    assert all(a.end == b.start for a, b in pairwise(windows))
    for window in windows:
        assert window.start < window.end
        assert analyzed.start <= window.outer_start <= window.start
        assert window.end <= window.outer_end <= analyzed.end


@given(analyzed_times(), st.integers(1, 20))
def test_by_step_tiles_the_analyzed_time(analyzed: AnalyzedTime, parts: int) -> None:
    windows = by_step(analyzed, parts)
    if not analyzed.steps:
        assert windows == ()
        return
    assert_tiles(windows, analyzed)
    for window in windows:
        assert window.step is not None
        step = analyzed.steps[window.step]
        ahead = analyzed.steps[window.step + 1 :]
        if ahead:
            assert (window.outer_start, window.outer_end) == (step.start, ahead[0].start)
        else:  # the last step, or a piece of the time in which the device lags behind it
            assert window.outer_start == step.start or window.outer_start >= step.end


@given(analyzed_times(), st.integers(1, 20))
def test_parts_of_a_step_are_equal(analyzed: AnalyzedTime, parts: int) -> None:
    windows = by_step(analyzed, parts)
    for outer in {w.outer_start for w in windows}:
        lengths = [w.end - w.start for w in windows if w.outer_start == outer]
        assert max(lengths) - min(lengths) <= 1
        assert len(lengths) <= parts
    assert len({w.outer_start for w in windows}) <= 2 * len(analyzed.steps)


@given(analyzed_times(), st.integers(1, 200))
def test_by_time_tiles_the_analyzed_time(analyzed: AnalyzedTime, count: int) -> None:
    windows = by_time(analyzed, count)
    assert_tiles(windows, analyzed)
    assert len(windows) <= count
    lengths = [w.end - w.start for w in windows]
    assert not lengths or max(lengths) - min(lengths) <= 1


@given(SEEDS, st.lists(st.integers(0, 350), max_size=7, unique=True))
def test_any_trace_can_be_analyzed_and_cut(seed: int, edges: list[int]) -> None:
    trace = random_trace(seed)
    steps = tuple(
        Step(str(i), a * 1_000, b * 1_000) for i, (a, b) in enumerate(pairwise(sorted(edges)))
    )
    analyzed = analyzed_time(replace(trace, steps=steps))
    assert analyzed.start < analyzed.end
    for steady in analyzed.steps:
        assert steady.start < analyzed.end
        assert steady.end > analyzed.start or len(analyzed.steps) == 1
    assert (analyzed.how == "markers") == bool(steps)
    assert_tiles(ByStep()(analyzed), analyzed)
    assert_tiles(ByTime()(analyzed), analyzed)


def test_many_steps_give_a_bounded_number_of_windows() -> None:
    for count in (10_000, 30_000):
        steps = tuple(Step(str(i), 1_000 * i, 1_000 * i + 900) for i in range(count))
        analyzed = AnalyzedTime(0, 1_000 * count, steps, "markers")
        windows = by_step(analyzed, 8)
        assert count // 2 <= len(windows) <= MAX_WINDOWS
        assert_tiles(windows, analyzed)


def test_a_trace_without_events_has_no_windows() -> None:
    analyzed = analyzed_time(trace_of())
    assert (analyzed.start, analyzed.end, analyzed.how) == (0, 0, "whole")
    assert ByStep()(analyzed) == ()
