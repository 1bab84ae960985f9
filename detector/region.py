"""Regions: neighboring suspicious windows merged into the places that a judge looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from detector.flagger import Flagger, Float32, Scores
from detector.index_sets import union
from detector.intervals import Intervals
from detector.taxonomy import Side
from detector.trace import Int64
from detector.window import Window

Float64 = npt.NDArray[np.float64]
MOST_EXPLAINED = 400  # regions of a side whose top features are computed, half a millisecond each


@dataclass(frozen=True)
class Region:
    """A suspicious place of a trace.

    ``start`` and ``end`` are int ns on the file's own axis. ``score`` in [0, 1] is the highest of
    its windows on ``side``; ``windows`` are their indices, ``top_features`` the features that added
    most to it (for a side's ``MOST_EXPLAINED`` weightiest regions), ``candidates`` the (pattern id,
    confidence) of the candidates that occur there, surest first. ``threshold``: the score from
    which the flagger flags a window on this side; 0 for a candidate's own place.
    """

    start: int
    end: int
    score: float
    side: Side
    windows: tuple[int, ...] = ()
    top_features: tuple[str, ...] = ()
    candidates: tuple[tuple[str, float], ...] = ()
    threshold: float = 0.0

    @property
    def dur(self) -> int:
        """Length in ns."""
        return self.end - self.start


def halves(region: Region) -> tuple[Region, Region]:
    """A region cut in the middle; both keep what the flagger says of the whole."""
    middle = max(region.start + region.dur // 2, region.start + 1)
    return replace(region, end=middle), replace(region, start=min(middle, region.end - 1))


def merge(
    windows: Sequence[Window], scores: Scores, flagger: Flagger, matrix: Float32, edges: Intervals
) -> tuple[Region, ...]:
    """Regions of both sides in time order.

    Neighboring suspicious windows of one side become one region, cut where the step changes. Its
    edges move inwards to the nearest of ``edges`` (the device's idle and busy spans), never past
    another window.
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
    flagged = np.flatnonzero(score >= flagger.threshold[side])
    if not len(flagged):
        return []
    steps = np.array([_step(windows[i]) for i in flagged.tolist()])
    cut = (np.diff(flagged) > 1) | (np.diff(steps) != 0)
    groups = np.split(flagged, np.flatnonzero(cut) + 1)
    peaks = np.array([group[np.argmax(score[group])] for group in groups])
    length = [windows[int(g[-1])].end - windows[int(g[0])].start for g in groups]
    top_features = _top_features(flagger, matrix[peaks], side, score[peaks] * np.array(length))
    return [
        Region(
            windows[int(group[0])].start,
            windows[int(group[-1])].end,
            float(score[peak]),
            side,
            tuple(int(i) for i in group),
            features,
            threshold=flagger.threshold[side],
        )
        for group, peak, features in zip(groups, peaks, top_features, strict=True)
    ]


def _top_features(
    flagger: Flagger, matrix: Float32, side: Side, weight: Float64
) -> list[tuple[str, ...]]:
    """The top features of the weightiest regions, () for the others where there are very many."""
    chosen = np.sort(np.argsort(-weight, kind="stable")[:MOST_EXPLAINED])
    found = dict(zip(chosen.tolist(), flagger.top_features(matrix[chosen], side), strict=True))
    return [found.get(i, ()) for i in range(len(matrix))]


def top_features(
    region: Region, scores: Scores, flagger: Flagger, matrix: Float32
) -> tuple[str, ...]:
    """The features that added most to the highest score in a region's windows."""
    if not region.windows:
        return ()
    mine = np.array(region.windows)
    peak = mine[int(np.argmax((scores.cpu if region.side == "cpu" else scores.gpu)[mine]))]
    return flagger.top_features(matrix[[peak]], region.side)[0]


def _step(window: Window) -> int:
    return -1 if window.step is None else window.step


def _sharpen(region: Region, points: Int64) -> Region:
    """Move the edges inwards to where an event begins or ends, if one is near."""
    reach = region.dur // (2 * max(1, len(region.windows)))  # at most half a window
    first = points[np.searchsorted(points, region.start) :][:1]
    last = points[: np.searchsorted(points, region.end, side="right")][-1:]
    start = int(first[0]) if len(first) and first[0] - region.start <= reach else region.start
    end = int(last[0]) if len(last) and region.end - last[0] <= reach else region.end
    if end <= start:
        return region
    return replace(region, start=start, end=end)
