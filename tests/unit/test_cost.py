"""What each pattern claims: on a trace that shows it, measured by hand; on one that does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from detector.activity import Activity
from detector.cost import WEIGHTS, Claim, claim
from detector.cost.host import host_only_ops
from detector.intervals import EMPTY, Intervals
from detector.patterns import IDS
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
    repeat,
    sync,
    trace_of,
)

Spans = list[tuple[float, float]]

LOADER = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"
PAGEABLE, PINNED = "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"
TO_HOST = "Memcpy DtoH (Device -> Pageable)"
POINTWISE = "vectorized_elementwise_kernel<4, AddFunctor>"
FOUR_SMS = {"deviceProperties": [{"id": 0, "numSms": 4}]}


def issued(name: str, start: float, work: Event, **rest: object) -> list[Event]:
    """An op of 4 us that launches this work; ``work.corr`` links them."""
    return [op(name, start, 4, **rest), launch(start + 1, 2, work.corr), work]


def loading(kind: str) -> Trace:
    wait = annotation(LOADER.format(kind), 0, 100)
    return trace_of(kernel("k", 0, 30), wait, kernel("k", 100, 9))


def working(frame: str, busy: float) -> Trace:
    """A frame 50..250 while the device is busy up to ``busy``."""
    return trace_of(python(frame, 50, 200), kernel("k", 0, busy), kernel("k", 300, 1))


def copying(name: str) -> Trace:
    """A copy 10..30 with a kernel beside it 20..25, and the wait for it, 12..40."""
    return trace_of(
        op("aten::copy_", 0, 45),
        call("cudaMemcpyAsync", 2, 3, corr=1),
        sync(12, 28),
        memcpy(name, 10, 20, 100_000, corr=1),
        kernel("k", 20, 5),
    )


def small_copy(size: int) -> Trace:
    return trace_of(
        op("aten::copy_", 0, 9),
        call("cudaMemcpyAsync", 2, 3, corr=1),
        memcpy(PINNED, 5, 8, size, corr=1),
        kernel("k", 11, 1),
    )


def made_and_moved(*made: Event) -> Trace:
    return trace_of(
        *made,
        op("aten::copy_", 5, 9),
        call("cudaMemcpyAsync", 6, 1, corr=1),
        memcpy(PAGEABLE, 10, 8, 100, corr=1),
    )


def reading(outer: str, inner: str, size: int, ends: float, then: float = 60) -> Trace:
    """A wait 5..45 for a copy that ends at ``ends``; the next kernel starts at ``then``."""
    return trace_of(
        op(outer, 0, 50),
        op(inner, 1, 48),
        call("cudaMemcpyAsync", 2, 2, corr=1),
        sync(5, 40),
        kernel("k", 0, 30),
        memcpy(TO_HOST, 30, ends - 30, size, corr=1),
        *issued("aten::mm", then - 8, kernel("k", then, 10, corr=2)),
    )


SCALAR = reading("aten::item", "aten::_local_scalar_dense", 4, 42)
TENSOR = reading("aten::to", "aten::copy_", 1_000_000, 44)
DYNAMIC = reading("aten::nonzero", "aten::copy_", 8, 42)


def waiting(*, last: bool) -> Trace:
    """The program waits 5..35 for a kernel that ends at 30; the next one starts at 60."""
    first = (launch(1, 2, 1), kernel("k", 0, 30, 1), sync(5, 30, "cudaDeviceSynchronize"))
    return trace_of(*first, *(() if last else (launch(50, 2, 2), kernel("k", 60, 10, 2))))


def launching(length: float) -> Trace:
    return trace_of(
        *(launch(0, length, 1), kernel("k", 5, 10, 1)),
        *(launch(30, length, 2), kernel("k", 35, 10, 2)),
        op("aten::mm", 49, 1),
    )


SMALL_KERNELS = trace_of(
    *(op("aten::mm", 0, 10), launch(2, 3, 1), kernel("k", 6, 3, 1)),
    *(op("aten::mm", 20, 10), launch(22, 3, 2), kernel("k", 26, 3, 2)),
)
BATCH_WAIT = loading("MultiProcessing")


def selects(times: int) -> Trace:
    return trace_of(*repeat([op("aten::select", 0, 4)], times, 10))


def pause(length: float) -> Trace:
    return trace_of(kernel("k", 0, 10), kernel("k", 10 + length, 10))


def round_trip(first: str, second: str, on_host: float) -> Trace:
    """A copy 10..12, an op on the host beside a kernel 20..25, and a copy of 4 us back."""
    back = 12 + on_host
    return trace_of(
        kernel("k", 0, 10),
        memcpy(first, 10, 2, 100),
        op("aten::svd", 12, on_host),
        kernel("k", 20, 5, stream=9),
        memcpy(second, back, 4, 100),
        kernel("k", back + 4, 6),
    )


def calling(name: str) -> Trace:
    return trace_of(kernel("k", 0, 15), call(name, 10, 20), kernel("k", 40, 10))


def zeroing(start: float) -> Trace:
    return trace_of(
        annotation("Optimizer.zero_grad#SGD", start, 30),
        *issued("aten::zero_", 5, kernel("FillFunctor<float>", 12, 8, 1)),
    )


def one(name: str, work: str, dims: str = "") -> Trace:
    """An op whose kernel runs 12..20."""
    return trace_of(*issued(name, 0, kernel(work, 12, 8, 1), dims=dims))


def only(name: str, **rest: object) -> Trace:
    return trace_of(kernel(name, 0, 10, **rest))


def gridded(first: int, second: int) -> Trace:
    kernels = (kernel("k", 0, 10, blocks=first), kernel("k", 10, 30, blocks=second))
    return trace_of(*kernels, metadata=FOUR_SMS)


def attention(middle: str) -> Trace:
    return trace_of(
        *issued("aten::bmm", 0, kernel("sgemm", 20, 10, 1)),
        *issued(middle, 5, kernel("k", 30, 10, 2)),
        *issued("aten::bmm", 10, kernel("sgemm", 40, 10, 3)),
    )


def chain(*kinds: str) -> Trace:
    names = {
        "p": POINTWISE,
        "g": "sgemm",
        "c": "direct_copy_kernel_cuda",
        "r": "reduce_kernel<512, 1, MeanOps>",
        "k": "CatArrayBatchedCopy",
    }
    return trace_of(*(kernel(names[kind], 3 * i, 3) for i, kind in enumerate("".join(kinds))))


def updating(name: str) -> Trace:
    return trace_of(
        annotation("Optimizer.step#Adam.step", 0, 40), *issued(name, 5, kernel("k", 12, 8, 1))
    )


def convolving(after: str) -> Trace:
    return trace_of(
        op("aten::conv2d", 0, 10),
        launch(2, 1, 1),
        launch(4, 1, 2),
        kernel("cudnn::scudnn_winograd", 12, 18, 1),
        kernel(POINTWISE, 30, 5, 2),
        op(after, 10, 2),
    )


def region(name: str, start: float, corr: int) -> list[Event]:
    """A compiled region of 9 us that launches a kernel of 8 us."""
    call = [annotation("## Call CompiledFxGraph f ##", start + 1, 7), launch(start + 3, 2, corr)]
    return [op(name, start, 9), *call, kernel("triton_poi_0", start + 4, 8, corr)]


def compiled(
    first: str, second: str, *between: Event, steps: Sequence[tuple[float, float]] = ()
) -> Trace:
    """Two regions, at 0 and 30, with an eager op between."""
    return trace_of(
        *region(first, 0, 1), op("aten::add", 15, 8), *between, *region(second, 30, 2), steps=steps
    )


def compiling(frame: str) -> Trace:
    return trace_of(python(frame, 0, 100), kernel("k", 50, 10))


def collective(elements: int, until: float = 10) -> Trace:
    """A collective 0..20 beside compute from 5."""
    return trace_of(
        kernel("ncclDevKernel_AllReduce", 0, 20, stream=20, msg_elems=elements),
        kernel("sgemm", 5, until - 5),
    )


def starving(*beside: Event) -> Trace:
    """A collective 0..20; the next compute is called for at 15 and starts at 20."""
    return trace_of(
        kernel("ncclDevKernel_AllReduce", 0, 20, stream=20, msg_elems=100),
        *beside,
        launch(15, 2, 1),
        kernel("sgemm", 20, 5, 1),
    )


def rounds(first: int, second: int, *updates: float) -> Trace:
    """Collectives 0..20 and 30..50 with compute beside the second, and optimizer steps."""
    return trace_of(
        kernel("ncclDevKernel_AllReduce", 0, 20, stream=20, msg_elems=first),
        kernel("ncclDevKernel_AllReduce", 30, 20, stream=20, msg_elems=second),
        kernel("sgemm", 35, 5),
        *(annotation("Optimizer.step#SGD.step", at, 2) for at in updates),
    )


def exchanging(collective: str) -> Trace:
    """The same collective twice before the optimizer's step."""
    rest = {"stream": 20, "msg_elems": 100, "collective": collective}
    events = (kernel("ncclDevKernel_Generic", at, 20, **rest) for at in (0, 30))
    return trace_of(*events, annotation("Optimizer.step#SGD.step", 60, 2))


