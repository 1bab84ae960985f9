"""Candidates: what a hand-written program suffers from, and what repairing it saves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from detector.candidates import Candidate, Candidates, find
from detector.candidates import _shares as shares_among
from detector.findings import joined
from detector.ledger import build
from detector.patterns import BY_ID, PATTERNS, Occurrences
from detector.replay import Repair
from detector.signals import SIGNALS, signals_of
from detector.trace import Trace
from detector.window import analyzed_time
from tests.random_traces import random_trace
from tests.traces import (
    Event,
    annotation,
    call,
    kernel,
    launch,
    memcpy,
    op,
    python,
    repeat,
    sync,
    trace_of,
)

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
V100 = {"deviceProperties": [{"id": 0, "computeMajor": 7, "computeMinor": 0, "numSms": 80}]}
P100 = {"deviceProperties": [{"id": 0, "computeMajor": 6, "computeMinor": 0, "numSms": 56}]}


def candidates(trace: Trace) -> Candidates:
    start, end = int(trace.start.min()), int(trace.end.max())
    signals = signals_of(trace)
    return find(signals, build(signals, start, end))


def shares(trace: Trace) -> dict[str, float]:
    return {c.pattern.id: round(c.share, 2) for c in candidates(trace).found}


def one(trace: Trace, pattern: str) -> Candidate:
    (found,) = (c for c in candidates(trace).found if c.pattern.id == pattern)
    return found


def busy(start: float, count: int, every: float = 50, name: str = "gemm") -> tuple[Event, ...]:
    """Ops with a kernel each that keep the device busy all the time, far behind the host."""
    return tuple(
        event
        for i in range(count)
        for event in (
            op("aten::mm", start + 4 * i, 3),
            launch(start + 4 * i + 1, 1, corr=int(start) * 1_000 + i + 1),
            kernel(name, start + 10 + every * i, every, corr=int(start) * 1_000 + i + 1),
        )
    )


# -- every pattern -------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.id)
def test_a_pattern_is_described_in_full(pattern: object) -> None:
    found = BY_ID[pattern.id]  # type: ignore[attr-defined]
    assert found.signal in SIGNALS
    assert all((found.assumes, found.title, found.explains))


@pytest.mark.parametrize("seed", range(25))
def test_on_any_trace_the_shares_add_up_to_the_joint_saving(seed: int) -> None:
    trace = random_trace(seed)
    found = candidates(trace)
    assert sum(c.best_ns for c in found.found) == found.joint_ns
    for candidate in found.found:
        assert 0 <= candidate.rest_ns <= candidate.best_ns <= candidate.alone_ns
        assert len(candidate.occurrences)


@pytest.mark.parametrize("seed", range(25))
def test_an_input_copy_belongs_to_one_pattern(seed: int) -> None:
    signals = signals_of(random_trace(seed))
    names = ("factory-copy", "tiny-copy", "pageable-copy", "inline-copy")
    rows = [row for name in names for row in signals[name].tolist()]
    assert len(rows) == len(set(rows))


# -- input ---------------------------------------------------------------------------------------


def test_a_loader_without_workers_costs_the_time_the_device_starves() -> None:
    step = (annotation(LOADER, 0, 1_000), *(e for e in busy(1_000, 20)))
    trace = trace_of(*repeat(step, 3, 2_010))
    assert shares(trace) == {"input-dataloader-sync": pytest.approx(0.5, abs=0.02)}


def test_a_loader_that_the_queue_hides_costs_nothing() -> None:
    step = (*busy(0, 40), annotation(LOADER, 200, 1_000))
    assert shares(trace_of(*repeat(step, 3, 2_010))) == {}


def test_a_tensor_made_on_the_host_is_no_tiny_copy() -> None:
    pair = (
        op("aten::zeros", 0, 20),
        op("aten::to", 22, 60),
        op("aten::_to_copy", 23, 58),
        op("aten::copy_", 25, 55),
        call("cudaMemcpyAsync", 30, 20, corr=1),
        memcpy("Memcpy HtoD (Pageable -> Device)", 36, 3, 64, corr=1),
        sync(52, 20),
        op("aten::mm", 90, 10),
        launch(92, 2, corr=2),
        kernel("gemm", 96, 20, corr=2),
    )
    found = shares(trace_of(*repeat(pair, 20, 120)))
    assert found["input-cpu-tensor-to-device"] > 0.5
    assert "input-tiny-copies" not in found
    assert "input-pageable-copy" not in found


def test_a_copy_hides_while_the_device_waits_for_the_host_too() -> None:
    step = (
        op("aten::copy_", 0, 10),
        call("cudaMemcpyAsync", 2, 5, corr=1),
        memcpy("Memcpy HtoD (Pinned -> Device)", 10, 300, 1 << 20, corr=1),
        op("aten::mm", 20, 10),
        launch(22, 5, corr=2),
        kernel("gemm", 310, 50, corr=2),
        sync(30, 332),
        python("prepare.py(3): work", 365, 600),
    )
    found = one(trace_of(*repeat(step, 10, 1_000)), "input-copy-not-overlapped")
    assert found.alone_ns == pytest.approx(0.3 * 10_000_000, rel=0.2)


# -- sync ----------------------------------------------------------------------------------------


def test_what_a_wait_costs_lies_behind_it() -> None:
    """The wait itself is hidden by the device; the queue runs dry after it."""
    step = (
        *busy(0, 20),  # the host is done after 80 us, the device after 1010
        op("aten::item", 85, 945),
        op("aten::_local_scalar_dense", 86, 943),
        call("cudaMemcpyAsync", 88, 4, corr=999),
        memcpy("Memcpy DtoH (Device -> Pageable)", 1_012, 2, 4, corr=999),
        sync(95, 930),
        op("aten::relu", 1_032, 400),  # 400 us of dispatch that nothing hides any more
        launch(1_430, 1, corr=998),
        kernel("relu", 1_440, 50, corr=998),
    )
    found = one(trace_of(*repeat(step, 4, 1_500)), "sync-scalar-readback")
    assert found.share > 0.2
    assert len(found.occurrences) == 4


def test_launches_that_wait_for_their_kernel() -> None:
    step = (op("aten::mm", 0, 60), launch(5, 50, corr=1), kernel("gemm", 12, 40, corr=1))
    found = shares(trace_of(*repeat(step, 40, 65)))
    assert found["sync-blocking-launch"] > 0.2


def test_asking_for_a_synchronization_costs_the_whole_question() -> None:
    """torch's function around the call goes, and the event that is recorded for it alone."""

    def saving(*asked: Event) -> int:
        step = (op("aten::mm", 0, 20), launch(5, 5, corr=1), kernel("gemm", 12, 5, corr=1))
        later = op("aten::mm", 80, 20), launch(85, 5, corr=2), kernel("gemm", 92, 5, corr=2)
        third = op("aten::mm", 105, 20), launch(110, 5, corr=3), kernel("gemm", 117, 5, corr=3)
        steps = repeat((*step, *asked, *later, *third), 20, 130)
        return one(trace_of(*steps), "sync-explicit").alone_ns

    device = call("cudaDeviceSynchronize", 50, 10)
    frame = python("torch/cuda/__init__.py(773): synchronize", 30, 40)
    assert saving(frame, device) == pytest.approx(20 * 40_000, rel=0.1)
    assert saving(frame, device) > saving(device)
    recorded, event = call("cudaEventRecord", 22, 18), call("cudaEventSynchronize", 42, 36)
    assert saving(recorded, event) - saving(event) >= 20 * 15_000


