"""Traces of which nothing can be said, and why."""

from __future__ import annotations

import pytest

from detector.analysis.analyzable import WhyNot, blind, why_not
from detector.ledger import build
from detector.signals import signals_of
from detector.trace import Cat, Trace
from detector.window import analyzed_time
from tests.traces import Event, call, kernel, launch, op, repeat, trace_of

STEP = (op("aten::mm", 0, 20), launch(5, 5, corr=1), kernel("gemm", 12, 30, corr=1))


def verdict(trace: Trace) -> WhyNot | None:
    analyzed = analyzed_time(trace)
    return why_not(build(signals_of(trace), analyzed.start, analyzed.end), analyzed)


def reason(*events: Event, steps: tuple[tuple[float, float], ...] = ()) -> str:
    found = verdict(trace_of(*events, steps=steps))
    return found.reason if found else ""


def test_a_program_in_steady_state_can_be_analyzed() -> None:
    assert verdict(trace_of(*repeat(STEP, 100, 50))) is None


def test_too_short() -> None:
    assert "from 1 ms on" in reason(*repeat(STEP, 5, 50))


def test_launches_without_device_records() -> None:
    dark = repeat((op("aten::mm", 0, 20), launch(5, 5)), 100, 50)
    assert reason(*dark) == "100 launches, but only 0 device records"


def test_a_graph_that_is_captured_and_not_run() -> None:
    dark = repeat((op("aten::mm", 0, 20), launch(5, 5)), 100, 50)
    found = reason(call("cudaStreamBeginCapture", 0, 1), *dark, kernel("fill", 10, 5))
    assert found.startswith("Graphs are captured, not run")


def test_a_graph_that_is_replayed_can_be_analyzed() -> None:
    kernels = [kernel("gemm", 10 + 20 * i, 19, corr=1) for i in range(100)]
    assert reason(call("cudaGraphLaunch", 0, 5, corr=1), *kernels) == ""


def test_a_first_iteration_alone() -> None:
    """Every launch loads its kernel."""
    events, at = list[Event](), 0.0
    for i in range(30):
        load = 200 + 173 * (i * i % 29)
        events += [launch(at, load, corr=i + 1), kernel(f"k{i}", at + load + 5, 30, corr=i + 1)]
        at += load + 50
    assert reason(*events).startswith("Only a first iteration")


def test_time_of_which_nothing_was_recorded() -> None:
    later = [event for event in repeat(STEP, 1_800, 50) if event.start >= 85_000]
    assert "no record says what happens" in reason(*repeat(STEP, 30, 50), *later)


def test_events_of_an_inference_accelerator() -> None:
    events = (Event(Cat.MTIA, "job", 0, 5_000, device=0, stream=1), op("aten::mm", 0, 4_000))
    assert "inference server" in reason(*events)


@pytest.mark.parametrize(("kernels", "is_blind"), [(("gemm",), True), (tuple("abcdef"), False)])
def test_a_micro_test_shows_nothing_but_its_kernel(
    kernels: tuple[str, ...], is_blind: bool
) -> None:
    events = [
        event
        for i in range(60)
        for event in (
            launch(50 * i, 5, corr=i + 1),
            kernel(kernels[i % len(kernels)], 50 * i + 10, 30, corr=i + 1),
        )
    ]
    found = blind(signals_of(trace_of(*events)))
    program = {"host-launch-bound", "compute-unfused-elementwise", "memory-redundant-copy"}
    assert program & found.keys() == (program if is_blind else set())
    assert not {"compute-fp32-matmul", "compute-underfilled"} & found.keys()
