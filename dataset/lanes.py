"""What lies in which lane of a timeline strip: threads by level, the device by stream.

Lanes hold spans in ns and no pixels; ``dataset.pictures`` paints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.activity import Activity
from detector.trace import Cat, Int64

WIDE: Final = 0.035  # share of the strip from which on an event has room for its name
FRAME_LEVELS: Final = 6
OTHER_THREADS: Final = 2
STREAMS: Final = 6


@dataclass(frozen=True)
class Layer:
    """Events of one kind in a lane; a later layer of the lane lies over an earlier one."""

    kind: str
    start: Int64  # ns
    end: Int64


@dataclass(frozen=True)
class Word:
    """The name of an event that is long enough to carry it."""

    start: int  # ns
    end: int
    text: str
    kind: str


@dataclass(frozen=True)
class Lane:
    """One row of the strip, with the names of its long events."""

    title: str
    is_device: bool
    layers: tuple[Layer, ...]
    height: float = 1.0
    words: tuple[Word, ...] = ()


def lanes(a: Activity, start: int, end: int) -> list[Lane]:
    """The lanes of [start, end) ns, top to bottom; one without events has no layers."""
    inside = np.flatnonzero((a.trace.end > start) & (a.trace.start < end))
    view = _View(a, inside, start, end)
    return [*view.main_thread(), *view.other_threads(), *view.streams()]


class _View:
    """The rows of one span, by lane."""

    def __init__(self, a: Activity, rows: Int64, start: int, end: int) -> None:
        self.a, self.trace, self.rows = a, a.trace, rows
        self.start, self.end = start, end
        self.sync = np.zeros(len(a.trace), np.bool_)
        self.sync[a.sync_rows] = True
        self.main = _main_thread(a)

    def main_thread(self) -> list[Lane]:
        mine = self.rows[self.trace.track[self.rows] == self.main]
        loader = np.intersect1d(self.a.loader_rows, self.rows)
        steps = {step.name for step in self.trace.steps}
        marks = np.setdiff1d(self._of(mine, Cat.USER_ANNOTATION), loader)
        marks = marks[[self.trace.names[i] not in steps for i in self.trace.name[marks]]]
        return [
            self.lane("loader wait", [("loader", loader)]),
            self.lane("annotations", [("annotation", self._top(marks, Cat.USER_ANNOTATION))]),
            *self.frames(mine),
            *self.thread(mine, "main: "),
        ]

    def other_threads(self) -> list[Lane]:
        busy = self.rows[np.isin(self.trace.cat[self.rows], (Cat.CPU_OP, Cat.RUNTIME))]
        tracks, count = np.unique(self.trace.track[busy], return_counts=True)
        others = [t for t in tracks[np.argsort(-count)] if t != self.main]
        found = []
        for number, track in enumerate(others[:OTHER_THREADS], 2):
            mine = self.rows[self.trace.track[self.rows] == track]
            found += self.thread(mine, f"thread {number}: ")
        return found

    def thread(self, rows: Int64, title: str) -> list[Lane]:
        """Top ops, the ops inside them, and calls of the runtime: one host thread."""
        ops = self._of(rows, Cat.CPU_OP)
        ops = np.setdiff1d(ops, self.a.loader_rows)
        inner = self._depth(ops, Cat.CPU_OP)
        calls = self._of(rows, Cat.RUNTIME, Cat.DRIVER)
        copy = np.intersect1d(calls, self.a.calls("copy"))
        alloc = np.intersect1d(calls, self.a.calls("alloc"))
        sync = calls[self.sync[calls]]
        rest = np.setdiff1d(calls, np.concatenate([copy, alloc, sync]))
        kinds = [("launch", rest), ("copy call", np.setdiff1d(copy, sync))]
        kinds += [("alloc", np.setdiff1d(alloc, sync)), ("sync", sync)]
        return [
            self.lane(title + "ops", [("op", ops[inner == 0])]),
            self.lane(title + "inner ops", [("inner op", ops[inner == 1])], 0.8),
            self.lane(title + "runtime", kinds),
        ]

    def frames(self, rows: Int64) -> list[Lane]:
        """A few levels of Python frames, from the first that wraps no more than half the span."""
        rows = self._of(rows, Cat.PYTHON_FUNCTION)
        depth = self._depth(rows, Cat.PYTHON_FUNCTION)
        wraps = self._shown(rows) > (self.end - self.start) / 2
        first = int(depth[wraps].max(initial=-1)) + 1
        levels = np.unique(depth[depth >= first])[:FRAME_LEVELS]
        found = []
        for i, level in enumerate(levels):
            title = "python frames" if i == 0 else ""
            found.append(self.lane(title, [("python", rows[depth == level])], 0.55))
        return found

    def streams(self) -> list[Lane]:
        work = np.intersect1d(self.a.device_work, self.rows)
        streams, which = np.unique(self.trace.stream[work], return_inverse=True)
        weight = np.bincount(which, self.trace.dur[work]) if len(work) else np.empty(0)
        found = []
        for i in sorted(np.argsort(-weight)[:STREAMS]):
            mine = work[which == i]
            cat, comm = self.trace.cat[mine], np.isin(mine, self.a.comm_rows)
            kinds = [("compute", mine[(cat == Cat.KERNEL) & ~comm])]
            kinds += [("memset", mine[cat == Cat.GPU_MEMSET])]
            kinds += [("copy", mine[cat == Cat.GPU_MEMCPY]), ("collective", mine[comm])]
            found.append(self.lane(f"stream {streams[i]}", kinds, 1.3, is_device=True))
        return found

    def lane(
        self,
        title: str,
        kinds: Sequence[tuple[str, Int64]],
        height: float = 1.0,
        is_device: bool = False,
    ) -> Lane:
        """The lane of these rows, later kinds over earlier ones."""
        t = self.trace
        layers = tuple(Layer(k, t.start[r], t.end[r]) for k, r in kinds if len(r))
        words = []
        for kind, rows in kinds:
            wide = rows[self._shown(rows) > WIDE * (self.end - self.start)]
            words += [
                Word(int(t.start[r]), int(t.end[r]), short(t.names[t.name[r]]), kind) for r in wide
            ]
        return Lane(title, is_device, layers, height, tuple(words))

    def _shown(self, rows: Int64) -> Int64:
        """How much of each row's time lies in the span, ns."""
        shown: Int64 = np.minimum(self.trace.end[rows], self.end) - np.maximum(
            self.trace.start[rows], self.start
        )
        return shown

    def _of(self, rows: Int64, *cats: Cat) -> Int64:
        return rows[np.isin(self.trace.cat[rows], cats)]

    def _depth(self, rows: Int64, cat: Cat) -> Int64:
        """How many events of the category lie around each row."""
        depth, above = np.zeros(len(rows), np.int64), self.trace.parent[rows].astype(np.int64)
        while (above >= 0).any():
            depth += (above >= 0) & (self.trace.cat[above] == cat)
            above = np.where(above >= 0, self.trace.parent[above], -1)
        return depth

    def _top(self, rows: Int64, cat: Cat) -> Int64:
        """Rows with at most one event of the category around them (a step counts as one)."""
        return rows[self._depth(rows, cat) <= 1]


def _main_thread(a: Activity) -> int:
    """The thread with the steps' marks, else the one that feeds the device."""
    steps = {step.name for step in a.trace.steps}
    marks = a.of(Cat.USER_ANNOTATION)
    marked = [int(row) for row in marks if a.trace.names[a.trace.name[row]] in steps]
    return int(a.trace.track[marked[0]]) if marked else a.main_track


def short(name: str) -> str:
    """What is worth reading of an event's name: no namespaces, no template arguments."""
    name = name.removeprefix("autograd::engine::evaluate_function: ")
    name = name.removeprefix("enumerate(DataLoader)#_")
    if "(" in name and ".py(" in name:  # a Python frame: file(line): function
        return name.rpartition(": ")[2]
    kernel = name.removeprefix("void ").partition("<")[0].partition("(")[0]
    return (kernel or name).rpartition("::")[2] or name
