"""What happens when: rows and time by what they do, and whose fault the idle time is."""

from __future__ import annotations

import pytest

from detector import vocabulary
from detector.activity import IDLE_CAUSES, SYNC_CAUSES, Activity
from detector.intervals import Intervals
from detector.trace import Trace
from tests.traces import (
    Event,
    annotation,
    call,
    kernel,
    launch,
    memcpy,
    op,
    python,
    sync,
    trace_of,
)

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def us(of: Intervals) -> list[tuple[float, float]]:
    return [(a / 1_000, b / 1_000) for a, b in zip(of.start, of.end, strict=True)]


def names(trace: Trace, rows: object) -> list[str]:
    return [trace.names[trace.name[row]] for row in rows]  # type: ignore[attr-defined]


# -- the device ----------------------------------------------------------------------------------


def test_collectives_are_no_compute_and_exposed_where_nothing_hides_them() -> None:
    activity = Activity(
        trace_of(
            kernel("sgemm", 0, 10),
            kernel("ncclDevKernel_AllReduce", 5, 15, stream=20),
            kernel("anything", 30, 5, stream=20, collective="allreduce"),
        )
    )
    assert us(activity.compute) == [(0, 10)]
    assert us(activity.comm) == [(5, 20), (30, 35)]
    assert us(activity.exposed_comm) == [(10, 20), (30, 35)]


def test_a_copy_beside_a_kernel_is_hidden() -> None:
    activity = Activity(
        trace_of(
            kernel("sgemm", 0, 10),
            memcpy("Memcpy HtoD (Pinned -> Device)", 5, 10, 4_096, stream=20),
        )
    )
    assert us(activity.exposed_copy) == [(10, 15)]
    assert us(activity.busy) == [(0, 15)]


def test_the_busiest_device_is_analyzed() -> None:
    trace = trace_of(kernel("a", 0, 10), kernel("b", 0, 50, device=1), kernel("c", 60, 5))
    activity = Activity(trace)
    assert activity.main_device == 1
    assert names(trace, activity.kernels) == ["b"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "comm"),
        ("void multimem_all_reduce_kernel<c10::BFloat16, 16>", "comm"),
        ("void pytorch_flash::flash_fwd_kernel<...>", "attention"),
        ("void cudnn::ops::nchwToNhwcKernel<float>", "layout"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", "gemm"),
        ("volta_sgemm_128x64_nn", "gemm"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwc", "conv"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512>", "norm"),
        ("void implicit_convolve_sgemm<float, float, 1024>", "conv"),
        ("void cudnn::detail::dgrad_engine<float, 512>", "conv"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "reduce"),
        ("elementwise_kernel<4, at::native::FillFunctor<float>>", "fill"),
        ("vectorized_elementwise_kernel<4, masked_fill_kernel(at::TensorIterator&)>", "pointwise"),
        ("elementwise_kernel<128, 4, direct_copy_kernel_cuda(...)>", "copy"),
        ("vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", "pointwise"),
        ("split_embedding_backward_codegen_rowwise_adagrad_kernel", "index"),
        ("my_kernel", "other"),
    ],
)
def test_kernels_by_kind(name: str, kind: str) -> None:
    trace = trace_of(kernel(name, 0, 10))
    assert names(trace, Activity(trace).kernels_of(kind)) == [name]


@pytest.mark.parametrize(
    ("name", "fp32", "tensor_core"),
    [
        ("volta_sgemm_128x64_nn", True, False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_ffma", True, False),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x64", False, True),
        ("cutlass_80_tensorop_s1688gemm_128x64_nn_align4", False, True),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn", False, True),
        ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", True, False),
        ("nvjet_tst_128x64_64x6_v_bz_TNT", False, True),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV", False, True),
    ],
)
def test_matrix_kernels_by_precision(name: str, fp32: bool, tensor_core: bool) -> None:
    assert bool(vocabulary.FP32_MATRIX.search(name)) == fp32
    assert bool(vocabulary.TENSOR_CORE.search(name)) == tensor_core


