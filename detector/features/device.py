"""The device: busy and idle, launches and their queue, what its kernels are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import IDLE_CAUSES, Activity
from detector.features.measure import (
    LENGTH,
    Count,
    Covered,
    Feature,
    Log,
    Log1p,
    Longest,
    Ratio,
    Scale,
    Spent,
    Spread,
    Values,
    count_share,
    mean,
    spent_share,
    time_share,
)
from detector.features.sequence import shifted
from detector.intervals import EMPTY, Intervals
from detector.signals.event_sets import blocking, launched, multiprocessors
from detector.trace import Int64

SHORT_US: Final = (5, 10, 20, 100)
FUSABLE: Final = ("pointwise", "copy", "norm", "softmax", "reduce", "fill")
MATRIX: Final = ("gemm", "conv")

# -- sets ----------------------------------------------------------------------------------------


def whole(activity: Activity) -> tuple[int, int]:
    """From the first event to the last end, ns."""
    trace = activity.trace
    return (int(trace.start.min()), int(trace.end.max())) if len(trace) else (0, 0)


def idle(activity: Activity) -> Intervals:
    """Time in which the device does nothing."""
    start, end = whole(activity)
    return activity.idle(start, end) if end > start else EMPTY


def starved(activity: Activity) -> Int64:
    """Launched work whose launch began after all earlier device work had ended: an empty queue."""
    trace, rows = activity.trace, activity.device_work
    before = np.empty(len(rows), np.int64)
    before[:1] = np.iinfo(np.int64).min
    before[1:] = np.maximum.accumulate(trace.end[rows])[:-1]
    launch = trace.launch[rows]
    return rows[(launch >= 0) & (trace.start[launch] >= before)]


def short_kernels(activity: Activity, under_us: int) -> Int64:
    """Kernels shorter than so many µs."""
    rows = activity.kernels
    return rows[activity.trace.dur[rows] < under_us * 1_000]


def matrix_kernels(activity: Activity) -> Int64:
    """Matrix products and convolutions."""
    kinds = list(vocabulary.KERNEL_KINDS)
    codes = [1 + kinds.index(kind) for kind in MATRIX]
    rows = activity.kernels
    return rows[np.isin(activity.kernel_kind[activity.trace.name[rows]], codes)]


def fp32_matrix_kernels(activity: Activity) -> Int64:
    """Matrix kernels in full fp32."""
    return activity.named(matrix_kernels(activity), vocabulary.FP32_MATRIX)


def tensor_core_kernels(activity: Activity) -> Int64:
    """Matrix kernels that use tensor (matrix) cores."""
    return activity.named(matrix_kernels(activity), vocabulary.TENSOR_CORE)


def misaligned_kernels(activity: Activity) -> Int64:
    """Matrix kernels made for sides that are no multiple of 8."""
    return activity.named(matrix_kernels(activity), vocabulary.MISALIGNED)


def sized_kernels(activity: Activity) -> Int64:
    """Kernels whose grid is known, on a device whose multiprocessors are."""
    rows = activity.kernels
    return rows[activity.trace.blocks[rows] > 0] if multiprocessors(activity) > 0 else rows[:0]


def unfilled_kernels(activity: Activity) -> Int64:
    """Kernels with fewer blocks than the device has multiprocessors."""
    rows = sized_kernels(activity)
    return rows[activity.trace.blocks[rows] < multiprocessors(activity)]


def sized_matrix_kernels(activity: Activity) -> Int64:
    """Matrix kernels whose fill is known."""
    return np.intersect1d(sized_kernels(activity), matrix_kernels(activity), assume_unique=True)


def chained_kernels(activity: Activity) -> Int64:
    """Kernels that a compiler could fuse with both of the two before them."""
    kinds = list(vocabulary.KERNEL_KINDS)
    codes = [1 + kinds.index(kind) for kind in FUSABLE]
    rows = activity.kernels
    fusable = np.isin(activity.kernel_kind[activity.trace.name[rows]], codes)
    return rows[fusable & shifted(fusable, 1) & shifted(fusable, 2)]


ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    "kernel": lambda activity: activity.kernels,
    "device work": lambda activity: activity.device_work,
    "memset": lambda activity: activity.memsets,
    "launch": lambda activity: activity.launches,
    "launched": launched,
    "starved": starved,
    "blocking": blocking,
    **{f"kernel under {us} us": partial(short_kernels, under_us=us) for us in SHORT_US},
    "matrix kernel": matrix_kernels,
    "fp32 matrix kernel": fp32_matrix_kernels,
    "tensor-core kernel": tensor_core_kernels,
    "misaligned kernel": misaligned_kernels,
    "sized kernel": sized_kernels,
    "unfilled kernel": unfilled_kernels,
    "sized matrix kernel": sized_matrix_kernels,
    "chained kernel": chained_kernels,
}
INTERVALS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    "busy": lambda activity: activity.busy,
    "idle": idle,
    "compute": lambda activity: activity.compute,
    "kernel busy": lambda activity: activity.kernel_busy,
}

# -- weights and scales --------------------------------------------------------------------------


def log2_us(activity: Activity, rows: Int64) -> Values:
    """log2 of the duration in µs, at least 1 ns."""
    return np.asarray(np.log2(np.maximum(activity.trace.dur[rows], 1) / 1_000), np.float64)


def delay(activity: Activity, rows: Int64) -> Values:
    """Time from the start of the launch to the start of the work, ns."""
    trace = activity.trace
    values: Values = np.maximum(trace.start[rows] - trace.start[trace.launch[rows]], 0).astype(
        np.float64
    )
    return values


def depth(activity: Activity, rows: Int64) -> Values:
    """log2(1 + launches before this one whose work had not started yet)."""
    trace, work = activity.trace, launched(activity)
    call, first = np.unique(trace.launch[work], return_index=True)
    started = np.sort(trace.start[work[first]])
    before = np.arange(len(call)) - np.searchsorted(started, trace.start[call], side="right")
    at = np.searchsorted(call, rows)
    return np.asarray(np.log2(1 + np.maximum(before[at], 0)), np.float64)


def fill(activity: Activity, rows: Int64) -> Values:
    """log2(blocks / multiprocessors), at most 0."""
    share = activity.trace.blocks[rows] / max(multiprocessors(activity), 1)
    return np.asarray(np.log2(np.minimum(share, 1.0)), np.float64)


def launch_cost(activity: Activity) -> float:
    """Median duration of the calls that start device work, ns."""
    rows = activity.launches
    return float(np.median(activity.trace.dur[rows])) if len(rows) else float("nan")


WEIGHTS: Final[dict[str, Callable[[Activity, Int64], Values]]] = {
    "log2(us)": log2_us,
    "delay": delay,
    "depth": depth,
    "fill": fill,
}
SCALES: Final[dict[str, Callable[[Activity], float]]] = {"launch cost": launch_cost}

# -- features ------------------------------------------------------------------------------------

IDLE_MEANING: Final = {
    "loader": "the host waits for, or makes, a batch",
    "sync": "the host is in a synchronizing call",
    "alloc": "the driver allocates or frees",
    "compile": "torch.compile works",
    "comm": "a CPU collective runs",
    "launch": "the host launches",
    "op": "the host is in an op or another call",
    "python": "no op and no call explains it: Python",
}

FEATURES: Final = (
    Feature("busy", "share", "the device does anything", time_share("busy")),
    Feature("compute", "share", "a compute kernel runs (CPU run: an op)", time_share("compute")),
    *(
        Feature(
            f"idle_{cause}",
            "share",
            f"the device idles while {IDLE_MEANING[cause]}",
            time_share(f"idle:{cause}"),
        )
        for cause in IDLE_CAUSES
    ),
    Feature(
        "idle_longest",
        "share",
        "longest idle time of the device",
        Ratio(Longest("idle"), LENGTH),
    ),
    Feature(
        "idle_per_launch",
        "log2",
        "idle time for each launch, in launch costs",
        Log(Ratio(Ratio(Covered("idle"), Count("launch")), Scale("launch cost"))),
        "device",
    ),
    Feature(
        "concurrency",
        "log2",
        "kernels that run at once, while any does",
        Log(Ratio(Spent("kernel"), Covered("kernel busy"))),
        "device",
    ),
    Feature("launch_share", "share", "the host is in launch calls", time_share("launch"), "device"),
    Feature(
        "launch_per_kernel",
        "log2",
        "time in launch calls against time in kernels",
        Log(Ratio(Spent("launch"), Spent("kernel"))),
        "device",
    ),
    Feature(
        "launch_delay",
        "log2",
        "mean time from launch to start, in launch costs",
        Log(Ratio(mean("launched", "delay"), Scale("launch cost"))),
        "device",
    ),
    Feature(
        "starved",
        "share",
        "launched work that found the queue empty and the device done",
        count_share("starved", "launched"),
        "device",
    ),
    Feature(
        "queue_depth",
        "log2",
        "mean launches still waiting at a launch",
        mean("launch", "depth"),
        "device",
    ),
    Feature(
        "blocking",
        "share",
        "kernels that ended before their launch call returned",
        count_share("blocking", "kernel"),
        "device",
    ),
    Feature(
        "kernel_us", "log2 us", "mean log duration of kernels", mean("kernel", "log2(us)"), "device"
    ),
    Feature(
        "kernel_us_spread",
        "log2 us",
        "standard deviation of the log duration of kernels",
        Spread("kernel", "log2(us)"),
        "device",
    ),
    *(
        Feature(
            f"kernels_under_{us}us",
            "share",
            f"kernels shorter than {us} us",
            count_share(f"kernel under {us} us", "kernel"),
            "device",
        )
        for us in SHORT_US
    ),
    *(
        Feature(
            f"kernel_time_under_{us}us",
            "share",
            f"kernel time in kernels shorter than {us} us",
            spent_share(f"kernel under {us} us", "kernel"),
            "device",
        )
        for us in (10, 100)
    ),
    *(
        Feature(
            f"kernel_{kind}",
            "share",
            f"kernel time in {kind} kernels",
            spent_share(f"kernel:{kind}", "kernel"),
            "device",
        )
        for kind in (*vocabulary.KERNEL_KINDS, "other")
    ),
    Feature(
        "matrix_fp32",
        "share",
        "matrix kernel time in full fp32",
        spent_share("fp32 matrix kernel", "matrix kernel"),
        "device",
    ),
    Feature(
        "matrix_tensor_core",
        "share",
        "matrix kernel time on tensor cores",
        spent_share("tensor-core kernel", "matrix kernel"),
        "device",
    ),
    Feature(
        "matrix_misaligned",
        "share",
        "matrix kernel time in kernels for misaligned sides",
        spent_share("misaligned kernel", "matrix kernel"),
        "device",
    ),
    Feature(
        "unfilled",
        "share",
        "kernel time with fewer blocks than multiprocessors",
        spent_share("unfilled kernel", "sized kernel"),
        "device",
    ),
    Feature(
        "matrix_fill",
        "log2",
        "mean blocks for each multiprocessor of matrix kernels, at most 1",
        mean("sized matrix kernel", "fill"),
        "device",
    ),
    Feature(
        "chained",
        "share",
        "kernel time in the third or later of a row of fusable kernels",
        spent_share("chained kernel", "kernel"),
        "device",
    ),
    Feature(
        "memset_per_kernel",
        "log2",
        "memsets for each kernel",
        Log1p(Ratio(Count("memset"), Count("kernel"))),
        "device",
    ),
)