def test_several_waits_behind_one_launch_are_no_blocking_launches() -> None:
    step = (op("aten::mm", 0, 20), launch(5, 5, corr=1), kernel("gemm", 12, 5, corr=1))
    step += (op("aten::mm", 22, 20), launch(27, 5, corr=2), kernel("gemm", 34, 5, corr=2))
    step += (op("aten::mm", 44, 20), launch(49, 5, corr=3), kernel("gemm", 56, 5, corr=3))
    asked = [call("cudaEventSynchronize", 70 + 8 * i, 5) for i in range(3)]
    found = shares(trace_of(*repeat((*step, *asked), 20, 110)))
    assert "sync-explicit" in found
    assert "sync-blocking-launch" not in found


# -- host ----------------------------------------------------------------------------------------


def test_a_slow_host_between_short_kernels() -> None:
    step = (op("aten::mm", 0, 40), launch(30, 5, corr=1), kernel("gemm", 40, 4, corr=1))
    found = one(trace_of(*repeat(step, 100, 50)), "host-launch-bound")
    assert 0.6 < found.share < 0.95


def test_an_isolated_pause_is_a_collection_and_a_rhythm_is_not() -> None:
    step = (op("aten::mm", 0, 20), launch(5, 5, corr=1), kernel("gemm", 12, 30, corr=1))
    calm = repeat(step, 120, 40)
    later = tuple(
        Event(**{**e.__dict__, "start": e.start + 3_000, "corr": e.corr + 10_000 * (e.corr > 0)})
        for e in repeat(step, 120, 40)
    )
    shifted = tuple(Event(**{**e.__dict__, "start": e.start + 4_800}) for e in later)
    assert "host-gc-pause" in shares(trace_of(*calm, *shifted))
    assert "host-gc-pause" not in shares(trace_of(*repeat(step, 60, 3_000)))


