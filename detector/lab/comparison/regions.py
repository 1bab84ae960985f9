"""What is measured of the regions that a flagger predicts: right or not.

Predicted regions are runs of neighboring flagged windows, labeled ones runs of neighboring
labeled windows; neither is cut where nobody knows what is wrong. A predicted region that matches
nothing is wrong. Masked figures ignore it where more than half of its time is unknown and it
overlaps no labeled region of its trace, of either side: what overlaps a label is not unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from detector.lab.comparison.resample import Drawn, Resamples
from detector.lab.comparison.scored import Run, Scored, matches
from detector.lab.training import SIDES

LOOSE, TIGHT = 0.3, 0.5  # IoU
MOSTLY: Final = 0.5  # of a region's time: unknown from here on
_LIMITS: Final = (LOOSE, TIGHT)


@dataclass(frozen=True)
class Fit:
    """A region, how well the best one of the other kind fits (IoU), and whether its place is
    unknown."""

    cluster: str
    iou: float
    unknown: bool = False


def region_figures(
    scored: Scored, resamples: Resamples, masked: bool
) -> tuple[dict[str, Drawn], dict[str, int]]:
    """Recall and precision of regions, and alarms a healthy trace; how many there are of what."""
    recalled, found = _both_sides(scored)
    counted = [fit for fit in found if not (masked and fit.unknown)]
    figures = _shares("recall", recalled, resamples) | _shares("precision", counted, resamples)
    alarms, healthy = _alarms(scored, resamples)
    counts = {"labeled": len(recalled), "predicted": len(counted)}
    figures |= {"alarms per healthy trace": alarms}
    return figures, {**counts, "healthy traces": healthy}


def _both_sides(scored: Scored) -> tuple[list[Fit], list[Fit]]:
    """Labeled regions and predicted ones, each with its best match of the same side."""
    trace, cluster = (scored.frame[key].to_numpy() for key in ("trace", "cluster"))
    actual = {side: scored.actual(side) for side in SIDES}
    labeled = [run for runs in actual.values() for run in runs]
    recalled: list[Fit] = []
    found: list[Fit] = []
    for side in SIDES:
        predicted = scored.predicted(side)
        for run, _, iou in matches(actual[side], predicted, trace):
            recalled.append(Fit(str(cluster[run.first]), iou))
        overlapping = _overlapping(predicted, labeled, trace)
        for (run, _, iou), overlaps in zip(
            matches(predicted, actual[side], trace), overlapping, strict=True
        ):
            unknown = not overlaps and scored.unknown_share(side, run) > MOSTLY
            found.append(Fit(str(cluster[run.first]), iou, unknown))
    return recalled, found


def _overlapping(
    runs: Sequence[Run], others: Sequence[Run], trace: npt.NDArray[np.object_]
) -> list[bool]:
    """Which runs share time with any of the others of their trace."""
    by_trace: dict[str, list[Run]] = {}
    for other in others:
        by_trace.setdefault(trace[other.first], []).append(other)
    return [any(run.shared(o) > 0 for o in by_trace.get(trace[run.first], [])) for run in runs]


def _shares(what: str, fits: Sequence[Fit], resamples: Resamples) -> dict[str, Drawn]:
    """How many of these regions fit one of the other kind, for each limit of IoU."""
    cluster = np.array([fit.cluster for fit in fits], object)
    iou = np.array([fit.iou for fit in fits], np.float64)
    ones = np.ones(len(fits))
    return {f"{what} {x}": resamples.ratio(iou >= x, ones, cluster) for x in _LIMITS}


def _alarms(scored: Scored, resamples: Resamples) -> tuple[Drawn, int]:
    """Predicted regions a trace that somebody vouches for, and how many such traces there are."""
    frame = scored.frame
    healthy = frame.loc[frame["healthy"].to_numpy(bool), ["trace", "cluster"]].drop_duplicates()
    runs = [run for side in SIDES for run in scored.predicted(side)]
    count = Counter(map(scored.trace_of, runs))
    alarms = np.array([count[name] for name in healthy["trace"]], np.float64)
    whole = np.ones(len(healthy))
    return resamples.ratio(alarms, whole, healthy["cluster"].to_numpy()), len(healthy)


def region_f1(scored: Scored, side: str) -> float:
    """F1 of a side's unmasked recall and precision at IoU 0.3; 0 where nothing is right."""
    trace = scored.frame["trace"].to_numpy()
    actual, predicted = scored.actual(side), scored.predicted(side)
    hits = [
        sum(iou >= LOOSE for _, _, iou in matches(one, other, trace)) / max(1, len(one))
        for one, other in ((actual, predicted), (predicted, actual))
    ]
    return 2 * hits[0] * hits[1] / max(sum(hits), 1e-9)
