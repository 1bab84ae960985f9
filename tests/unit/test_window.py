"""AnalyzedTime time: markers, warm-up, bursts, and what the profiler itself did."""

from __future__ import annotations

import pytest

from detector.trace import Trace
from detector.window import AnalyzedTime, ByStep, ByTime, Window, analyzed_time, by_step, by_time
from tests.traces import (
    annotation,
    call,
    kernel,
    launch,
    op,
    python,
    repeat,
    sync,
    trace_of,
)

STEP = (op("aten::mm", 0, 40), launch(5, 5, corr=1), kernel("sgemm", 12, 60, corr=1))


def steps_of(*lengths: float) -> list[tuple[float, float]]:
    edges = [0.0]
    for length in lengths:
        edges.append(edges[-1] + length)
    return list(zip(edges, edges[1:], strict=False))


def test_marked_steps_are_analyzed() -> None:
    trace = trace_of(*repeat(STEP, 4, 100), steps=steps_of(100, 100, 100, 100))
    analyzed = analyzed_time(trace)
    assert (analyzed.how, len(analyzed.steps), analyzed.warnings) == ("markers", 4, ())
    assert (analyzed.start, analyzed.end) == (0, 372_000)  # the last step ends with its work


def test_a_far_longer_first_step_is_warm_up() -> None:
    trace = trace_of(*repeat(STEP, 9, 100), steps=steps_of(500, 100, 110, 100, 90))
    analyzed = analyzed_time(trace)
    assert [step.name for step in analyzed.warmup] == ["ProfilerStep#0"]
    assert analyzed.start == 500_000


def test_a_first_step_that_allocates_unlike_the_rest_is_warm_up() -> None:
    trace = trace_of(
        *repeat(STEP, 4, 100), call("cudaMalloc", 50, 20), steps=steps_of(120, 90, 90, 90)
    )
    assert [step.name for step in analyzed_time(trace).warmup] == ["ProfilerStep#0"]


def test_steps_that_all_allocate_are_no_warm_up() -> None:
    body = (*STEP, call("cudaMalloc", 50, 20))
    analyzed = analyzed_time(trace_of(*repeat(body, 4, 100), steps=steps_of(110, 100, 100, 100)))
    assert analyzed.warmup == ()


def test_a_long_step_in_the_middle_is_analyzed() -> None:
    trace = trace_of(*repeat(STEP, 9, 100), steps=steps_of(100, 100, 500, 100, 100))
    assert len(analyzed_time(trace).steps) == 5


def test_one_step_is_kept_and_is_no_steady_state() -> None:
    analyzed = analyzed_time(trace_of(*STEP, steps=[(0, 100)]))
    assert len(analyzed.steps) == 1
    assert analyzed.warnings == ("fewer than two steps: warm-up could not be separated",)


def test_steps_inside_a_step_do_not_count() -> None:
    analyzed = analyzed_time(
        trace_of(*repeat(STEP, 2, 100), steps=[(0, 100), (10, 50), (100, 200)])
    )
    assert [step.start for step in analyzed.steps] == [0, 100_000]


def test_a_device_that_lags_is_analyzed_to_the_end_of_the_steps_work() -> None:
    """Two steps of 100 us, whose kernels run until 672; a kernel of later code is not analyzed."""
    events = [
        (op("aten::mm", at, 9), launch(at + 1, 2, corr), kernel("sgemm", start, 100, corr))
        for corr, (at, start) in enumerate(
            [(10, 172), (60, 272), (110, 372), (160, 572), (300, 672)]
        )
    ]
    analyzed = analyzed_time(
        trace_of(*(e for group in events for e in group), steps=[(0, 100), (100, 200)])
    )
    assert (analyzed.start, analyzed.end, len(analyzed.steps)) == (0, 672_000, 2)


def test_time_before_the_device_could_work_is_not_analyzed() -> None:
    """The first kernel was queued at 12 and runs at 5,000: others ran there, which nobody saw."""
    step = (op("aten::mm", 0, 40), launch(10, 5, corr=1), kernel("sgemm", 5_000, 600, corr=1))
    for steps in ([(0, 100)], [(-200, -100), (-100, 0), (0, 100)]):
        analyzed = analyzed_time(trace_of(*step, op("aten::add", -150, 5), steps=steps))
        assert (analyzed.start, analyzed.end) == (5_000_000, 5_600_000)
        assert [step.start for step in analyzed.steps] == [0]
        assert analyzed.warnings[0].startswith("not analyzed: the start")


def test_a_stall_in_the_middle_ends_no_set_up() -> None:
    late = (launch(9_050, 3, 9), kernel("sgemm", 12_000, 60, 9))
    analyzed = analyzed_time(
        trace_of(*repeat(STEP, 3, 4_000), *late, steps=[(0, 6_000), (6_000, 9_000)])
    )
    assert (analyzed.start, analyzed.warnings) == (0, ())


def test_steps_that_the_device_saw_in_part_stay() -> None:
    body = (op("aten::mm", 0, 40), launch(5, 5, 1), kernel("sgemm", 12, 3_000, 1))
    late = (op("aten::mm", 0, 40), launch(5, 5, 1), kernel("sgemm", 2_000, 1_000, 1))
    events = repeat(body, 4, 4_000)[3:]
    analyzed = analyzed_time(trace_of(*late, *events, steps=steps_of(4_000, 4_000, 4_000, 4_000)))
    assert (analyzed.start, len(analyzed.steps)) == (2_000_000, 4)


