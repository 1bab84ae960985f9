"""Without training: what a flagger that has learned nothing reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.features import COLUMNS
from detector.flagger import Flagger, Float32, Scores
from detector.flagger.lightgbm import SIDES, savings
from detector.flagger.rules import RuleFlagger

if TYPE_CHECKING:
    import pandas as pd

LEAST: Final = 0.01  # of a window: saving less is not worth a look


class Constant:
    """Every window of both sides is as suspicious as can be."""

    name = "constant"

    def __init__(self) -> None:
        self.threshold = dict.fromkeys(SIDES, 0.5)

    def score(self, matrix: Float32) -> Scores:
        """See ``Flagger``."""
        ones = np.ones(len(matrix), np.float32)
        return Scores(ones, ones.copy())

    def top_features(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        """No feature is read."""
        return [()] * len(matrix)


class LargestSaving:
    """The core alone: the share of the window that repairing a side's largest pattern saves."""

    name = "largest saving"

    def __init__(self) -> None:
        self.threshold = dict.fromkeys(SIDES, LEAST)

    def score(self, matrix: Float32) -> Scores:
        """See ``Flagger``."""
        cpu, gpu = (savings(COLUMNS, matrix, side).max(axis=1, initial=0.0) for side in SIDES)
        return Scores(cpu, gpu)

    def top_features(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        """Not asked for."""
        return [()] * len(matrix)


def fit_constant(frame: pd.DataFrame, seed: int, **settings: Any) -> Flagger:
    """Nothing is learned."""
    return Constant()


def fit_largest_saving(frame: pd.DataFrame, seed: int, **settings: Any) -> Flagger:
    """Nothing is learned."""
    return LargestSaving()


def fit_rules(frame: pd.DataFrame, seed: int, **settings: Any) -> Flagger:
    """Published thresholds as they are."""
    return RuleFlagger()