def lagging() -> Trace:
    """A reduction in each of two steps, both after the host's second optimizer step."""
    events = (
        (launch(at, 2, at), kernel("ncclDevKernel_AllReduce", 100 + at, 5, at, 20, msg_elems=100))
        for at in (10, 30)
    )
    updates = (annotation("Optimizer.step#SGD.step", at, 2) for at in (20, 40, 200))
    return trace_of(*(e for pair in events for e in pair), *updates)


def searching(name: str) -> Trace:
    return trace_of(annotation(name, 0, 10), kernel("k", 4, 2))


def inferring(*more: Event, sequence: int = 7) -> Trace:
    mm = op("aten::mm", 0, 10, sequence=sequence)
    return trace_of(mm, launch(2, 2, 1), kernel("k", 6, 3, 1), *more)


GROWING = "[[[1, 8, 64, 16], [1, 8, 1, 16]], [-2]]"
HALVES = "[[[1, 8, 64, 16], [1, 8, 64, 16]], []]"


FRAME = "torch/_dynamo/convert_frame.py(9): _compile.<locals>.compile_inner"
SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"

SHOWN: dict[str, tuple[Trace, Spans]] = {
    "input-dataloader-sync": (loading("SingleProcess"), [(30, 100)]),
    "input-dataloader-starved": (BATCH_WAIT, [(30, 100)]),
    "input-main-thread-preprocessing": (
        working("PIL/Image.py(9): resize", 80),
        [(80, 250)],
    ),
    "input-pageable-copy": (copying(PAGEABLE), [(10, 20), (25, 40)]),
    "input-copy-not-overlapped": (copying(PINNED), [(10, 20), (25, 30)]),
    "input-tiny-copies": (small_copy(1_000), [(0, 11), (12, 13)]),
    "input-cpu-tensor-to-device": (
        made_and_moved(op("aten::zeros", 0, 4)),
        [(0, 4), (5, 18)],
    ),
    "sync-scalar-readback": (SCALAR, [(42, 60)]),
    "sync-tensor-readback": (TENSOR, [(30, 60)]),
    "sync-explicit": (waiting(last=False), [(30, 60)]),
    "sync-dynamic-shape": (DYNAMIC, [(42, 60)]),
    "sync-blocking-launch": (launching(20), [(0, 5), (15, 20), (30, 35), (45, 50)]),
    "host-launch-bound": (SMALL_KERNELS, [(0, 6), (9, 26), (29, 30)]),
    "host-python-overhead": (SMALL_KERNELS, [(10, 20)]),
    "host-loop-indexing": (selects(12), [(0, 114)]),
    "host-gc-pause": (pause(1_500), [(10, 1_510)]),
    "host-cpu-fallback": (round_trip(TO_HOST, PAGEABLE, 300), [(10, 20), (25, 316)]),
    "memory-alloc-churn": (calling("cudaMalloc"), [(15, 30)]),
    "memory-zero-grad-fill": (zeroing(0), [(0, 30)]),  # the fill, and the host around it
    "memory-redundant-copy": (one("aten::clone", "direct_copy_kernel_cuda"), [(12, 20)]),
    "memory-layout-transform": (only("nchwToNhwcKernel"), [(0, 10)]),
    "memory-dtype-churn": (one("aten::_to_copy", "bfloat16_copy_kernel"), [(12, 20)]),
    "compute-fp32-matmul": (only("volta_sgemm_128x64_nn"), [(0, 10)]),
    "compute-misaligned-gemm": (one("aten::mm", "sgemm", "[[32, 17], [17, 64]]"), [(12, 20)]),
    "compute-underfilled": (gridded(2, 1), [(0, 40)]),
    "compute-unfused-attention": (attention("aten::_softmax"), [(20, 50)]),
    "compute-unfused-elementwise": (chain("ppp", "g", "p"), [(0, 9)]),
    "compute-single-tensor-optimizer": (updating("aten::addcdiv_"), [(0, 40)]),
    "compute-conv-bias-batchnorm": (convolving("aten::batch_norm"), [(30, 35)]),
    "compile-graph-break": (
        compiled("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 1/0"),
        [(12, 33)],  # the device idles from 12; the second region launches at 33
    ),
    "compile-recompile": (compiling(FRAME), [(0, 50), (60, 100)]),
    "comm-exposed": (collective(100), [(0, 5), (10, 20)]),
    "comm-small-collectives": (collective(100), [(0, 5), (10, 20)]),
    "comm-straggler": (collective(100), []),  # one rank alone cannot tell
    "comm-unused-parameters": (searching(SEARCH), [(0, 4), (6, 10)]),
    "comm-missing-no-sync": (rounds(100, 100, 60), [(30, 35), (40, 50)]),
    "infer-autograd": (inferring(), [(0, 2), (4, 6), (9, 10)]),
    "infer-kv-cat": (one("aten::cat", "CatArrayBatchedCopy", GROWING), [(12, 20)]),
}

