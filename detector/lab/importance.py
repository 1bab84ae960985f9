"""Which features the flagger's heads go by, measured on windows of workloads they never saw.

A feature stands for its four variants together, as they say the same thing in four contexts. Two
measures: how much AUC-ROC is lost when the feature is shuffled between windows (permutation
importance), and the mean size of its part in the raw score (LightGBM's own SHAP values, in log
odds).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from detector.features import FEATURES
from detector.flagger.lightgbm import SIDES, Heads
from detector.lab.metrics import auc
from detector.lab.training import INSIDE, Fold, is_clear, matrix

if TYPE_CHECKING:
    import pandas as pd

Float64 = npt.NDArray[np.float64]
_PLACE: Final = {feature.name: i for i, feature in enumerate(FEATURES)}
MOST: Final = 5_000  # windows that the measures are taken on


def importance(
    frame: pd.DataFrame, fitted: Sequence[Fold], seed: int = 0
) -> dict[str, list[dict[str, Any]]]:
    """By side, a row for each feature, most important first: ``feature``, ``auc_lost`` (None where
    AUC-ROC is not defined) and ``mean_abs_shap``."""
    return {side: _of_side(frame, fitted, side, seed) for side in SIDES}


def _of_side(
    frame: pd.DataFrame, fitted: Sequence[Fold], side: str, seed: int
) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    clear = is_clear(frame, side)
    chosen = _sample(clear & np.any([fold.rows for fold in fitted], axis=0), random)
    parts = [
        Part(fold.heads, frame[fold.rows & chosen], side, random)
        for fold in fitted
        if (fold.rows & chosen).any()
    ]
    if not parts:
        return []
    truth = np.concatenate([part.truth for part in parts])
    whole = auc(truth, np.concatenate([part.score for part in parts]))
    shap = np.concatenate([part.contributions() for part in parts]).mean(axis=0)
    rows = []
    for i, feature in enumerate(FEATURES):
        lost = whole - auc(truth, np.concatenate([part.without(i) for part in parts]))
        row = {"feature": feature.name, "auc_lost": None if np.isnan(lost) else round(lost, 6)}
        rows.append({**row, "mean_abs_shap": round(float(shap[i]), 6)})
    return sorted(rows, key=lambda row: (-(row["auc_lost"] or 0.0), -row["mean_abs_shap"]))


def _sample(among: npt.NDArray[np.bool_], random: np.random.Generator) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(len(among), np.bool_)
    chosen[random.permutation(np.flatnonzero(among))[:MOST]] = True
    return chosen


class Part:
    """Windows of one fold, as its head sees them."""

    def __init__(
        self, heads: Heads, frame: pd.DataFrame, side: str, random: np.random.Generator
    ) -> None:
        self._heads, self._side = heads, side
        self._seen = heads.seen(matrix(frame))  # shuffled in place
        self._order = random.permutation(len(frame))
        names = [column.partition("@")[0] for column in heads.columns]
        used = np.asarray(heads.boosters[side].feature_importance("split")) > 0
        self._feature = np.array([_PLACE[name] for name in names], np.int64)
        self._used = np.flatnonzero(used)
        self.truth = (frame[side] >= INSIDE).to_numpy()
        self.score = heads.raw(side, self._seen)

    def without(self, feature: int) -> Float64:
        """Scores with the feature's variants shuffled together."""
        columns = self._used[self._feature[self._used] == feature]
        if not len(columns):
            return self.score
        before = self._seen[:, columns]
        self._seen[:, columns] = before[self._order]
        score = self._heads.raw(self._side, self._seen)
        self._seen[:, columns] = before
        return score

    def contributions(self) -> Float64:
        """Size of each feature's part in each raw score, [windows, features]."""
        shares = self._heads.contributions(self._side, self._seen)
        of_feature = self._feature[:, None] == np.arange(len(FEATURES))
        return np.asarray(np.abs(shares @ of_feature), np.float64)
