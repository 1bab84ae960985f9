"""Edits -> the base as it would have run with them: every event's new time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from dataset import replay
from dataset.inject.axis import Axis, axes
from dataset.inject.base import Base
from dataset.inject.document import write
from dataset.inject.edits import Alter, Call, Edit, Insert, Remove, Replace, Unfit, Work
from dataset.inject.outcome import Fresh, Outcome, Placed
from dataset.labels import Side
from detector.intervals import Intervals
from detector.replay import Stuck
from detector.trace import HOST_CATS, Cat, Int64

Spans = Mapping[int, Sequence[tuple[int, int]]]  # by edit, ns


@dataclass(frozen=True)
class Replayed:
    """A replay's outcome, and where the faulty edits' host calls and device works lie in it."""

    base: Base
    outcome: Outcome
    host: Spans
    device: Spans

    @cached_property
    def _axes(self) -> list[Axis]:
        t, o = self.base.trace, self.outcome
        return axes(t.track, len(t.tracks), o.keep, (t.start, t.end), (o.start, o.end))

    def moved(self, spans: Intervals, side: Side) -> Intervals:
        """Spans of the base on the new axis: along the training thread, or the compute stream."""
        stream = self.base.stream if side == "gpu" else -1
        axis = self._axes[stream if stream >= 0 else self.base.main]
        return Intervals.union(axis.at(spans.start), axis.at(spans.end))

    @cached_property
    def steps(self) -> Int64:
        """Where the analyzed steps begin, and the end of the last, on the new axis."""
        spans = self.base.spans
        edges = np.array([*(span.start for span in spans), spans[-1].end], np.int64)
        return self._axes[self.base.main].at(edges)

    @property
    def added(self) -> int:
        """How much later the training thread and the device are done, ns."""
        t, o = self.base.trace, self.outcome
        program = np.isin(t.cat, HOST_CATS) & (t.track == self.base.main) | t.is_device_work
        ends = [int(o.end[program & o.keep].max()), *(p.event.end for p in o.fresh)]
        return max(ends) - int(t.end[program].max())


def apply(base: Base, edits: Sequence[Edit]) -> tuple[dict[str, Any], Replayed]:
    """The new document, and the replay that it shows."""
    result = replayed(base, edits)
    return write(base, result.outcome), result


def replayed(base: Base, edits: Sequence[Edit]) -> Replayed:
    """When everything happens with these edits. Raises Unfit where they contradict one another or
    the base."""
    try:
        times = _graph(base).replay([_words(edit) for edit in edits])
    except (Stuck, ValueError) as error:
        raise Unfit(f"{base.name}: {error}") from error
    start, end = _untimed(base, times)
    fresh, by_edit = _fresh(base, edits, times)
    host: dict[int, list[tuple[int, int]]] = {}
    device: dict[int, list[tuple[int, int]]] = {}
    for k, edit in enumerate(edits):
        if isinstance(edit, Remove) or not edit.faulty:
            continue
        if isinstance(edit, Alter):
            on_device = base.trace.tracks[base.trace.track[edit.row]].is_device
            (device if on_device else host)[k] = [(int(start[edit.row]), int(end[edit.row]))]
            continue
        events = [fresh[i].event for i in by_edit[k]]
        calls = [e for e in events if e.cat not in _ON_DEVICE]
        if calls:
            host[k] = [(min(e.start for e in calls), max(e.end for e in calls))]
        elif k in times.idle:
            host[k] = [times.idle[k]]
        device[k] = [(e.start, e.end) for e in events if e.cat in _ON_DEVICE]
    altered = {edit.row: edit for edit in edits if isinstance(edit, Alter)}
    outcome = Outcome(start, end, times.keep, tuple(fresh), altered)
    return Replayed(base, outcome, host, device)


_STOP_NS: Final = 1_000  # frames that are open as the profiler stops end within
_ON_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset")


@lru_cache(maxsize=2)
def _graph(base: Base) -> replay.EditableGraph:
    """The base's program; of few bases at a time, as they are large."""
    return replay.EditableGraph(base.trace)


def _words(edit: Edit) -> replay.Edit:
    """The same edit without what a replay has no use for."""
    if isinstance(edit, Insert):
        return replay.Insert(edit.track, edit.at, tuple(map(_task, edit.calls)), edit.gap)
    if isinstance(edit, Replace):
        return replay.Replace(edit.row, tuple(map(_task, edit.calls)))
    if isinstance(edit, Remove):
        return replay.Remove(edit.row)
    return replay.Alter(edit.row, edit.dur, edit.wait)