# -- memory --------------------------------------------------------------------------------------


def test_churn_and_first_use() -> None:
    step = (op("aten::mm", 0, 20), launch(5, 5, corr=1), kernel("gemm", 12, 10, corr=1))
    churn = (*step, call("cudaFree", 25, 20), call("cudaMalloc", 46, 20))
    assert shares(trace_of(*repeat(churn, 50, 70)))["memory-alloc-churn"] > 0.4
    first = [call("cudaMalloc", 1 + 0.5 * i, 0.4) for i in range(8)]
    assert "memory-alloc-churn" not in shares(trace_of(*first, *repeat(step, 50, 70)))


# -- compute -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "named"), [(V100, True), (P100, False)])
def test_fp32_needs_a_device_with_tensor_cores(device: dict[str, object], named: bool) -> None:
    trace = trace_of(*busy(0, 100, name="volta_sgemm_128x64_nn"), metadata=device)
    assert ("compute-fp32-matmul" in shares(trace)) == named


@pytest.mark.parametrize(
    ("beside", "named"),
    [
        ("volta_sgemm_32x32_nn", True),
        ("sm80_xmma_gemm_f32f32_simt", True),
        ("maxwell_scudnn_128x64", False),
    ],
)
def test_kernels_tell_of_tensor_cores_where_no_device_is_named(beside: str, named: bool) -> None:
    trace = trace_of(*busy(0, 100, name="cudnn::sgemm"), kernel(beside, 12_000, 5))
    assert ("compute-fp32-matmul" in shares(trace)) == named


def test_a_chain_of_pointwise_kernels_takes_as_long_as_its_longest() -> None:
    add, gemm = "vectorized_elementwise_kernel<4, Add>", "gemm"
    events = list[Event]()
    for i in range(100):  # the host is far ahead; every fifth kernel is no pointwise one
        corr = i + 1
        name = gemm if i % 5 == 4 else add
        events += [op("aten::add" if name == add else "aten::mm", 4 * i, 3)]
        events += [launch(4 * i + 1, 1, corr=corr), kernel(name, 10 + 50 * i, 50, corr=corr)]
    found = one(trace_of(*events), "compute-unfused-elementwise")
    assert found.share == pytest.approx(0.6, abs=0.05)


