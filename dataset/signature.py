"""Which way a fault moves the features of its windows, against the same program without it.

A feature's shift is how often a window with the fault exceeds one without it, as
``2 × AUC − 1`` in [-1, 1] (Cliff's delta): it has no unit and no scale, so shifts of a program on a
CPU and of another on a GPU can be compared where their features cannot. A pattern's signature is
the mean shift of every feature, over the programs or bases that it is in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from detector.lab.metrics import auc
from detector.taxonomy import NONE

if TYPE_CHECKING:
    import pandas as pd

Float64 = npt.NDArray[np.float64]


def signatures(windows: pd.DataFrame, features: Sequence[str]) -> dict[str, Float64]:
    """By pattern float64[features], NaN where a feature is never known. ``windows`` are of one
    origin; those with the same ``pair`` are of one program or base, its good traces the reference.
    """
    found: dict[str, list[Float64]] = {}
    for _, mine in windows.groupby("pair"):
        free = (mine["cpu"] + mine["gpu"] == 0) & (mine["quality"] == "good")
        reference = mine.loc[free, list(features)].to_numpy(np.float64)
        for pattern, faulty in mine[mine["pattern"] != NONE].groupby("pattern"):
            rows = faulty[list(features)].to_numpy(np.float64)
            if len(reference):
                found.setdefault(str(pattern), []).append(shifts(reference, rows))
    return {pattern: _mean(np.array(each)) for pattern, each in found.items()}


def shifts(reference: Float64, faulty: Float64) -> Float64:
    """float64[features]: the shift of each column; NaN where one side knows nothing."""
    return np.array([_shift(a, b) for a, b in zip(reference.T, faulty.T, strict=True)])


def _shift(reference: Float64, faulty: Float64) -> float:
    both = np.concatenate([reference, faulty])
    truth = np.arange(len(both)) >= len(reference)
    known = np.isfinite(both)
    return 2 * auc(truth[known], both[known]) - 1


def _mean(each: Float64) -> Float64:
    """Over the first axis, of what is known."""
    known = np.isfinite(each)
    count = known.sum(axis=0)
    total = np.where(known, each, 0.0).sum(axis=0)
    return np.divide(total, count, out=np.full(each.shape[1], np.nan), where=count > 0)


def alike(one: Float64, other: Float64) -> float:
    """Cosine of two signatures over the features that both know: 1 where a fault moves the same
    features the same way, 0 where the two have nothing to do with each other; NaN without any."""
    known = np.isfinite(one) & np.isfinite(other)
    size = np.linalg.norm(one[known]) * np.linalg.norm(other[known])
    return float(one[known] @ other[known] / size) if size > 0 else float("nan")


def place(recorded: Float64, pattern: str, injected: Mapping[str, Float64]) -> tuple[int, int]:
    """Which place its own pattern takes among all injected ones, by likeness to the recorded
    signature, and of how many; (0, n) where it was not injected."""
    near = {name: alike(recorded, signature) for name, signature in injected.items()}
    own = near.get(pattern, float("nan"))
    before = sum(value > own for value in near.values())
    return (before + 1 if np.isfinite(own) else 0), len(near)