NOT_SHOWN: dict[str, tuple[Trace, ...]] = {
    "input-dataloader-sync": (loading("MultiProcessing"),),
    "input-dataloader-starved": (loading("SingleProcess"),),
    "input-main-thread-preprocessing": (
        working("train.py(9): log", 80),
        working("PIL/Image.py(9): resize", 300),
    ),
    "input-pageable-copy": (copying("Memcpy DtoD (Device -> Device)"), TENSOR),
    "input-copy-not-overlapped": (copying(PAGEABLE),),
    "input-tiny-copies": (small_copy(100_000), TENSOR),
    "input-cpu-tensor-to-device": (
        made_and_moved(),
        made_and_moved(op("aten::zeros", 0, 4, thread=2)),
        made_and_moved(  # a record_function of old: zeros before it, empty inside
            op("aten::zeros", 0, 3),
            op("aten::zero_", 3, 0),
            annotation("copy", 4, 20),
            op("aten::empty", 4.5, 0.2),
        ),
        made_and_moved(  # this one is made on the device: the fill inside it launches
            op("aten::zeros", 0, 4),
            op("aten::fill_", 1, 3),
            launch(2, 1, 7),
            kernel("FillFunctor<float>", 20, 2, 7),
        ),
    ),
    "sync-scalar-readback": (TENSOR, DYNAMIC, waiting(last=False)),
    "sync-tensor-readback": (SCALAR, waiting(last=False)),
    "sync-explicit": (SCALAR, TENSOR, waiting(last=True)),
    "sync-dynamic-shape": (SCALAR, TENSOR),
    "sync-blocking-launch": (launching(3), SMALL_KERNELS),
    "host-launch-bound": (BATCH_WAIT,),
    "host-python-overhead": (BATCH_WAIT,),
    "host-loop-indexing": (selects(9),),
    "host-gc-pause": (pause(900),),
    "host-cpu-fallback": (
        round_trip(TO_HOST, PAGEABLE, 100),  # an ordinary op
        round_trip(PAGEABLE, TO_HOST, 300),
    ),
    "memory-alloc-churn": (calling("cudaEventRecord"),),
    "memory-zero-grad-fill": (
        zeroing(50),
        trace_of(annotation("Optimizer.zero_grad#SGD", 0, 30), kernel("k", 40, 9)),  # to None
    ),
    "memory-redundant-copy": (
        one("aten::add", "direct_copy_kernel_cuda"),
        trace_of(op("aten::clone", 0, 9), kernel("direct_copy_kernel_cuda", 0, 9)),  # no launch
    ),
    "memory-layout-transform": (only("sgemm"),),
    "memory-dtype-churn": (one("aten::add", "bfloat16_copy_kernel"),),
    "compute-fp32-matmul": (only("ampere_bf16_s16816gemm_bf16"),),
    "compute-misaligned-gemm": (
        one("aten::mm", "sgemm", "[[32, 16], [16, 64]]"),
        one("aten::mm", "sgemm"),
        one("aten::mm", "sgemm", "[[32"),
        one("aten::add", "sgemm", "[[32, 17], [17, 64]]"),
    ),
    "compute-underfilled": (gridded(3, 4), trace_of(kernel("k", 0, 10, blocks=1))),
    "compute-unfused-attention": (attention("aten::relu"),),
    "compute-unfused-elementwise": (
        chain("pp", "g", "pp"),
        chain("p"),
        chain("pp"),
        chain("pcrkp"),
        chain("ccrr"),
    ),
    "compute-single-tensor-optimizer": (updating("aten::_foreach_add_"),),
    "compute-conv-bias-batchnorm": (convolving("aten::relu"),),
    "compile-graph-break": (
        trace_of(annotation("my note", 0, 9), op("aten::add", 12, 8), annotation("my note", 30, 9)),
        trace_of(*region("Torch-Compiled Region: 0/0", 0, 1), op("aten::add", 30, 8)),
        # the same region again: a loop over layers or tokens
        compiled("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 0/0"),
        compiled("Torch-Compiled Region: 1/0", "Torch-Compiled Region: 0/0"),
        # one region a step, and its backward
        compiled("CompiledFunction", "CompiledFunctionBackward"),
        compiled("CompiledFunction", "CompiledFunction", steps=[(0, 25), (25, 50)]),
        compiled(
            "Torch-Compiled Region: 0/0",
            "Torch-Compiled Region: 1/0",
            annotation("Optimizer.step#SGD.step", 24, 5),
        ),
    ),
    "compile-recompile": (compiling("train.py(3): step"),),
    "comm-exposed": (
        only("sgemm"),
        trace_of(
            *(e for e in repeat([launch(24, 2, 1), kernel("sgemm", 30, 5, 1)], 2, 30)),
            kernel("ncclDevKernel_AllReduce", 0, 20, stream=20),
        ),
    ),
    "comm-small-collectives": (collective(400_000), collective(-1)),
    "comm-straggler": (only("sgemm"),),
    "comm-unused-parameters": (searching("my note"),),
    "comm-missing-no-sync": (
        rounds(100, 100),
        rounds(100, 100, 25, 60),
        rounds(100, 400, 60),
        rounds(-1, -1, 60),  # of unknown size: perhaps two buckets
        exchanging("alltoall"),
        lagging(),
        only("sgemm"),
    ),
    "infer-autograd": (
        inferring(op("autograd::engine::evaluate_function: MmBackward0", 9, 1)),
        inferring(sequence=-1),  # builds no graph
    ),
    "infer-kv-cat": (
        one("aten::add", "CatArrayBatchedCopy", GROWING),
        one("aten::cat", "CatArrayBatchedCopy", HALVES),  # the halves of a rotary embedding
        one("aten::cat", "CatArrayBatchedCopy"),
    ),
}


