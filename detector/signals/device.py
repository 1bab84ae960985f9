"""Signals of the device's own work: slow, small, needless and unfused kernels.

On a CPU run the same names hold ops instead of kernels.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from detector import vocabulary
from detector.index_sets import difference
from detector.signals.definition import Signal, Signals
from detector.signals.event_sets import bias_before_norm, casts, misaligned_matmuls, multiprocessors
from detector.trace import Bool, Cat, Int64

SHORT_NS: Final = 5_000  # a kernel below is mostly its own start
SMALL_NS: Final = 10_000  # what has little to do takes no longer, however it is spread
CHAIN: Final = 3  # pointwise kernels in a row
REACH: Final = 12  # ops between a product of attention and its softmax


def issued(s: Signals, ops: Int64) -> Int64:
    """Device work whose launch lies in these ops' own time, on their thread."""
    a, trace = s.activity, s.trace
    work = a.device_work
    launch = np.where(trace.launch[work] >= 0, trace.launch[work], trace.op[work])
    found = np.zeros(len(work), np.bool_)
    for track in np.unique(trace.track[ops]):
        spans = a.spans(s.on(ops, int(track)))
        mine = (launch >= 0) & (trace.track[launch] == track)
        at = trace.start[launch[mine]]
        found[mine] = spans.covered(at, at + 1) > 0
    return work[found]


def fp32_matrix(s: Signals) -> Int64:
    """Matrix kernels in full fp32 that take longer than a start."""
    if not s.activity.has_device:
        return np.empty(0, np.int64)
    rows = s.activity.named(s.activity.compute_rows, vocabulary.FP32_MATRIX)
    return rows[s.trace.dur[rows] > SHORT_NS]


def misaligned(s: Signals) -> Int64:
    """Matrix kernels of tensor cores whose op has a side that is no multiple of 8."""
    if not s.activity.has_device:
        return np.empty(0, np.int64)
    a = s.activity
    rows = issued(s, misaligned_matmuls(a))
    rows = rows[np.isin(rows, a.kernels_of("gemm"))]
    slow = a.named(a.kernels_of("gemm"), vocabulary.MISALIGNED)
    rows = np.union1d(rows, slow)
    return np.setdiff1d(rows[s.trace.dur[rows] > SHORT_NS], s["fp32-matrix"], assume_unique=True)


def underfilled(s: Signals) -> Int64:
    """Kernels with blocks for no more than half of the multiprocessors, that take longer than
    kernels with little to do."""
    a, trace, sms = s.activity, s.trace, multiprocessors(s.activity)
    if not a.has_device or not sms:
        return np.empty(0, np.int64)
    rows, matrix = a.compute_rows, np.union1d(a.kernels_of("gemm"), a.kernels_of("conv"))
    blocks, least = trace.blocks[rows], np.where(np.isin(rows, matrix), SHORT_NS, SMALL_NS)
    found: Int64 = rows[(blocks > 0) & (2 * blocks <= sms) & (trace.dur[rows] > least)]
    return found


def attention(s: Signals) -> Int64:
    """Softmax and pointwise work between the two products of attention written out."""
    a, trace = s.activity, s.trace
    ops = a.top_ops
    softmax = s.enclosing(a.ops("softmax"), vocabulary.HOST["softmax"])
    softmax = np.unique(softmax[softmax >= 0])
    names = (re.compile(r"^aten::(matmul|bmm|baddbmm|einsum)$"), vocabulary.HOST["bmm"])
    products = np.unique(np.concatenate([a.named(ops, pattern) for pattern in names]))
    math = a.ops("math_attention")
    between = [_between(s, ops, softmax, products)] if len(products) else []
    if len(math):
        between.append(math)
    if not between:
        return np.empty(0, np.int64)
    rows = np.unique(np.concatenate(between))
    if not a.has_device:
        return rows
    work = issued(s, rows)
    gemm = np.isin(work, np.union1d(a.kernels_of("gemm"), a.kernels_of("conv")))
    found: Int64 = work[~gemm & (trace.dur[work] > 0)]
    return found


