"""What is measured of one flagger's window scores."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from detector.lab.comparison.regions import region_figures
from detector.lab.comparison.resample import Drawn, Ranking, Resamples
from detector.lab.comparison.scored import Rows, Scored
from detector.lab.metrics import auc, average_precision
from detector.lab.training import SIDES
from detector.patterns import BY_ID
from detector.taxonomy import NONE

LEAST: Final = 5  # windows of a kind below which a figure says nothing
WAYS: Final = {"masked": True, "unmasked": False}


def all_figures(scored: Scored, resamples: Resamples) -> dict[str, Any]:
    """Window and region figures, masked and unmasked: ``figures`` by way and name, ``counts``."""
    found: dict[str, dict[str, Drawn]] = {}
    counts: dict[str, dict[str, int]] = {}
    for way, masked in WAYS.items():
        found[way], counts[way] = region_figures(scored, resamples, masked)
        for side in SIDES:
            for name, drawn in window_figures(scored, side, resamples, masked).items():
                found[way][f"{side} {name}"] = drawn
    return {"figures": found, "counts": counts}


def window_figures(
    scored: Scored, side: str, resamples: Resamples, masked: bool
) -> dict[str, Drawn]:
    """AUC-ROC, over all windows and within traces, and average precision of a side's windows;
    nothing where one kind is missing."""
    rows = scored.clear(side, masked)
    truth, score = scored.truth(side)[rows], scored.side(side)[rows].astype(np.float64)
    if min(truth.sum(), (~truth).sum()) < LEAST:
        return {}
    cluster = scored.frame["cluster"].to_numpy()[rows]
    at, ranking = resamples.places(cluster), Ranking(truth, score)
    return {
        "AUC": resamples.drawn(lambda counts: ranking.auc(counts[at])),
        "AP": resamples.drawn(lambda counts: ranking.average_precision(counts[at])),
        "within": _within(truth, score, scored.frame.iloc[rows], resamples),
    }


def _within(
    truth: npt.NDArray[np.bool_], score: npt.NDArray[np.float64], frame: Any, resamples: Resamples
) -> Drawn:
    """The mean AUC-ROC of the traces that have windows of both kinds."""
    places = frame.groupby("trace", sort=False).indices
    each = np.array([auc(truth[mine], score[mine]) for mine in places.values()])
    cluster = frame["cluster"].to_numpy()[[mine[0] for mine in places.values()]]
    both = ~np.isnan(each)
    return resamples.ratio(each[both], np.ones(int(both.sum())), cluster[both])


def by_pattern(scored: Scored) -> dict[str, dict[str, Any]]:
    """Of each pattern's windows against the free ones of its side, unknown ones with them:
    AUC-ROC, average precision, how many ``windows`` there are and in how many ``traces``."""
    found: dict[str, dict[str, Any]] = {}
    pattern = scored.frame["pattern"].to_numpy()
    for side in SIDES:
        rows = scored.clear(side, masked=False)
        truth = scored.truth(side)[rows]
        for name in np.unique(pattern[rows][truth]):
            mine = truth & (pattern[rows] == name)
            own = name != NONE and BY_ID[name].side == side
            if own and mine.sum() >= LEAST:
                found[str(name)] = _against(scored, side, rows[~truth | mine])
    return found


def _against(scored: Scored, side: str, rows: Rows) -> dict[str, Any]:
    truth, score = scored.truth(side)[rows], scored.side(side)[rows].astype(np.float64)
    return {
        "AUC": auc(truth, score),
        "AP": average_precision(truth, score),
        "windows": int(truth.sum()),
        "traces": int(scored.frame["trace"].iloc[rows[truth]].nunique()),
    }
