"""A table of windows with what a flagger says of them, and the regions that follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from detector.flagger import Float32, Scores
from detector.lab.training import INSIDE, is_known

if TYPE_CHECKING:
    import pandas as pd

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """Neighboring windows of one trace and side, as rows of the table; times in µs."""

    first: int
    last: int
    start: float
    end: float

    def iou(self, other: Run) -> float:
        """Shared time over joint time."""
        shared = self.shared(other)
        joint = max(self.end, other.end) - min(self.start, other.start)
        return shared / joint if joint > 0 else 0.0

    def shared(self, other: Run) -> float:
        """Shared time, µs."""
        return max(min(self.end, other.end) - max(self.start, other.start), 0.0)


@dataclass(frozen=True, eq=False)
class Scored:
    """Windows sorted by trace and time, with their scores.

    ``flagged``: by side, which windows reach the flagger's threshold. The frame has ``cluster``,
    the unit of the bootstrap, and ``healthy``, whether somebody vouches for the whole trace.
    """

    frame: pd.DataFrame
    scores: Scores
    flagged: dict[str, Bools]

    def side(self, side: str) -> Float32:
        """The scores of a side."""
        return self.scores.cpu if side == "cpu" else self.scores.gpu

    def clear(self, side: str, masked: bool) -> Rows:
        """Windows clearly inside or outside a labeled region of that side; ``masked``: without
        those of which nobody knows whether they are healthy, which else count as healthy."""
        covered = self.frame[side].to_numpy()
        whole = (covered == 0) | (covered >= INSIDE)
        return np.flatnonzero(whole & is_known(self.frame, side) if masked else whole)

    def truth(self, side: str) -> Bools:
        """Which windows lie in a labeled region of that side."""
        return np.asarray(self.frame[side] >= INSIDE)

    @cached_property
    def _breaks(self) -> Rows:
        numbers = self.frame["trace"].ne(self.frame["trace"].shift()).to_numpy()
        return np.flatnonzero(numbers[1:]) + 1

    def runs(self, marked: Bools) -> list[Run]:
        """Runs of marked neighbors: of all windows, known or not."""
        rows = np.flatnonzero(marked)
        if not len(rows):
            return []
        cut = (np.diff(rows) > 1) | np.isin(rows[1:], self._breaks)
        groups = np.split(rows, np.flatnonzero(cut) + 1)
        start, end = self.frame["start_us"].to_numpy(), self.frame["end_us"].to_numpy()
        return [Run(int(g[0]), int(g[-1]), start[g[0]], end[g[-1]]) for g in groups]

    def actual(self, side: str) -> list[Run]:
        """The labeled regions of a side, as windows show them."""
        return self.runs(self.truth(side))

    def predicted(self, side: str) -> list[Run]:
        """The regions that the flagger flags."""
        return self.runs(self.flagged[side])

    def unknown_share(self, side: str, run: Run) -> float:
        """How much of a run's time lies where nobody knows, in [0, 1]."""
        rows = slice(run.first, run.last + 1)
        length = (self.frame["end_us"] - self.frame["start_us"]).to_numpy()[rows]
        unknown = self.frame[f"unknown_{side}"].to_numpy()[rows]
        return float((length * unknown).sum() / max(float(length.sum()), 1e-9))

    def trace_of(self, run: Run) -> str:
        """The trace that a run lies in."""
        return str(self.frame["trace"].iloc[run.first])


def matches(
    runs: Sequence[Run], others: Sequence[Run], trace: npt.NDArray[np.object_]
) -> Iterator[tuple[Run, Run | None, float]]:
    """Each run with the other one of its trace that fits best, and how well (IoU)."""
    by_trace: dict[str, list[Run]] = {}
    for run in others:
        by_trace.setdefault(trace[run.first], []).append(run)
    for run in runs:
        candidates = by_trace.get(trace[run.first], [])
        best = max(candidates, key=run.iou, default=None)
        yield run, best, run.iou(best) if best is not None else 0.0
