"""Which ops the host runs, how they repeat, and what the autograd engine is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from detector.activity import Activity
from detector.features.measure import (
    Count,
    Covered,
    Feature,
    Log1p,
    Most,
    Ratio,
    count_share,
)
from detector.features.sequence import combined, distance, recurs, shifted
from detector.index_sets import among
from detector.signals.event_sets import needless_dropout, needless_graph
from detector.trace import Int64

PERIODS: Final = range(1, 9)
TIMES: Final = 5  # as often in a row makes a loop
NEAR: Final = 32  # ops
SELECT_NEAR: Final = 12

# How often, and for how long, each kind runs.
COUNTED: Final = {
    "matmul": "matrix products",
    "conv": "convolutions",
    "bmm": "batched matrix products",
    "softmax": "softmax",
    "pointwise": "pointwise ops",
    "batch_norm": "batch normalisation",
    "dropout": "dropout",
    "copy_op": "copies of tensors",
    "cat": "concatenations",
    "select": "selects and slices",
    "factory": "factory calls",
    "to": "casts and moves",
    "zero": "fills",
    "scalar": "reads of a scalar",
    "dynamic_shape": "ops whose output shape depends on data",
    "foreach": "foreach or fused ops",
    "math_attention": "attention in plain ops",
    "fused_attention": "fused attention",
}
TIMED: Final = (
    "matmul",
    "conv",
    "softmax",
    "pointwise",
    "copy_op",
    "cat",
    "to",
    "zero",
    "batch_norm",
)


def looped(activity: Activity, period: int) -> Int64:
    """Outermost ops that equal, five times in a row, the one so many places back."""
    rows = activity.top_ops
    return rows[recurs(activity.trace.name[rows], period, TIMES)]


def looped_shape(activity: Activity, period: int) -> Int64:
    """The same with equal input shapes."""
    trace, rows = activity.trace, activity.top_ops
    keys = combined(trace.name[rows], trace.dims[rows])
    return rows[recurs(keys, period, TIMES)]


def novel_ops(activity: Activity) -> Int64:
    """Outermost ops that were not among the 32 before."""
    rows = activity.top_ops
    back = distance(activity.trace.name[rows])
    found: Int64 = rows[(back == 0) | (back > NEAR)]
    return found


def dense_selects(activity: Activity) -> Int64:
    """Outermost selects and slices with another at most 12 outermost ops before."""
    rows = activity.top_ops
    selects = np.isin(rows, activity.ops("select"), assume_unique=True)
    place = np.flatnonzero(selects)
    near = np.diff(place, prepend=-SELECT_NEAR - 1) <= SELECT_NEAR
    return rows[place[near]]


def chained_ops(activity: Activity) -> Int64:
    """Pointwise outermost ops after two others."""
    rows = activity.top_ops
    pointwise = np.isin(rows, activity.ops("pointwise"), assume_unique=True)
    return rows[pointwise & shifted(pointwise, 1) & shifted(pointwise, 2)]


def optimizer_ops(activity: Activity) -> Int64:
    """Outermost ops inside an optimizer step."""
    rows, spans = activity.top_ops, activity.spans(activity.host("optimizer_step"))
    start = activity.trace.start[rows]
    return rows[spans.covered(start, start + 1) > 0]


def zero_grad_fills(activity: Activity) -> Int64:
    """Fills inside zero_grad."""
    rows, spans = activity.ops("zero"), activity.spans(activity.host("zero_grad"))
    start = activity.trace.start[rows]
    return rows[spans.covered(start, start + 1) > 0]


def single_tensor(activity: Activity) -> Int64:
    """Optimizer arithmetic on one parameter at a time."""
    rows = optimizer_ops(activity)
    single, pointwise = activity.ops("single_tensor"), activity.ops("pointwise")
    return rows[among(rows, single) | among(rows, pointwise)]


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
}

FEATURES: Final = (
    *(
        Feature(
            f"ops_{kind}", "share", f"{words}, of all ops", count_share(f"op:{kind}", "op"), "host"
        )
        for kind, words in COUNTED.items()
    ),
    *(
        Feature(
            f"op_time_{kind}",
            "share",
            f"op time in {COUNTED[kind]}",
            Ratio(Covered(f"op:{kind}"), Covered("op")),
            "host",
        )
        for kind in TIMED
    ),
    Feature(
        "loop",
        "share",
        "outermost ops in a loop of up to 8 ops, five times in a row",
        Ratio(Most(tuple(Count(f"loop of {p}") for p in PERIODS)), Count("top op")),
        "host",
    ),
    Feature(
        "loop_shape",
        "share",
        "the same with equal shapes",
        Ratio(Most(tuple(Count(f"shape loop of {p}") for p in PERIODS)), Count("top op")),
        "shapes",
    ),
    Feature(
        "novel",
        "share",
        "outermost ops that were not among the 32 before",
        count_share("novel op", "top op"),
        "host",
    ),
    Feature(
        "selects_dense",
        "share",
        "outermost selects with another at most 12 ops before",
        count_share("dense select", "top op"),
        "host",
    ),
    Feature(
        "chained_ops",
        "share",
        "outermost pointwise ops after two others",
        count_share("chained op", "top op"),
        "host",
    ),
    Feature(
        "needless_graph",
        "share",
        "ops that record a graph that no backward reads",
        count_share("needless graph", "op"),
        "host",
    ),
    Feature(
        "needless_dropout",
        "log2",
        "training dropout for each op, in a trace without backward",
        Log1p(Ratio(Count("needless dropout"), Count("op"))),
        "host",
    ),
    Feature(
        "optimizer_ops",
        "share",
        "outermost ops inside the optimizer step",
        count_share("optimizer op", "top op"),
        "host",
    ),
    Feature(
        "optimizer_single",
        "share",
        "optimizer ops on one parameter at a time",
        count_share("single-tensor op", "optimizer op"),
        "host",
    ),
    Feature(
        "zero_grad_fills",
        "share",
        "ops that fill gradients with zeros",
        count_share("zero_grad fill", "op"),
        "host",
    ),
)
