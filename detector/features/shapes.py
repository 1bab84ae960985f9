"""What input shapes and types tell: misaligned sides, growing caches, casts, needless biases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import Activity
from detector.features.measure import Count, Feature, Log1p, Ratio, count_share
from detector.features.sequence import combined, distance
from detector.rows import cat_appends, is_shape, parsed, told
from detector.trace import Bool, Int64

ALIGNED: Final = 8
SMALLEST: Final = 16  # a side below is a vector or a batch, which padding does not help
RECENT: Final = 64  # casts
HALF: Final = ("c10::BFloat16", "c10::Half")
FULL: Final = "float"


def misaligned(text: str) -> bool:
    """Whether a matrix product has a side of 16 or more that is no multiple of 8."""
    sides = [
        size
        for shape in parsed(text)
        if is_shape(shape) and isinstance(shape, list) and len(shape) >= 2
        for size in shape[-2:]
    ]
    return any(size >= SMALLEST and size % ALIGNED for size in sides)


def biased(text: str) -> bool:
    """Whether a convolution has a bias: its third input is a vector."""
    inputs = parsed(text)
    return len(inputs) > 2 and is_shape(inputs[2])


def first_type(text: str) -> str:
    """The type of the first input."""
    inputs = parsed(text)
    return inputs[0] if inputs and isinstance(inputs[0], str) else ""


def misaligned_matmuls(activity: Activity) -> Int64:
    """Matrix products with a side of 16 or more that is no multiple of 8."""
    rows = activity.ops("matmul")
    return rows[told(activity, activity.trace.dims[rows], misaligned)]


def casts(activity: Activity) -> Int64:
    """aten::_to_copy that changes the type and stays on its device."""
    trace, rows = activity.trace, activity.ops("cast")
    moved = activity.op_copy_direction >= 0
    around = trace.parent[np.flatnonzero(moved)]
    moved[around[around >= 0]] = True
    return rows[~moved[rows]]


def casts_up(activity: Activity) -> Int64:
    """Casts from a half type."""
    rows = casts(activity)
    return rows[told(activity, activity.trace.types[rows], lambda t: first_type(t) in HALF)]


def casts_down(activity: Activity) -> Int64:
    """Casts from float."""
    rows = casts(activity)
    return rows[told(activity, activity.trace.types[rows], lambda t: first_type(t) == FULL)]


def repeated_casts(activity: Activity) -> Int64:
    """Casts of the same shape as one of the 64 casts before."""
    rows = casts(activity)
    dims = activity.trace.dims[rows]
    back = distance(combined(dims))
    return rows[(dims >= 0) & (back > 0) & (back <= RECENT)]


def norm_after_bias(activity: Activity) -> Int64:
    """Batch norms right after a convolution with a bias."""
    both, pair = _biased_pairs(activity)
    return both[1:][pair]


def bias_before_norm(activity: Activity) -> Int64:
    """Convolutions with a bias right before a batch norm."""
    both, pair = _biased_pairs(activity)
    return both[:-1][pair]


def _biased_pairs(activity: Activity) -> tuple[Int64, Bool]:
    """Convolutions and batch norms, and for each but the last: biased, and a norm follows.

    A bias is the third input, where the trace has shapes; where the backend adds it in a step of
    its own (cuDNN, MIOpen) that addition shows it too.
    """
    conv, norm = activity.ops("conv_call"), activity.ops("batch_norm_call")
    both = np.union1d(conv, norm)
    adding = activity.holders(activity.ops("add"), vocabulary.HOST["conv_call"])
    shaped = conv[told(activity, activity.trace.dims[conv], biased)]
    with_bias = np.isin(both, np.union1d(adding, shaped), assume_unique=True)
    is_norm = np.isin(both, norm, assume_unique=True)
    return both, with_bias[:-1] & is_norm[1:]


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
        "concatenations that add a little to much, of all ops",
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
