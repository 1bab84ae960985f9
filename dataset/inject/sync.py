"""Faulty waits: code that makes the host stop for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dataset.inject import frames
from dataset.inject import pieces as p
from dataset.inject.base import Base, Span
from dataset.inject.edits import Alter, Call, Edit, Unfit, Work
from dataset.inject.pieces import SCALAR, Slack, Tensor

# What the program calls at one place: a check, a log line, a mask; and its function's name.
Block = Callable[[Base, np.random.Generator], tuple[Call, ...]]
Code = tuple[Block, tuple[str, ...]]

_MOST: Final = 120  # places of a span
_REPEATS: Final = 12  # more blocks at a place
_BLOCKS: Final = 240  # more blocks in a span
_TRIP_NS: Final = 12_000  # from the end of the work that a wait is for to the next kernel


def _at_waits(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator, code: Code
) -> list[Edit]:
    """The block at as many suitable places as the strength asks for, preferably expensive ones."""
    p.needs_device(base)
    block, functions = code
    slack, edits, site = Slack(base), list[Edit](), frames.site(base, functions, draw)
    trip = sum(p.length(c) for c in block(base, draw)) + _TRIP_NS
    for span in spans:
        found = p.places(base, span, draw, _MOST)
        if not found:
            continue
        need = p.budget(span, strength)
        costs = {at: slack.cost_of_wait(at) + trip for at in found}
        fitting = [at for at in found if costs[at] <= need] or [min(found, key=costs.__getitem__)]
        order = sorted(fitting, key=lambda at: costs[at] * draw.uniform(0.4, 1.0), reverse=True)
        reached = np.cumsum([costs[at] for at in order])
        count = min(len(order), int(np.searchsorted(reached, need)) + 1)
        short = max(0.0, need - float(reached[count - 1]))
        repeats = 1 + min(_REPEATS, _BLOCKS // count, round(short / (count * trip)))
        for at in sorted(order[:count]):
            calls = tuple(c for _ in range(repeats) for c in block(base, draw))
            framed = base.frame(site, calls, p.about(4_000 * repeats, draw))
            edits.append(p.inserted(base, at, framed, draw))
    return edits


# -- one value -------------------------------------------------------------------------------------
def scalar_readback(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """A value read for the log, for a check of the gradients, for an ``if``."""
    p.needs_device(base)
    return _at_waits(base, spans, strength, draw, _READS[p.pick(draw, _READS)])


def _item(base: Base, dtype: str, draw: np.random.Generator) -> tuple[Call, ...]:
    return frames.builtin(base, "item", (p.scalar(base, dtype, draw),))


def _logged(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    """``total += loss.detach().item()``."""
    return (_detached(base, SCALAR, draw), *_item(base, "float", draw))


def _detached(base: Base, tensor: Tensor, draw: np.random.Generator) -> Call:
    inner = p.op(base, "detach", tensor, draw=draw)
    return p.op(base, "aten::detach", tensor, draw=draw, inside=(inner,))


def _normed(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    """``grad.norm().item()``, parameter by parameter."""
    grad = p.shaped(float(draw.choice([4e3, 6e4, 1e6, 8e6])), draw)
    name = "aten::norm" if p.knows(base, "aten::norm") else "aten::linalg_vector_norm"
    norm = p.ran(base, name, "reduce", grad, draw=draw)
    return (norm, *_item(base, "float", draw))


def _branched(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    """``if torch.isnan(x).any():``."""
    x = p.shaped(float(draw.choice([4, 4e3, 2e5, 4e6])), draw)
    flags = Tensor(x.shape, "bool")
    compared = p.ran(base, "aten::ne", "elementwise", x, x, draw=draw)
    tested = p.op(base, "aten::isnan", x, draw=draw, inside=(compared,))
    reduced = p.ran(base, "aten::any", "reduce", flags, draw=draw)
    value = p.scalar(base, "bool", draw)
    branch = p.op(base, "aten::is_nonzero", Tensor((), "bool"), draw=draw, inside=(value,))
    return (tested, reduced, branch)


def _counted(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    """``(logits.argmax(-1) == labels).sum().item()``."""
    rows, classes = int(draw.choice([8, 32, 256, 2048])), int(draw.choice([10, 100, 1000]))
    labels = Tensor((rows,), "long int")
    best = p.ran(base, "aten::argmax", "reduce", Tensor((rows, classes)), draw=draw)
    equal = p.ran(base, "aten::eq", "elementwise", labels, labels, draw=draw)
    total = p.ran(base, "aten::sum", "reduce", Tensor((rows,), "bool"), draw=draw)
    return (best, equal, total, *_item(base, "long int", draw))


_READS: Final[tuple[Code, ...]] = (
    (_logged, ("log_metrics", "training_step", "update", "report")),
    (_normed, ("grad_norm", "check", "step")),
    (_branched, ("forward", "check", "training_step")),
    (_counted, ("accuracy", "metrics", "training_step")),
)


# -- whole tensors ---------------------------------------------------------------------------------
def tensor_readback(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """``x.cpu()`` or ``x.detach().cpu().numpy()``, for metrics or to keep it."""
    p.needs_device(base)
    count = int(draw.choice([1, 1, 2, 3, 6]))
    small, large = (base.copy("dtoh_pageable", size, draw).dur for size in (1 << 12, 1 << 26))
    rate = (1 << 26) / max(1, large - small)
    slack, edits = Slack(base), list[Edit]()
    site = frames.site(base, ("collect", "update", "save_outputs", "visualize"), draw)
    ns = p.typical(spans, strength) / count
    tensor = p.shaped(min(1 << 29, max(4_096.0, 0.8 * ns * rate)), draw)
    for span in spans:
        for at in p.bearable(base, span, slack, draw, count, 0.3 * ns):
            kept = base.frame(site, _kept(base, tensor, draw), p.about(6_000, draw))
            edits.append(p.inserted(base, at, kept, draw))
    return edits


def _kept(base: Base, tensor: Tensor, draw: np.random.Generator) -> tuple[Call, ...]:
    copied = p.to_host(base, tensor, draw)
    return (_detached(base, tensor, draw), *copied, *frames.builtin(base, "numpy", ()))


# -- explicit waits --------------------------------------------------------------------------------
def explicit(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """``torch.cuda.synchronize()`` around what is timed, or a stream's or an event's wait."""
    p.needs_device(base)
    block = (_of_device, _of_device, _of_stream, _of_event)[int(draw.integers(4))]
    return _at_waits(base, spans, strength, draw, (block, ("measure", "timed", "step", "forward")))


def _of_device(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    called = base.frame("<built-in function _cuda_synchronize>", (base.sync("device_sync", draw),))
    return frames.library(base, "torch/cuda/__init__.py", "synchronize", called, 4_000)


def _of_stream(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    wait = (base.sync("stream_sync", draw),)
    called = frames.builtin(base, "synchronize", wait, "Stream object")
    return frames.library(base, "torch/cuda/streams.py", "synchronize", called, 2_000)


def _of_event(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    record = Call(base.call("event_record"), "cuda_runtime", base.launch_ns(draw))
    recorded = frames.builtin(base, "record", (record,), "Event object")
    wait = (base.sync("event_sync", draw),)
    waited = frames.builtin(base, "synchronize", wait, "Event object")
    return (
        *frames.library(base, "torch/cuda/streams.py", "record", recorded, 2_000),
        *frames.library(base, "torch/cuda/streams.py", "synchronize", waited, 2_000),
    )


# -- shapes that depend on data --------------------------------------------------------------------
def dynamic_shape(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """Masks as indices, rows of chosen values, unique values, repeats."""
    p.needs_device(base)
    block = _SHAPES[p.pick(draw, _SHAPES)]
    return _at_waits(
        base, spans, strength, draw, (block, ("forward", "select", "assign", "gather"))
    )


def _named(base: Base, name: str, mask: Tensor, draw: np.random.Generator) -> Call:
    """A launch of one of the libraries' kernels over ``mask``; older builds do not wrap CUB."""
    if not p.knows(base, "aten::_to_copy"):
        name = name.replace("at_cuda_detail::", "")
    work: Work = base.kernel("reduce", mask.elems, "bool", draw)
    return base.launch(replace(work, name=name), draw)


