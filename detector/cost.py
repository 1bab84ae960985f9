"""How much time a pattern could give back, and which time that is.

A claim is a set of wall-time intervals and a weight: claimed time times weight is the recoverable
time. Weights under 1 are models, each with its reason in ``WEIGHTS``; the rest is measured idle or
needless work. Intervals let the pipeline keep claims disjoint, so shares never add up beyond 1.

Idle is time in which the main device runs nothing. Sources of the formulas: the taxonomy's column
"recoverable time".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import Activity
from detector.features.device import blocking, multiprocessors
from detector.intervals import EMPTY, Intervals
from detector.trace import Bool, Cat, Int64

SMALL_COPY_BYTES: Final = 64 * 1024
SMALL_COLLECTIVE_BYTES: Final = 1 << 20
SCALAR_BYTES: Final = 16  # one value, of the widest type there is
FACTORY_REACH_NS: Final = 1_000_000  # a tensor that is moved at once was made for it
LOOP_ROUNDS: Final = 10  # as many repeats of one op make a loop
LONG_OP_NS: Final = 200_000  # an op that only dispatches is shorter
FALLBACK_SHARE: Final = 0.2  # of a trip to the host and back, spent in an op there
LONG_PAUSE_NS: Final = 1_000_000  # a shorter host gap is ordinary interpreter time

# The share of the claimed time that the fix gives back, where it cannot be measured.
WEIGHTS: Final[dict[str, float]] = {
    "host-launch-bound": 0.8,  # a graph launch still costs a launch
    "host-loop-indexing": 0.9,  # one vectorised op remains of ten or more
    "memory-redundant-copy": 0.8,  # some copies are needed
    "compute-fp32-matmul": 0.67,  # TF32 at a third of the time; bounded by what is memory-bound
    "compute-misaligned-gemm": 0.3,  # aligned kernels of the same size, typical
    "compute-unfused-attention": 0.6,  # the fused op spares the score matrix's traffic
    "compute-unfused-elementwise": 0.6,  # a chain of three reads and writes once instead of thrice
    "compute-single-tensor-optimizer": 0.7,  # the arithmetic stays, the many launches go
    "comm-small-collectives": 0.7,  # the bytes stay, the latencies go
    "infer-autograd": 0.1,  # book-keeping per op
    "infer-kv-cat": 0.9,  # writing one row instead of copying all
    "compute-conv-bias-batchnorm": 0.05,  # on a CPU run the bias is a small part of the convolution
}


@dataclass(frozen=True)
class Claim:
    """Time a finding says it can give back: ``weight`` times the measure of ``intervals``."""

    intervals: Intervals
    weight: float

    @property
    def recoverable_ns(self) -> float:
        """Recoverable time, ns."""
        return self.weight * self.intervals.measure

    def within(self, spans: Intervals) -> Claim:
        """The part of the claim inside ``spans``."""
        return Claim(self.intervals & spans, self.weight)

    def without(self, spans: Intervals) -> Claim:
        """The part of the claim outside ``spans``."""
        return Claim(self.intervals - spans, self.weight)


def claim(activity: Activity, pattern: str) -> Claim:
    """What ``pattern`` can claim of the whole trace; ``within`` gives the part of a region."""
    return Claim(_CLAIMS[pattern](activity), weight(activity, pattern))


def weight(activity: Activity, pattern: str) -> float:
    """The share of its claimed time that a pattern's fix gives back."""
    if pattern == "compute-underfilled":
        return _mean_unfilled(activity)
    if pattern == "compute-conv-bias-batchnorm" and activity.has_device:
        return 1.0  # there the bias kernels themselves are claimed
    return WEIGHTS.get(pattern, 1.0)


# -- device work by the host code that issued it ---------------------------------------------------


def issued_within(a: Activity, spans: Intervals, rows: Int64) -> Int64:
    """Those device ``rows`` whose launch lies in ``spans``; on a CPU run, ops that start there."""
    trace = a.trace
    launch = trace.launch[rows]
    if not a.has_device:
        return rows[_inside(spans, trace.start[rows])]
    return rows[(launch >= 0) & _inside(spans, trace.start[launch])]


def _inside(spans: Intervals, at: Int64) -> Bool:
    """Which of these instants lie in ``spans``."""
    inside: Bool = spans.covered(at, at + 1) > 0
    return inside


def _work_of(a: Activity, ops: Int64, kernels: Int64 | None = None) -> Intervals:
    """Device time (CPU run: op time) of the work that these ops issued."""
    if not a.has_device:
        return a.spans(ops) - a.loader
    rows = a.compute_rows if kernels is None else kernels
    return a.spans(issued_within(a, a.spans(ops), rows))