def _between(s: Signals, ops: Int64, softmax: Int64, products: Int64) -> Int64:
    """Top ops from the product before each softmax to the product after it, both within reach."""
    place = np.searchsorted(ops, softmax)
    at = np.searchsorted(ops, products)
    before = np.searchsorted(at, place, side="left") - 1
    after = np.searchsorted(at, place, side="right")
    found = []
    for i, (b, c) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        if b < 0 or c >= len(at):
            continue
        first, last = int(at[b]), int(at[c])
        if place[i] - first <= REACH and last - place[i] <= REACH:
            found.append(ops[first + 1 : last])
    return np.concatenate(found) if found else np.empty(0, np.int64)


def pointwise_chains(s: Signals) -> Int64:
    """Pointwise work in runs of three and more, on a device by the stream.

    A compiler fuses over casts, copies and reductions too, so they break no run; what it made
    itself is fused already. What an optimizer does parameter by parameter has a name of its own.
    """
    a, trace = s.activity, s.trace
    if not a.has_device:
        rows = difference(a.compute_rows, s.inside(s["optimizer-walk"]))
        rows = np.intersect1d(rows, a.top_ops, assume_unique=True)
        hit = np.isin(rows, a.named(rows, vocabulary.HOST["pointwise"]))
        return rows[in_runs(hit, trace.track[rows].astype(np.int64))]
    rows = a.compute_rows
    between = np.concatenate([a.kernels_of(kind) for kind in ("copy", "cat", "reduce")])
    rows = difference(rows, np.concatenate([between, issued(s, s["optimizer-walk"])]))
    rows = rows[np.lexsort((trace.start[rows], trace.stream[rows]))]
    made = a.named(rows, vocabulary.FUSED_KERNEL)
    hit = np.isin(rows, a.kernels_of("pointwise")) & ~np.isin(rows, made)
    return np.sort(rows[in_runs(hit, trace.stream[rows])])


def in_runs(hit: Bool, group: Int64) -> Bool:
    """The hits in runs of three or more within one group."""
    if not len(hit):
        return hit
    broken = ~hit | np.append(True, (group[1:] != group[:-1]))
    run = np.cumsum(broken | np.append(True, ~hit[:-1]))
    length = np.bincount(run, hit)
    found: Bool = hit & (length[run] >= CHAIN)
    return found


def cast_ops(s: Signals) -> Int64:
    """Outermost ops that change a tensor's type and leave it on its device."""
    rows = s.enclosing(casts(s.activity), vocabulary.HOST["to"])
    rows = np.unique(rows[rows >= 0])
    return _computing(s, rows)


def copy_ops(s: Signals) -> Int64:
    """Outermost ops that only move tensors on the device: contiguous, clone, copy_, cat.

    Not casts, not layouts around convolutions, not what fills or updates parameters, not what
    appends to a growing tensor: these have patterns of their own. Nor what an op of torch or a node
    of the backward pass copies for itself: no program can spare that.
    """
    a = s.activity
    rows = s.enclosing(a.ops("copy_op"), vocabulary.COPIES_ONLY)
    rows = difference(rows[rows >= 0], s.enclosing(s["cat-append"], vocabulary.COPIES_ONLY))
    around = s.trace.parent[rows]
    rows = rows[~np.isin(around, a.named(s.cpu_ops, vocabulary.COPIES_FOR_ITSELF, Cat.CPU_OP))]
    inside_casts = a.spans(s["cast-op"]).covered(s.trace.start[rows], s.trace.start[rows] + 1)
    rows = rows[inside_casts == 0]
    if not a.has_device:
        return np.setdiff1d(rows, _in_loader(s, rows))
    moved = np.concatenate([a.kernels_of("copy"), a.kernels_of("cat"), a.copies_of("d2d")])
    return _issuing(s, rows, moved)


