"""The device: busy and idle, launches and their queue, what its kernels are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import Activity
from detector.features.measure import (
    Feature,
    Values,
    count,
    count_share,
    covered,
    length,
    log,
    longest,
    mean,
    needing,
    ratio,
    scale,
    spent_share,
    time_share,
)
from detector.features.sequence import shifted
from detector.intervals import EMPTY, Intervals
from detector.signals.event_sets import blocking, launched, multiprocessors
from detector.trace import NS_PER_US, Bool, Int64

SHORT_US: Final = (5, 10, 100)
FUSABLE: Final = ("pointwise", "copy", "norm", "softmax", "reduce", "fill")
MATRIX: Final = ("gemm", "conv")

# -- sets ------------------------------------------------------------------------------------------


def idle(activity: Activity) -> Intervals:
    """Time in which the device does nothing, from the trace's first event to its last end."""
    trace = activity.trace
    if not len(trace):
        return EMPTY
    return activity.idle(int(trace.start.min()), int(trace.end.max()))


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
    return rows[activity.trace.dur[rows] < under_us * NS_PER_US]


def matrix_kernels(activity: Activity) -> Int64:
    """Matrix products and convolutions."""
    return activity.kernels[_are_of(activity, MATRIX)]


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


def chained_kernels(activity: Activity) -> Int64:
    """Kernels that a compiler could fuse with both of the two before them."""
    fusable = _are_of(activity, FUSABLE)
    return activity.kernels[fusable & shifted(fusable, 1) & shifted(fusable, 2)]


def _are_of(activity: Activity, kinds: tuple[str, ...]) -> Bool:
    """Which kernels are of one of these kinds of ``vocabulary.KERNEL_KINDS``."""
    wanted = np.array([kind in kinds for kind in ("other", *vocabulary.KERNEL_KINDS)])
    return np.asarray(wanted[activity.kernel_kind[activity.trace.name[activity.kernels]]])


ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    "kernel": lambda activity: activity.kernels,
    "device work": lambda activity: activity.device_work,
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
    "chained kernel": chained_kernels,
}
INTERVALS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    "busy": lambda activity: activity.busy,
    "idle": idle,
    "compute": lambda activity: activity.compute,
}

# -- weights and scales ----------------------------------------------------------------------------


def delay(activity: Activity, rows: Int64) -> Values:
    """Time from the start of the launch to the start of the work, ns."""
    trace = activity.trace
    waited = trace.start[rows] - trace.start[trace.launch[rows]]
    return np.asarray(np.maximum(waited, 0), np.float64)


def depth(activity: Activity, rows: Int64) -> Values:
    """log2(1 + launches before this one whose work had not started yet)."""
    trace, work = activity.trace, launched(activity)
    call, first = np.unique(trace.launch[work], return_index=True)
    started = np.sort(trace.start[work[first]])
    before = np.arange(len(call)) - np.searchsorted(started, trace.start[call], side="right")
    at = np.searchsorted(call, rows)
    return np.asarray(np.log2(1 + np.maximum(before[at], 0)), np.float64)


def launch_cost(activity: Activity) -> float:
    """Median duration of the calls that start device work, ns."""
    rows = activity.launches
    return float(np.median(activity.trace.dur[rows])) if len(rows) else float("nan")


WEIGHTS: Final[dict[str, Callable[[Activity, Int64], Values]]] = {"delay": delay, "depth": depth}
SCALES: Final[dict[str, Callable[[Activity], float]]] = {"launch cost": launch_cost}

# -- features --------------------------------------------------------------------------------------

IDLE_MEANING: Final = {
    "sync": "the host is in a synchronizing call",
    "op": "the host is in an op or another call",
    "python": "no op and no call explains it: Python",
}
KERNEL_KINDS: Final = ("layout", "cat", "gemm", "norm", "conv", "softmax", "reduce", "index")

FEATURES: Final = (
    Feature("busy", "the device does anything", time_share("busy")),
    Feature("compute", "a compute kernel runs (CPU run: an op)", time_share("compute")),
    *(
        Feature(f"idle_{cause}", f"the device idles while {words}", time_share(f"idle:{cause}"))
        for cause, words in IDLE_MEANING.items()
    ),
    Feature("idle_longest", "longest idle time of the device", ratio(longest("idle"), length)),
    *needing(
        "device",
        Feature(
            "idle_per_launch",
            "idle time for each launch, in launch costs",
            log(ratio(ratio(covered("idle"), count("launch")), scale("launch cost"))),
            "log2",
        ),
        Feature("launch_share", "the host is in launch calls", time_share("launch")),
        Feature(
            "launch_per_kernel",
            "time in launch calls against time in kernels",
            log(spent_share("launch", "kernel")),
            "log2",
        ),
        Feature(
            "launch_delay",
            "mean time from launch to start, in launch costs",
            log(ratio(mean("launched", "delay"), scale("launch cost"))),
            "log2",
        ),
        Feature(
            "starved",
            "launched work that found the queue empty and the device done",
            count_share("starved", "launched"),
        ),
        Feature(
            "queue_depth",
            "mean launches still waiting at a launch",
            mean("launch", "depth"),
            "log2",
        ),
        Feature(
            "blocking",
            "kernels that ended before their launch call returned",
            count_share("blocking", "kernel"),
        ),
        *(
            Feature(
                f"kernels_under_{us}us",
                f"kernels shorter than {us} us",
                count_share(f"kernel under {us} us", "kernel"),
            )
            for us in (5, 10)
        ),
        *(
            Feature(
                f"kernel_time_under_{us}us",
                f"kernel time in kernels shorter than {us} us",
                spent_share(f"kernel under {us} us", "kernel"),
            )
            for us in (10, 100)
        ),
        *(
            Feature(
                f"kernel_{kind}",
                f"kernel time in {kind} kernels",
                spent_share(f"kernel:{kind}", "kernel"),
            )
            for kind in KERNEL_KINDS
        ),
        Feature(
            "matrix_fp32",
            "matrix kernel time in full fp32",
            spent_share("fp32 matrix kernel", "matrix kernel"),
        ),
        Feature(
            "matrix_tensor_core",
            "matrix kernel time on tensor cores",
            spent_share("tensor-core kernel", "matrix kernel"),
        ),
        Feature(
            "matrix_misaligned",
            "matrix kernel time in kernels for misaligned sides",
            spent_share("misaligned kernel", "matrix kernel"),
        ),
        Feature(
            "unfilled",
            "kernel time with fewer blocks than multiprocessors",
            spent_share("unfilled kernel", "sized kernel"),
        ),
        Feature(
            "chained",
            "kernel time in the third or later of a row of fusable kernels",
            spent_share("chained kernel", "kernel"),
        ),
    ),
)
