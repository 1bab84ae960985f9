"""All labels of a place, where a window's row has but its main pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from detector.intervals import Int64, Intervals
from detector.patterns import BY_ID, CLASSES
from detector.trace import NS_PER_US

if TYPE_CHECKING:
    import pandas as pd


class Labelled:
    """The labelled regions of a benchmark (its table ``regions``); unknown ones are none."""

    def __init__(self, regions: pd.DataFrame) -> None:
        self._spans: dict[tuple[str, str], dict[int, Intervals]] = {}
        named = regions[regions["pattern"].isin(list(BY_ID))]
        for (trace, side, pattern), mine in named.groupby(["trace", "side", "pattern"]):
            spans = Intervals.union(_ns(mine["start_us"]), _ns(mine["end_us"]))
            self._spans.setdefault((trace, side), {})[CLASSES.index(pattern)] = spans

    def shares(self, trace: str, side: str, start_us: float, end_us: float) -> dict[int, float]:
        """By class, the share of a span that its regions of this side cover, where any do."""
        start, end = _ns([start_us]), _ns([end_us])
        length = max(1, int(end[0] - start[0]))
        spans = self._spans.get((trace, side), {})
        covered = {k: int(mine.covered(start, end)[0]) / length for k, mine in spans.items()}
        return {k: share for k, share in covered.items() if share > 0}

    def patterns(self, trace: str, side: str) -> dict[int, Intervals]:
        """By class, where it is labelled in a trace; ns."""
        return self._spans.get((trace, side), {})


def _ns(times_us: npt.ArrayLike) -> Int64:
    return np.round(np.asarray(times_us, np.float64) * NS_PER_US).astype(np.int64)
