"""Windows → the matrix that the models see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from detector.analysis import Analysis
from detector.features.cuts import Cuts, Sheet
from detector.features.measure import Values
from detector.features.table import COLUMNS, FEATURES
from detector.trace import Int64
from detector.window import AnalyzedTime, Window

PLACES: Final = 8

Float32 = npt.NDArray[np.float32]


def extract(analysis: Analysis, windows: Sequence[Window]) -> Float32:
    """float32[len(windows), len(COLUMNS)]; NaN where a feature is not defined.

    The same for any order of the events in the file, and for the same trace at another time.
    """
    if not windows:
        return np.empty((0, len(COLUMNS)), np.float32)
    table = np.array(
        [(w.start, w.end, w.outer_start, w.outer_end) for w in windows], np.int64
    ).reshape(-1, 4)
    outer, which = np.unique(table[:, 2:], axis=0, return_inverse=True)
    sheet, analyzed = Sheet(analysis, table.ravel()), analysis.analyzed
    narrow = _all(Cuts(sheet, table[:, 0], table[:, 1]))
    wide = _all(Cuts(sheet, outer[:, 0], outer[:, 1]))
    place = _places(analyzed, table[:, 0], table[:, 1])
    # Written part by part: all parts at once in float64 would be three times the memory.
    parts = np.empty((4, len(FEATURES), len(windows)), np.float32)
    parts[0], parts[1] = narrow, wide[:, which.ravel()]
    parts[2] = narrow - _median(narrow)[:, None]
    parts[3] = _by_place(narrow, place)
    return np.ascontiguousarray(parts.reshape(-1, len(windows)).T)


def _all(cuts: Cuts) -> Values:
    """float64[len(FEATURES), len(cuts)]."""
    return np.stack([feature.compute(cuts) for feature in FEATURES])


def _median(values: Values) -> Values:
    """The median of each row without its NaN; NaN where a row holds nothing else."""
    ranked = np.sort(values, axis=1)  # NaN last
    count = np.count_nonzero(~np.isnan(ranked), axis=1)
    row = np.arange(len(values))
    low, high = (
        ranked[row, np.maximum(count - 1, 0) // 2],
        ranked[row, count // 2 % values.shape[1]],
    )
    return np.where(count > 0, (low + high) / 2, np.nan)


def _by_place(narrow: Values, place: Int64) -> Values:
    """Minus the median of the windows at the same place of the steps."""
    result = np.full_like(narrow, np.nan)
    for at in np.unique(place[place >= 0]):
        here = place == at
        result[:, here] = narrow[:, here] - _median(narrow[:, here])[:, None]
    return result


def _places(analyzed: AnalyzedTime, start: Int64, end: Int64) -> Int64:
    """Which eighth of its step each window's middle lies in; -1 where there are no steps."""
    if len(analyzed.steps) < 2:
        return np.full(len(start), -1, np.int64)
    edges = np.array([*(step.start for step in analyzed.steps), analyzed.end], np.int64)
    middle = start + (end - start) // 2
    step = np.clip(np.searchsorted(edges, middle, side="right") - 1, 0, len(analyzed.steps) - 1)
    phase = (middle - edges[step]) * PLACES // np.maximum(edges[step + 1] - edges[step], 1)
    found: Int64 = np.clip(phase, 0, PLACES - 1)
    return found