def claimed(trace: Trace, pattern: str) -> Spans:
    """The claim's intervals, us."""
    spans = claim(Activity(trace), pattern).intervals
    pairs = zip(spans.start.tolist(), spans.end.tolist(), strict=True)
    return [(start / 1_000, end / 1_000) for start, end in pairs]


def test_every_pattern_stands_in_both_tables() -> None:
    assert set(SHOWN) == set(NOT_SHOWN) == set(IDS)
    assert set(WEIGHTS) <= set(IDS)


@pytest.mark.parametrize("pattern", IDS)
def test_a_trace_that_shows_the_pattern(pattern: str) -> None:
    trace, spans = SHOWN[pattern]
    assert claimed(trace, pattern) == spans
    found = claim(Activity(trace), pattern)
    measure = 1_000 * sum(end - start for start, end in spans)
    assert found.recoverable_ns == pytest.approx(found.weight * measure)


@pytest.mark.parametrize(
    ("pattern", "trace"), [(name, trace) for name in IDS for trace in NOT_SHOWN[name]]
)
def test_a_trace_that_does_not(pattern: str, trace: Trace) -> None:
    assert claimed(trace, pattern) == []


@pytest.mark.parametrize("pattern", IDS)
def test_an_empty_trace_and_one_lone_kernel(pattern: str) -> None:
    empty = claim(Activity(trace_of()), pattern)
    assert (len(empty.intervals), empty.recoverable_ns) == (0, 0)
    assert claimed(trace_of(kernel("k", 5, 10)), pattern) == []


