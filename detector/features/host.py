"""The host: loader, ops, calls, Python, allocation, compilation, and time that nothing explains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from detector.activity import CALLS, Activity
from detector.features.measure import (
    LENGTH,
    US,
    Count,
    Covered,
    Feature,
    Log,
    Log1p,
    Longest,
    MedianLength,
    Ratio,
    Spent,
    mean,
    rate,
    time_share,
)
from detector.intervals import EMPTY, Intervals
from detector.trace import NS_PER_US, Cat, Int64

LONG_NS: Final = 50 * NS_PER_US  # a host op that computes, against one that only dispatches

# -- sets ----------------------------------------------------------------------------------------


def on_main_thread(activity: Activity, rows: Int64) -> Int64:
    """The rows among these on the thread that feeds the device."""
    found: Int64 = rows[activity.trace.track[rows] == activity.main_track]
    return found


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
    """Time of the main thread in ops, outside the loader."""
    return activity.spans(on_main_thread(activity, activity.aten)) - activity.loader


def main_calls(activity: Activity) -> Intervals:
    """Time of the main thread in runtime and driver calls."""
    return activity.spans(on_main_thread(activity, activity.of(*CALLS)))


def blank(activity: Activity) -> Intervals:
    """Time in which no thread is in an op, a call, the loader or the compiler."""
    trace = activity.trace
    if not len(trace):
        return EMPTY
    known = activity.op_time | activity.call_time | activity.loader | activity.compiling
    return known.invert(int(trace.start.min()), int(trace.end.max()))


def loader_of(kind: str) -> Callable[[Activity], Int64]:
    """Loader calls of one kind of iterator."""

    def rows(activity: Activity) -> Int64:
        return np.intersect1d(activity.loader_rows, activity.host(kind), assume_unique=True)

    return rows


ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    "op": lambda activity: activity.aten,
    "call": lambda activity: activity.of(*CALLS),
    "frame": lambda activity: activity.of(Cat.PYTHON_FUNCTION),
    "loader": lambda activity: activity.loader_rows,
    "loader, no workers": loader_of("loader_sync"),
    "loader, workers": loader_of("loader_workers"),
    "silent op": silent_ops,
}
INTERVALS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    "main ops": main_ops,
    "main calls": main_calls,
    "blank": blank,
    "op time": lambda activity: activity.op_time,
    "call time": lambda activity: activity.call_time,
}


# -- features ------------------------------------------------------------------------------------

FEATURES: Final = (
    Feature(
        "stretch",
        "log2",
        "length against the median window's (of the wide window: a long step)",
        Log(Ratio(LENGTH, MedianLength())),
    ),
    Feature("loader", "share", "the host waits for, or makes, a batch", time_share("loader")),
    Feature(
        "loader_sync",
        "share",
        "batches are made on the training thread",
        time_share("loader, no workers"),
    ),
    Feature(
        "loader_workers",
        "share",
        "the host waits for loader workers",
        time_share("loader, workers"),
    ),
    Feature("main_ops", "share", "the main thread is in ops", time_share("main ops"), "host"),
    Feature(
        "main_calls",
        "share",
        "the main thread is in calls",
        time_share("main calls"),
        "host",
    ),
    Feature(
        "blank",
        "share",
        "no thread is in an op, a call, the loader or the compiler",
        time_share("blank"),
        "host",
    ),
    Feature(
        "blank_longest",
        "share",
        "the longest time without op, call, loader or compiler",
        Ratio(Longest("blank"), LENGTH),
        "host",
    ),
    Feature(
        "blank_per_op",
        "log2 us",
        "blank time for each op",
        Log(Ratio(Ratio(Covered("blank"), Count("op")), US)),
        "host",
    ),
    Feature("op_us", "log2 us", "mean log duration of ops", mean("op", "log2(us)"), "host"),
    Feature("op_rate", "log2 1/ms", "ops for each ms", rate("op"), "host"),
    Feature("call_rate", "log2 1/ms", "driver calls for each ms", rate("call"), "host"),
    Feature("frame_rate", "log2 1/ms", "Python frames for each ms", rate("frame"), "stacks"),
    Feature(
        "frames_per_op",
        "log2",
        "Python frames for each op",
        Log1p(Ratio(Count("frame"), Count("op"))),
        "stacks",
    ),
    Feature(
        "ops_per_launch",
        "log2",
        "ops for each launch",
        Log1p(Ratio(Count("op"), Count("launch"))),
        "device",
    ),
    Feature(
        "silent_ops",
        "share",
        "the host computes: long innermost ops that start no device work",
        time_share("silent op"),
        "device",
    ),
    Feature(
        "op_overlap",
        "log2",
        "ops that nest or overlap",
        Log(Ratio(Spent("op"), Covered("op"))),
        "host",
    ),
    Feature("gc", "share", "the garbage collector runs", time_share("host:gc"), "stacks"),
    Feature(
        "preprocess",
        "share",
        "image or array libraries run",
        time_share("host:preprocess"),
        "stacks",
    ),
    Feature("alloc_share", "share", "driver allocation and freeing", time_share("call:alloc")),
    Feature(
        "alloc_rate",
        "log2",
        "allocating calls for each launch",
        Log1p(Ratio(Count("call:alloc"), Count("launch"))),
        "device",
    ),
    Feature("module_load", "share", "code is loaded lazily", time_share("call:module_load")),
    Feature("compiling", "share", "torch.compile works", time_share("host:compile")),
    Feature(
        "compiled",
        "share",
        "compiled regions run",
        time_share("host:compiled_region"),
    ),
    Feature(
        "compiled_rate",
        "log2 1/ms",
        "compiled regions for each ms",
        rate("host:compiled_region"),
    ),
    Feature("optimizer", "share", "the optimizer steps", time_share("host:optimizer_step")),
    Feature("zero_grad", "share", "gradients are cleared", time_share("host:zero_grad")),
    Feature("backward", "share", "the backward pass runs", time_share("host:backward")),
)
