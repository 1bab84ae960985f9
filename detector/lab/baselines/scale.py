"""Features on one scale, for models that are not trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detector.flagger import Float32

LIMIT = 4.0  # in interquartile ranges; features have long tails


@dataclass(frozen=True, eq=False)
class Scale:
    """Median and spread of each feature over the windows that were trained on, float32[features].

    Undefined values (NaN) become the median.
    """

    middle: Float32
    spread: Float32

    @staticmethod
    def of(matrix: Float32) -> Scale:
        """Fit to a matrix float32[windows, features]."""
        finite = np.where(np.isfinite(matrix), matrix, np.nan)
        empty = np.isnan(finite).all(axis=0)
        finite[:, empty] = 0.0
        low, middle, high = np.nanquantile(finite, [0.1, 0.5, 0.9], axis=0)
        deviation = np.nanstd(finite, axis=0)
        spread = np.where(high > low, high - low, np.where(deviation > 0, deviation, 1.0))
        return Scale(middle.astype(np.float32), spread.astype(np.float32))

    def __call__(self, matrix: Float32) -> Float32:
        """float32[windows, features] within ±LIMIT."""
        scaled = (np.nan_to_num(matrix, nan=np.nan) - self.middle) / self.spread
        whole = np.nan_to_num(scaled, nan=0.0, posinf=LIMIT, neginf=-LIMIT)
        return np.asarray(np.clip(whole, -LIMIT, LIMIT), np.float32)


def rank_of(known: Float32, value: Float32) -> Float32:
    """Which share of the sorted ``known`` lies below each value: a score in [0, 1]."""
    return np.asarray(np.searchsorted(known, value) / max(len(known), 1), np.float32)