# -- bounds and variants -----------------------------------------------------------------------


def test_idle_after_a_wait_counts_at_most_as_long_as_the_wait() -> None:
    late = reading("aten::item", "aten::_local_scalar_dense", 4, 42, then=300)
    assert claimed(late, "sync-scalar-readback") == [(42, 85)]  # 45, and 40 more


def test_after_the_last_wait_the_device_gets_no_more_work() -> None:
    trace = trace_of(launch(0, 1, 1), kernel("k", 1, 9, 1), sync(2, 20), op("aten::mm", 30, 9))
    assert claimed(trace, "sync-explicit") == [(10, 22)]


def test_a_wait_after_each_launch_blocks_too() -> None:
    body = (launch(0, 2, 1), kernel("k", 1, 9, 1), sync(2, 10))
    assert claimed(trace_of(*repeat(body, 2, 20)), "sync-blocking-launch") == [
        (0, 1),
        (10, 12),
        (20, 21),
        (30, 32),
    ]


def test_a_long_op_that_launches_nothing_computes_on_the_host() -> None:
    trace = trace_of(
        kernel("k", 0, 10),
        op("aten::svd", 10, 300),
        *issued("aten::mm", 400, kernel("k", 410, 9, 1)),
    )
    assert host_only_ops(Activity(trace)).tolist() == [1]
    assert claimed(trace, "input-main-thread-preprocessing") == [(10, 310)]


