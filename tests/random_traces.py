"""Traces made at random, dense in everything a feature looks at: for property tests.

A seed makes the trace, not a draw for each event: hypothesis would mostly try small, empty ones.
"""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from detector.trace import Trace
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

SMS = 4
SPAN = 300  # us

OPS = (
    "aten::mm aten::bmm aten::addmm aten::conv2d aten::cudnn_convolution aten::add_ aten::mul "
    "aten::relu aten::sum aten::softmax aten::cat aten::clone aten::copy_ aten::contiguous "
    "aten::select aten::slice aten::zeros aten::arange aten::to aten::_to_copy aten::zero_ "
    "aten::fill_ aten::item aten::_local_scalar_dense aten::nonzero aten::batch_norm "
    "aten::native_dropout aten::dropout aten::addcdiv_ aten::_foreach_add_ c10d::allreduce_ "
    "aten::_scaled_dot_product_attention_math aten::_scaled_dot_product_flash_attention "
    "ProfilerStep"
).split()
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"
NOTES = (
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__|Optimizer.step#SGD.step|"
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__|Optimizer.zero_grad#SGD|"
    "gloo:all_reduce|torch.distributed.ddp.reducer::search_unused_parameters|"
    "Torch-Compiled Region: 0/0|my note"
).split("|")
FRAMES = (
    "train.py(3): step|<built-in function collect>|PIL/Image.py(9): resize|"
    "torch/_dynamo/convert_frame.py(9): _compile.<locals>.compile_inner"
).split("|")
KERNELS = (
    "volta_sgemm_128x64_nn|ampere_bf16_s16816gemm_bf16_align1|cudnn::scudnn_winograd|"
    "vectorized_elementwise_kernel<4, AddFunctor>|reduce_kernel<512>|softmax_warp_forward|"
    "CatArrayBatchedCopy|nchwToNhwcKernel|ncclDevKernel_AllReduce|multi_tensor_apply_kernel|"
    "fmha_fwd|direct_copy_kernel_cuda|FillFunctor<float>|cudnn::bn_fw_tr|indexSelectLargeIndex|"
    "something_else"
).split("|")
COPIES = (
    "Memcpy HtoD (Pageable -> Device)|Memcpy HtoD (Pinned -> Device)|"
    "Memcpy DtoH (Device -> Pageable)|Memcpy DtoD (Device -> Device)|Memcpy (Host -> Device)"
).split("|")
OTHER_CALLS = (
    "cudaStreamSynchronize cudaDeviceSynchronize cudaMalloc cudaFree cuModuleLoadData "
    "cudaEventRecord"
).split()
DIMS = (
    "",
    "",
    "[[32, 17], [17, 64]]",
    "[[32, 16], [16, 64]]",
    "[[[1, 8, 64, 4], [1, 8, 1, 4]], []]",
    "[[2, 3, 8, 8], [4, 3, 3, 3], [4], []]",
    "[[2, 3, 8, 8], [4, 3, 3, 3], [], []]",
    "[[2, 3",
)
TYPES = ("", '["float", ""]', '["c10::BFloat16", ""]', '["c10::Half"]', "[")


def an_op(r: Random, start: int) -> list[Event]:
    return [
        op(
            r.choice(OPS),
            start,
            r.randint(0, 12) ** 2 // 2,
            thread=r.randint(1, 2),
            dims=r.choice(DIMS),
            types=r.choice(TYPES),
            sequence=r.choice((-1, 3)),
        )
    ]


def a_loop(r: Random, start: int) -> list[Event]:
    body = [op(r.choice(OPS[:12]), 2 * i, 1) for i in range(r.randint(1, 3))]
    return [
        op(event.name, start + len(body) * 2 * n + event.start, 1, dims=r.choice(DIMS[1:3]))
        for n in range(r.randint(2, 8))
        for event in body
    ]


def a_walk_over_rows(r: Random, start: int) -> list[Event]:
    return [op("aten::select", start + 3 * i, 1) for i in range(r.randint(9, 12))]


def a_broken_graph(r: Random, start: int) -> list[Event]:
    """Compiled regions of one pass, with time between them."""
    name = "Torch-Compiled Region: {}/0"
    return [annotation(name.format(i), start + 12 * i, 5) for i in range(r.randint(2, 3))]


def a_note(r: Random, start: int) -> list[Event]:
    make, names = r.choice(((annotation, NOTES), (python, FRAMES), (call, OTHER_CALLS)))
    return [make(r.choice(names), start, r.randint(0, 40), thread=r.randint(1, 2))]


def a_row_of(*names: str) -> object:
    """Short ops one after the other, as a program would call them."""

    def events(r: Random, start: int) -> list[Event]:
        return [
            op(r.choice(names), start + 2 * i, 2, dims=r.choice(DIMS), types=r.choice(TYPES))
            for i in range(r.randint(2, 5))
        ]

    return events


def around(outer: str, *names: str, note: bool = False) -> object:
    """An op or annotation that holds others."""

    def events(r: Random, start: int) -> list[Event]:
        inner = [op(r.choice(names), start + 1 + 3 * i, 2) for i in range(r.randint(1, 4))]
        return [(annotation if note else op)(outer, start, 16), *inner]

    return events


