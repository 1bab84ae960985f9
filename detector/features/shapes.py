"""What input shapes and types tell: misaligned sides, growing caches, casts, needless biases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from detector.activity import Activity
from detector.features.measure import Count, Feature, Log1p, Ratio, count_share
from detector.features.sequence import combined, distance
from detector.signals.event_sets import (
    HALF,
    bias_before_norm,
    casts,
    cat_appends,
    first_type,
    matching,
    misaligned_matmuls,
    norm_after_bias,
)
from detector.trace import Int64

RECENT: Final = 64  # casts
FULL: Final = "float"


def casts_up(activity: Activity) -> Int64:
    """Casts from a half type."""
    rows = casts(activity)
    return rows[matching(activity, activity.trace.types[rows], lambda t: first_type(t) in HALF)]


def casts_down(activity: Activity) -> Int64:
    """Casts from float."""
    rows = casts(activity)
    return rows[matching(activity, activity.trace.types[rows], lambda t: first_type(t) == FULL)]


def repeated_casts(activity: Activity) -> Int64:
    """Casts of the same shape as one of the 64 casts before."""
    rows = casts(activity)
    dims = activity.trace.dims[rows]
    back = distance(combined(dims))
    return rows[(dims >= 0) & (back > 0) & (back <= RECENT)]


ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    "misaligned matmul": misaligned_matmuls,
    "cat append": cat_appends,
    "cast": casts,
    "cast up": casts_up,
    "cast down": casts_down,
    "repeated cast": repeated_casts,
    "norm after biased conv": norm_after_bias,
    "biased conv before norm": bias_before_norm,
}

FEATURES: Final = (
    Feature(
        "matmul_misaligned",
        "share",
        "matrix products with a side of 16 or more that is no multiple of 8",
        count_share("misaligned matmul", "op:matmul"),
        "shapes",
    ),
    Feature(
        "cat_appends",
        "share",
        "torch.cat calls that append to a growing tensor, of all ops",
        count_share("cat append", "op"),
        "shapes",
    ),
    Feature("casts", "share", "casts, of all ops", count_share("cast", "op"), "host"),
    Feature(
        "casts_up",
        "log2",
        "casts from a half type for each outermost op",
        Log1p(Ratio(Count("cast up"), Count("top op"))),
        "shapes",
    ),
    Feature(
        "casts_down",
        "log2",
        "casts from float for each outermost op",
        Log1p(Ratio(Count("cast down"), Count("top op"))),
        "shapes",
    ),
    Feature(
        "casts_repeated",
        "share",
        "casts of a shape that was cast just before, of all ops",
        count_share("repeated cast", "op"),
        "shapes",
    ),
    Feature(
        "norm_after_bias",
        "share",
        "batch norms right after a convolution with a bias",
        count_share("norm after biased conv", "op:batch_norm_call"),
        "host",
    ),
)
