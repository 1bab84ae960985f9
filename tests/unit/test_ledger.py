"""Where the time goes: each cause on a hand-written trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from detector.ledger import Ledger, build
from detector.signals import signals_of
from tests.traces import (
    Event,
    annotation,
    call,
    kernel,
    launch,
    memcpy,
    memset,
    op,
    python,
    sync,
    trace_of,
)

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def ledger_of(*events: Event, start: float = 0, end: float = 0) -> Ledger:
    trace = trace_of(*events)
    last = round(end * 1_000) or int(trace.end.max())
    return build(signals_of(trace), round(start * 1_000), last)


def us(ledger: Ledger) -> dict[str, float]:
    return {cause: ns / 1_000 for cause, ns in ledger.total().items()}


# -- the device works ----------------------------------------------------------------------------


def test_what_hides_another_counts_and_the_rest_is_exposed() -> None:
    ledger = ledger_of(
        kernel("sgemm", 0, 10),
        kernel("ncclDevKernel_AllReduce", 5, 15, stream=20),
        memcpy("Memcpy HtoD (Pinned -> Device)", 15, 10, 4_096, stream=21),
        memset(24, 4, stream=22),
    )
    assert us(ledger) == {"compute": 10, "communication": 10, "copy": 5, "fill": 3}


def test_what_exceeds_the_fastest_of_equal_collectives_is_waiting_for_other_ranks() -> None:
    ledger = ledger_of(
        *(
            kernel("ncclDevKernel_AllReduce", at, dur, msg_elems=1_000, collective="allreduce")
            for at, dur in ((0, 10), (10, 40), (50, 15))
        )
    )
    assert us(ledger) == {"rank-wait": 35, "communication": 30}


def test_two_collectives_do_not_tell_how_long_a_transfer_takes() -> None:
    ledger = ledger_of(
        kernel("ncclDevKernel_AllReduce", 0, 10, msg_elems=1_000),
        kernel("ncclDevKernel_AllReduce", 10, 40, msg_elems=1_000),
    )
    assert us(ledger) == {"communication": 50}


# -- the host is late ----------------------------------------------------------------------------


def late(*between: Event, until: float = 900) -> dict[str, float]:
    """What the ledger says of the host, from the end of a kernel at 100 us to the next launch."""
    ledger = ledger_of(
        launch(0, 2, corr=1),
        kernel("a", 0, 100, corr=1),
        *between,
        launch(until, 5, corr=2),
        kernel("b", until + 10, 50, corr=2),
    )
    found = us(ledger)
    assert found.pop("compute") == 150
    assert found.pop("latency") == 10
    return found


def test_idle_in_the_loader_whatever_runs_inside_it() -> None:
    found = late(annotation(LOADER, 50, 700), op("aten::stack", 200, 300), until=800)
    assert found == {"loader": 650, "between": 50}


def test_dispatch_and_the_interpreter_between_ops() -> None:
    assert late(op("aten::mm", 300, 605)) == {"between": 200, "dispatch": 600}


def test_frames_by_whose_file_they_are_in() -> None:
    found = late(
        python("train.py(12): step", 0, 910),
        python("torch/nn/modules/module.py(1): _call_impl", 200, 300),
        python("<built-in function len>", 600, 100),
    )
    assert found == {"python": 500, "framework": 300}


def test_the_line_of_the_program_is_named() -> None:
    ledger = ledger_of(
        python("train.py(12): step", 0, 1_000),
        python("torch/nn/modules/module.py(1): _call_impl", 200, 700),
        launch(800, 2, corr=1),
        kernel("a", 810, 50, corr=1),
        end=860,
    )
    (place,) = ledger.places("framework")
    assert (place.name, place.file, place.line, place.ns) == ("step", "train.py", 12, 600_000)


@pytest.mark.parametrize(
    "inner",
    [
        "/tmp/torchinductor_me/ca/c" + "ab2x" * 12 + ".py(88): call",
        "flashinfer/fused_moe/core.py(1633): moe",
        "vllm/model_executor/parameter.py(122): __torch_function__",
    ],
)
def test_the_line_is_never_one_that_nobody_writes(inner: str) -> None:
    ledger = ledger_of(
        python("train.py(12): step", 0, 1_000),
        python(inner, 200, 700),
        launch(800, 2, corr=1),
        kernel("a", 810, 50, corr=1),
        end=860,
    )
    (place,) = ledger.places("python")
    assert (place.file, place.line) == ("train.py", 12)


def test_a_long_stretch_without_any_event_is_not_explained() -> None:
    found = late(until=5_000)
    assert found == {"nothing": 4_900}


def test_waiting_and_the_restart_after_it() -> None:
    found = late(op("aten::item", 50, 100), sync(60, 80), op("aten::mm", 200, 705))
    assert found == {"sync-scalar": 40, "restart": 760}


def test_allocation_waits_and_preprocessing() -> None:
    assert late(op("aten::empty", 100, 400), call("cudaMalloc", 150, 300))["allocation"] == 300
    long_op = late(op("aten::stack", 100, 500))
    assert long_op == {"preprocessing": 500, "between": 300}
    image = late(python("PIL/Image.py(9): resize", 100, 500))
    assert image == {"preprocessing": 500, "between": 300}


def test_a_view_full_of_small_ops_is_dispatch_and_no_preprocessing() -> None:
    inner = [op("aten::slice", 110 + 20 * i, 15) for i in range(20)]
    found = late(op("aten::unflatten", 100, 500), *inner)
    assert found == {"dispatch": 500, "between": 300}


def test_a_stopped_op_is_distinguished_from_a_slow_one() -> None:
    usual = [op("aten::add", 2_000 + 20 * i, 10) for i in range(30)]
    ledger = ledger_of(
        launch(0, 2, corr=1),
        kernel("a", 0, 100, corr=1),
        op("aten::add", 100, 800),
        *usual,
        launch(2_700, 5, corr=2),
        kernel("b", 2_710, 50, corr=2),
    )
    assert us(ledger)["op-stall"] == 800


def test_the_main_thread_answers_for_a_thread_that_waits() -> None:
    found = late(
        annotation(LOADER, 100, 600),
        op("autograd::engine::evaluate_function: AddBackward0", 0, 50, thread=2),
    )
    assert found["loader"] == 600


def test_the_backward_engine_answers_for_the_main_thread() -> None:
    found = late(
        python("<built-in method run_backward of Engine object>", 0, 890),
        op("aten::mm", 100, 700, thread=2),
        call("cudaFree", 300, 400, thread=2),
    )
    assert found == {"dispatch": 300, "allocation": 400, "between": 100}


# -- it has been called for ----------------------------------------------------------------------


def test_a_blocked_launch_its_latency_and_what_never_began() -> None:
    ledger = ledger_of(
        kernel("a", 0, 10),
        launch(12, 300, corr=1),
        kernel("b", 330, 10, corr=1),
        launch(335, 2, corr=2),
        kernel("c", 5_000, 10, corr=2),
    )
    found = us(ledger)
    assert (found["blocked-launch"], found["latency"]) == (300, 18)
    assert (found["queue"], found["device-stall"]) == (100, 4_560)


def test_work_without_a_recorded_launch_is_said_and_not_guessed() -> None:
    ledger = ledger_of(op("aten::mm", 0, 500), kernel("a", 0, 10), kernel("b", 400, 10), end=410)
    assert us(ledger) == {"unlinked": 390, "compute": 20}


def test_an_external_id_links_as_well_as_a_launch_does() -> None:
    """ROCm: no runtime call with the kernel's correlation, but its op is known."""
    trace = trace_of(op("aten::mm", 100, 60), kernel("a", 0, 10), kernel("b", 150, 10))
    trace = replace(trace, op=np.where(trace.start == 150_000, 1, -1).astype(np.int32))
    assert trace.names[trace.name[1]] == "aten::mm"
    total = build(signals_of(trace), 0, 160_000).total()
    assert "unlinked" not in total
    assert total["latency"] == 50_000


