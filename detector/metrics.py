"""How good scores are, with intervals that respect that windows of one trace belong together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % bootstrap interval; NaN where it is not defined."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def auc(truth: npt.NDArray[np.bool_], score: Float64) -> float:
    """Area under the ROC curve: how often a true window outranks another (ties count half)."""
    positive, negative = int(truth.sum()), int((~truth).sum())
    if not positive or not negative:
        return float("nan")
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((rank[truth].sum() - positive * (positive + 1) / 2) / (positive * negative))


def operating_points(
    truth: npt.NDArray[np.bool_], score: Float64
) -> tuple[Float64, Float64, Float64]:
    """False-positive share, recall and precision from each score on, the highest first. Equal
    scores make one point; both kinds must be there."""
    order = np.argsort(-score, kind="stable")
    last = np.append(np.diff(score[order]) != 0, True)
    hits, seen = np.cumsum(truth[order])[last], np.flatnonzero(last) + 1
    return (seen - hits) / (~truth).sum(), hits / truth.sum(), hits / seen


def average_precision(truth: npt.NDArray[np.bool_], score: Float64) -> float:
    """Precision at each true window's score, averaged over the true windows (ties as one step)."""
    if not truth.any():
        return float("nan")
    order = np.argsort(-score, kind="stable")
    hit = np.cumsum(truth[order])
    last = np.append(np.diff(score[order]) != 0, True)  # of the windows with this score
    hits, seen = hit[last], np.flatnonzero(last) + 1
    return float((np.diff(hits, prepend=0) * hits / seen).sum() / hit[-1])


def by_trace(
    metric: Callable[[npt.NDArray[np.int64]], float],
    trace: npt.NDArray[np.object_],
    *,
    rounds: int = 500,
    seed: int = 0,
) -> Estimate:
    """Bootstrap a metric over traces: ``metric`` gets the rows of a resample of whole traces."""
    random = np.random.default_rng(seed)
    names, which = np.unique(trace, return_inverse=True)
    order = np.argsort(which, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(which))[:-1])
    drawn = [
        metric(np.concatenate([rows[i] for i in random.integers(len(names), size=len(names))]))
        for _ in range(rounds)
    ]
    defined = [value for value in drawn if not np.isnan(value)]
    low, high = np.quantile(defined, [0.025, 0.975]) if defined else (np.nan, np.nan)
    return Estimate(metric(np.arange(len(trace))), float(low), float(high))