def _task(call: Call) -> replay.Task:
    w = call.work
    issue = None if w is None else replay.Issue(w.dur, w.track, w.after, w.holds)
    return replay.Task(call.own, tuple(map(_task, call.inside)), issue, call.wait)


def _untimed(base: Base, times: replay.EditedTimes) -> tuple[Int64, Int64]:
    """Rows that are neither program nor device work, such as annotations on the device, move along
    their thread's or stream's time; along the training thread's where that has none."""
    t = base.trace
    start, end = times.start.copy(), times.end.copy()
    through = times.keep & times.timed
    along = axes(t.track, len(t.tracks), through, (t.start, t.end), (start, end))
    rows = np.flatnonzero(times.keep & ~times.timed)
    for number in np.unique(t.track[rows]).tolist():
        mine = rows[t.track[rows] == number]
        axis = along[number] if len(along[number]) else along[base.main]
        start[mine] = axis.at(t.start[mine])
        end[mine] = np.maximum(axis.at(t.end[mine]), start[mine])
    _close(base, start, end)
    return start, end


def _close(base: Base, start: Int64, end: Int64) -> None:
    """Frames of waiting threads that the profiler closed as it stopped are closed as late as the
    training thread's."""
    t = base.trace
    mine = base.host_rows(base.main)
    last = int(t.end[mine].max())
    frames = t.rows(Cat.PYTHON_FUNCTION, Cat.USER_ANNOTATION)
    frames = frames[(t.track[frames] != base.main) & (t.end[frames] >= last - _STOP_NS)]
    later = t.end[frames] - last + int(end[mine].max())
    end[frames] = np.maximum(end[frames], np.maximum(later, start[frames]))


def _fresh(
    base: Base, edits: Sequence[Edit], times: replay.EditedTimes
) -> tuple[list[Placed], list[list[int]]]:
    """The fresh events, each parent before its children, and which of them each edit made."""
    placed: list[Placed] = []
    by_edit: list[list[int]] = []
    task = 0
    for edit in edits:
        first = len(placed)
        if isinstance(edit, (Insert, Replace)):
            track, holder = _where(base, edit)
            for call, inside in _in_order(edit.calls, len(placed)):
                placed += _events(call, task, track, inside, holder, times, len(placed))
                task += 1
        by_edit.append(list(range(first, len(placed))))
    return _sorted(placed, by_edit)


def _sorted(placed: list[Placed], by_edit: list[list[int]]) -> tuple[list[Placed], list[list[int]]]:
    """The same in the order of time; parents stay before their children."""
    order = sorted(range(len(placed)), key=lambda i: (placed[i].event.start, i))
    now = {old: new for new, old in enumerate(order)}
    moved = [
        replace(placed[i], inside=now.get(placed[i].inside, -1), call=now.get(placed[i].call, -1))
        for i in order
    ]
    return moved, [[now[i] for i in indices] for indices in by_edit]


def _where(base: Base, edit: Insert | Replace) -> tuple[int, int]:
    """The track, and the innermost row around the place; -1."""
    t = base.trace
    if isinstance(edit, Replace):
        return int(t.track[edit.row]), int(t.parent[edit.row])
    rows = base.host_rows(edit.track)
    at = int(np.searchsorted(t.start[rows], edit.at)) - 1
    holder = int(rows[at]) if at >= 0 else -1
    while holder >= 0 and t.end[holder] <= edit.at:
        holder = int(t.parent[holder])
    return edit.track, holder


def _in_order(calls: Sequence[Call], first: int, inside: int = -1) -> Iterator[tuple[Call, int]]:
    """Each call before those inside it, with the index of the event around it."""
    for call in calls:
        yield call, inside
        count = _size(call)
        yield from _in_order(call.inside, first + 1 + (call.work is not None), first)
        first += count


def _size(call: Call) -> int:
    """How many events a call makes."""
    return 1 + (call.work is not None) + sum(map(_size, call.inside))


def _events(
    call: Call,
    task: int,
    track: int,
    inside: int,
    holder: int,
    times: replay.EditedTimes,
    index: int,
) -> list[Placed]:
    start, end = int(times.task_start[task]), int(times.task_end[task])
    if call.work is None:
        return [Placed(Fresh(call.cat, call.name, track, start, end, call.args), inside, holder)]
    work = _work(call.work, int(times.issue_start[task]), int(times.issue_end[task]))
    event = Fresh(call.cat, call.name, track, start, end, call.args, work)
    return [Placed(event, inside, holder), Placed(work, call=index)]


def _work(work: Work, start: int, end: int) -> Fresh:
    return Fresh(work.cat, work.name, work.track, start, end, work.args)
