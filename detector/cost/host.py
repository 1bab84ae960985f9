"""Claims of the patterns by which the host holds the device up: input, waits, dispatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import HOST_NAMED, Activity
from detector.cost.issued import after_sync, all_idle, host_idle, silent
from detector.intervals import EMPTY, Intervals
from detector.rows import are_handles, blocking
from detector.trace import Bool, Cat, Int64

SMALL_COPY_BYTES: Final = 64 * 1024
SCALAR_BYTES: Final = 16  # one value, of the widest type there is
FACTORY_REACH_NS: Final = 1_000_000  # a tensor that is moved at once was made for it
LOOP_ROUNDS: Final = 10  # as many repeats of one op make a loop
LONG_OP_NS: Final = 200_000  # an op that only dispatches is shorter
FALLBACK_SHARE: Final = 0.2  # of a trip to the host and back, spent in an op there
LONG_PAUSE_NS: Final = 1_000_000  # a shorter host gap is ordinary interpreter time


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
    return silent(a, ops[a.trace.dur[ops] >= LONG_OP_NS])


def _pageable(a: Activity) -> Intervals:
    return (a.spans(a.pageable_h2d) | (a.spans(a.syncs_of("h2d")) & all_idle(a))) - a.kernel_busy


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
    made = silent(a, a.ops("factory"))
    made = made[~are_handles(a, made)]
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
    return after_sync(a, "d2h") | (a.spans(big) - a.kernel_busy)


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
    return Intervals(pauses.start[long], pauses.end[long]) | (a.spans(a.host("gc")) & all_idle(a))


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
    return Intervals(trips.start[real], trips.end[real]) & (all_idle(a) | a.exposed_copy)


def _alloc(a: Activity) -> Intervals:
    return (a.alloc - a.kernel_busy) | a.idle_while("alloc")


def _graph_breaks(a: Activity) -> Intervals:
    """Host idle from the end of a compiled region until the next one of its pass launches."""
    trace, rows = a.trace, _regions(a)
    if len(rows) < 2:
        return EMPTY
    end, again = trace.end[rows[:-1]], trace.start[rows[1:]]
    launched = np.append(trace.start[a.launches], np.iinfo(np.int64).max)
    until = np.minimum(launched[np.searchsorted(launched, again)], trace.end[rows[1:]])
    broken = _one_pass(a, rows)
    return Intervals.union(end[broken], until[broken]) & host_idle(a)


def _regions(a: Activity) -> Int64:
    """Calls of compiled code, of the forward pass, on the thread that has most of them."""
    for called in vocabulary.COMPILED_CALLS:
        rows = a.named(a.of(*HOST_NAMED), called, *HOST_NAMED)
        if len(rows):
            track = a.trace.track[rows]
            found: Int64 = rows[track == np.bincount(track).argmax()]
            return found
    return np.empty(0, np.int64)


def _one_pass(a: Activity, rows: Int64) -> Bool:
    """For each of these regions but the last whether the next one goes on where it broke off.

    Frames are numbered as they are first met, so what follows a break has a higher number; the
    same or a lower one is a new call. No pass goes on after backward, an update or a new batch.
    """
    trace = a.trace
    number = np.array([_frame(trace.names[i]) for i in trace.name[rows]], np.int64)
    step = np.searchsorted([s.start for s in trace.steps], trace.start[rows], side="right")
    borders = [a.host("backward"), a.host("optimizer_step"), a.loader_rows]
    border = np.searchsorted(np.sort(trace.start[np.concatenate(borders)]), trace.start[rows])
    goes_on = (np.diff(number) > 0) | (number[1:] < 0)  # old traces number none
    found: Bool = goes_on & (np.diff(step) == 0) & (np.diff(border) == 0)
    return found


def _frame(name: str) -> int:
    """k of a region k/m; -1 where it has no number."""
    found = vocabulary.COMPILED_FRAME.search(name)
    return int(found[1]) if found else -1


def _recompiles(a: Activity) -> Intervals:
    return a.compiling - a.compute


def _unused_parameters(a: Activity) -> Intervals:
    return a.spans(a.host("unused_parameters")) - a.compute


CLAIMS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    "input-dataloader-sync": _dataloader("loader_sync"),
    "input-dataloader-starved": _dataloader("loader_workers"),
    "input-main-thread-preprocessing": _preprocessing,
    "input-pageable-copy": _pageable,
    "input-copy-not-overlapped": _pinned_copies,
    "input-tiny-copies": _tiny_copies,
    "input-cpu-tensor-to-device": _factories,
    "sync-scalar-readback": lambda a: after_sync(a, "scalar"),
    "sync-tensor-readback": _tensor_readback,
    "sync-explicit": lambda a: after_sync(a, "explicit"),
    "sync-dynamic-shape": lambda a: after_sync(a, "dynamic_shape"),
    "sync-blocking-launch": _blocking_launches,
    "host-launch-bound": host_idle,
    "host-python-overhead": lambda a: a.idle_while("python"),
    "host-loop-indexing": _loops,
    "host-gc-pause": _gc,
    "host-cpu-fallback": _fallback,
    "memory-alloc-churn": _alloc,
    "compile-graph-break": _graph_breaks,
    "compile-recompile": _recompiles,
    "comm-unused-parameters": _unused_parameters,
}
