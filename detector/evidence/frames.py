"""Python frames: what the interpreter did in a region, and which lines of the user's code."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import Activity
from detector.evidence import words
from detector.evidence.listing import Floats, Listing, around
from detector.evidence.sheet import SourceLine
from detector.intervals import Intervals
from detector.region import Region
from detector.trace import Cat, Int64

MOST_LINES: Final = 3
LEAST_PART: Final = 0.1  # of the heaviest line's weight: what is lighter is no lead


class Frames:
    """The Python frames of the thread that runs the program."""

    def __init__(self, activity: Activity) -> None:
        self.a, self.trace = activity, activity.trace

    @cached_property
    def rows(self) -> Int64:
        """python_function rows of the busiest Python thread."""
        rows = self.a.of(Cat.PYTHON_FUNCTION)
        if not len(rows):
            return rows
        track = self.trace.track[rows]
        busiest = int(np.argmax(np.bincount(track, self.trace.dur[rows])))
        return np.asarray(rows[track == busiest], np.int64)

    @cached_property
    def listing(self) -> Listing:
        """Frames by file and function, with the time spent in no deeper frame."""
        labels = [words.frame(name) for name in self.trace.names] if len(self.rows) else []
        names = tuple(dict.fromkeys(labels))
        index = {name: i for i, name in enumerate(names)}
        of_name = np.array([index[label] for label in labels], np.int64)
        user = np.zeros(len(names), np.bool_)
        for name_id, key in enumerate(of_name):
            user[key] |= is_user(self.trace.names[name_id])
        key = of_name[self.trace.name[self.rows]] if len(labels) else np.empty(0, np.int64)
        owner = around(self.trace, self.rows)
        return Listing(self.trace, "frame", self.rows, key, names, owner, user)

    @cached_property
    def user_rows(self) -> Int64:
        """Frames of the user's own files."""
        names = np.array([is_user(name) for name in self.trace.names], np.bool_)
        return self.rows[names[self.trace.name[self.rows]]] if len(names) else self.rows

    @cached_property
    def user(self) -> Listing:
        """User frames by name, with the time spent in no deeper user frame."""
        owner = around(self.trace, self.user_rows)
        key = self.trace.name[self.user_rows].astype(np.int64)
        return Listing(self.trace, "frame", self.user_rows, key, self.trace.names, owner)

    def at(self, times: Int64) -> Int64:
        """Position in ``user_rows`` of the deepest user frame at each time, or -1."""
        listing = self.user
        found = np.searchsorted(listing.start, times, side="right") - 1
        owner = listing.owner if listing.owner is not None else np.empty(0, np.int64)
        for _ in range(1_000):  # climbs one frame a round; deeper stacks are cut off
            over = (found >= 0) & (listing.end[found] <= times)
            if not over.any():
                break
            found = np.where(over, owner[found], found)
        return found

    def where(self, region: Region) -> tuple[SourceLine, ...]:
        """The user's lines with the most of the region's faulty time, the heaviest first."""
        if not len(self.user_rows):
            return ()
        weight = self._kernel_weight(region) if region.side == "gpu" else self._host_weight(region)
        if weight.sum() <= 0:
            weight = self.user.weigh(
                Intervals.span(region.start, region.end), region.start, region.end
            )
        by_name = np.bincount(self.user.key, weight, len(self.trace.names))
        order = np.argsort(-by_name, kind="stable")[:MOST_LINES]
        kept = [i for i in order if by_name[i] > LEAST_PART * by_name[order[0]]]
        return tuple(source_line(self.trace.names[i]) for i in kept)

    def _host_weight(self, region: Region) -> Floats:
        """Per user frame: the time in it that the device idles or the host waits."""
        a, start, end = self.a, region.start, region.end
        faulty = a.sync | a.alloc | a.loader | a.idle(start, end)
        return self.user.weigh(faulty, start, end)

    def _kernel_weight(self, region: Region) -> Floats:
        """Per user frame: the device time of what was launched from it."""
        work = self.a.device_work
        first, last = np.searchsorted(self.trace.start[work], (region.start, region.end))
        work = work[first:last]
        work = work[self.trace.launch[work] >= 0]
        frame = self.at(self.trace.start[self.trace.launch[work]])
        known = frame >= 0
        weight = np.bincount(frame[known], self.trace.dur[work][known], len(self.user_rows))
        return np.asarray(weight, np.float64)


def is_user(name: str) -> bool:
    """Whether a frame is of the profiled program itself rather than of a library."""
    match = vocabulary.PYTHON_FRAME.match(name)
    return match is not None and vocabulary.LIBRARY_FRAME.search(name) is None


def source_line(name: str) -> SourceLine:
    """A frame's name as a place; the folder stays out of it."""
    match = vocabulary.PYTHON_FRAME.match(name)
    if match is None:
        return SourceLine(words.plain(name), 0, "")
    file, function = words.file_name(match["file"]), match["function"]
    return SourceLine(
        words.bounded(file), min(int(match["line"][:10]), 2**31 - 1), words.bounded(function)
    )
