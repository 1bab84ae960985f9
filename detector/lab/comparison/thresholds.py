"""From which score on windows are flagged: what suits the regions of the validation part best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from detector.flagger import Scores
from detector.lab.comparison.regions import region_f1
from detector.lab.comparison.scored import Scored
from detector.lab.training import SIDES

if TYPE_CHECKING:
    import pandas as pd

TRIED: Final = (0.0, *np.linspace(0.5, 0.98, 25), 0.985, 0.99, 0.995)  # quantiles of the scores


def thresholds(valid: pd.DataFrame, scores: Scores) -> dict[str, float]:
    """By side, the score with the best F1 of regions (IoU 0.3, unmasked); of equals the highest."""
    found = {}
    for side in SIDES:
        values = scores.cpu if side == "cpu" else scores.gpu
        tried = np.unique(np.quantile(values, TRIED))[::-1].tolist()
        worth = [region_f1(Scored(valid, scores, {side: values >= t}), side) for t in tried]
        found[side] = float(tried[int(np.argmax(worth))])
    return found


def flags(scores: Scores, limits: dict[str, float]) -> dict[str, np.ndarray]:
    """By side, which windows reach their threshold."""
    return {"cpu": scores.cpu >= limits["cpu"], "gpu": scores.gpu >= limits["gpu"]}
