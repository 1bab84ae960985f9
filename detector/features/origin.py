"""Work by what the host asked for, measured where the device does it.

A host runs ahead of its device, often by more than a window. So what only an op shows (its shapes,
the optimizer, attention in plain ops) is passed on to the device work that it launched: "from:SET"
is the work issued by or under the ops of a set, "during:SET" the work launched while one of its
events runs. On a CPU run the ops that compute are the work, so that models learn from both alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from detector.activity import Activity
from detector.features.measure import Feature, covered_share, needing
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
    inside = activity.spans(rows).contain(trace.start[asked])
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


ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    "work": lambda activity: activity.work,
    "unlinked": unlinked,
    "conv bias": conv_bias,
}

# By feature: the ops that issued the work. What "shapes" tells is not defined without them.
ISSUED: Final = {
    "matmul": "op:matmul",
    "bmm": "op:bmm",
    "fused_attention": "op:fused_attention",
    "batch_norm": "op:batch_norm",
    "pointwise": "op:pointwise",
    "chained_ops": "chained op",
    "copy_op": "op:copy_op",
    "cat": "op:cat",
    "backward": "host:backward",
    "bias_before_norm": "biased conv before norm",
    "norm_after_bias": "norm after biased conv",
}
SHAPED: Final = {
    "matmul_misaligned": "misaligned matmul",
    "cat_appends": "cat append",
    "casts_repeated": "repeated cast",
}


def _issued(name: str, of: str) -> Feature:
    words = f"work issued under {of.removeprefix('op:')} ops"
    return Feature(f"work_{name}", words, covered_share(f"from:{of}", "work"))


FEATURES: Final = (
    *(_issued(name, of) for name, of in ISSUED.items()),
    *needing("shapes", *(_issued(name, of) for name, of in SHAPED.items())),
    *needing(
        "device",
        Feature(
            "work_unlinked", "device work that no op issued", covered_share("unlinked", "work")
        ),
    ),
)