def test_what_a_compiler_fused_is_no_chain() -> None:
    trace = trace_of(*busy(0, 60, name="triton_poi_fused_add_mul_0"))
    assert shares(trace) == {}


# -- compile -------------------------------------------------------------------------------------


def region(name: str, start: float) -> tuple[Event, ...]:
    return (
        annotation(name, start, 20),
        launch(start + 5, 2, corr=int(start) + 1),
        kernel("triton_poi", start + 12, 5, corr=int(start) + 1),
    )


def test_numbered_regions_break_and_unnumbered_ones_do_not() -> None:
    def step(names: tuple[str, str]) -> tuple[Event, ...]:
        eager = op("aten::add", 100, 150)
        return (*region(names[0], 0), eager, *region(names[1], 300))

    numbered = step(("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 1/0"))
    plain = step(("Torch-Compiled Region", "Torch-Compiled Region"))
    assert "compile-graph-break" in shares(trace_of(*repeat(numbered, 10, 400)))
    assert "compile-graph-break" not in shares(trace_of(*repeat(plain, 10, 400)))


# -- comm ----------------------------------------------------------------------------------------


def test_only_the_transfer_of_a_collective_is_exposed_not_its_waiting() -> None:
    """Three equal all-reduces, of which one waits long for a late rank."""

    def step(called: float, at: float, corr: int, dur: float) -> tuple[Event, ...]:
        return (
            op("aten::mm", called, 3),
            launch(called + 1, 1, corr=corr),
            kernel("gemm", at + 10, 40, corr=corr),
            op("c10d::allreduce_", called + 4, 3),
            launch(called + 5, 1, corr=corr + 1),
            kernel(
                "ncclDevKernel_AllReduce",
                at + 50,
                dur,
                corr=corr + 1,
                msg_elems=1 << 20,
                collective="allreduce",
            ),
        )

    events = (*step(0, 0, 1, 20), *step(10, 80, 3, 400), *step(20, 540, 5, 20))
    found = one(trace_of(*events), "comm-exposed")
    assert 30_000 <= found.best_ns <= 60_000  # not 440 us


# -- what stays ----------------------------------------------------------------------------------


def test_a_cause_that_no_candidate_accounts_for_is_named() -> None:
    trace = trace_of(*busy(0, 10), *busy(20_000, 10))
    (left,) = candidates(trace).unexplained
    assert left.cause == "nothing"
    assert left.share > 0.9


def test_a_file_that_is_cut_off_may_have_lost_its_backward_pass() -> None:
    step = (op("aten::relu", 0, 40, sequence=1), launch(30, 5, corr=1), kernel("k", 45, 5, corr=1))
    trace = trace_of(*repeat(step, 60, 60))
    pattern, cut = BY_ID["infer-autograd"], {"truncated gz": 1}
    broken = replace(trace, coverage=replace(trace.coverage, repaired=cut))
    assert len(pattern.occurrences(signals_of(trace)))
    assert not len(pattern.occurrences(signals_of(broken)))


def test_what_a_repair_saves_beyond_its_own_causes_is_no_more_unexplained() -> None:
    """A graph takes the place of the program's Python between launches, too."""
    step = (
        python("/home/user/train.py(5): forward", 0, 49),
        op("aten::mm", 20, 25),
        launch(30, 5, corr=1),
        kernel("gemm", 40, 4, corr=1),
    )
    trace = trace_of(*repeat(step, 100, 50))
    found = candidates(trace)
    assert {c.pattern.id for c in found.found} == {"host-launch-bound"}
    assert build(signals_of(trace), 0, 5_000_000).total()["python"] > 0.05 * 5_000_000
    assert "python" not in BY_ID["host-launch-bound"].explains
    assert not found.unexplained


