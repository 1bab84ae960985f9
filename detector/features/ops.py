"""Which ops the host runs, how they repeat, their types and shapes, and what autograd records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from detector.activity import Activity
from detector.features.measure import (
    Feature,
    Measure,
    count_share,
    covered_share,
    needing,
    over,
    per,
)
from detector.features.sequence import distance, recurs, shifted
from detector.index_sets import among, groups
from detector.signals.event_sets import (
    bias_before_norm,
    casts,
    cat_appends,
    first_type,
    matching,
    misaligned_matmuls,
    needless_dropout,
    needless_graph,
    norm_after_bias,
)
from detector.trace import Int64

PERIODS: Final = range(1, 9)
TIMES: Final = 5  # as often in a row makes a loop
NEAR: Final = 32  # ops
SELECT_NEAR: Final = 12
RECENT: Final = 64  # casts

# -- repeats ---------------------------------------------------------------------------------------


def looped(activity: Activity, period: int) -> Int64:
    """Outermost ops that equal, five times in a row, the one so many places back."""
    rows = activity.top_ops
    return rows[recurs(activity.trace.name[rows], period, TIMES)]


def looped_shape(activity: Activity, period: int) -> Int64:
    """The same with equal input shapes."""
    trace, rows = activity.trace, activity.top_ops
    return rows[recurs(groups(trace.name[rows], trace.dims[rows])[1], period, TIMES)]


def novel_ops(activity: Activity) -> Int64:
    """Outermost ops that were not among the 32 before."""
    rows = activity.top_ops
    back = distance(activity.trace.name[rows])
    found: Int64 = rows[(back == 0) | (back > NEAR)]
    return found


def dense_selects(activity: Activity) -> Int64:
    """Outermost selects and slices with another at most 12 outermost ops before."""
    rows = activity.top_ops
    place = np.flatnonzero(among(rows, activity.ops("select")))
    near = np.diff(place, prepend=-SELECT_NEAR - 1) <= SELECT_NEAR
    return rows[place[near]]


def chained_ops(activity: Activity) -> Int64:
    """Pointwise outermost ops after two others."""
    rows = activity.top_ops
    pointwise = among(rows, activity.ops("pointwise"))
    return rows[pointwise & shifted(pointwise, 1) & shifted(pointwise, 2)]


# -- the optimizer ---------------------------------------------------------------------------------


def optimizer_ops(activity: Activity) -> Int64:
    """Outermost ops inside an optimizer step."""
    return _begun_in(activity, activity.top_ops, "optimizer_step")


def zero_grad_fills(activity: Activity) -> Int64:
    """Fills inside zero_grad."""
    return _begun_in(activity, activity.ops("zero"), "zero_grad")


def _begun_in(activity: Activity, rows: Int64, kind: str) -> Int64:
    spans = activity.spans(activity.host(kind))
    return rows[spans.contain(activity.trace.start[rows])]


def single_tensor(activity: Activity) -> Int64:
    """Optimizer arithmetic on one parameter at a time."""
    rows = optimizer_ops(activity)
    single, pointwise = activity.ops("single_tensor"), activity.ops("pointwise")
    return rows[among(rows, single) | among(rows, pointwise)]


# -- casts -----------------------------------------------------------------------------------------


def casts_down(activity: Activity) -> Int64:
    """Casts from float."""
    rows = casts(activity)
    types = activity.trace.types[rows]
    return rows[matching(activity, types, lambda text: first_type(text) == "float")]


def repeated_casts(activity: Activity) -> Int64:
    """Casts of the same shape as one of the 64 casts before."""
    rows = casts(activity)
    dims = activity.trace.dims[rows]
    back = distance(dims)
    return rows[(dims >= 0) & (back > 0) & (back <= RECENT)]


ROWS: Final[dict[str, Callable[[Activity], Int64]]] = {
    "top op": lambda activity: activity.top_ops,
    **{f"loop of {p}": partial(looped, period=p) for p in PERIODS},
    **{f"shape loop of {p}": partial(looped_shape, period=p) for p in PERIODS},
    "novel op": novel_ops,
    "dense select": dense_selects,
    "chained op": chained_ops,
    "needless graph": needless_graph,
    "needless dropout": needless_dropout,
    "optimizer op": optimizer_ops,
    "zero_grad fill": zero_grad_fills,
    "single-tensor op": single_tensor,
    "misaligned matmul": misaligned_matmuls,
    "cat append": cat_appends,
    "cast": casts,
    "cast down": casts_down,
    "repeated cast": repeated_casts,
    "norm after biased conv": norm_after_bias,
    "biased conv before norm": bias_before_norm,
}

# -- features --------------------------------------------------------------------------------------

# How often each kind runs, and how much of the ops' time some take.
COUNTED: Final = {
    "matmul": "matrix products",
    "conv": "convolutions",
    "bmm": "batched matrix products",
    "pointwise": "pointwise ops",
    "dropout": "dropout",
    "copy_op": "copies of tensors",
    "factory": "factory calls",
    "to": "casts and moves",
    "zero": "fills",
    "scalar": "reads of a scalar",
    "foreach": "foreach or fused ops",
    "fused_attention": "fused attention",
}
TIMED: Final = {
    "matmul": "matrix products",
    "softmax": "softmax",
    "pointwise": "pointwise ops",
    "copy_op": "copies of tensors",
    "to": "casts and moves",
}


def in_loops(of: str) -> Measure:
    """The share of the outermost ops in loops of the length that most of them are in."""
    names = [f"{of} of {period}" for period in PERIODS]
    return lambda cuts: over(np.max([cuts.count(n) for n in names], axis=0), cuts.count("top op"))


FEATURES: Final = (
    *needing(
        "host",
        *(
            Feature(f"ops_{kind}", f"{words}, of all ops", count_share(f"op:{kind}", "op"))
            for kind, words in COUNTED.items()
        ),
        *(
            Feature(f"op_time_{kind}", f"op time in {words}", covered_share(f"op:{kind}", "op"))
            for kind, words in TIMED.items()
        ),
        Feature(
            "loop", "outermost ops in a loop of up to 8 ops, five times in a row", in_loops("loop")
        ),
        Feature(
            "novel",
            "outermost ops that were not among the 32 before",
            count_share("novel op", "top op"),
        ),
        Feature(
            "selects_dense",
            "outermost selects with another at most 12 ops before",
            count_share("dense select", "top op"),
        ),
        Feature(
            "chained_ops",
            "outermost pointwise ops after two others",
            count_share("chained op", "top op"),
        ),
        Feature(
            "needless_graph",
            "ops that record a graph that no backward reads",
            count_share("needless graph", "op"),
        ),
        Feature(
            "optimizer_ops",
            "outermost ops inside the optimizer step",
            count_share("optimizer op", "top op"),
        ),
        Feature(
            "optimizer_single",
            "optimizer ops on one parameter at a time",
            count_share("single-tensor op", "optimizer op"),
        ),
        Feature(
            "zero_grad_fills",
            "ops that fill gradients with zeros",
            count_share("zero_grad fill", "op"),
        ),
        Feature("casts", "casts, of all ops", count_share("cast", "op")),
        Feature(
            "norm_after_bias",
            "batch norms right after a convolution with a bias",
            count_share("norm after biased conv", "op:batch_norm_call"),
        ),
    ),
    *needing(
        "shapes",
        Feature("loop_shape", "the same with equal shapes", in_loops("shape loop")),
        Feature(
            "cat_appends",
            "torch.cat calls that append to a growing tensor, of all ops",
            count_share("cat append", "op"),
        ),
        Feature(
            "casts_down",
            "casts from float for each outermost op",
            per("cast down", "top op"),
            "log2",
        ),
    ),
)
