"""Claims of the patterns that waste the device's own time: needless or slow work, collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import Activity
from detector.cost.issued import host_idle, issued_within, started_within, work_of
from detector.intervals import EMPTY, Intervals
from detector.rows import cat_appends, multiprocessors, needless_dropout, needless_graph
from detector.trace import Bool, Int64

SMALL_COLLECTIVE_BYTES: Final = 1 << 20
SHORT_COLLECTIVE_NS: Final = 1_000_000  # on a CPU backend, whose spans carry no sizes


def _zero_grad(a: Activity) -> Intervals:
    """The fills, and the idle of a host that walks the gradients to fill them."""
    around = a.host("zero_grad")
    fills = started_within(a, around, a.ops("zero"))
    if not a.has_device:
        return work_of(a, fills)
    filling = a.spans(fills).covered(a.trace.start[around], a.trace.end[around]) > 0
    return work_of(a, fills) | (a.spans(around[filling]) & host_idle(a))


def _redundant(a: Activity) -> Intervals:
    if not a.has_device:
        return a.spans(a.ops("copy_op")) - a.loader
    moved = np.concatenate([a.kernels_of("copy"), a.kernels_of("cat"), a.copies_of("d2d")])
    return a.spans(issued_within(a, a.spans(a.ops("copy_op")), moved))


def _misaligned(a: Activity) -> Intervals:
    """Matrix kernels whose op has a side that is no multiple of 8."""
    return work_of(a, misaligned_ops(a), a.kernels_of("gemm"))


def misaligned_ops(a: Activity) -> Int64:
    """Matrix ops with one of the last two sizes of an operand no multiple of 8."""
    ops = a.ops("matmul")
    odd = {i for i in np.unique(a.trace.dims[ops]) if i >= 0 and _is_odd(a.trace.names[i])}
    return ops[np.isin(a.trace.dims[ops], list(odd))]


def _is_odd(dims: str) -> bool:
    shapes = [s for s in dims.strip("[] ").replace(" ", "").split("],[") if s]
    sides = [int(n) for s in shapes for n in s.split(",")[-2:] if n.isdigit()]
    return any(n % 8 and n > 8 for n in sides)


def _unfilled(a: Activity) -> Int64:
    blocks = a.trace.blocks[a.compute_rows]
    return a.compute_rows[(blocks > 0) & (2 * blocks <= multiprocessors(a))]


def mean_unfilled(a: Activity) -> float:
    """1 - fill, the mean over the underfilled kernels by their time."""
    rows, sms = _unfilled(a), multiprocessors(a)
    time = a.trace.dur[rows].astype(np.float64)
    if not time.sum():
        return 0.0
    return float(np.average(1 - a.trace.blocks[rows] / sms, weights=time))


def _attention(a: Activity) -> Intervals:
    """Products and softmax of attention: softmax ops with a batched product close by."""
    rows = np.concatenate([a.ops("bmm"), a.ops("softmax"), a.ops("math_attention")])
    if not len(a.ops("softmax")) or not len(a.ops("bmm")):
        return EMPTY
    return work_of(a, np.sort(rows))


def _elementwise(a: Activity) -> Intervals:
    """Pointwise work in runs of three or more.

    A compiler fuses over casts, concatenations and reductions too, so they break no run of kernels;
    they are not claimed, for other patterns do.
    """
    work = a.compute_rows
    if a.has_device:
        fused = a.kernels_of("pointwise")
        between = [a.kernels_of(kind) for kind in ("copy", "cat", "reduce")]
        work = np.setdiff1d(work, np.concatenate(between), assume_unique=True)
    else:
        fused = a.named(work, vocabulary.HOST["pointwise"])
    return a.spans(work[_in_threes(np.isin(work, fused))]) - a.loader


def _in_threes(hit: Bool) -> Bool:
    """Those hits that stand in runs of three or more."""
    wide = np.pad(hit, 2)
    first = wide[:-2] & wide[1:-1] & wide[2:]  # of three hits in a row
    found: Bool = first[:-2] | first[1:-1] | first[2:]
    return found


def _optimizer(a: Activity) -> Intervals:
    """The optimizer's step where it walks the parameters: its kernels and the idle it causes."""
    steps = a.host("optimizer_step")
    if len(started_within(a, steps, a.ops("foreach"))):
        return EMPTY
    work = work_of(a, steps)
    return work | (a.spans(steps) & host_idle(a)) if a.has_device else a.spans(steps)


