"""How good scores and probabilities are, with intervals that respect what belongs together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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


# -- stated probabilities --------------------------------------------------------------------------

BINS: Final = 10  # of equal width, the last with its upper edge


@dataclass(frozen=True)
class Bin:
    """Answers whose stated confidence lies in [low, high): how many, what they say on average, and
    how many of them are right (both in [0, 1]; NaN where there are none)."""

    low: float
    high: float
    count: float
    stated: float
    right: float


def reliability(
    stated: Float64, right: npt.NDArray[np.bool_], weight: Float64 | None = None
) -> tuple[Bin, ...]:
    """The reliability diagram: ``BINS`` bins of stated confidence in [0, 1]. ``weight``: how often
    each answer counts."""
    weight = np.ones(len(stated)) if weight is None else weight
    which = np.clip((stated * BINS).astype(np.int64), 0, BINS - 1)
    count = np.bincount(which, weight, BINS)
    sums = (np.bincount(which, weight * values, BINS) for values in (stated, right))
    means = (np.divide(s, count, out=np.full(BINS, np.nan), where=count > 0) for s in sums)
    edges = (np.arange(BINS) / BINS, (np.arange(BINS) + 1) / BINS)
    columns = (values.tolist() for values in (*edges, count, *means))
    return tuple(Bin(*row) for row in zip(*columns, strict=True))


def ece(stated: Float64, right: npt.NDArray[np.bool_], weight: Float64 | None = None) -> float:
    """Expected calibration error: the bins' mean |right − stated|, by count (Naeini et al., 2015).
    NaN without an answer."""
    bins = [b for b in reliability(stated, right, weight) if b.count]
    total = sum(b.count for b in bins)
    return sum(b.count * abs(b.right - b.stated) for b in bins) / total if total else float("nan")


# -- intervals -------------------------------------------------------------------------------------

Metric = Callable[[npt.NDArray[np.int64]], float]


def by_cluster(
    metric: Metric, cluster: npt.NDArray[np.object_], *, rounds: int = 500, seed: int = 0
) -> Estimate:
    """Bootstrap a metric over clusters: ``metric`` gets the rows of a resample of whole clusters.

    ``cluster`` names what each row was made of, so that rows that are no independent evidence are
    drawn together: the base of traces with injected faults, the workload of others.
    """
    random = np.random.default_rng(seed)
    names, which = np.unique(cluster, return_inverse=True)
    order = np.argsort(which, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(which))[:-1])
    drawn = [
        metric(np.concatenate([rows[i] for i in random.integers(len(names), size=len(names))]))
        for _ in range(rounds)
    ]
    defined = [value for value in drawn if not np.isnan(value)]
    low, high = np.quantile(defined, [0.025, 0.975]) if defined else (np.nan, np.nan)
    return Estimate(metric(np.arange(len(cluster))), float(low), float(high))


def difference(
    one: Metric, other: Metric, cluster: npt.NDArray[np.object_], *, rounds: int = 500
) -> Estimate:
    """By how much ``one`` exceeds ``other``, both on the same resamples of whole clusters (paired
    bootstrap). Its interval leaves out 0 where they differ."""
    return by_cluster(lambda rows: one(rows) - other(rows), cluster, rounds=rounds)