def test_steps_gain_each_their_own() -> None:
    step = (annotation(LOADER, 0, 1_000), *busy(1_000, 20))
    trace = trace_of(*repeat(step, 3, 2_010))
    signals = signals_of(trace)
    ledger = build(signals, 0, 6_030_000)
    found = find(signals, ledger, np.array([0, 2_010_000, 4_020_000, 6_030_000]))
    gains = found.found[0].by_step_ns
    assert len(gains) == 3
    assert min(gains) > 900_000


def test_no_order_of_repairs_favors_any() -> None:
    """Any two of three save all there is: an order gives it to the second, whoever that is."""

    class Replays:
        def waterfall(self, pairs: list[object]) -> list[int]:
            return [0, 60, 0]

    faults = [p for p in PATTERNS if p.kind == "fault"][:3]
    none = Occurrences(*[np.zeros(0, np.int64)] * 3)
    order = [(Candidate(p, none, 0, 0, 0, 0.0), Repair()) for p in faults]
    assert shares_among(Replays(), order, 1) == [0, 60, 0]  # type: ignore[arg-type]
    assert shares_among(Replays(), order, 3) == [20, 20, 20]  # type: ignore[arg-type]


def test_what_is_likely_saved_reaches_beyond_what_replays_say() -> None:
    pattern = replace(PATTERNS[0], error=(0.5, 2.0))
    candidate = Candidate(pattern, Occurrences(*[np.zeros(0, np.int64)] * 3), 40, 60, 50, 0.5)
    assert candidate.likely_ns(1_000) == (20, 120)
    assert candidate.likely_ns(100) == (20, 100)  # no more than there is


# -- the backward of what is spared ----------------------------------------------------------------


def pass_with_casts(*, linked: bool = True) -> tuple[Event, ...]:
    """A CPU run: a cast and a product, then the backward of both; the cast takes 50 each way."""

    def node(name: str, start: float, dur: float, sequence: int) -> tuple[Event, ...]:
        engine = f"autograd::engine::evaluate_function: {name}"
        return (
            op(engine, start, dur + 2, sequence=sequence),
            op(name, start + 1, dur, sequence=sequence),
        )

    return (
        op("aten::relu", 0, 5, sequence=7 if linked else 3),  # made no node: needs no gradient
        op("aten::to", 10, 52, sequence=7 if linked else 3),
        op("aten::_to_copy", 11, 50, sequence=7 if linked else 3),
        op("aten::mm", 70, 20, sequence=8),
        *node("MmBackward0", 100, 20, 8),
        *node("ToCopyBackward0", 130, 50, 7),
    )


def cast_saving(*events: Event) -> int:
    trace = trace_of(*repeat_numbered(events, 20, 200))
    return one(trace, "memory-dtype-churn").alone_ns


def repeat_numbered(events: tuple[Event, ...], times: int, every: float) -> list[Event]:
    return [
        replace(
            e, start=e.start + every * i, sequence=e.sequence + 10 * i if e.sequence >= 0 else -1
        )
        for i in range(times)
        for e in events
    ]


def test_an_op_that_is_not_run_has_no_backward() -> None:
    both = cast_saving(*pass_with_casts())
    assert both == pytest.approx(20 * 106_000, rel=0.15)
    forward = cast_saving(*pass_with_casts(linked=False))
    assert forward == pytest.approx(20 * 55_000, rel=0.15)


def test_an_op_before_compiled_code_did_not_make_its_backward() -> None:
    def saving(node: str) -> int:
        engine = f"autograd::engine::evaluate_function: {node}"
        backward = op(engine, 130, 52, sequence=7), op(node, 131, 50, sequence=7)
        return cast_saving(*pass_with_casts()[1:3], *backward)

    own, compiled = saving("ToCopyBackward0"), saving("CompiledFunctionBackward")
    assert own - compiled >= 20 * 52_000