def _all_idle(a: Activity) -> Intervals:
    if not len(a.trace):
        return EMPTY
    return a.idle(int(a.trace.start[0]), int(a.trace.end.max()))


def _after_sync(a: Activity, cause: str) -> Intervals:
    """Idle that a wait causes: inside it, and after it until the device has work again.

    The host lost at most the length of its wait, so the time after is bounded by it.
    """
    rows = a.syncs_of(cause)
    if not len(rows):
        return EMPTY
    start, end = a.trace.start[rows], a.trace.end[rows]
    begins = a.busy.start
    i = np.searchsorted(begins, end)
    after = np.where(i < len(begins), begins[np.minimum(i, len(begins) - 1)], end)
    return Intervals.union(start, np.minimum(after, end + (end - start))) & _all_idle(a)


def _host_idle(a: Activity) -> Intervals:
    """Idle while the host launches, dispatches ops or interprets Python."""
    return a.idle_while("launch") | a.idle_while("op") | a.idle_while("python")


# -- one function per pattern ----------------------------------------------------------------------


def _dataloader(kind: str) -> Callable[[Activity], Intervals]:
    def claimed(a: Activity) -> Intervals:
        return a.spans(a.named(a.loader_rows, vocabulary.HOST[kind])) & a.idle_while("loader")

    return claimed


def _preprocessing(a: Activity) -> Intervals:
    """Idle while the training thread works on CPU tensors, or in image and array libraries."""
    frames = a.spans(a.host("preprocess")) & (a.idle_while("python") | a.idle_while("op"))
    if not a.has_device:
        return (frames | a.idle_while("python")) - a.loader
    return frames | (a.spans(host_only_ops(a)) & a.idle_while("op"))


def host_only_ops(a: Activity) -> Int64:
    """Long cpu_ops that issue no device work: they compute on the host."""
    ops = a.of(Cat.CPU_OP)
    return _silent(a, ops[a.trace.dur[ops] >= LONG_OP_NS])


def _silent(a: Activity, ops: Int64) -> Int64:
    """Those ops in whose time nothing is launched."""
    trace, launched = a.trace, a.trace.start[a.launches]
    inside = np.searchsorted(launched, trace.end[ops]) - np.searchsorted(launched, trace.start[ops])
    alone: Int64 = ops[inside == 0]
    return alone


def _pageable(a: Activity) -> Intervals:
    return (a.spans(a.pageable_h2d) | (a.spans(a.syncs_of("h2d")) & _all_idle(a))) - a.kernel_busy


def _pinned_copies(a: Activity) -> Intervals:
    pinned = np.setdiff1d(a.copies_of("h2d"), a.pageable_h2d)
    return a.spans(pinned) - a.kernel_busy


def _with_host_side(a: Activity, copies: Int64) -> Intervals:
    """Copies, their calls and their ops, where no kernel runs beside them."""
    trace = a.trace
    around = np.concatenate([trace.launch[copies], trace.op[copies]]).astype(np.int64)
    rows = np.concatenate([copies, around[around >= 0]])
    return a.spans(rows) - a.kernel_busy


def _tiny_copies(a: Activity) -> Intervals:
    h2d = a.copies_of("h2d")
    size = a.trace.bytes[h2d]
    return _with_host_side(a, h2d[(size >= 0) & (size < SMALL_COPY_BYTES)])


def _factories(a: Activity) -> Intervals:
    """Copies whose op soon follows a factory op on the same thread, with the factory's time."""
    trace, h2d = a.trace, a.copies_of("h2d")
    made = _silent(a, a.ops("factory"))
    made = made[np.argsort(trace.end[made], kind="stable")]  # they may nest
    h2d = h2d[trace.op[h2d] >= 0]
    if not len(made) or not len(h2d):
        return EMPTY
    copied_at = trace.start[trace.op[h2d]]
    i = np.searchsorted(trace.end[made], copied_at, side="right") - 1
    last = made[np.maximum(i, 0)]
    near = (i >= 0) & (copied_at - trace.end[last] < FACTORY_REACH_NS)
    near &= trace.track[last] == trace.track[trace.op[h2d]]
    return _with_host_side(a, h2d[near]) | (a.spans(last[near]) - a.kernel_busy)


def _tensor_readback(a: Activity) -> Intervals:
    d2h = a.copies_of("d2h")
    big = d2h[(a.trace.bytes[d2h] < 0) | (a.trace.bytes[d2h] > SCALAR_BYTES)]
    return _after_sync(a, "d2h") | (a.spans(big) - a.kernel_busy)


