"""Python frames: what the interpreter did in a region, and which lines of the user's code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import Activity
from detector.evidence import words
from detector.evidence.listing import Floats, Listing, around, each_once
from detector.intervals import Intervals
from detector.region import Region
from detector.report import SourceLine
from detector.trace import Cat, Int64

MOST_LINES: Final = 3
LEAST_PART: Final = 0.1  # of the heaviest line's weight: what is lighter is no lead
DEEPEST: Final = 4  # modules of a path
MODULE_CHARS: Final = 60


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
        names, of_name = each_once(labels)
        user = np.zeros(len(names), np.bool_)
        for name_id, key in enumerate(of_name):
            user[key] |= is_user(self.trace.names[name_id])
        key = of_name[self.trace.name[self.rows]] if len(labels) else np.empty(0, np.int64)
        owner = around(self.trace, self.rows)
        return Listing(self.trace, "frame", self.rows, key, names, owner, user)

    def _of_names(self, wanted: Callable[[str], bool]) -> Holders:
        names = np.array([wanted(name) for name in self.trace.names], np.bool_)
        return Holders(self.a, self.rows[names[self.trace.name[self.rows]]])

    @cached_property
    def user(self) -> Holders:
        """Frames of the user's own files."""
        return self._of_names(is_user)

    @cached_property
    def modules(self) -> Holders:
        """Frames of ``nn.Module`` instances."""
        return self._of_names(lambda name: vocabulary.MODULE_FRAME.match(name) is not None)

    def where(self, region: Region) -> tuple[SourceLine, ...]:
        """The user's lines with the most of the region's faulty time, the heaviest first."""
        by_name = self.user.by_name(region)
        order = np.argsort(-by_name, kind="stable")[:MOST_LINES]
        kept = [i for i in order if by_name[i] > LEAST_PART * by_name[order[0]]]
        return tuple(source_line(self.trace.names[i]) for i in kept)

    def module_path(self, region: Region) -> tuple[str, ...]:
        """The kind of module with the most of the region's faulty time, and those around it, the
        outermost first; the innermost ``DEEPEST`` of them. Layers of one kind go by its name.
        Empty where modules hold less than half of what the user's lines hold."""
        by_name = self.modules.by_name(region)
        if not by_name.any() or by_name.sum() < 0.5 * self.user.by_name(region).sum():
            return ()
        known = np.flatnonzero(by_name)
        kinds = [self._module[i] for i in known.tolist()]
        which = np.unique(kinds, return_inverse=True)[1]
        ours = known[which == np.argmax(np.bincount(which, by_name[known]))]
        rows = self.modules.rows
        rows = rows[self.trace.name[rows] == ours[np.argmax(by_name[ours])]]
        at = int(rows[np.argmax(self.trace.dur[rows])])
        path: list[str] = []
        while at >= 0 and len(path) < DEEPEST:
            if module := self._module.get(int(self.trace.name[at])):
                path.append(module)
            at = int(self.trace.parent[at])
        return tuple(reversed(path))

    @cached_property
    def _module(self) -> dict[int, str]:
        """What to call a module, by its name's id; without its number where there are several."""
        ids = np.unique(self.trace.name[self.modules.rows]).tolist()
        found = {i: vocabulary.MODULE_FRAME.match(self.trace.names[i]) for i in ids}
        names = {i: words.bounded(match[1], MODULE_CHARS) for i, match in found.items() if match}
        kinds = Counter(map(_kind, names.values()))
        return {i: _kind(name) if kinds[_kind(name)] > 1 else name for i, name in names.items()}


class Holders:
    """Frames that hold a region's time: of the thread that runs the program, in time order."""

    def __init__(self, activity: Activity, rows: Int64) -> None:
        self.a, self.trace, self.rows = activity, activity.trace, rows

    @cached_property
    def listing(self) -> Listing:
        """The frames by name, with the time spent in no deeper one of them."""
        owner = around(self.trace, self.rows)
        key = self.trace.name[self.rows].astype(np.int64)
        return Listing(self.trace, "frame", self.rows, key, self.trace.names, owner)

    def by_name(self, region: Region) -> Floats:
        """For each name of the trace the region's faulty time in its frames; all of the region's
        time where none is faulty."""
        if not len(self.rows):
            return np.zeros(len(self.trace.names))
        weight = self._kernel_weight(region) if region.side == "gpu" else self._host_weight(region)
        if weight.sum() <= 0:
            whole = Intervals.span(region.start, region.end)
            weight = self.listing.weigh(whole, region.start, region.end)
        found = np.bincount(self.listing.key, weight, len(self.trace.names))
        return np.asarray(found, np.float64)

    def _host_weight(self, region: Region) -> Floats:
        """Per frame: the time in it that the device idles or the host waits."""
        a, start, end = self.a, region.start, region.end
        faulty = a.sync | a.alloc | a.loader | a.idle(start, end)
        return self.listing.weigh(faulty, start, end)

    def _kernel_weight(self, region: Region) -> Floats:
        """Per frame: the device time of what was launched from it."""
        work = self.a.device_work
        first, last = np.searchsorted(self.trace.start[work], (region.start, region.end))
        work = work[first:last]
        work = work[self.trace.launch[work] >= 0]
        frame = self._at(self.trace.start[self.trace.launch[work]])
        known = frame >= 0
        weight = np.bincount(frame[known], self.trace.dur[work][known], len(self.rows))
        return np.asarray(weight, np.float64)

    def _at(self, times: Int64) -> Int64:
        """Position in ``rows`` of the deepest frame at each time, or -1."""
        listing = self.listing
        found = np.searchsorted(listing.start, times, side="right") - 1
        owner = listing.owner if listing.owner is not None else np.empty(0, np.int64)
        for _ in range(1_000):  # climbs one frame a round; deeper stacks are cut off
            over = (found >= 0) & (listing.end[found] <= times)
            if not over.any():
                break
            found = np.where(over, owner[found], found)
        return found


def _kind(module: str) -> str:
    """A module's class: the profiler numbers its instances."""
    return re.sub(r"_\d+$", "", module)


def is_user(name: str) -> bool:
    """Whether a frame is of the profiled program itself rather than of a library."""
    match = vocabulary.PYTHON_FRAME.match(name)
    if match is None:
        return False
    library = vocabulary.LIBRARY_FRAME.search(name) or vocabulary.INTERNAL_FRAME.search(name)
    return library is None


def source_line(name: str) -> SourceLine:
    """A frame's name as a place; the folder stays out of it."""
    match = vocabulary.PYTHON_FRAME.match(name)
    if match is None:
        return SourceLine(words.plain(name), 0, "")
    file, function = words.file_name(match["file"]), match["function"]
    return SourceLine(
        words.bounded(file), min(int(match["line"][:10]), 2**31 - 1), words.bounded(function)
    )
