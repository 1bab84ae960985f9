"""Label regions of a replayed base: where its faults act, and where nobody knows what is wrong.

A program has problems of its own beside the fault that was put in. Only where a person looked and
said so is its time healthy; all else is unknown, and nothing that is measured decides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from dataset.labels import UNKNOWN, LabelRegion, Side
from detector.intervals import Intervals
from detector.trace import NS_PER_US, Int64

CLOSE: Final = 0.1  # of a step: spans of one pattern that lie closer are one region


def fault_regions(
    spans: Iterable[tuple[int, int]], pattern: str, side: Side, edges: Int64
) -> list[LabelRegion]:
    """The regions of one fault from the spans (ns) of its calls or works; ``edges`` are where
    the steps begin, and where the last ends."""
    pairs = np.array([*spans], np.int64).reshape(-1, 2)
    pairs[:, 1] = np.maximum(pairs[:, 1], pairs[:, 0] + 1)
    near = CLOSE * float(np.median(np.diff(edges)))
    found = Intervals.union(pairs[:, 0], pairs[:, 1]).bridged(near, edges[:-1])
    return [_region(a, b, pattern, side) for a, b in _pairs(found)]


def unknown_regions(
    healthy: Mapping[Side, Intervals], whole: Intervals, faults: Sequence[LabelRegion]
) -> list[LabelRegion]:
    """Regions of all of the trace (``whole``, ns) but what is healthy and the faults' own, by
    side."""
    regions = []
    for side, sound in healthy.items():
        mine = [r for r in faults if r.side == side]
        taken = Intervals.union(
            np.array([round(r.start_us * NS_PER_US) for r in mine], np.int64),
            np.array([round(r.end_us * NS_PER_US) for r in mine], np.int64),
        )
        regions += [_region(a, b, UNKNOWN, side) for a, b in _pairs(whole - sound - taken)]
    # What is left between two spans may be shorter than a microsecond of such a date can say.
    return [region for region in regions if region.end_us > region.start_us]


def _pairs(spans: Intervals) -> list[tuple[int, int]]:
    return list(zip(spans.start.tolist(), spans.end.tolist(), strict=True))


def _region(start: int, end: int, pattern: str, side: Side) -> LabelRegion:
    return LabelRegion(start / NS_PER_US, end / NS_PER_US, pattern, side)