def test_pageable_copies_say_so_or_block_on_rocm() -> None:
    trace = trace_of(
        memcpy("Memcpy HtoD (Pageable -> Device)", 0, 5, 100),
        memcpy("Memcpy HtoD (Pinned -> Device)", 10, 5, 100),
        call("hipMemcpyWithStream", 20, 9, corr=1),
        memcpy("Memcpy HtoD (Host -> Device)", 21, 5, 100, corr=1),
        call("hipMemcpyAsync", 30, 2, corr=2),
        memcpy("Memcpy HtoD (Host -> Device)", 31, 5, 100, corr=2),
    )
    found = Activity(trace).pageable_h2d
    assert trace.start[found].tolist() == [0, 21_000]


def test_without_a_device_the_ops_compute_outside_the_loader() -> None:
    activity = Activity(
        trace_of(
            annotation(LOADER, 0, 20),
            op("aten::stack", 5, 10),
            op("aten::mm", 30, 10),
            op("ProfilerStep#1", 0, 100),
            annotation("gloo:all_reduce", 50, 10),
        )
    )
    assert not activity.has_device
    assert us(activity.compute) == [(30, 40)]
    assert us(activity.busy) == [(30, 40), (50, 60)]
    assert us(activity.exposed_comm) == [(50, 60)]


# -- the host ------------------------------------------------------------------------------------


def test_the_main_thread_is_the_one_that_launches() -> None:
    trace = trace_of(
        op("aten::long", 0, 500, thread=2), launch(5, 2, 1, thread=1), kernel("k", 9, 1, 1)
    )
    assert trace.tracks[Activity(trace).main_track].tid == "1"


def test_top_ops_are_what_the_program_called() -> None:
    trace = trace_of(
        annotation("note", 0, 50),
        op("aten::linear", 1, 20),
        op("aten::addmm", 2, 10),
        op("Optimizer.step#SGD", 30, 15),
        op("aten::add_", 31, 5),
    )
    activity = Activity(trace)
    assert names(trace, activity.top_ops) == ["aten::linear", "aten::add_"]
    assert names(trace, activity.aten) == ["aten::linear", "aten::addmm", "aten::add_"]


def test_top_ops_are_the_same_with_frames() -> None:
    ops = (
        op("mylib::attention", 0, 100),
        op("aten::matmul", 20, 50),
        op("aten::mm", 25, 20),
        op("aten::add", 120, 10),
    )
    frames = (
        python("model.py(3): forward", -10, 200),
        python("mylib/ops.py(7): attention", 5, 90),
        python("<built-in method matmul of type object at 0x1>", 15, 60),
    )
    for events in (ops, (*ops, *frames)):
        trace = trace_of(*events)
        assert names(trace, Activity(trace).top_ops) == ["mylib::attention", "aten::add"]


def read_back(around: str, inner: str, copy: str, at: float = 0) -> list[Event]:
    corr = int(at) + 1
    return [
        op(around, at, 40),
        op(inner, at + 1, 38),
        call("cudaMemcpyAsync", at + 2, 3, corr=corr),
        memcpy(copy, at + 4, 2, 4, corr),
        sync(at + 8, 20),
    ]


@pytest.mark.parametrize(
    ("around", "inner", "copy", "cause"),
    [
        ("aten::item", "aten::_local_scalar_dense", "Memcpy DtoH (Device -> Pageable)", "scalar"),
        ("aten::nonzero", "aten::copy_", "Memcpy DtoH (Device -> Pageable)", "dynamic_shape"),
        ("aten::_to_copy", "aten::copy_", "Memcpy HtoD (Pageable -> Device)", "h2d"),
        ("aten::_to_copy", "aten::copy_", "Memcpy DtoH (Device -> Pageable)", "d2h"),
        ("aten::foo", "aten::bar", "Memcpy DtoD (Device -> Device)", "explicit"),
    ],
)
def test_the_ops_around_a_wait_tell_its_cause(
    around: str, inner: str, copy: str, cause: str
) -> None:
    trace = trace_of(*read_back(around, inner, copy), launch(60, 2, 90), kernel("k", 62, 5, 90))
    activity = Activity(trace)
    assert {c: len(activity.syncs_of(c)) for c in SYNC_CAUSES} == {
        c: int(c == cause) for c in SYNC_CAUSES
    }


