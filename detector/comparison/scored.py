"""A table of windows with what a flagger says of them, and the regions that follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from detector.comparison.labelled import Labelled
from detector.flagger import Float32, Scores
from detector.flagger.training import INSIDE, is_known
from detector.region import OF_SIDE
from detector.taxonomy import CLASSES

if TYPE_CHECKING:
    import pandas as pd

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """Neighbouring windows of one trace and side, as rows of the table; times in µs."""

    first: int
    last: int
    start: float
    end: float
    pattern: int  # of CLASSES

    def iou(self, other: Run) -> float:
        """Shared time over joint time."""
        shared = min(self.end, other.end) - max(self.start, other.start)
        joint = max(self.end, other.end) - min(self.start, other.start)
        return max(shared, 0.0) / joint if joint > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Scored:
    """Windows sorted by trace and time, with their scores; ``labels`` where a place may have
    several. ``extent`` of the frame: of the trace's fault."""

    frame: pd.DataFrame
    scores: Scores
    labels: Labelled | None = None

    def side(self, side: str) -> Float32:
        """The scores of a side."""
        return self.scores.cpu if side == "cpu" else self.scores.gpu

    def clear(self, side: str) -> Rows:
        """Windows clearly inside or outside a labelled region of that side."""
        covered = self.frame[side].to_numpy()
        whole = (covered == 0) | (covered >= INSIDE)
        return np.flatnonzero(whole & is_known(self.frame, side))

    def truth(self, side: str) -> Bools:
        """Which windows lie in a labelled region of that side."""
        return np.asarray(self.frame[side] >= INSIDE)

    @cached_property
    def _breaks(self) -> Rows:
        numbers = self.frame["trace"].ne(self.frame["trace"].shift()).to_numpy()
        return np.flatnonzero(numbers[1:]) + 1

    def runs(self, hot: Bools, pattern: npt.NDArray[np.int64]) -> list[Run]:
        """Runs of marked neighbours that agree on the pattern."""
        rows = np.flatnonzero(hot)
        if not len(rows):
            return []
        new_trace = np.isin(rows[1:], self._breaks)
        cut = (np.diff(rows) > 1) | (np.diff(pattern[rows]) != 0) | new_trace
        groups = np.split(rows, np.flatnonzero(cut) + 1)
        start, end = self.frame["start_us"].to_numpy(), self.frame["end_us"].to_numpy()
        return [
            Run(int(g[0]), int(g[-1]), start[g[0]], end[g[-1]], int(pattern[g[0]])) for g in groups
        ]

    def true_runs(self, side: str) -> list[Run]:
        """The labelled places of a side, cut to windows, by the main pattern there (-1: not told,
        as a window's row names one of the other side)."""
        named = np.array([CLASSES.index(p) for p in self.frame["pattern"]])
        mine = np.where(OF_SIDE[side][named], named, -1)
        for row in np.flatnonzero(self.truth(side) & (mine < 0)).tolist():
            shares = self.shares(side, row, row)
            mine[row] = max(shares, key=lambda k: shares[k], default=-1)
        return self.runs(self.truth(side), mine)

    def shares(self, side: str, first: int, last: int) -> dict[int, float]:
        """By class, the labelled share of the time of these rows of one trace."""
        if self.labels is None:
            return {}
        start, end = self.frame["start_us"].iloc[first], self.frame["end_us"].iloc[last]
        return self.labels.shares(str(self.frame["trace"].iloc[first]), side, start, end)

    def told_runs(self, side: str, threshold: float) -> list[Run]:
        """The places that the flagger suspects; what nobody knows counts for nothing."""
        hot = (self.side(side) >= threshold) & is_known(self.frame, side)
        likeliest = np.argmax(np.where(OF_SIDE[side], self.scores.classes, -1), axis=1)
        return self.runs(hot, likeliest)

    def trace_of(self, run: Run) -> str:
        """The trace that a run lies in."""
        return str(self.frame["trace"].iloc[run.first])


def matches(
    true: list[Run], told: list[Run], trace: npt.NDArray[np.object_]
) -> Iterator[tuple[Run, Run | None, float]]:
    """Each true run with the told one of its trace that fits best, and how well (IoU)."""
    by_trace: dict[str, list[Run]] = {}
    for run in told:
        by_trace.setdefault(trace[run.first], []).append(run)
    for run in true:
        rivals = by_trace.get(trace[run.first], [])
        best = max(rivals, key=run.iou, default=None)
        yield run, best, run.iou(best) if best is not None else 0.0