def _blocking_launches(a: Activity) -> Intervals:
    """Idle around the launches, where half of them wait: in their own call or in one after it."""
    waits = max(len(blocking(a)), len(a.sync_rows))
    if not len(a.launches) or 2 * waits < len(a.launches):
        return EMPTY
    return (a.idle_while("sync") | a.idle_while("launch") | a.idle_while("op")) - a.loader


def _loops(a: Activity) -> Intervals:
    """Runs of ten or more row accesses in close succession, from the first to the last."""
    rows = a.ops("select")
    rows = rows[a.trace.track[rows] == a.main_track]
    if len(rows) < LOOP_ROUNDS:
        return EMPTY
    start, end = a.trace.start[rows], a.trace.end[rows]
    gap = start[1:] - start[:-1]
    breaks = np.flatnonzero(gap > 8 * max(1, int(np.median(gap)))) + 1
    first = np.concatenate([[0], breaks])
    last = np.concatenate([breaks - 1, [len(rows) - 1]])
    long = last - first + 1 >= LOOP_ROUNDS
    return Intervals.union(start[first[long]], end[last[long]])


def _gc(a: Activity) -> Intervals:
    pauses = a.idle_while("python")
    long = pauses.end - pauses.start >= LONG_PAUSE_NS
    return Intervals(pauses.start[long], pauses.end[long]) | (a.spans(a.host("gc")) & _all_idle(a))


def _fallback(a: Activity) -> Intervals:
    """From a copy to the host to the copy back, where the device idles; and the copies."""
    out, back = a.copies_of("d2h"), a.copies_of("h2d")
    if not len(out) or not len(back):
        return EMPTY
    left, returned = a.trace.start[out], a.trace.end[back]
    i = np.searchsorted(a.trace.start[back], a.trace.end[out])
    found = i < len(back)
    trips = Intervals.union(left[found], returned[i[found]])
    # Copies there and back are ordinary; what makes it a fall-back is an op that ran in between.
    ran = a.spans(host_only_ops(a)).covered(trips.start, trips.end)
    real = ran > FALLBACK_SHARE * (trips.end - trips.start)
    return Intervals(trips.start[real], trips.end[real]) & (_all_idle(a) | a.exposed_copy)


def _alloc(a: Activity) -> Intervals:
    return (a.alloc - a.kernel_busy) | a.idle_while("alloc")


def _zero_grad(a: Activity) -> Intervals:
    inside = issued_spans(a, a.host("zero_grad"), a.ops("zero"))
    return _work_of(a, inside)


def issued_spans(a: Activity, around: Int64, rows: Int64) -> Int64:
    """Those host ``rows`` that start inside one of the ``around`` events."""
    return rows[_inside(a.spans(around), a.trace.start[rows])]


def _redundant(a: Activity) -> Intervals:
    if not a.has_device:
        return a.spans(a.ops("copy_op")) - a.loader
    moved = np.concatenate([a.kernels_of("copy"), a.kernels_of("cat"), a.copies_of("d2d")])
    return a.spans(issued_within(a, a.spans(a.ops("copy_op")), moved))


def _misaligned(a: Activity) -> Intervals:
    """Matrix kernels whose op has a side that is no multiple of 8."""
    return _work_of(a, misaligned_ops(a), a.kernels_of("gemm"))


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


def _mean_unfilled(a: Activity) -> float:
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
    return _work_of(a, np.sort(rows))


def _elementwise(a: Activity) -> Intervals:
    """Pointwise work in runs of three or more."""
    work = a.compute_rows
    if a.has_device:
        pointwise = a.kernels_of("pointwise")
    else:
        pointwise = a.named(work, vocabulary.HOST["pointwise"])
    return a.spans(work[_in_threes(np.isin(work, pointwise))]) - a.loader


def _in_threes(hit: Bool) -> Bool:
    """Those hits that stand in runs of three or more."""
    wide = np.pad(hit, 2)
    first = wide[:-2] & wide[1:-1] & wide[2:]  # of three hits in a row
    found: Bool = first[:-2] | first[1:-1] | first[2:]
    return found


def _optimizer(a: Activity) -> Intervals:
    """The optimizer's step where it walks the parameters: its kernels and the idle it causes."""
    steps = a.host("optimizer_step")
    inside = issued_spans(a, steps, a.of(Cat.CPU_OP))
    if len(inside) and len(issued_spans(a, steps, a.ops("foreach"))):
        return EMPTY
    work = _work_of(a, steps)
    return work | (a.spans(steps) & _host_idle(a)) if a.has_device else a.spans(steps)