def test_the_profilers_own_synchronize_is_no_wait_of_the_program() -> None:
    trace = trace_of(
        sync(0, 5, "cudaDeviceSynchronize"),
        launch(10, 2, 1),
        kernel("k", 13, 20, 1),
        sync(15, 10, "cudaDeviceSynchronize"),
        launch(30, 2, 2),
        kernel("k", 33, 20, 2),
        sync(40, 20),
        sync(70, 20, "cudaDeviceSynchronize"),
    )
    found = Activity(trace).sync_rows
    assert trace.start[found].tolist() == [15_000, 40_000]


def test_idle_time_has_one_cause_each_the_most_telling_first() -> None:
    trace = trace_of(
        annotation(LOADER, 0, 20),
        sync(15, 15),
        call("cudaMalloc", 30, 10),
        op("aten::mm", 40, 20),
        launch(50, 5, 1),
        python("train.py(1): step", 0, 100),
        kernel("k", 70, 10, 1),
        op("aten::mm", 72, 4),
    )
    activity = Activity(trace)
    idle = {cause: us(activity.idle_while(cause)) for cause in IDLE_CAUSES}
    assert idle == {
        "loader": [(0, 20)],
        "sync": [(20, 30)],
        "alloc": [(30, 40)],
        "compile": [],
        "comm": [],
        "launch": [(50, 55)],
        "op": [(40, 50), (55, 60)],
        "python": [(60, 70), (80, 100)],
    }


def test_the_causes_share_the_idle_time_among_them() -> None:
    trace = trace_of(op("aten::mm", 0, 10), launch(2, 3, 1), kernel("k", 20, 10, 1), sync(22, 40))
    activity = Activity(trace)
    total = sum(activity.idle_while(cause).measure for cause in IDLE_CAUSES)
    assert total == activity.idle(0, 62_000).measure


def test_an_empty_trace_has_no_activity() -> None:
    activity = Activity(trace_of())
    assert not activity.has_device
    assert activity.main_track == activity.main_device == -1
    assert activity.busy.measure == 0
    assert all(activity.idle_while(cause).measure == 0 for cause in IDLE_CAUSES)
    assert len(activity.sync_rows) == len(activity.top_ops) == len(activity.launches) == 0


# -- what no code explains -----------------------------------------------------------------------


def work(start: float, dur: float, called: float, corr: int) -> list[Event]:
    return [launch(called, 5, corr), kernel("k", start, dur, corr)]


def test_work_that_waits_in_an_idle_device_is_a_stall() -> None:
    """Called for at 100 and started at 2,000: the queue was full of what was not recorded."""
    activity = Activity(trace_of(op("aten::mm", 0, 9), *work(2_000, 50, 100, 1)))
    assert us(activity.stalled) == [(100, 2_000)]


def test_an_idle_device_is_no_stall_before_its_work_is_called_for() -> None:
    events = (*work(10, 50, 5, 1), *work(5_010, 50, 5_000, 2), *work(5_600, 50, 5_001, 3))
    assert us(Activity(trace_of(*events)).stalled) == []  # 540 us are less than a millisecond
    late = Activity(trace_of(*events, *work(9_000, 9, 5_002, 4)))
    assert us(late.stalled) == [(5_650, 9_000)]  # from the end of the work before


def test_a_wait_without_work_is_a_stall() -> None:
    events = (*work(4_000, 50, 3_990, 1), sync(4_010, 3_000))
    early = sync(0, 3_000, "hipStreamSynchronize")
    assert us(Activity(trace_of(*events)).stalled) == [(4_050, 7_010)]
    assert us(Activity(trace_of(early, *events)).stalled) == [(0, 3_000), (4_050, 7_010)]
    other = kernel("k", 0, 3_000, device=1)  # one that runs elsewhere explains it
    assert (
        us(Activity(trace_of(early, *events[:2], other, *work(3_100, 3_000, 3_095, 2))).stalled)
        == []
    )


def test_a_run_on_the_cpu_never_stalls() -> None:
    assert us(Activity(trace_of(op("aten::mm", 0, 9), sync(10, 5_000))).stalled) == []