def test_waiting_for_work_that_was_not_recorded_is_not_a_pattern() -> None:
    ledger = ledger_of(
        sync(0, 5_000, "cudaDeviceSynchronize"),
        launch(5_010, 2, corr=1),
        kernel("a", 5_020, 10, corr=1),
        launch(5_025, 2, corr=2),
        kernel("b", 5_030, 10, corr=2),
    )
    assert us(ledger)["unrecorded-wait"] == 5_000
    assert ledger.unexplained == 5_000_000


# -- a CPU run -----------------------------------------------------------------------------------


def test_a_cpu_run_computes_loads_and_interprets() -> None:
    ledger = ledger_of(
        annotation(LOADER, 0, 100),
        op("aten::stack", 10, 80),
        op("aten::linear", 100, 200),
        op("aten::addmm", 120, 150),
        op("aten::mm", 350, 50, thread=2),
        op("aten::relu", 450, 50),
    )
    assert us(ledger) == {"cpu-compute": 300, "loader": 100, "between": 100}
    names = {place.name: place.ns / 1_000 for place in ledger.places("cpu-compute", most=9)}
    assert names == {"aten::addmm": 150, "aten::linear": 50, "aten::mm": 50, "aten::relu": 50}


# -- steps ---------------------------------------------------------------------------------------


def test_steps_are_parts_of_the_whole() -> None:
    ledger = ledger_of(kernel("a", 0, 10), kernel("b", 30, 30), end=60)
    parts = ledger.by_span(np.array([0, 20_000]), np.array([20_000, 60_000]))
    assert parts == [
        {"compute": 10_000, "unlinked": 10_000},
        {"compute": 30_000, "unlinked": 10_000},
    ]


@pytest.mark.parametrize("end", [0, 40])
def test_an_empty_span_gives_an_empty_ledger(end: float) -> None:
    trace = trace_of(kernel("a", 0, 100))
    ledger = build(signals_of(trace), 40_000 if end else 0, round(end * 1_000))
    assert ledger.total() == {}