def _in_loader(s: Signals, rows: Int64) -> Int64:
    inside = s.activity.loader.covered(s.trace.start[rows], s.trace.start[rows] + 1)
    found: Int64 = rows[inside > 0]
    return found


def _computing(s: Signals, ops: Int64) -> Int64:
    """The ops that issue device work; on a CPU run the ops outside the loader."""
    if not s.activity.has_device:
        return np.setdiff1d(ops, _in_loader(s, ops))
    return _issuing(s, ops, s.activity.kernels)


def _issuing(s: Signals, ops: Int64, work: Int64) -> Int64:
    """The ops during which, on their thread, some of this work is launched."""
    trace = s.trace
    call = np.where(trace.launch[work] >= 0, trace.launch[work], trace.op[work])
    call = call[call >= 0]
    found = np.zeros(len(ops), np.bool_)
    for track in np.unique(trace.track[ops]):
        mine = trace.track[ops] == track
        at = np.sort(trace.start[call[trace.track[call] == track]])
        first = np.searchsorted(at, trace.start[ops[mine]])
        found[mine] = np.searchsorted(at, trace.end[ops[mine]]) > first
    return ops[found]


def zero_grads(s: Signals) -> Int64:
    """``zero_grad`` calls that fill gradients."""
    around, zero = s.activity.host("zero_grad"), s.activity.ops("zero")
    at = np.sort(s.trace.start[zero])
    filled = np.searchsorted(at, s.trace.end[around]) > np.searchsorted(at, s.trace.start[around])
    found: Int64 = around[filled]
    return found


def optimizer_walks(s: Signals) -> Int64:
    """Optimizer steps without a foreach or fused op, with ten ops and more."""
    steps, trace = s.activity.host("optimizer_step"), s.trace
    foreach = np.sort(trace.start[s.activity.ops("foreach")])
    ops = np.sort(trace.start[s.activity.top_ops])
    none = np.searchsorted(foreach, trace.end[steps]) == np.searchsorted(
        foreach, trace.start[steps]
    )
    many = np.searchsorted(ops, trace.end[steps]) - np.searchsorted(ops, trace.start[steps]) >= 10
    found: Int64 = steps[none & many]
    return found


def bias_adds(s: Signals) -> Int64:
    """What adds a convolution's bias right before a batch norm."""
    a = s.activity
    convs = bias_before_norm(a)
    if not a.has_device:
        return convs[:0]
    work = issued(s, convs)
    return work[np.isin(work, a.kernels_of("pointwise"))]


SIGNALS: Final = (
    Signal("fp32-matrix", "Matrix kernels in full fp32", "launches", ("device",), fp32_matrix),
    Signal(
        "misaligned-gemm",
        "GEMM kernels with dimensions not divisible by 8",
        "launches",
        ("device", "shapes"),
        misaligned,
    ),
    Signal(
        "underfilled-kernel",
        "Kernels with too few blocks",
        "launches",
        ("device", "grids"),
        underfilled,
    ),
    Signal(
        "attention-between",
        "Work between the products of attention",
        "launches",
        ("host",),
        attention,
    ),
    Signal(
        "pointwise-chain", "Chains of pointwise kernels", "launches", ("host",), pointwise_chains
    ),
    Signal("cast-op", "Casts", "events", ("host",), cast_ops),
    Signal("copy-op", "Ops that only copy", "events", ("host",), copy_ops),
    Signal(
        "layout-kernel",
        "Layout transforms",
        "launches",
        ("device",),
        lambda s: s.activity.kernels_of("layout"),
    ),
    Signal("zero-grad", "zero_grad calls that fill", "events", ("host",), zero_grads),
    Signal("optimizer-walk", "Optimizer steps by parameter", "events", ("host",), optimizer_walks),
    Signal("bias-add", "Bias adds before a norm", "launches", ("host", "shapes"), bias_adds),
)