def _nonzero(base: Base, mask: Tensor, draw: np.random.Generator) -> Call:
    """Counted, the count read, then the indices written."""
    counted, written = _SELECT[base.vendor]
    kind = "dtoh_pinned" if base.trace.base_ns > 0 else "dtoh_pageable"
    read = p.copying(base, base.copy(kind, 4, draw), draw)
    inside = (
        *(_named(base, name, mask, draw) for name in counted),
        *read,
        p.op(base, "aten::empty", draw=draw),
        *(_named(base, name, mask, draw) for name in written),
    )
    return p.op(base, "aten::nonzero", mask, draw=draw, inside=inside)


def _masked(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    """``x[mask]``."""
    mask = _mask(draw)
    calls = (_nonzero(base, mask, draw), p.view(base, "aten::select", mask, draw))
    return (p.ran(base, "aten::index", "gather", Tensor(mask.shape), draw=draw, inside=calls),)


def _selected(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    """``x.masked_select(mask)``."""
    mask = _mask(draw)
    x, inner = Tensor(mask.shape), (_nonzero(base, mask, draw),)
    call = p.ran(base, "aten::masked_select", "gather", x, mask, draw=draw, inside=inner)
    return frames.builtin(base, "masked_select", (call,))


def _found(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    """``mask.nonzero()`` or ``torch.where(mask)``."""
    mask = _mask(draw)
    return frames.builtin(base, "nonzero", (_nonzero(base, mask, draw),))


def _unique(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    """Sorted, compared, and the count read."""
    keys = Tensor((_mask(draw).elems // 8 + 1,), "long int")
    inside = (
        p.op(base, "aten::empty", draw=draw),
        *(_named(base, name, keys, draw) for name in _SORT[base.vendor]),
        p.scalar(base, "long int", draw),
        p.op(base, "aten::resize_", keys, draw=draw),
    )
    call = p.op(base, "aten::_unique2", keys, draw=draw, inside=inside)
    inner = frames.builtin(base, "_unique2", (call,), "type object")
    return frames.library(base, "torch/_jit_internal.py", "fn", inner)


def _repeated(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    """``x.repeat_interleave(counts)``: the sum of the counts is read."""
    counts = Tensor((int(draw.choice([64, 512, 2048, 8192])),), "long int")
    summed = p.ran(base, "aten::cumsum", "reduce", counts, draw=draw)
    last = p.view(base, "aten::select", counts, draw)
    inside = (summed, last, p.scalar(base, "long int", draw), p.op(base, "aten::empty", draw=draw))
    rows = p.ran(base, "aten::repeat_interleave", "gather", counts, draw=draw, inside=inside)
    chosen = p.ran(base, "aten::index_select", "gather", counts, draw=draw)
    outer = p.op(base, "aten::repeat_interleave", counts, counts, draw=draw, inside=(rows, chosen))
    return frames.builtin(base, "repeat_interleave", (outer,))


_SHAPES: Final[tuple[Block, ...]] = (_masked, _selected, _found, _unique, _repeated)


def _mask(draw: np.random.Generator) -> Tensor:
    rows, columns = int(draw.choice([8, 32, 128, 512])), int(draw.choice([128, 1024, 8192]))
    return Tensor((rows, columns), "bool")


_CUB: Final = "at_cuda_detail::cub::"
_POLICY: Final = f"{_CUB}DeviceReducePolicy<bool, int, int, {_CUB}Sum>::Policy600"
_FLAGS: Final = (
    f"{_CUB}TransformInputIterator<bool, at::native::(anonymous namespace)::NonZeroOp<bool>,"
    " bool*, long>"
)
_PRIM: Final = "rocprim::detail::"
# The kernels that count what is chosen, and those that write it.
_SELECT: Final = {
    "cuda": (
        (
            f"void {_CUB}DeviceReduceKernel<{_POLICY}, {_FLAGS}, int*, int, {_CUB}Sum>({_FLAGS},"
            f" int*, int, {_CUB}GridEvenShare<int>, {_CUB}Sum)",
            f"void {_CUB}DeviceReduceSingleTileKernel<{_POLICY}, int*, int*, int, {_CUB}Sum, int>"
            f"(int*, int*, int, {_CUB}Sum, int)",
        ),
        (
            f"void {_CUB}DeviceCompactInitKernel<{_CUB}ScanTileState<int, true>, int*>"
            f"({_CUB}ScanTileState<int, true>, int, int*)",
            f"void {_CUB}DeviceSelectSweepKernel<{_CUB}DispatchSelectIf<{_CUB}CountingInputIterator"
            f"<long, long>, {_FLAGS}, long*, int*, {_CUB}NullType, {_CUB}NullType, int, false>"
            f"::PtxSelectIfPolicyT, {_FLAGS}, long*, int*>({_FLAGS}, long*, int*, int, int)",
            "void at::native::write_indices<long>(long*, at::native::TensorDims<long>, int, long)",
        ),
    ),
    "rocm": (
        (
            f"void {_PRIM}block_reduce_kernel<true, {_PRIM}wrapped_reduce_config<rocprim::"
            "default_config, bool>, int>(bool*, unsigned long, int*, int, hipcub::Sum)",
            f"void {_PRIM}block_reduce_kernel<false, {_PRIM}wrapped_reduce_config<rocprim::"
            "default_config, int>, int>(int*, unsigned long, int*, int, hipcub::Sum)",
        ),
        (
            f"void {_PRIM}init_lookback_scan_state_kernel<{_PRIM}lookback_scan_state<unsigned int,"
            f" false, true> >({_PRIM}lookback_scan_state<unsigned int, false, true>, unsigned int)",
            f"void {_PRIM}partition_kernel<({_PRIM}select_method)1, true, rocprim::default_config,"
            " long*, bool*, long*>(long*, bool*, long*, unsigned long*, unsigned int)",
            "void at::native::write_indices<long>(long*, at::native::TensorDims<long>, int, long)",
        ),
    ),
}
_SORT: Final = {
    "cuda": (
        f"void {_CUB}DeviceRadixSortHistogramKernel<{_CUB}DeviceRadixSortPolicy<long,"
        f" {_CUB}NullType, int>::Policy800, false, long, int>(int*, long const*, int, int, int)",
        f"void {_CUB}DeviceRadixSortOnesweepKernel<{_CUB}DeviceRadixSortPolicy<long,"
        f" {_CUB}NullType, int>::Policy800, false, long, {_CUB}NullType, int, int>"
        "(int*, int*, long*)",
        f"void {_CUB}DeviceCompactInitKernel<{_CUB}ScanTileState<int, true>, int*>"
        f"({_CUB}ScanTileState<int, true>, int, int*)",
        f"void {_CUB}DeviceSelectSweepKernel<{_CUB}AgentSelectIfPolicy<128, 10>, long const*,"
        f" long*, int*, {_CUB}Equality>(long const*, long*, int*, int, int)",
    ),
    "rocm": (
        f"void {_PRIM}onesweep_histograms_kernel<rocprim::default_config, false, long*>"
        "(long*, unsigned int*, unsigned int, unsigned int, unsigned int, unsigned int)",
        f"void {_PRIM}onesweep_iteration_kernel<rocprim::default_config, false, long*, long*>"
        "(long*, long*, unsigned int, unsigned int*, unsigned int*, unsigned int)",
        f"void {_PRIM}partition_kernel<({_PRIM}select_method)2, true, rocprim::default_config,"
        " long const*, long*>(long const*, long*, unsigned long*, unsigned int)",
    ),
}


# -- every launch ----------------------------------------------------------------------------------
def blocking_launch(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """``CUDA_LAUNCH_BLOCKING=1``: each launch returns when its work is done.

    The strength is the program's own: what its queue used to hide.
    """
    p.needs_device(base)
    trace, calls = base.trace, base.activity.launches
    start = trace.start[calls]
    if not len(calls) or any("Graph" in trace.names[i] for i in np.unique(trace.name[calls])):
        raise Unfit(f"{base.name}: kernels are launched as graphs")
    inside = np.zeros(len(calls), np.bool_)
    for span in spans:
        inside |= (start >= span.start) & (start < span.end)
    return [Alter(int(row), wait="work") for row in calls[inside]]


INJECTORS: Final = {
    "sync-scalar-readback": scalar_readback,
    "sync-tensor-readback": tensor_readback,
    "sync-explicit": explicit,
    "sync-dynamic-shape": dynamic_shape,
    "sync-blocking-launch": blocking_launch,
}