def _conv_bias(a: Activity) -> Intervals:
    if not len(a.ops("batch_norm")):
        return EMPTY
    convs = a.ops("conv")
    if not a.has_device:
        return a.spans(convs)
    return _work_of(a, convs, a.kernels_of("pointwise"))


def _graph_breaks(a: Activity) -> Intervals:
    return _host_idle(a) if len(a.host("compiled_region")) else EMPTY


def _recompiles(a: Activity) -> Intervals:
    return a.compiling - a.compute


def _small_collectives(a: Activity) -> Intervals:
    rows, trace = a.comm_rows, a.trace
    small = (trace.msg_elems[rows] >= 0) & (trace.msg_elems[rows] * 4 < SMALL_COLLECTIVE_BYTES)
    if not a.has_device:  # a CPU backend's spans carry no sizes; latency shows in their length
        small = trace.dur[rows] < LONG_PAUSE_NS
    return a.spans(rows[small]) - a.compute


def _extra_rounds(a: Activity) -> Intervals:
    """Exposed collectives that reduce a size again before the optimizer's step.

    A CPU backend's spans carry no sizes: there every other collective of a step counts, which is
    right for two rounds and too little for more.
    """
    rows, trace = a.comm_rows, a.trace
    updates = np.sort(trace.start[a.host("optimizer_step")])
    if not len(rows) or not len(updates):
        return EMPTY
    step = np.searchsorted(updates, trace.start[rows])
    if (trace.msg_elems[rows] >= 0).any():
        key = np.stack([step, trace.msg_elems[rows], trace.collective[rows].astype(np.int64)])
        _, first = np.unique(key, axis=1, return_index=True)
        again = np.setdiff1d(np.arange(len(rows)), first)
    else:
        place = np.arange(len(rows)) - np.searchsorted(step, step)  # within its step
        again = np.flatnonzero(place % 2 == 1)
    return a.spans(rows[again]) - a.compute


def _unused_parameters(a: Activity) -> Intervals:
    return a.spans(a.host("unused_parameters")) - a.compute


def _autograd_ops(a: Activity) -> Intervals:
    if len(a.ops("backward")):
        return EMPTY
    return a.idle_while("op") if a.has_device else a.op_time


_CLAIMS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    "input-dataloader-sync": _dataloader("loader_sync"),
    "input-dataloader-starved": _dataloader("loader_workers"),
    "input-main-thread-preprocessing": _preprocessing,
    "input-pageable-copy": _pageable,
    "input-copy-not-overlapped": _pinned_copies,
    "input-tiny-copies": _tiny_copies,
    "input-cpu-tensor-to-device": _factories,
    "sync-scalar-readback": lambda a: _after_sync(a, "scalar"),
    "sync-tensor-readback": _tensor_readback,
    "sync-explicit": lambda a: _after_sync(a, "explicit"),
    "sync-dynamic-shape": lambda a: _after_sync(a, "dynamic_shape"),
    "sync-blocking-launch": _blocking_launches,
    "host-launch-bound": _host_idle,
    "host-python-overhead": lambda a: a.idle_while("python"),
    "host-loop-indexing": _loops,
    "host-gc-pause": _gc,
    "host-cpu-fallback": _fallback,
    "memory-alloc-churn": _alloc,
    "memory-zero-grad-fill": _zero_grad,
    "memory-redundant-copy": _redundant,
    "memory-layout-transform": lambda a: a.spans(a.kernels_of("layout")),
    "memory-dtype-churn": lambda a: _work_of(a, a.ops("to")),
    "compute-fp32-matmul": lambda a: a.spans(a.named(a.compute_rows, vocabulary.FP32_MATRIX)),
    "compute-misaligned-gemm": _misaligned,
    "compute-underfilled": lambda a: a.spans(_unfilled(a)),
    "compute-unfused-attention": _attention,
    "compute-unfused-elementwise": _elementwise,
    "compute-single-tensor-optimizer": _optimizer,
    "compute-conv-bias-batchnorm": _conv_bias,
    "compile-graph-break": _graph_breaks,
    "compile-recompile": _recompiles,
    "comm-exposed": lambda a: a.exposed_comm,
    "comm-small-collectives": _small_collectives,
    "comm-straggler": lambda _: EMPTY,  # needs several ranks
    "comm-unused-parameters": _unused_parameters,
    "comm-missing-no-sync": _extra_rounds,
    "infer-autograd": _autograd_ops,
    "infer-kv-cat": lambda a: _work_of(a, a.ops("cat")),
}