def test_an_explicit_collection_needs_no_long_pause() -> None:
    trace = trace_of(python("<built-in function collect>", 0, 300), kernel("k", 200, 200))
    assert claimed(trace, "host-gc-pause") == [(0, 200)]


def test_a_loop_ends_where_the_rows_stop_following_each_other() -> None:
    loop = repeat([op("aten::select", 0, 4)], 11, 10)
    far = repeat([op("aten::select", 5_000, 4)], 12, 10)
    alone = op("aten::select", 9_000, 4)
    assert claimed(trace_of(*loop, *far, alone), "host-loop-indexing") == [(0, 104), (5_000, 5_114)]


@pytest.mark.parametrize("sms", ["many", None, -4, 0, 1e400, float("nan"), [4]])
def test_nonsense_in_the_metadata_fills_no_device(sms: object) -> None:
    trace = trace_of(
        kernel("k", 0, 10, blocks=1), metadata={"deviceProperties": [7, {"id": 0, "numSms": sms}]}
    )
    assert claim(Activity(trace), "compute-underfilled").recoverable_ns == 0


def test_the_weight_of_underfilled_kernels_is_what_they_leave_empty() -> None:
    # 10 us half empty and 30 us three quarters empty
    found = claim(Activity(gridded(2, 1)), "compute-underfilled")
    assert found.weight == pytest.approx((10 * 0.5 + 30 * 0.75) / 40)
    assert found.recoverable_ns == pytest.approx(27_500)


