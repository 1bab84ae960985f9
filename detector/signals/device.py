"""Signals of the device's work: slow, small, needless and unfused kernels.

On a CPU run the same names hold ops instead of kernels.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from detector import vocabulary
from detector.index_sets import difference, distinct, union
from detector.signals.definition import Signal, Signals
from detector.signals.event_sets import (
    bias_before_norm,
    casts,
    is_image,
    is_number,
    joins_several,
    keeps_type,
    matching,
    misaligned_matmuls,
    multiprocessors,
)
from detector.trace import Bool, Cat, Int64

SHORT_NS: Final = 5_000  # a shorter kernel is mostly start-up
SMALL_NS: Final = 10_000  # a kernel with little work takes no longer on few multiprocessors
CHAIN: Final = 3  # pointwise kernels in a row
REACH: Final = 12  # ops between a product of attention and its softmax


def issued(s: Signals, ops: Int64) -> Int64:
    """Device work whose launch lies in these ops' own time, on their thread."""
    work = s.activity.device_work
    return work[s.are_inside(s.caller(work), ops)]


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
    softmax = distinct(softmax[softmax >= 0])
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
    itself is fused already. What an optimizer does has a name of its own, and what is added to a
    gradient goes to another tensor each time.
    """
    a, trace = s.activity, s.trace
    if not a.has_device:
        rows = difference(a.compute_rows, s.inside(s["optimizer-walk"]))
        rows = np.intersect1d(rows, a.top_ops, assume_unique=True)
        hit = np.isin(rows, a.named(rows, vocabulary.HOST["pointwise"]))
        return rows[in_runs(hit, trace.track[rows].astype(np.int64))]
    rows = a.compute_rows
    between = np.concatenate([a.kernels_of(kind) for kind in ("copy", "cat", "reduce")])
    apart = [s["optimizer-walk"], a.host("optimizer_step")]
    apart.append(a.named(s.cpu_ops, vocabulary.ACCUMULATES, Cat.CPU_OP))
    rows = difference(rows, union(between, *(issued(s, ops) for ops in apart)))
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
    """Outermost ops that change a tensor's type and leave it on its device.

    Not of the numbers that an op of arithmetic is called with: it makes a tensor of each for
    itself. Where no shapes are recorded, what it casts counts as such a number.
    """
    rows = s.enclosing(casts(s.activity), vocabulary.HOST["to"])
    rows = distinct(rows[rows >= 0])
    if not s.activity.has_device:
        rows = difference(rows, s["layout-kernel"])
    inside = np.isin(s.trace.parent[rows], s.activity.ops("pointwise"))
    dims = s.trace.dims[rows]
    number = inside & ((dims < 0) | matching(s.activity, dims, is_number))
    return _computing(s, rows[~number])


def layout_work(s: Signals) -> Int64:
    """Kernels that convert between layouts. On a CPU run the outermost ops that do: ``to`` that
    copies and changes no type, and ``contiguous`` of what a convolution made."""
    a = s.activity
    return a.kernels_of("layout") if a.has_device else layout_ops(s)


def layout_ops(s: Signals) -> Int64:
    """Ops that bring a tensor of four dimensions and more into another layout, outside the loader.

    None where nothing converts to a layout: a ``contiguous`` alone may have any reason.
    """
    trace, a = s.trace, s.activity
    copies = a.named(s.cpu_ops, vocabulary.COPIES, Cat.CPU_OP)
    copies = copies[matching(a, trace.dims[copies], is_image)]
    copies = copies[matching(a, trace.types[copies], keeps_type)]
    to = s.enclosing(copies, vocabulary.HOST["to"])
    to = distinct(to[to >= 0])
    if not len(to):
        return to
    plain = s.enclosing(copies, vocabulary.CONTIGUOUS)
    plain = s.on(distinct(plain[plain >= 0]), s.main_thread)
    top = s.on(a.top_ops, s.main_thread)
    place = np.searchsorted(top, plain)
    after = np.isin(top[np.maximum(place - 1, 0)], a.ops("conv_call"))
    outermost = top[np.minimum(place, len(top) - 1)] == plain
    return _outside_loader(s, union(to, plain[after & outermost]))


def copy_ops(s: Signals) -> Int64:
    """Outermost ops that only move tensors on the device: contiguous, clone, copy_, cat.

    Not casts, not layouts around convolutions, not what fills or updates parameters, not what
    appends to a growing tensor: these have patterns of their own. Nor what an op of torch or a node
    of the backward pass copies for itself: no program can spare that; nor, on a CPU run, what makes
    one tensor of several others.
    """
    a = s.activity
    rows = s.enclosing(a.ops("copy_op"), vocabulary.COPIES_ONLY)
    rows = difference(rows[rows >= 0], s.enclosing(s["cat-append"], vocabulary.COPIES_ONLY))
    rows = rows if a.has_device else difference(rows, s["layout-kernel"])
    around = s.trace.parent[rows]
    rows = rows[~np.isin(around, a.named(s.cpu_ops, vocabulary.COPIES_FOR_ITSELF, Cat.CPU_OP))]
    rows = rows[~a.spans(s["cast-op"]).contain(s.trace.start[rows])]
    if not a.has_device:
        return _outside_loader(s, difference(rows, _needed_joins(s, rows)))
    moved = np.concatenate([a.kernels_of("copy"), a.kernels_of("cat"), a.copies_of("d2d")])
    return _issuing(s, rows, moved)


def _needed_joins(s: Signals, rows: Int64) -> Int64:
    """Which of these join several tensors that are no parts, or copies, cut right before."""
    trace, a = s.trace, s.activity
    joins = a.named(rows, vocabulary.JOINS, Cat.CPU_OP)
    joins = joins[matching(a, trace.dims[joins], joins_several)]
    track = trace.track[a.top_ops]
    order = np.lexsort((a.top_ops, track))
    ops = a.top_ops[order]
    key, at = (trace.track[x].astype(np.int64) * len(trace) + x for x in (ops, joins))
    before = ops[np.maximum(np.searchsorted(key, at) - 1, 0)]
    return joins[~np.isin(before, a.named(ops, vocabulary.CUTS, Cat.CPU_OP))]


def _outside_loader(s: Signals, rows: Int64) -> Int64:
    return distinct(rows[~s.activity.loader.contain(s.trace.start[rows])])


def _computing(s: Signals, ops: Int64) -> Int64:
    """The ops that issue device work; on a CPU run the ops outside the loader."""
    if not s.activity.has_device:
        return _outside_loader(s, ops)
    return _issuing(s, ops, s.activity.kernels)


def _issuing(s: Signals, ops: Int64, work: Int64) -> Int64:
    """The ops during which, on their thread, some of this work is launched."""
    call = s.caller(work)
    return ops[s.count_inside(ops, call[call >= 0]) > 0]


def zero_grads(s: Signals) -> Int64:
    """``zero_grad`` calls that fill gradients."""
    around = s.activity.host("zero_grad")
    filled: Int64 = around[s.count_during(around, s.activity.ops("zero")) > 0]
    return filled


def optimizer_walks(s: Signals) -> Int64:
    """Optimizer steps without a foreach or fused op, with ten ops and more."""
    a, steps = s.activity, s.activity.host("optimizer_step")
    none = s.count_during(steps, a.ops("foreach")) == 0
    found: Int64 = steps[none & (s.count_during(steps, a.top_ops) >= 10)]
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
    Signal("fp32-matrix", "Matrix kernels in full fp32", fp32_matrix),
    Signal("misaligned-gemm", "GEMM kernels with dimensions not divisible by 8", misaligned),
    Signal("underfilled-kernel", "Kernels with too few blocks", underfilled),
    Signal("attention-between", "Work between the products of attention", attention),
    Signal("pointwise-chain", "Chains of pointwise kernels", pointwise_chains),
    Signal("cast-op", "Casts", cast_ops),
    Signal("copy-op", "Ops that only copy", copy_ops),
    Signal("layout-kernel", "Layout transforms", layout_work),
    Signal("zero-grad", "zero_grad calls that fill", zero_grads),
    Signal("optimizer-walk", "Optimizer steps by parameter", optimizer_walks),
    Signal("bias-add", "Bias adds before a norm", bias_adds),
)