def a_launch(r: Random, start: int) -> list[Event]:
    """A call and the kernel it starts; now and then several share a call, or it is unknown."""
    corr = r.choice((-1, r.randint(0, 20), start + 1_000))
    kernels = [
        kernel(
            r.choice(KERNELS),
            start + r.randint(0, 15),
            r.choice((0, 2, 6, 15, 30, 120)),
            corr,
            r.choice((7, 20)),
            blocks=r.randint(-1, 6),
            msg_elems=r.choice((-1, 100, 400_000)),
            collective=r.choice(("", "", "", "allreduce")),
        )
        for _ in range(r.randint(1, 2))
    ]
    return [launch(start, r.randint(0, 9), corr, thread=r.randint(1, 2)), *kernels]


def an_issuing_op(r: Random, start: int) -> list[Event]:
    """Ops that nest and start a kernel each, which runs much later."""
    events: list[Event] = []
    names = r.choice(
        (
            ("aten::conv2d", "aten::batch_norm"),
            ("aten::conv2d", "aten::convolution_backward"),
            ("aten::bmm", "aten::softmax", "aten::dropout"),
            ("aten::_to_copy", "aten::clone"),
            ("aten::add_", "aten::mul", "aten::relu"),
            OPS,
        )
    )
    for i in range(r.randint(2, 4)):
        at, corr = start + 5 * i, 5_000 + 10 * start + i
        outer, inner = r.choice(names), r.choice((*OPS, "aten::add_"))
        events += [
            op(outer, at, 5, dims=r.choice(DIMS), types=r.choice(TYPES)),
            op(inner, at + 1, 3, dims=r.choice(DIMS)),
            launch(at + 2, 1, corr),
            kernel(r.choice(KERNELS), at + r.randint(3, 60), r.randint(1, 15), corr),
        ]
    return events


def some_collectives(r: Random, start: int) -> list[Event]:
    """Rounds of collectives, alike or not, perhaps with an optimizer step between them."""
    events = [annotation("Optimizer.step#SGD.step", start + 10, 2)] if r.random() < 0.6 else []
    for i in range(r.randint(2, 5)):
        name, size = r.choice(("ncclA", "ncclB")), r.choice((100, 400_000))
        events.append(kernel(name, start + 6 * i, 4, stream=20, msg_elems=size))
    return events


def a_chain(r: Random, start: int) -> list[Event]:
    return [kernel(r.choice(KERNELS[3:6]), start + 3 * i, 3) for i in range(4)]


def a_copy(r: Random, start: int) -> list[Event]:
    """A copy under ops that explain it, with or without the wait after it."""
    corr = start + 2_000
    size = r.choice((-1, 0, 4, 100, 100_000))
    inner = op(r.choice(("aten::copy_", "aten::_local_scalar_dense")), start + 1, 20)
    outer = op(r.choice(("aten::_to_copy", "aten::item", "aten::nonzero", "aten::add")), start, 22)
    events = [
        outer,
        inner,
        call(r.choice(("cudaMemcpyAsync", "hipMemcpyWithStream")), start + 2, 3, corr=corr),
        memcpy(r.choice(COPIES), start + 4, r.randint(0, 9), size, corr, r.choice((7, 20))),
        sync(start + 6, r.randint(1, 12)),
    ]
    return events[: r.choice((4, 5, 5))]


def a_memset(r: Random, start: int) -> list[Event]:
    corr = start + 3_000
    return [call("cudaMemsetAsync", start, 2, corr=corr), memset(start + 3, 2, corr)]


def a_fallback(r: Random, start: int) -> list[Event]:
    """Data that goes to the host, is computed there for long, and comes back."""
    return [
        memcpy(COPIES[2], start, 2, 100_000),
        op("aten::sort", start + 3, 220),
        memcpy(COPIES[1], start + 225, r.randint(1, 5), 100_000),
    ]


HOST = (
    an_op,
    an_op,
    a_loop,
    a_note,
    a_note,
    a_note,
    a_row_of("aten::add_", "aten::mul", "aten::relu"),
    a_row_of("aten::select", "aten::slice", "aten::copy_"),
    a_walk_over_rows,
    a_broken_graph,
    a_row_of("aten::_to_copy"),
    a_row_of("aten::conv2d", "aten::batch_norm"),
    a_row_of("aten::cat", "aten::mm"),
    around("Optimizer.step#SGD.step", "aten::add_", "aten::_foreach_add_", note=True),
    around("Optimizer.zero_grad#SGD", "aten::zero_", "aten::add", note=True),
    around("aten::dropout", "aten::native_dropout"),
    around("aten::linear", "aten::addmm"),
)
DEVICE = (
    a_launch,
    a_launch,
    an_issuing_op,
    an_issuing_op,
    an_issuing_op,
    a_chain,
    some_collectives,
    a_copy,
    a_copy,
    a_copy,
    a_memset,
    a_fallback,
)


def random_events(seed: int) -> tuple[list[Event], dict[str, object]]:
    """About a hundred events and the metadata; a quarter have no device, a half no backward."""
    r = Random(seed)
    makers = HOST if r.random() < 0.25 else HOST + DEVICE + DEVICE
    events = [op("aten::mm", 0, 1)]
    for _ in range(r.randint(1, 40)):
        events += r.choice(makers)(r, r.randint(0, SPAN))  # type: ignore[operator]
    if r.random() < 0.5:
        events.append(op(BACKWARD, r.randint(0, SPAN), 9))
    sms = [{"id": 0, "numSms": SMS}]
    return events, {"deviceProperties": sms} if r.random() < 0.7 else {}


def random_trace(seed: int) -> Trace:
    """The trace of these events."""
    events, metadata = random_events(seed)
    return trace_of(*events, metadata=metadata)


SEEDS = st.integers(0, 2**32)
TRACES = SEEDS.map(random_trace)
