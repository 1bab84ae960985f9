"""The host: loader, ops, calls, Python, allocation, compilation, and time that nothing explains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from detector.activity import CALLS, Activity
from detector.features.measure import (
    Feature,
    count,
    covered,
    length,
    log,
    longest,
    needing,
    per,
    rate,
    ratio,
    spent,
    time_share,
)
from detector.intervals import EMPTY, Intervals
from detector.trace import NS_PER_US, Cat, Int64

LONG_NS: Final = 50 * NS_PER_US  # a host op that computes, against one that only dispatches

# -- sets ------------------------------------------------------------------------------------------


def silent_ops(activity: Activity) -> Int64:
    """Innermost ops of 50 us and more that started no device work, on a trace with a device."""
    trace, ops = activity.trace, activity.aten
    if not activity.has_device:
        return ops[:0]
    busy = np.zeros(len(trace) + 1, np.bool_)  # the last place takes "no parent"
    busy[trace.parent[activity.of(Cat.CPU_OP)]] = True
    busy[trace.op[activity.of(*CALLS)]] = True
    return ops[~busy[ops] & (trace.dur[ops] >= LONG_NS)]


def main_ops(activity: Activity) -> Intervals:
    """Time of the thread that feeds the device in ops, outside the loader."""
    on_main = activity.trace.track[activity.aten] == activity.main_track
    return activity.spans(activity.aten[on_main]) - activity.loader


def blank(activity: Activity) -> Intervals:
    """Time in which no thread is in an op, a call, the loader or the compiler."""
    trace = activity.trace
    if not len(trace):
        return EMPTY
    known = activity.op_time | activity.call_time | activity.loader | activity.compiling
    return known.invert(int(trace.start.min()), int(trace.end.max()))


def worker_waits(activity: Activity) -> Int64:
    """Loader calls that wait for worker processes."""
    workers = activity.host("loader_workers")
    return np.intersect1d(activity.loader_rows, workers, assume_unique=True)


ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    "op": lambda activity: activity.aten,
    "call": lambda activity: activity.of(*CALLS),
    "frame": lambda activity: activity.of(Cat.PYTHON_FUNCTION),
    "loader": lambda activity: activity.loader_rows,
    "loader, workers": worker_waits,
    "silent op": silent_ops,
}
INTERVALS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    "main ops": main_ops,
    "blank": blank,
}

# -- features --------------------------------------------------------------------------------------


FEATURES: Final = (
    Feature(
        "stretch",
        "length against the median window's (of the wide window: a long step)",
        lambda cuts: np.log2(cuts.length / np.median(cuts.length)),
        "log2",
    ),
    Feature("loader", "the host waits for, or makes, a batch", time_share("loader")),
    Feature("loader_workers", "the host waits for loader workers", time_share("loader, workers")),
    *needing(
        "host",
        Feature("main_ops", "the main thread is in ops", time_share("main ops")),
        Feature(
            "blank",
            "no thread is in an op, a call, the loader or the compiler",
            time_share("blank"),
        ),
        Feature(
            "blank_longest",
            "the longest time without op, call, loader or compiler",
            ratio(longest("blank"), length),
        ),
        Feature(
            "blank_per_op",
            "blank time for each op",
            log(ratio(covered("blank"), count("op")), NS_PER_US),
            "log2 us",
        ),
        Feature("op_rate", "ops for each ms", rate("op"), "log2 1/ms"),
        Feature("call_rate", "driver calls for each ms", rate("call"), "log2 1/ms"),
        Feature(
            "op_overlap", "ops that nest or overlap", log(ratio(spent("op"), covered("op"))), "log2"
        ),
    ),
    *needing(
        "stacks",
        Feature("frame_rate", "Python frames for each ms", rate("frame"), "log2 1/ms"),
        Feature("frames_per_op", "Python frames for each op", per("frame", "op"), "log2"),
    ),
    *needing(
        "device",
        Feature("ops_per_launch", "ops for each launch", per("op", "launch"), "log2"),
        Feature(
            "silent_ops",
            "the host computes: long innermost ops that start no device work",
            time_share("silent op"),
        ),
    ),
    Feature("alloc_share", "driver allocation and freeing", time_share("call:alloc")),
    Feature("compiled", "compiled regions run", time_share("host:compiled_region")),
    Feature(
        "compiled_rate",
        "compiled regions for each ms",
        rate("host:compiled_region"),
        "log2 1/ms",
    ),
    Feature("optimizer", "the optimizer steps", time_share("host:optimizer_step")),
    Feature("zero_grad", "gradients are cleared", time_share("host:zero_grad")),
    Feature("backward", "the backward pass runs", time_share("host:backward")),
)