def test_a_finding_s_place_holds_the_backward_that_goes_with_it() -> None:
    trace = trace_of(*repeat_numbered(pass_with_casts(), 20, 200))
    places = joined(one(trace, "memory-dtype-churn"), analyzed_time(trace))
    (cast,), (backward,) = (
        [r for r in range(len(trace)) if trace.names[trace.name[r]] == name][:1]
        for name in ("aten::to", "ToCopyBackward0")
    )
    for row in (cast, backward):
        edges = np.array([trace.start[row]]), np.array([trace.end[row]])
        assert places.covered(*edges)[0] == trace.dur[row]


def test_a_fused_chain_has_a_fused_backward() -> None:
    def chain(*, linked: bool) -> list[Event]:
        ops = [op("aten::mul", 10 * i, 10, sequence=i if linked else -1) for i in range(4)]
        back = [
            op(f"autograd::engine::evaluate_function: MulBackward{i}", 50 + 12 * i, 12, sequence=i)
            for i in range(4)
        ]
        return repeat_numbered((*ops, *back, op("aten::mm", 100, 20)), 20, 200)

    alone = one(trace_of(*chain(linked=False)), "compute-unfused-elementwise").alone_ns
    both = one(trace_of(*chain(linked=True)), "compute-unfused-elementwise").alone_ns
    assert both - alone == pytest.approx(20 * 36_000, rel=0.1)


def pointwise(start: float, count: int, every: float) -> list[Event]:
    """Ops with a short kernel each, launched one by one."""
    return [
        event
        for i in range(count)
        for event in (
            op("aten::mul", start + every * i, every - 5),
            launch(start + every * i + 5, 5, corr=int(start) + i + 1),
            kernel("elementwise_kernel", start + every * i + 12, 10, corr=int(start) + i + 1),
        )
    ]


def test_kernels_that_a_slow_host_launches_one_by_one_are_a_chain() -> None:
    step = (*pointwise(0, 6, 100), op("aten::mm", 600, 50), launch(605, 5, corr=99))
    step = (*step, kernel("gemm", 615, 30, corr=99))
    found = one(trace_of(*repeat(step, 10, 700)), "compute-unfused-elementwise")
    assert found.alone_ns == pytest.approx(10 * 5 * 95_000, rel=0.15)


def test_a_fused_chain_spares_the_nodes_of_its_backward_on_a_device_too() -> None:
    name = "autograd::engine::evaluate_function: MulBackward0"
    nodes = [op(name, 100 * i, 100) for i in range(6)]
    work = [replace(e, start=e.start + 30) for e in pointwise(0, 6, 100) if e.name != "aten::mul"]
    ops = [op("aten::mul", 100 * i + 30, 40) for i in range(6)]
    product = op("aten::mm", 600, 50), launch(605, 5, corr=99), kernel("gemm", 615, 30, corr=99)
    trace = trace_of(*repeat((*nodes, *ops, *work, *product), 10, 700))
    saved = one(trace, "compute-unfused-elementwise").alone_ns
    assert saved == pytest.approx(10 * 5 * 100_000, rel=0.1)


def test_what_is_added_to_gradients_is_no_chain() -> None:
    def ids(node: str) -> set[str]:
        held = [op(node, 100 * i, 99) for i in range(6)]
        work = [replace(e, start=e.start + 2, dur=min(e.dur, 90)) for e in pointwise(0, 6, 100)]
        product = op("aten::mm", 600, 50), launch(605, 5, corr=99), kernel("gemm", 615, 30, corr=99)
        return set(shares(trace_of(*repeat((*held, *work, *product), 10, 700))))

    assert "compute-unfused-elementwise" in ids("MulBackward0")
    assert "compute-unfused-elementwise" not in ids("torch::autograd::AccumulateGrad")


def test_casts_of_old_versions_are_no_op_of_their_own() -> None:
    """Before PyTorch 1.10 ``aten::to`` copied by itself; without a copy it changes nothing."""

    def step(*inner: Event) -> Trace:
        cast = (
            op("aten::to", 0, 50),
            *inner,
            launch(10, 5, corr=1),
            kernel("copy", 20, 40, corr=1),
        )
        rest = op("aten::mm", 60, 40), launch(70, 5, corr=2), kernel("gemm", 80, 20, corr=2)
        return trace_of(*repeat((*cast, *rest), 20, 110))

    assert shares(step(op("aten::copy_", 5, 40)))["memory-dtype-churn"] > 0.3
    assert "memory-dtype-churn" not in shares(step(op("aten::view", 5, 40)))


