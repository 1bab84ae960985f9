"""What the host asked for, measured where the device does it.

A host runs ahead of its device, often by more than a window. So what only an op can tell (shapes,
the optimizer, attention in plain ops) is carried along the launch to the device work it started:
"from:SET" is the work issued by or under the ops of a set, "during:SET" the work launched while
one of its events runs. On a CPU run the work are the ops that compute, so that what is learnt on
one serves the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from detector.activity import Activity
from detector.features.measure import Covered, Feature, Ratio
from detector.trace import Int64


def issued_under(activity: Activity, ops: Int64) -> Int64:
    """Work of these ops, or of ops that they called."""
    mark = np.zeros(len(activity.trace) + 1, np.bool_)  # the last place takes "no op"
    mark[ops] = True
    hit = np.zeros(len(activity.work), np.bool_)
    for level in activity.work_ops:
        hit |= mark[level]
    return activity.work[hit]


def launched_during(activity: Activity, rows: Int64) -> Int64:
    """Work whose launch (CPU run: which itself) began while one of these events ran."""
    trace, work = activity.trace, activity.work
    asked = trace.launch[work] if activity.has_device else work
    at = trace.start[asked]
    inside = activity.spans(rows).covered(at, at + 1) > 0
    return work[inside & (asked >= 0)]


def unlinked(activity: Activity) -> Int64:
    """Device work without an op: of a graph, or launched before the trace begins."""
    work = activity.device_work
    return work[activity.trace.op[work] < 0]


def conv_bias(activity: Activity) -> Int64:
    """Additions under a convolution, and reductions under its backward: a bias and its gradient."""
    conv = issued_under(activity, activity.ops("conv_call"))
    added = np.intersect1d(conv, issued_under(activity, activity.ops("add")), assume_unique=True)
    backward = issued_under(activity, activity.ops("conv_backward"))
    sums = np.intersect1d(backward, activity.kernels_of("reduce"), assume_unique=True)
    return np.union1d(added, sums)


def part_of_work(of: str) -> Ratio:
    """The share of the time with work in which work of this set runs."""
    return Ratio(Covered(of), Covered("work"))


ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    "work": lambda activity: activity.work,
    "unlinked": unlinked,
    "conv bias": conv_bias,
}

ISSUED: Final = {
    "matmul": "op:matmul",
    "bmm": "op:bmm",
    "softmax": "op:softmax",
    "math_attention": "op:math_attention",
    "fused_attention": "op:fused_attention",
    "batch_norm": "op:batch_norm",
    "dropout": "op:dropout",
    "pointwise": "op:pointwise",
    "chained_ops": "chained op",
    "copy_op": "op:copy_op",
    "cat": "op:cat",
    "to": "op:to",
    "casts": "cast",
    "zero": "op:zero",
    "factory": "op:factory",
    "select": "dense select",
    "foreach": "op:foreach",
    "optimizer_single": "single-tensor op",
    "backward": "host:backward",
}
BIASED: Final = {
    "bias_before_norm": "biased conv before norm",
    "norm_after_bias": "norm after biased conv",
}
SHAPED: Final = {
    "matmul_misaligned": "misaligned matmul",
    "cat_appends": "cat append",
    "casts_repeated": "repeated cast",
}
LAUNCHED: Final = {"optimizer": "host:optimizer_step", "zero_grad": "host:zero_grad"}

FEATURES: Final = (
    *(
        Feature(
            f"work_{name}",
            "share",
            f"work issued under {of.removeprefix('op:')} ops",
            part_of_work(f"from:{of}"),
        )
        for name, of in ISSUED.items()
    ),
    *(
        Feature(
            f"work_{name}",
            "share",
            f"work issued under a {of}",
            part_of_work(f"from:{of}"),
            "shapes" if name in SHAPED else None,
        )
        for name, of in (SHAPED | BIASED).items()
    ),
    Feature(
        "work_conv_bias",
        "share",
        "work of the bias of a convolution and its gradient",
        part_of_work("conv bias"),
    ),
    *(
        Feature(
            f"work_{name}",
            "share",
            f"work launched during {name}",
            part_of_work(f"during:{of}"),
        )
        for name, of in LAUNCHED.items()
    ),
    Feature(
        "work_unlinked",
        "share",
        "device work that no op issued",
        part_of_work("unlinked"),
        "device",
    ),
)
