"""Regions: suspicious windows merged into the places a judge looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt

from detector.flagger import Flagger, Float32, Scores
from detector.intervals import Intervals
from detector.patterns import BY_ID, CLASSES
from detector.rowset import union
from detector.taxonomy import NONE, Side
from detector.trace import Int64
from detector.window import Window

Float64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
CANDIDATES = 5
_NONE = CLASSES.index(NONE)
# Which of the classes are patterns of a side.
OF_SIDE: dict[str, Bools] = {
    side: np.array([name != NONE and BY_ID[name].side == side for name in CLASSES])
    for side in get_args(Side)
}
MOST_DRIVEN = 400  # regions of a side that are told their drivers: half a millisecond each


@dataclass(frozen=True)
class Region:
    """A suspicious place of a trace.

    ``start`` and ``end`` are int ns on the file's own axis. ``score`` in [0, 1] is the highest of
    its windows on ``side``; ``windows`` are their indices, ``drivers`` the features that spoke
    most for it (of a side's ``MOST_DRIVEN`` weightiest regions), ``candidates`` the flagger's
    (pattern id or "none", probability), best first.
    """

    start: int
    end: int
    score: float
    side: Side
    windows: tuple[int, ...] = ()
    drivers: tuple[str, ...] = ()
    candidates: tuple[tuple[str, float], ...] = ()

    @property
    def dur(self) -> int:
        """Length in ns."""
        return self.end - self.start


def merge(
    windows: Sequence[Window], scores: Scores, flagger: Flagger, matrix: Float32, edges: Intervals
) -> tuple[Region, ...]:
    """Regions of both sides in time order.

    Neighbouring suspicious windows of one side that agree on the likeliest pattern become one
    region, cut where the step changes. Its edges move inwards to the nearest of ``edges``
    (the device's idle and busy spans), never past another window.
    """
    regions = [
        region
        for side in ("cpu", "gpu")
        for region in _merge_side(windows, scores, side, flagger, matrix)
    ]
    points = union(edges.start, edges.end)
    return tuple(sorted((_sharpen(r, points) for r in regions), key=lambda r: (r.start, r.side)))


def _merge_side(
    windows: Sequence[Window], scores: Scores, side: Side, flagger: Flagger, matrix: Float32
) -> list[Region]:
    score = scores.cpu if side == "cpu" else scores.gpu
    hot = np.flatnonzero(score >= flagger.threshold[side])
    if not len(hot):
        return []
    likeliest = np.argmax(np.where(OF_SIDE[side], scores.classes[hot], -1), axis=1)
    steps = np.array([_step(windows[i]) for i in hot.tolist()])
    cut = (np.diff(hot) > 1) | (np.diff(likeliest) != 0) | (np.diff(steps) != 0)
    groups = np.split(hot, np.flatnonzero(cut) + 1)
    peaks = np.array([group[np.argmax(score[group])] for group in groups])
    length = [windows[int(g[-1])].end - windows[int(g[0])].start for g in groups]
    drivers = _drivers(flagger, matrix[peaks], side, score[peaks] * np.array(length))
    return [
        Region(
            windows[int(group[0])].start,
            windows[int(group[-1])].end,
            float(score[peak]),
            side,
            tuple(int(i) for i in group),
            driver,
            candidates(scores.classes[group].mean(axis=0), side, float(score[group].mean())),
        )
        for group, peak, driver in zip(groups, peaks, drivers, strict=True)
    ]


def _drivers(
    flagger: Flagger, matrix: Float32, side: Side, weight: Float64
) -> list[tuple[str, ...]]:
    """The drivers of the weightiest regions, () for the others where there are very many."""
    chosen = np.sort(np.argsort(-weight, kind="stable")[:MOST_DRIVEN])
    told = dict(zip(chosen.tolist(), flagger.drivers(matrix[chosen], side), strict=True))
    return [told.get(i, ()) for i in range(len(matrix))]


def _step(window: Window) -> int:
    return -1 if window.step is None else window.step


def candidates(classes: Float32, side: Side, score: float) -> tuple[tuple[str, float], ...]:
    """The side's patterns and "none", likeliest first.

    "none" is as likely as the side's ``score`` leaves it; the patterns share the score as
    ``classes``, [39], has them. Only the side's head has learnt what a healthy window looks like.
    """
    mine = np.where(OF_SIDE[side], classes, 0).astype(np.float64)
    told = score * mine / max(mine.sum(), 1e-9)
    told[_NONE] = 1 - score
    order = [int(i) for i in np.argsort(-told, kind="stable") if OF_SIDE[side][i] or i == _NONE]
    return tuple((CLASSES[i], round(float(told[i]), 4)) for i in order[:CANDIDATES])


def _sharpen(region: Region, points: Int64) -> Region:
    """Move the edges inwards to where an event begins or ends, if one is near."""
    reach = region.dur // (2 * max(1, len(region.windows)))  # at most half a window
    first = points[np.searchsorted(points, region.start) :][:1]
    last = points[: np.searchsorted(points, region.end, side="right")][-1:]
    start = int(first[0]) if len(first) and first[0] - region.start <= reach else region.start
    end = int(last[0]) if len(last) and region.end - last[0] <= reach else region.end
    if end <= start:
        return region
    return Region(
        start, end, region.score, region.side, region.windows, region.drivers, region.candidates
    )