def _conv_bias(a: Activity) -> Intervals:
    if not len(a.ops("batch_norm")):
        return EMPTY
    convs = a.ops("conv")
    if not a.has_device:
        return a.spans(convs)
    return work_of(a, convs, a.kernels_of("pointwise"))


def _exposed(a: Activity) -> Intervals:
    """Collectives that nothing hides, less the time in which nothing could hide them.

    That is the time in which the host has not called for the next compute yet, being neither in
    a collective's call nor waiting: it holds the device up, with or without the collective.
    """
    trace, rows = a.trace, a.compute_rows
    if not len(a.compute) or not a.has_device:
        return a.exposed_comm
    following = rows[np.searchsorted(trace.start[rows], a.compute.start)]
    done = np.concatenate([trace.start[:1], a.compute.end[:-1]])
    linked = trace.launch[following] >= 0
    late = Intervals.union(done[linked], a.called(following[linked]))
    return a.exposed_comm - (late - a.sync - a.spans(a.host("collective_op")))


def _small_collectives(a: Activity) -> Intervals:
    rows, trace = a.comm_rows, a.trace
    small = (trace.msg_elems[rows] >= 0) & (trace.msg_elems[rows] * 4 < SMALL_COLLECTIVE_BYTES)
    if not a.has_device:  # a CPU backend's spans carry no sizes; latency shows in their length
        small = trace.dur[rows] < SHORT_COLLECTIVE_NS
    return a.spans(rows[small]) - a.compute


def _extra_rounds(a: Activity) -> Intervals:
    """Exposed reductions that were called for again, in the same size, before the optimizer's step.

    A CPU backend's spans carry no sizes: there every other collective of a step counts, which is
    right for two rounds and too little for more.
    """
    trace, rows = a.trace, _reductions(a)
    updates = np.sort(trace.start[a.host("optimizer_step")])
    if not len(rows) or not len(updates):
        return EMPTY
    step = np.searchsorted(updates, a.called(rows))
    if a.has_device:
        key = np.stack([step, trace.msg_elems[rows], trace.collective[rows].astype(np.int64)])
        _, first = np.unique(key, axis=1, return_index=True)
        again = np.setdiff1d(np.flatnonzero(trace.msg_elems[rows] >= 0), first)
    else:
        place = np.arange(len(rows)) - np.searchsorted(step, step)  # within its step
        again = np.flatnonzero(place % 2 == 1)
    return a.spans(rows[again]) - a.compute


def _reductions(a: Activity) -> Int64:
    """Collectives that may reduce gradients: not those that gather, send or exchange."""
    trace, rows = a.trace, a.comm_rows
    name = np.where(trace.collective[rows] >= 0, trace.collective[rows], trace.name[rows])
    reduces = {i for i in np.unique(name) if vocabulary.REDUCES.search(trace.names[i])}
    found: Int64 = rows[np.isin(name, list(reduces))]
    return found


def _autograd_ops(a: Activity) -> Intervals:
    """Ops that record a graph or drop out, where no backward pass asks for it."""
    ops = a.spans(np.union1d(needless_graph(a), needless_dropout(a)))
    return ops & (a.idle_while("op") if a.has_device else a.op_time)


CLAIMS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    "memory-zero-grad-fill": _zero_grad,
    "memory-redundant-copy": _redundant,
    "memory-layout-transform": lambda a: a.spans(a.kernels_of("layout")),
    "memory-dtype-churn": lambda a: work_of(a, a.ops("to")),
    "compute-fp32-matmul": lambda a: a.spans(a.named(a.compute_rows, vocabulary.FP32_MATRIX)),
    "compute-misaligned-gemm": _misaligned,
    "compute-underfilled": lambda a: a.spans(_unfilled(a)),
    "compute-unfused-attention": _attention,
    "compute-unfused-elementwise": _elementwise,
    "compute-single-tensor-optimizer": _optimizer,
    "compute-conv-bias-batchnorm": _conv_bias,
    "comm-exposed": _exposed,
    "comm-small-collectives": _small_collectives,
    "comm-straggler": lambda _: EMPTY,  # needs several ranks
    "comm-missing-no-sync": _extra_rounds,
    "infer-autograd": _autograd_ops,
    "infer-kv-cat": lambda a: work_of(a, cat_appends(a)),
}
