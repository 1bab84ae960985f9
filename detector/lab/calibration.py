"""Curves from raw scores to probabilities, fitted by isotonic regression.

Scores are those of windows that the model never saw. The windows are put into bins, the bins'
shares of faulty windows are made to rise (pool adjacent violators), and the curve is drawn straight
between the pools' centers. A hundredth of the raw score is mixed in, so that the curve rises
everywhere and two windows that differ in the raw score differ in the probability.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from detector.flagger.calibration import IDENTITY, Curve, Float64

BINS: Final = 38  # and two ends
MIX: Final = 0.01


def fit(score: npt.ArrayLike, truth: npt.NDArray[np.bool_], weight: Float64) -> Curve:
    """The curve from raw scores in [0, 1] to the weighted share of true windows.

    ``IDENTITY`` where windows of one kind are missing: there is nothing to learn from.
    """
    if truth.all() or not truth.any():
        return IDENTITY
    x, share = _pooled(*_binned(np.asarray(score, np.float64), truth, weight))
    if x[0] > 0:
        x, share = np.append(0.0, x), np.append(share[0], share)
    if x[-1] < 1:
        x, share = np.append(x, 1.0), np.append(share, share[-1])
    y = (1 - MIX) * share + MIX * x
    return tuple(zip(x.tolist(), y.tolist(), strict=True))


def _binned(
    score: Float64, truth: npt.NDArray[np.bool_], weight: Float64
) -> tuple[Float64, Float64, Float64]:
    """Mean score, share of true windows and weight of each bin; equal scores stay together.

    Each kind of window is spread evenly over the bins, so that both ends are fine: most windows
    are healthy and lie near 0.
    """
    value, place = np.unique(score, return_inverse=True)
    total = np.bincount(place, weight)
    hit = np.bincount(place, weight * truth)
    mass = (hit / hit.sum() + (total - hit) / (total - hit).sum()) / 2
    at = ((np.cumsum(mass) - mass / 2) * BINS).astype(np.int64)
    _, which = np.unique(at, return_inverse=True)
    whole = np.asarray(np.bincount(which, total), np.float64)
    return np.bincount(which, total * value) / whole, np.bincount(which, hit) / whole, whole


def _pooled(x: Float64, y: Float64, weight: Float64) -> tuple[Float64, Float64]:
    """Neighbors joined, by their weighted means, until y rises."""
    pools: list[Float64] = []  # each: weight, weight · x, weight · y
    for pool in np.stack([weight, weight * x, weight * y], axis=1):
        while pools and pools[-1][2] * pool[0] >= pool[2] * pools[-1][0]:
            pool = pool + pools.pop()
        pools.append(pool)
    total, xs, ys = np.array(pools).T
    return np.clip(xs / total, 0.0, 1.0), np.clip(ys / total, 0.0, 1.0)
