"""Without training: what a flagger that has learnt nothing reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.features import COLUMNS
from detector.features.claims import CLAIMED
from detector.flagger import Flagger, Float32, Scores
from detector.flagger.lightgbm import SIDES
from detector.flagger.rules import RuleFlagger
from detector.patterns import BY_ID, CLASSES

if TYPE_CHECKING:
    import pandas as pd

FLOOR: Final = 1e-6  # of a class that claims nothing
LEAST: Final = 0.01  # share of a trace from which on a claim is a finding
_COLUMN: Final = np.array([COLUMNS.index(name) for name in CLAIMED])
_CLASS: Final = np.array([CLASSES.index(pattern) for pattern in CLAIMED.values()])
_SIDE: Final = np.array([BY_ID[pattern].side for pattern in CLAIMED.values()])


def claims_of(matrix: Float32) -> Float32:
    """float32[windows, classes]: the share of each window that each pattern claims, in [0, 1]."""
    found = np.zeros((len(matrix), len(CLASSES)), np.float32)
    found[:, _CLASS] = np.clip(np.nan_to_num(matrix[:, _COLUMN], nan=0.0), 0.0, 1.0)
    return found


def named_by_claims(matrix: Float32) -> Float32:
    """float32[windows, classes], rows that sum to 1: what a window claims most is likeliest."""
    claims = claims_of(matrix)
    claims[:, _CLASS] += FLOOR
    return np.asarray(claims / claims.sum(axis=1, keepdims=True), np.float32)


class Constant:
    """Every window of both sides is as suspicious as can be."""

    name = "constant"

    def __init__(self) -> None:
        self.threshold = dict.fromkeys(SIDES, 0.5)

    def score(self, matrix: Float32) -> Scores:
        """See ``Flagger``."""
        ones = np.ones(len(matrix), np.float32)
        return Scores(ones, ones.copy(), named_by_claims(matrix))

    def drivers(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        """No feature is read."""
        return [()] * len(matrix)


class Claims:
    """The largest claim of a pattern of the side; ``least``: only of patterns whose claims add up
    to at least this share of the trace, by the mean over its windows."""

    def __init__(self, name: str, least: float = 0.0) -> None:
        self.name = name
        self.threshold = dict.fromkeys(SIDES, LEAST)
        self._least = least

    def score(self, matrix: Float32) -> Scores:
        """See ``Flagger``; ``matrix`` holds the windows of one trace."""
        claims = claims_of(matrix)
        if len(claims):
            claims[:, claims.mean(axis=0) < self._least] = 0.0
        cpu, gpu = (claims[:, _CLASS[side == _SIDE]].max(axis=1, initial=0.0) for side in SIDES)
        return Scores(cpu, gpu, named_by_claims(matrix))

    def drivers(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        """Not asked for."""
        return [()] * len(matrix)


def fit_constant(frame: pd.DataFrame, seed: int, **settings: Any) -> Flagger:
    """Nothing is learnt."""
    return Constant()


def fit_largest_claim(frame: pd.DataFrame, seed: int, **settings: Any) -> Flagger:
    """The cost model alone, window by window."""
    return Claims("largest claim")


def fit_claims_only(frame: pd.DataFrame, seed: int, **settings: Any) -> Flagger:
    """The cost model alone, of patterns that are worth a finding in the whole trace."""
    return Claims("claims only", LEAST)


def fit_rules(frame: pd.DataFrame, seed: int, **settings: Any) -> Flagger:
    """Published thresholds as they are."""
    return RuleFlagger()
