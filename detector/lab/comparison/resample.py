"""Figures with the values they take in resamples of whole clusters, so that differences are paired.

A resample draws as many clusters as there are, with replacement, so each row counts as often as
its cluster was drawn. All figures of a table use the same resamples, and the difference of two is
taken resample by resample: a paired cluster bootstrap (Efron and Tibshirani 1993, chapter 6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from detector.lab.metrics import Estimate

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ROUNDS: Final = 300
LEVEL: Final = (0.025, 0.975)
NAN: Final = float("nan")


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure, and its value in each resample (NaN where it is not defined there)."""

    value: float
    draws: Float64

    def __sub__(self, other: Drawn) -> Drawn:
        return Drawn(self.value - other.value, self.draws - other.draws)

    def __add__(self, other: Drawn) -> Drawn:
        return Drawn(self.value + other.value, self.draws + other.draws)

    def over(self, number: float) -> Drawn:
        """Divided by a number."""
        return Drawn(self.value / number, self.draws / number)

    @property
    def estimate(self) -> Estimate:
        """With its 95 % interval over the resamples in which it is defined."""
        there = self.draws[~np.isnan(self.draws)]
        low, high = np.quantile(there, LEVEL) if len(there) else (NAN, NAN)
        return Estimate(self.value, float(low), float(high))


@dataclass(frozen=True, eq=False)
class Resamples:
    """``names``: the clusters, sorted; ``counts`` [1 + rounds, clusters]: how often each is drawn,
    in the first row once each."""

    names: tuple[str, ...]
    counts: Int64

    @staticmethod
    def of(clusters: npt.NDArray[Any], rounds: int = ROUNDS, seed: int = 0) -> Resamples:
        """Of the clusters that rows belong to."""
        names = tuple(sorted({str(name) for name in clusters}))
        n = max(1, len(names))
        drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), rounds)
        return Resamples(names, np.vstack([np.ones(n, np.int64), drawn])[:, : len(names)])

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def places(self, clusters: npt.NDArray[Any]) -> Int64:
        """The number of each row's cluster."""
        return np.array([self._place[str(name)] for name in clusters], np.int64)

    def drawn(self, metric: Callable[[Int64], float]) -> Drawn:
        """A figure by the clusters' counts."""
        values = np.array([metric(row) for row in self.counts], np.float64)
        return Drawn(float(values[0]), values[1:])

    def ratio(
        self, part: npt.NDArray[Any], whole: npt.NDArray[Any], clusters: npt.NDArray[Any]
    ) -> Drawn:
        """The sum of one column over that of another; NaN where the latter is 0."""
        at, n = self.places(clusters), len(self.names)
        above = self.counts @ np.bincount(at, np.asarray(part, np.float64), n)
        below = self.counts @ np.bincount(at, np.asarray(whole, np.float64), n)
        values = np.divide(above, below, out=np.full(len(below), NAN), where=below != 0)
        return Drawn(float(values[0]), values[1:])


class Ranking:
    """Scores sorted once, from which weighted figures are quickly had for any weights."""

    def __init__(self, truth: Bools, score: Float64) -> None:
        self._order = np.argsort(-score, kind="stable")
        self._truth = truth[self._order]
        new = np.append(True, np.diff(score[self._order]) != 0) if len(score) else np.zeros(0, bool)
        self._groups = np.flatnonzero(new)  # where each score begins

    def _sums(self, weight: npt.NDArray[Any]) -> tuple[Float64, Float64]:
        """Weight of true and of other rows by score, the highest score first."""
        mine = np.asarray(weight, np.float64)[self._order]
        true = np.add.reduceat(mine * self._truth, self._groups)
        return true, np.add.reduceat(mine * ~self._truth, self._groups)

    def auc(self, weight: npt.NDArray[Any]) -> float:
        """How often a true row outranks another (ties count half); NaN where one kind lacks."""
        if not len(self._order):
            return NAN
        true, other = self._sums(weight)
        total = true.sum() * other.sum()
        if total == 0:
            return NAN
        below = other.sum() - np.cumsum(other) + other / 2
        return float((true * below).sum() / total)

    def average_precision(self, weight: npt.NDArray[Any]) -> float:
        """Precision at each true row's score, averaged over them (ties as one step)."""
        if not len(self._order):
            return NAN
        true, other = self._sums(weight)
        if true.sum() == 0:
            return NAN
        hits, seen = np.cumsum(true), np.cumsum(true + other)
        precision = np.divide(hits, seen, out=np.zeros_like(hits), where=seen > 0)
        return float((true * precision).sum() / hits[-1])