def test_an_op_between_two_copies_falls_back_however_short_it_is() -> None:
    out = memcpy("Memcpy DtoH (Device -> Pageable)", 15, 5, 64, corr=1)
    back = memcpy("Memcpy HtoD (Pageable -> Device)", 105, 5, 64, corr=2)
    down = op("aten::to", 0, 30), call("cudaMemcpyAsync", 10, 15, corr=1), out
    up = op("aten::to", 95, 30), call("cudaMemcpyAsync", 100, 15, corr=2), back
    product = op("aten::mm", 130, 20), launch(135, 5, corr=3), kernel("gemm", 142, 5, corr=3)

    def ids(dur: float) -> set[str]:
        trip = (*down, op("aten::unique_dim", 35, dur), *up, *product)
        return set(shares(trace_of(*repeat(trip, 10, 160))))

    assert "host-cpu-fallback" in ids(55)
    assert "host-cpu-fallback" not in ids(10)


def test_plain_python_saves_the_time_of_all_frames_in_the_gap() -> None:
    """A function of the program's that spends its time in many calls, none of them long."""
    calls = [python(f"<built-in function f{i}>", 120 + 10 * i, 9) for i in range(80)]
    step = (op("aten::mm", 0, 100), python("train.py(7): summarise", 110, 820), *calls)
    ordinary = (op("aten::add", 940, 20), op("aten::add", 965, 20))
    trace = trace_of(*repeat((*step, *ordinary), 10, 1_000))
    assert one(trace, "host-python-overhead").alone_ns == pytest.approx(10 * 820_000, rel=0.1)


def test_a_sleep_is_no_python_work() -> None:
    def sleeping(call: str) -> Trace:
        step = (op("aten::mm", 0, 100), python("serve.py(3): wait_for_request", 110, 820))
        inner = (python(call, 112, 815), op("aten::add", 940, 20), op("aten::add", 965, 20))
        return trace_of(*repeat((*step, *inner), 10, 1_000))

    assert "host-python-overhead" in shares(sleeping("serve.py(9): parse"))
    for rest in ("<built-in function sleep>", "<built-in method acquire of _thread.lock object>"):
        assert "host-python-overhead" not in shares(sleeping(rest))


def test_a_loop_in_the_loader_is_the_loader_s() -> None:
    def rounds(start: float) -> list[Event]:
        return [
            e
            for i in range(30)
            for e in (
                op("aten::select", start + 20 * i, 8),
                op("aten::add", start + 20 * i + 10, 8),
            )
        ]

    outside = trace_of(*repeat((*rounds(0), op("aten::mm", 700, 200)), 5, 1_000))
    assert "host-loop-indexing" in shares(outside)
    loader = annotation(LOADER, 0, 6_500)
    inside = trace_of(*repeat((loader, *rounds(10), op("aten::mm", 6_510, 3_480)), 5, 10_000))
    assert set(shares(inside)) == {"input-dataloader-sync"}


# -- what a repair leaves on a CPU run -------------------------------------------------------------

WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def received(start: float, tensors: int) -> tuple[Event, ...]:
    return tuple(op("aten::set_", start + 10 * i, 5) for i in range(tensors))


@pytest.mark.parametrize(("taken", "saved"), [(9_000, 9_000 - 1_350), (1_200, 0)])
def test_workers_make_batches_and_fetching_them_stays(taken: float, saved: float) -> None:
    step = annotation(LOADER, 0, taken), op("aten::mm", taken + 10, 3_000)
    trace = trace_of(*repeat(step, 5, taken + 3_020))
    found = [c for c in candidates(trace).found if c.pattern.id == "input-dataloader-sync"]
    assert sum(c.alone_ns for c in found) == pytest.approx(5 * saved * 1_000, abs=1e5)


