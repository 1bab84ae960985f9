"""What is measured of one flagger's window scores on one part of a split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from detector.comparison.scored import Rows, Scored
from detector.flagger.leak import within_trace
from detector.flagger.training import SIDES
from detector.metrics import Estimate, auc, average_precision, by_cluster, operating_points
from detector.taxonomy import BY_ID, NONE

LEAST: Final = 5  # windows of a kind below which a figure says nothing
ROUNDS: Final = 300
PATTERN_ROUNDS: Final = 100
POINTS: Final = 300  # of a curve


def window_figures(scored: Scored, side: str) -> dict[str, Estimate]:
    """AUC-ROC, over all windows and within traces, and average precision of a side's windows;
    nothing where one kind is missing."""
    rows = scored.clear(side)
    truth, score = scored.truth(side)[rows], scored.side(side)[rows].astype(np.float64)
    trace = scored.frame["trace"].to_numpy()[rows]
    if min(truth.sum(), (~truth).sum()) < LEAST:
        return {}
    return {
        "AUC": by_cluster(lambda i: auc(truth[i], score[i]), trace, rounds=ROUNDS),
        "AP": by_cluster(lambda i: average_precision(truth[i], score[i]), trace, rounds=ROUNDS),
        "within": within_trace(truth, score, trace, rounds=ROUNDS),
    }


def margin(mine: Scored, other: Scored, side: str) -> Estimate | None:
    """By how much one flagger's window AUC exceeds another's, on the same resamples."""
    rows = mine.clear(side)
    truth, trace = mine.truth(side)[rows], mine.frame["trace"].to_numpy()[rows]
    if min(truth.sum(), (~truth).sum()) < LEAST:
        return None
    a, b = (s.side(side)[rows].astype(np.float64) for s in (mine, other))
    return by_cluster(lambda i: auc(truth[i], a[i]) - auc(truth[i], b[i]), trace, rounds=ROUNDS)


def by_extent(scored: Scored, side: str) -> dict[str, float]:
    """AUC-ROC where the fault sits in every step, and where it does not."""
    rows = scored.clear(side)
    truth, score = scored.truth(side)[rows], scored.side(side)[rows].astype(np.float64)
    extent = scored.frame["extent"].to_numpy()[rows]
    found = {}
    for name, mine in (("every step", extent == "every"), ("some steps", extent == "some")):
        chosen = ~truth | mine
        if (truth & mine).sum() >= LEAST and (~truth).sum() >= LEAST:
            found[name] = auc(truth[chosen], score[chosen])
    return found


def by_pattern(scored: Scored) -> dict[str, dict[str, Any]]:
    """Of each pattern's windows against the free ones of its side: AUC-ROC, average precision,
    how many ``windows`` there are and in how many ``traces``."""
    found: dict[str, dict[str, Any]] = {}
    pattern = scored.frame["pattern"].to_numpy()
    for side in SIDES:
        rows = scored.clear(side)
        truth = scored.truth(side)[rows]
        for name in np.unique(pattern[rows][truth]):
            mine = truth & (pattern[rows] == name)
            own = name != NONE and BY_ID[name].side == side
            if own and mine.sum() >= LEAST:
                found[str(name)] = _against(scored, side, rows[~truth | mine])
    return found


def _against(scored: Scored, side: str, rows: Rows) -> dict[str, Any]:
    truth, score = scored.truth(side)[rows], scored.side(side)[rows].astype(np.float64)
    trace = scored.frame["trace"].to_numpy()[rows]
    return {
        "AUC": by_cluster(lambda i: auc(truth[i], score[i]), trace, rounds=PATTERN_ROUNDS),
        "AP": average_precision(truth, score),
        "windows": int(truth.sum()),
        "traces": len(np.unique(trace[truth])),
    }


@dataclass(frozen=True)
class Curves:
    """ROC and precision-recall, as equally long lists of points."""

    false_share: npt.NDArray[np.float64]
    recall: npt.NDArray[np.float64]
    precision: npt.NDArray[np.float64]


def curves(scored: Scored, side: str) -> Curves | None:
    """At most ``POINTS`` points from the highest score down; None where one kind is missing."""
    rows = scored.clear(side)
    truth, score = scored.truth(side)[rows], scored.side(side)[rows]
    if min(truth.sum(), (~truth).sum()) < LEAST:
        return None
    points = operating_points(truth, score.astype(np.float64))
    kept = np.unique(np.linspace(0, len(points[0]) - 1, POINTS).round().astype(int))
    return Curves(*(values[kept] for values in points))
