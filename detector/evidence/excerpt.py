"""A place as a picture: what each thread and stream does there, in few enough events to be drawn.

What is too short to be seen is joined with its neighbors rather than left out: a stream of small
kernels must not look idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.activity import CALLS, Activity
from detector.evidence import words
from detector.patterns import Occurrences
from detector.report.events import Excerpt, ExcerptTrack
from detector.trace import DEVICE_WORK, NS_PER_US, Bool, Cat, Int64, Trace
from detector.window import AnalyzedTime

MOST_EVENTS: Final = 400
MOST_TRACKS: Final = 5  # of the host, and as many of the device
MOST_SPANS: Final = 60
DEEPEST: Final = 8  # levels of a thread
WIDEST: Final = 3_000  # events: of a place with more, the part with the most occurrences is shown
_MARGIN: Final = 0.04  # of the place, on either side
_SEEN: Final = 1 / 1_000  # of the excerpt: what is shorter is joined with its neighbors first
_COARSER: Final = 1.25
_STRETCH: Final = 16  # a bar of joined events is at most so many times as long as one of them
_WRAPPER: Final = 0.95  # a frame that does nothing but call one other
_SHOWN: Final = (*DEVICE_WORK, *CALLS, Cat.CPU_OP, Cat.USER_ANNOTATION, Cat.PYTHON_FUNCTION)


@dataclass(frozen=True, eq=False)
class Strip:
    """An ``ExcerptTrack`` in the making: columns of equal length, ns on the trace's axis."""

    label: str
    is_device: bool
    start: Int64
    end: Int64
    busy: Int64
    depth: Int64
    count: Int64
    row: Int64  # of the longest event
    at_fault: Bool

    def __len__(self) -> int:
        return len(self.start)


def excerpt(
    activity: Activity, analyzed: AnalyzedTime, place: tuple[int, int], occurrences: Occurrences
) -> Excerpt:
    """The events around a place [start, end), ns, with those at fault marked."""
    trace = activity.trace
    start, end = _part(trace, place, occurrences)
    margin = int((end - start) * _MARGIN)
    start, end = max(start - margin, analyzed.start), min(end + margin, analyzed.end)
    rows = _overlapping(trace, start, end)
    faulty = np.isin(rows, occurrences.rows)
    strips = [
        _strip(activity, track, rows[mine], faulty[mine], (start, end))
        for track in _tracks(activity, rows, faulty)
        for mine in [trace.track[rows] == track]
    ]
    shown = sum(int(strip.count.sum()) for strip in strips)
    names: dict[str, int] = {}
    tracks = [_track(trace, strip, start, names) for strip in _thinned(strips, end - start)]
    spans = zip(*(_us(edge - start) for edge in _spans(occurrences, start, end)), strict=True)
    return Excerpt(
        start / NS_PER_US,
        end / NS_PER_US,
        (place[0] / NS_PER_US, place[1] / NS_PER_US),
        len(rows),
        len(rows) - shown,
        tuple(names),
        tuple(spans),
        tuple(tracks),
    )


def _track(trace: Trace, strip: Strip, start: int, names: dict[str, int]) -> ExcerptTrack:
    """One track of an excerpt; adds to ``names`` what it calls."""
    labels = [_label(trace, row) for row in strip.row.tolist()]
    return ExcerptTrack(
        strip.label,
        strip.is_device,
        _us(strip.start - start),
        _us(strip.end - strip.start),
        _us(strip.busy),
        tuple(strip.depth.tolist()),
        tuple(names.setdefault(label, len(names)) for label in labels),
        tuple(strip.count.tolist()),
        tuple(np.flatnonzero(strip.at_fault).tolist()),
    )


def _us(ns: Int64) -> tuple[float, ...]:
    return tuple((ns / NS_PER_US).tolist())


def _label(trace: Trace, row: int) -> str:
    """An event's name as a person reads it."""
    name = trace.names[trace.name[row]]
    if trace.cat[row] == Cat.KERNEL:
        return words.kernel(name)
    return words.frame(name) if trace.cat[row] == Cat.PYTHON_FUNCTION else words.plain(name)


# -- what is shown ---------------------------------------------------------------------------------


def _overlapping(trace: Trace, start: int, end: int) -> Int64:
    """Rows with any time in [start, end)."""
    first, last = np.searchsorted(trace.start, (start, end))
    running = np.flatnonzero(trace.end[:first] > start)
    rows = np.concatenate([running, np.arange(first, last)])
    return np.asarray(rows[np.isin(trace.cat[rows], _SHOWN)], np.int64)