def test_of_a_wait_for_a_batch_its_fetching_stays() -> None:
    step = annotation(WORKERS, 0, 9_000), *received(500, 2), op("aten::mm", 9_010, 3_000)
    trace = trace_of(*repeat(step, 5, 12_020))
    saved = one(trace, "input-dataloader-starved").alone_ns
    assert saved == pytest.approx(5 * (9_000 - 1_350) * 1_000, rel=0.01)


def test_samples_that_come_apart_come_together_once_workers_prepare_them() -> None:
    def saving(tensors: int) -> int:
        step = (
            annotation(WORKERS, 0, 3_850),
            *received(500, tensors),
            python("PIL/Image.py(1): resize", 4_000, 5_000),
            op("aten::mm", 9_010, 3_000),
        )
        trace = trace_of(*repeat(step, 5, 12_020))
        return one(trace, "input-main-thread-preprocessing").alone_ns

    assert saving(12) - saving(2) == pytest.approx(5 * 2_500_000, rel=0.02)


def optimizer_saving(name: str) -> float:
    """What a better optimizer saves of its time, on a CPU run."""
    ops = [op("aten::add_", 20 * i, 20) for i in range(50)]
    step = annotation(f"Optimizer.step#{name}.step", 0, 1_000), *ops, op("aten::mm", 1_000, 500)
    found = candidates(trace_of(*repeat(step, 10, 1_500))).found
    saved = [c.alone_ns for c in found if c.pattern.id == "compute-single-tensor-optimizer"]
    return sum(saved) / 10e6


def test_a_fused_optimizer_leaves_a_quarter_on_a_cpu_and_others_all() -> None:
    assert optimizer_saving("AdamW") == pytest.approx(0.75, abs=0.01)
    assert optimizer_saving("RMSprop") == 0


def test_the_backward_of_an_activation_in_two_layouts_is_as_long_as_in_one() -> None:
    image, types = "[[8, 20, 36, 36], [8, 20, 36, 36], []]", '["float", "float", "Scalar"]'

    def saving(backward: float) -> int:
        step = (
            op("aten::to", 0, 300),
            op("aten::_to_copy", 1, 298),
            op("aten::copy_", 2, 296, types=types, dims=image),
            op("aten::conv2d", 300, 200, dims=image),
            op("aten::gelu", 500, 100, dims=image),
            op("aten::gelu_backward", 700, backward, dims=image),
        )
        trace = trace_of(*repeat(step, 10, 3_000))
        return one(trace, "memory-layout-transform").alone_ns

    assert saving(2_000) - saving(120) == pytest.approx(10 * 1_850_000, rel=0.01)


# -- waiting for other ranks -----------------------------------------------------------------------


def collectives(*durations: float) -> Trace:
    """200 us of compute before each collective, all launched far ahead."""
    at, body = 20.0, []
    for i, length in enumerate(durations):
        first, second = 2 * i + 1, 2 * i + 2
        body += [op("aten::mm", 8 * i, 3), launch(8 * i + 1, 1, corr=first)]
        body += [kernel("gemm", at, 200, corr=first), launch(8 * i + 5, 1, corr=second)]
        body += [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 200, length, second)]
        at += 200 + length
    return trace_of(*body)


def test_a_collective_that_outlasts_its_like_waits_for_a_late_rank() -> None:
    found = shares(collectives(100, 100, 100, 700, 700))
    assert found["comm-straggler"] == pytest.approx(1_200 / 2_700, abs=0.05)


def test_collectives_that_all_take_the_same_wait_for_nobody() -> None:
    found = shares(collectives(700, 700, 700, 700, 700))
    assert "comm-straggler" not in found
    assert found["comm-exposed"] == pytest.approx(0.78, abs=0.05)
