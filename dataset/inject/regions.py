"""Label regions of a replayed base: where its faults act, and where it has problems of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from dataset.inject.base import Base
from dataset.labels import UNKNOWN, LabelRegion, Side
from dataset.natural import Natural, Verdict, read_all
from detector import cost, guards
from detector.intervals import EMPTY, Intervals
from detector.taxonomy import PATTERNS
from detector.trace import NS_PER_US, Int64

CLOSE: Final = 0.1  # of a step: spans of one pattern that lie closer are one region
SUSPICIOUS: Final = 0.03  # of a step: a pattern that could give back more is a problem there
CELLS: Final = 16  # of a step, half a window each
DENSE: Final = 0.15  # of a cell: less of it is what healthy programs have as well


def joined(spans: Intervals, gap: float, borders: Int64) -> Intervals:
    """Spans that lie closer than ``gap`` become one, but not across a border."""
    if not len(spans):
        return spans
    step = np.searchsorted(borders, spans.start, side="right")
    apart = (spans.start[1:] - spans.end[:-1] > gap) | (step[1:] != step[:-1])
    first = np.flatnonzero(np.append(True, apart))
    last = np.append(first[1:] - 1, len(spans) - 1)
    return Intervals(spans.start[first], spans.end[last])


def fault_regions(
    spans: Iterable[tuple[int, int]], pattern: str, side: Side, edges: Int64
) -> list[LabelRegion]:
    """The regions of one fault from the spans (ns) of its calls or works; ``edges`` are where
    the steps begin, and where the last ends."""
    pairs = np.array([*spans], np.int64).reshape(-1, 2)
    pairs[:, 1] = np.maximum(pairs[:, 1], pairs[:, 0] + 1)
    near = CLOSE * float(np.median(np.diff(edges)))
    found = joined(Intervals.union(pairs[:, 0], pairs[:, 1]), near, edges[:-1])
    return [_region(a, b, pattern, side) for a, b in _pairs(found)]


def own_problems(base: Base) -> dict[Side, Intervals]:
    """Where the base itself may have a problem, ns of the base; a detector is not scored there.

    Measured: where a pattern's claim could give back ``SUSPICIOUS`` of a step, those cells (a
    ``CELLS``th of the step) of which it fills ``DENSE``. Where the base was labelled by hand, also
    what was found there, less what was looked at and found sound in spite of its looks.
    """
    found = _claimed(base)
    hand = _labelled_by_hand().get(base.trace.source.sha256)
    if hand is None:
        return found
    return {
        side: (found[side] - _told(hand.healthy, side)) | _told(hand.regions, side)
        for side in found
    }


@lru_cache(maxsize=1)
def _labelled_by_hand() -> dict[str, Natural]:
    return {label.sha256: label for label in read_all()}


def _told(verdicts: Iterable[Verdict], side: Side) -> Intervals:
    """The spans of a side's verdicts, ns."""
    spans = [span for v in verdicts if v.side == side for span in v.spans_us]
    pairs = np.array([[round(t * NS_PER_US) for t in span] for span in spans], np.int64)
    pairs = pairs.reshape(-1, 2)
    return Intervals.union(pairs[:, 0], pairs[:, 1])


def _claimed(base: Base) -> dict[Side, Intervals]:
    edges = np.array([*(span.start for span in base.spans), base.judged.end], np.int64)
    shares = np.arange(CELLS) / CELLS
    cells = (edges[:-1, None] + np.diff(edges)[:, None] * shares).astype(np.int64).ravel()
    cells = np.append(cells, edges[-1])
    blind = guards.blind(base.activity, base.judged)
    found: dict[Side, Intervals] = {"cpu": EMPTY, "gpu": EMPTY}
    for pattern in PATTERNS:
        if pattern.id not in blind:
            claim = cost.claim(base.activity, pattern.id)
            bad = np.repeat(_share(claim, edges) > SUSPICIOUS, CELLS)
            bad &= _share(claim, cells) > DENSE
            spans = Intervals.union(cells[:-1][bad], cells[1:][bad])
            found[pattern.side] = found[pattern.side] | spans
    return found


def _share(claim: cost.Claim, edges: Int64) -> npt.NDArray[np.float64]:
    """What the claim could give back of each of the spans between the edges."""
    covered = claim.intervals.covered(edges[:-1], edges[1:])
    shares: npt.NDArray[np.float64] = claim.weight * covered / np.maximum(np.diff(edges), 1)
    return shares


def unknown_regions(
    places: dict[Side, Intervals], faults: Sequence[LabelRegion]
) -> list[LabelRegion]:
    """Regions of these places (ns), less the faults' own of the same side."""
    regions = []
    for side, spans in places.items():
        mine = [r for r in faults if r.side == side]
        taken = Intervals.union(
            np.array([round(r.start_us * NS_PER_US) for r in mine], np.int64),
            np.array([round(r.end_us * NS_PER_US) for r in mine], np.int64),
        )
        regions += [_region(a, b, UNKNOWN, side) for a, b in _pairs(spans - taken)]
    return regions


def _pairs(spans: Intervals) -> list[tuple[int, int]]:
    return list(zip(spans.start.tolist(), spans.end.tolist(), strict=True))


def _region(start: int, end: int, pattern: str, side: Side) -> LabelRegion:
    return LabelRegion(start / NS_PER_US, end / NS_PER_US, pattern, side)