def test_modelled_weights() -> None:
    assert claim(Activity(SMALL_KERNELS), "host-launch-bound").weight == 0.8
    assert claim(Activity(SMALL_KERNELS), "host-python-overhead").weight == 1.0
    bias = claim(Activity(convolving("aten::batch_norm")), "compute-conv-bias-batchnorm")
    assert bias.weight == 1.0


def test_a_run_goes_on_over_what_a_compiler_would_fuse_too() -> None:
    """A cast, the square, its mean, rsqrt, product: the halves of a norm are one run."""
    assert claimed(chain("cprpkp"), "compute-unfused-elementwise") == [(3, 6), (9, 12), (15, 18)]


def test_a_collective_is_exposed_from_when_the_next_compute_waits_for_it() -> None:
    assert claimed(starving(), "comm-exposed") == [(15, 20)]
    assert claimed(starving(sync(2, 10)), "comm-exposed") == [(2, 12), (15, 20)]
    calls = op("c10d::allreduce_", 0, 6)  # the host's time for the collective is its cost, too
    assert claimed(starving(calls), "comm-exposed") == [(0, 6), (15, 20)]


def test_a_reduction_is_told_by_its_collective_where_the_kernel_does_not_say() -> None:
    assert claimed(exchanging("allreduce"), "comm-missing-no-sync") == [(30, 50)]


def test_old_regions_without_numbers_break_within_a_step() -> None:
    assert claimed(compiled("CompiledFunction", "CompiledFunction"), "compile-graph-break") == [
        (12, 33)
    ]


LOADING = trace_of(  # the second launch loads its kernel for 3 ms
    *(op("aten::mm", 0, 10), launch(2, 3, 1), kernel("k", 6, 3, 1)),
    *(op("aten::add", 20, 3_020), launch(30, 3_000, 2), kernel("l", 3_031, 5, 2)),
    op("aten::mul", 3_045, 1),
)


@pytest.mark.parametrize("pattern", ["host-launch-bound", "sync-blocking-launch"])
def test_nobody_claims_the_time_in_which_kernels_load(pattern: str) -> None:
    assert Activity(LOADING).stalled.measure == 3_001_000
    assert all(end <= 30 or start >= 3_031 for start, end in claimed(LOADING, pattern))


def test_a_small_copy_behind_unrecorded_work_costs_little() -> None:
    """The kernel that it waits behind was launched at 2 and ran at 9,000."""
    trace = trace_of(
        *(launch(2, 2, 1), kernel("k", 9_000, 5, 1)),
        *(op("aten::copy_", 6, 9_014), call("hipMemcpyWithStream", 8, 9_010, corr=2)),
        memcpy("Memcpy HtoD (Host -> Device)", 9_005, 5, 60, corr=2),
    )
    assert claimed(trace, "input-tiny-copies") == [(9_005, 9_020)]
    assert claimed(trace, "input-pageable-copy") == [(9_005, 9_018)]


# -- CPU runs: the ops are the device ------------------------------------------------------------


