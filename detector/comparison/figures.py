"""What is measured of one flagger on one part of a split."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from detector.comparison.scored import Scored, matches
from detector.flagger.training import SIDES
from detector.metrics import Estimate, auc, average_precision, by_trace
from detector.taxonomy import CLASSES, NONE

LOOSE, TIGHT = 0.3, 0.5  # IoU
LEAST: Final = 5  # windows of a kind below which a figure says nothing
ROUNDS: Final = 300
ALARMS: Final = 0.25  # per healthy trace and side, where thresholds are set


def window_figures(scored: Scored, side: str) -> dict[str, Estimate]:
    """AUC-ROC and average precision of a side's windows; nothing where one kind is missing."""
    rows = scored.clear(side)
    truth, score = scored.truth(side)[rows], scored.side(side)[rows].astype(np.float64)
    trace = scored.frame["trace"].to_numpy()[rows]
    if min(truth.sum(), (~truth).sum()) < LEAST:
        return {}
    return {
        "AUC": by_trace(lambda i: auc(truth[i], score[i]), trace, rounds=ROUNDS),
        "AP": by_trace(lambda i: average_precision(truth[i], score[i]), trace, rounds=ROUNDS),
    }


def margin(mine: Scored, other: Scored, side: str) -> Estimate | None:
    """By how much one flagger's window AUC exceeds another's, on the same resamples."""
    rows = mine.clear(side)
    truth, trace = mine.truth(side)[rows], mine.frame["trace"].to_numpy()[rows]
    if min(truth.sum(), (~truth).sum()) < LEAST:
        return None
    a, b = (s.side(side)[rows].astype(np.float64) for s in (mine, other))
    return by_trace(lambda i: auc(truth[i], a[i]) - auc(truth[i], b[i]), trace, rounds=ROUNDS)


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


def by_pattern(scored: Scored) -> dict[str, tuple[float, int]]:
    """AUC-ROC of a pattern's windows against the free ones of its side, and how many there are."""
    found = {}
    pattern = scored.frame["pattern"].to_numpy()
    for side in SIDES:
        rows = scored.clear(side)
        truth, score = scored.truth(side)[rows], scored.side(side)[rows].astype(np.float64)
        for name in np.unique(pattern[rows][truth]):
            mine = truth & (pattern[rows] == name)
            chosen = ~truth | mine
            if name != NONE and mine.sum() >= LEAST:
                found[str(name)] = (auc(mine[chosen], score[chosen]), int(mine.sum()))
    return found


def thresholds(scored: Scored) -> dict[str, float]:
    """By side, the lowest score with at most ``ALARMS`` regions in a healthy trace, on average."""
    healthy = (scored.frame["quality"] == "good").to_numpy()
    count = scored.frame["trace"][healthy].nunique()
    limits = {}
    for side in SIDES:
        tried = np.unique(np.quantile(scored.side(side), np.linspace(0.3, 0.9995, 120)))
        limits[side] = float(tried[-1])
        for limit in tried.tolist():
            alarms = sum(healthy[run.first] for run in scored.told_runs(side, limit))
            if alarms <= ALARMS * count:
                limits[side] = limit
                break
    return limits


def region_figures(scored: Scored, limits: dict[str, float]) -> dict[str, Any]:
    """Recall and precision of regions, classes of the matched ones, alarms in healthy traces."""
    trace = scored.frame["trace"].to_numpy()
    healthy = (scored.frame["quality"] == "good").to_numpy()
    found, alarms = [], 0
    told_all, hits = 0, {LOOSE: 0, TIGHT: 0}
    for side in SIDES:
        true, told = scored.true_runs(side), scored.told_runs(side, limits[side])
        found += [(run, best, iou) for run, best, iou in matches(true, told, trace)]
        alarms += sum(bool(healthy[run.first]) for run in told)
        told_all += len(told)
        for _, best, iou in matches(told, true, trace):
            for limit in hits:
                hits[limit] += best is not None and iou >= limit
    matched = [(run, best) for run, best, iou in found if best is not None and iou >= LOOSE]
    truth = np.array([run.pattern for run, _ in matched], int)
    order = np.array([_order(scored, run, best) for run, best in matched], int).reshape(-1, 3)
    return {
        "regions": len(found),
        **{
            f"recall {limit}": _share(sum(i >= limit for *_, i in found), len(found))
            for limit in hits
        },
        **{f"precision {x}": _share(hits[x], told_all) for x in hits},
        "alarms per healthy trace": _share(alarms, len(np.unique(trace[healthy]))),
        "healthy traces": len(np.unique(trace[healthy])),
        "class accuracy": _share(int((order[:, 0] == truth).sum()), len(truth)),
        "class top 3": _share(int((order == truth[:, None]).any(axis=1).sum()), len(truth)),
        "class macro F1": _macro_f1(truth, order[:, 0]),
    }


def _order(scored: Scored, run: Any, best: Any) -> list[int]:
    """The three likeliest patterns of a told region, by the mean over its windows."""
    mean = scored.scores.classes[best.first : best.last + 1].mean(axis=0).copy()
    mean[CLASSES.index(NONE)] = -1
    return [int(k) for k in np.argsort(-mean)[:3]]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _macro_f1(truth: Any, told: Any) -> float:
    """Mean F1 over the patterns that occur."""
    values = []
    for k in np.unique(truth):
        hit = int(((truth == k) & (told == k)).sum())
        values.append(2 * hit / (int((truth == k).sum()) + int((told == k).sum())))
    return float(np.mean(values)) if values else float("nan")