def _part(trace: Trace, place: tuple[int, int], occurrences: Occurrences) -> tuple[int, int]:
    """The place, or where it holds too many events the part with the most of its occurrences."""
    start, end = place
    first, last = np.searchsorted(trace.start, place)
    if last - first <= WIDEST:
        return place
    length = max((end - start) * WIDEST // int(last - first), 1)
    begins = occurrences.within(start, end).start
    if not len(begins):
        return start, start + length
    covered = occurrences.spans.covered(begins, begins + length)
    begin = min(int(begins[np.argmax(covered)]), end - length)
    return begin, begin + length


def _spans(occurrences: Occurrences, start: int, end: int) -> tuple[Int64, Int64]:
    """The occurrences in [start, end); close ones are joined until they are few."""
    spans = occurrences.spans.clip(start, end)
    first, last = spans.start, spans.end
    if len(first) > MOST_SPANS:
        gap = first[1:] - last[:-1]
        apart = np.sort(np.argsort(-gap, kind="stable")[: MOST_SPANS - 1])
        first = first[np.append(0, apart + 1)]
        last = last[np.append(apart, len(last) - 1)]
    return first, last


def _tracks(activity: Activity, rows: Int64, faulty: Bool) -> list[int]:
    """Threads, the one that feeds the device first, then streams; those at fault before others."""
    trace = activity.trace
    track = trace.track[rows]
    busy = np.bincount(track, trace.dur[rows], len(trace.tracks))
    at_fault = np.bincount(track[faulty], minlength=len(trace.tracks)) > 0
    found: list[int] = []
    for on_device in (False, True):
        here = [t for t in np.unique(track).tolist() if trace.tracks[t].is_device == on_device]
        here.sort(key=lambda t: (t != activity.main_track, not at_fault[t], -busy[t]))
        found += here[:MOST_TRACKS]
    return found


def _track_label(activity: Activity, track: int) -> str:
    it = activity.trace.tracks[track]
    if not it.is_device:
        main = " (main)" if track == activity.main_track else ""
        return f"thread {words.bounded(it.tid, 30)}{main}"
    several = len({t.device for t in activity.trace.tracks if t.is_device}) > 1
    stream = it.stream if it.stream >= 0 else words.bounded(it.tid, 30)
    return f"GPU {it.device} stream {stream}" if several else f"stream {stream}"


# -- levels ----------------------------------------------------------------------------------------


def _strip(
    activity: Activity, track: int, rows: Int64, faulty: Bool, span: tuple[int, int]
) -> Strip:
    """A track's events, each on its level; frames that only wrap others are left out."""
    trace = activity.trace
    is_device = trace.tracks[track].is_device
    if not is_device:
        telling = faulty | ~_wrappers(trace, rows, span)
        rows, faulty = rows[telling], faulty[telling]
    depth = np.zeros(len(rows), np.int64) if is_device else _depths(trace, rows)
    seen = depth < DEEPEST
    rows, faulty, depth = rows[seen], faulty[seen], depth[seen]
    return Strip(
        _track_label(activity, track),
        is_device,
        trace.start[rows],
        trace.end[rows],
        trace.dur[rows],
        depth,
        np.ones(len(rows), np.int64),
        rows,
        faulty,
    )


def _wrappers(trace: Trace, rows: Int64, span: tuple[int, int]) -> Bool:
    """Python frames around the whole excerpt, but the innermost, and those that one other fills."""
    is_frame = trace.cat[rows] == Cat.PYTHON_FUNCTION
    parent = trace.parent[rows]
    fills = (parent >= 0) & (trace.dur[rows] >= _WRAPPER * trace.dur[parent])
    around = is_frame & (trace.start[rows] <= span[0]) & (trace.end[rows] >= span[1])
    around[np.flatnonzero(around)[-1:]] = False
    return np.asarray(around | (is_frame & np.isin(rows, parent[fills])), np.bool_)


def _depths(trace: Trace, rows: Int64) -> Int64:
    """How many of ``rows`` each of them lies in."""
    inside = np.zeros(len(trace) + 1, np.bool_)  # the last place takes "no parent"
    inside[rows] = True
    depth, up = np.zeros(len(rows), np.int64), trace.parent[rows].astype(np.int64)
    while (up >= 0).any():
        depth += inside[up]
        up = np.where(up >= 0, trace.parent[up], -1)
    return depth


# -- thinning --------------------------------------------------------------------------------------


def _thinned(strips: list[Strip], length: int) -> list[Strip]:
    """The strips with at most ``MOST_EVENTS`` bars: the shortest are joined with neighbors."""
    width = length * _SEEN
    thin = [_joined(strip, width) for strip in strips]
    while sum(map(len, thin)) > MOST_EVENTS and width < length:
        width *= _COARSER
        thin = [_joined(strip, width) for strip in strips]
    return thin


def _joined(strip: Strip, width: float) -> Strip:
    """Neighbors of a level, both at fault or neither, that are shorter than ``width``, as one."""
    order = np.lexsort((strip.start, strip.at_fault, strip.depth))
    start, end, busy = strip.start[order], strip.end[order], strip.busy[order]
    level = 2 * strip.depth[order] + strip.at_fault[order]
    small = (end - start) < width
    stretch = (start // (_STRETCH * width)).astype(np.int64)
    same = (level[1:] == level[:-1]) & (stretch[1:] == stretch[:-1])
    near = small[1:] & small[:-1] & (start[1:] - end[:-1] < width)
    first = np.flatnonzero(np.append(True, ~(same & near))) if len(start) else order
    if not len(first):
        return strip
    group = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(start))))
    longest = np.lexsort((busy, group))[np.append(first[1:], len(start)) - 1]
    return Strip(
        strip.label,
        strip.is_device,
        start[first],
        np.maximum.reduceat(end, first),
        np.add.reduceat(busy, first),
        strip.depth[order][first],
        np.add.reduceat(strip.count[order], first),
        strip.row[order][longest],
        strip.at_fault[order][first],
    )