def test_the_optimizers_steps_close_iterations() -> None:
    """Gaps alone do not part these: one after each op is as long as that between iterations."""
    body = (
        *(op("aten::mm", 0, 40), launch(5, 5, corr=1), kernel("sgemm", 12, 60, corr=1)),
        *(op("aten::mm", 130, 40), launch(135, 5, corr=2), kernel("sgemm", 142, 60, corr=2)),
        annotation("Optimizer.step#SGD.step", 210, 20),
    )
    analyzed = analyzed_time(trace_of(*repeat(body, 4, 260)))
    assert analyzed.how == "updates"
    assert [step.start for step in analyzed.steps] == [0, 230_000, 490_000, 750_000]
    assert analyzed.end == 982_000
    assert analyzed.warnings == ("no step markers: optimizer steps are taken for steps",)


def test_updates_at_odd_times_close_nothing() -> None:
    updates = [annotation("Optimizer.step#SGD.step", at, 20) for at in (250, 1_150, 1_300, 4_300)]
    analyzed = analyzed_time(trace_of(*repeat(STEP, 5, 1_000), *updates))
    assert analyzed.how == "bursts"


def test_bursts_stand_in_for_markers() -> None:
    analyzed = analyzed_time(trace_of(*repeat(STEP, 5, 1_000)))
    assert analyzed.how == "bursts"
    assert [step.start for step in analyzed.steps] == [
        0,
        1_012_000,
        2_012_000,
        3_012_000,
        4_012_000,
    ]
    assert analyzed.warnings == ("no step markers: bursts of activity are taken for steps",)


def test_a_run_on_the_cpu_is_analyzed_by_bursts_of_ops() -> None:
    body = (op("aten::mm", 0, 40), op("aten::add", 42, 8))
    analyzed = analyzed_time(trace_of(*repeat(body, 4, 1_000)))
    assert (analyzed.how, len(analyzed.steps)) == ("bursts", 4)
    assert "device activity unavailable" in analyzed.warnings


def test_irregular_work_is_analyzed_as_a_whole() -> None:
    trace = trace_of(*STEP, kernel("sgemm", 5_000, 10), kernel("sgemm", 5_015, 1_000))
    analyzed = analyzed_time(trace)
    assert (analyzed.how, analyzed.steps) == ("whole", ())
    assert (analyzed.start, analyzed.end) == (0, 6_015_000)
    assert "warm-up could not be separated" in analyzed.warnings[-1]


def test_the_final_synchronize_and_the_frames_around_everything_are_not_analyzed() -> None:
    trace = trace_of(
        python("main.py(1): <module>", 0, 9_000),
        annotation("note", 0, 9_000),
        op("aten::mm", 100, 40),
        launch(105, 5, corr=1),
        kernel("sgemm", 112, 60, corr=1),
        sync(200, 8_000, "cudaDeviceSynchronize"),
    )
    analyzed = analyzed_time(trace)
    assert (analyzed.start, analyzed.end) == (100_000, 172_000)


def test_set_up_before_the_first_launch_is_not_analyzed() -> None:
    trace = trace_of(
        op("aten::empty", 0, 900),
        call("cudaMalloc", 10, 800),
        op("aten::mm", 1_000, 40),
        launch(1_005, 5, corr=1),
        kernel("sgemm", 1_012, 60, corr=1),
    )
    analyzed = analyzed_time(trace)
    assert (analyzed.start, analyzed.end) == (1_005_000, 1_072_000)
    assert "not analyzed: set-up before the first launch" in analyzed.warnings


def test_a_trace_of_frames_alone_has_a_span() -> None:
    analyzed = analyzed_time(trace_of(python("a.py(1): f", 10, 20)))
    assert (analyzed.start, analyzed.end) == (10_000, 30_000)


# -- windows -------------------------------------------------------------------------------------


def analyzed_steps() -> AnalyzedTime:
    trace: Trace = trace_of(*repeat(STEP, 2, 100), steps=[(0, 80), (100, 172)])
    return analyzed_time(trace)


def test_by_step_gives_the_time_between_steps_to_the_step_before() -> None:
    assert by_step(analyzed_steps(), 2) == (
        Window(0, 50_000, 0, 0, 100_000),
        Window(50_000, 100_000, 0, 0, 100_000),
        Window(100_000, 136_000, 1, 100_000, 172_000),
        Window(136_000, 172_000, 1, 100_000, 172_000),
    )


def test_by_step_cuts_the_time_in_which_the_device_lags_like_steps() -> None:
    analyzed = analyzed_time(
        trace_of(*repeat(STEP, 2, 100), kernel("k", 200, 210, corr=1), steps=[(0, 100), (100, 200)])
    )
    assert by_step(analyzed, 2)[2:] == (
        Window(100_000, 150_000, 1, 100_000, 200_000),
        Window(150_000, 200_000, 1, 100_000, 200_000),
        Window(200_000, 252_500, 1, 200_000, 305_000),
        Window(252_500, 305_000, 1, 200_000, 305_000),
        Window(305_000, 357_500, 1, 305_000, 410_000),
        Window(357_500, 410_000, 1, 305_000, 410_000),
    )


def test_by_time_has_its_neighbors_as_context() -> None:
    windows = by_time(AnalyzedTime(0, 1_000, (), "whole"), 10)
    assert windows[0] == Window(0, 100, None, 0, 500)
    assert windows[5] == Window(500, 600, None, 100, 1_000)


def test_by_step_falls_back_to_time_without_steps() -> None:
    analyzed = AnalyzedTime(0, 1_000, (), "whole")
    assert ByStep(parts=4, fallback=10)(analyzed) == ByTime(10)(analyzed) == by_time(analyzed, 10)


@pytest.mark.parametrize(
    ("kind", "setting"), [(ByStep, "parts"), (ByStep, "fallback"), (ByTime, "count")]
)
def test_no_windows_at_all_is_refused(kind: type, setting: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be at least 1, got 0"):
        kind(**{setting: 0})