def cpu(*names: str) -> Trace:
    """Ops of 10 us in a row, from 100; a batch is made 0..100, with a copy of its own."""
    ops = [op(name, 100 + 10 * i, 10) for i, name in enumerate(names)]
    return trace_of(
        annotation(LOADER.format("SingleProcess"), 0, 100), op("aten::cat", 5, 20), *ops
    )


def gloo(*starts: float) -> Trace:
    """Collectives of 10 us on the host; the optimizer steps at 50 and at 110."""
    updates = (annotation("Optimizer.step#SGD.step", at, 2) for at in (50, 110))
    return trace_of(*(annotation("gloo:all_reduce", at, 10) for at in starts), *updates)


@pytest.mark.parametrize(
    ("pattern", "trace", "spans"),
    [
        ("input-dataloader-sync", cpu("aten::mm"), [(0, 100)]),
        ("memory-redundant-copy", cpu("aten::mm", "aten::clone"), [(110, 120)]),
        (
            "infer-kv-cat",
            trace_of(op("aten::cat", 0, 10, dims=GROWING), op("aten::cat", 20, 10, dims=HALVES)),
            [(0, 10)],
        ),
        ("memory-dtype-churn", cpu("aten::mm", "aten::to"), [(110, 120)]),
        ("compute-unfused-elementwise", cpu(*["aten::mul"] * 3, "aten::mm"), [(100, 130)]),
        ("compute-unfused-elementwise", cpu("aten::mm", *["aten::mul"] * 2), []),
        (
            "compute-unfused-attention",
            cpu("aten::bmm", "aten::softmax", "aten::bmm"),
            [(100, 130)],
        ),
        ("compute-conv-bias-batchnorm", cpu("aten::conv2d", "aten::batch_norm"), [(100, 110)]),
        ("compute-conv-bias-batchnorm", cpu("aten::conv2d", "aten::relu"), []),
        (
            "input-main-thread-preprocessing",
            trace_of(op("aten::mm", 0, 10), op("aten::mm", 50, 10)),
            [(10, 50)],
        ),
        (
            "compute-single-tensor-optimizer",
            trace_of(annotation("Optimizer.step#SGD.step", 0, 40), op("aten::add_", 5, 9)),
            [(0, 40)],
        ),
        (
            "comm-small-collectives",
            trace_of(
                annotation("gloo:all_reduce", 0, 400),
                op("aten::mm", 100, 100),
                annotation("gloo:all_reduce", 1_000, 1_200),
            ),
            [(0, 100), (200, 400)],
        ),
        ("infer-autograd", trace_of(op("aten::mm", 0, 9, sequence=3)), [(0, 9)]),
        ("infer-autograd", trace_of(op("aten::native_dropout", 0, 9)), [(0, 9)]),
        ("infer-autograd", cpu("aten::mm"), []),
        ("comm-missing-no-sync", gloo(0, 20, 60, 80), [(20, 30), (80, 90)]),
        ("comm-missing-no-sync", gloo(0, 60), []),
    ],
)
def test_on_a_cpu_run(pattern: str, trace: Trace, spans: Spans) -> None:
    assert claimed(trace, pattern) == spans


def test_a_bias_is_a_small_part_of_a_convolution_on_the_cpu() -> None:
    found = claim(Activity(cpu("aten::conv2d", "aten::batch_norm")), "compute-conv-bias-batchnorm")
    assert found.recoverable_ns == pytest.approx(0.05 * 10_000)


# -- the claim itself ------------------------------------------------------------------------------


def test_a_claim_can_be_cut_and_keeps_its_weight() -> None:
    whole = Claim(Intervals.span(0, 100), 0.5)
    assert whole.recoverable_ns == 50
    assert whole.within(Intervals.span(80, 200)).recoverable_ns == 10
    assert whole.without(Intervals.span(80, 200)).recoverable_ns == 40
    assert whole.without(EMPTY).recoverable_ns == 50
    assert whole.within(EMPTY).recoverable_ns == 0
