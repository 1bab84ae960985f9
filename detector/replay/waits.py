"""Who waits for which device work: read off the calls' names and the recorded times.

Which stream a call waits for a trace seldom says. A wait is believed where the recorded times agree
with it: the call cannot have returned before what it waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from detector import vocabulary
from detector.trace import Cat, Int64

if TYPE_CHECKING:
    from detector.replay.graph import Graph

Deps = tuple[tuple[int, int], ...]

_CLOCKS_NS: Final = 1_000  # the host's and the device's clocks agree no better
_OWN_NS: Final = 5_000  # what a call takes that need not wait
_LONG_NS: Final = 50_000  # a launch that takes longer found its queue full
_QUEUED: Final = 256  # works ahead of it then
_NEAR_NS: Final = 30_000  # a driver's implicit wait ends so soon after the work


def found(graph: Graph) -> Iterator[tuple[int, int, Deps, bool]]:
    """(end node of a call, its own time, what it waits for, whether also for whatever else is
    issued on those streams before it) of every call that waits."""
    seen: set[int] = set()
    for kind in (_synchronised, _copied, _queued, _implied):
        for row, works in kind(graph):
            if row not in seen:
                seen.add(row)
                yield *_as_wait(graph, row, works), kind in (_synchronised, _implied)


def delays(graph: Graph) -> Int64:
    """ns from the end of awaited work to the return, of explicit waits that were waits."""
    t = graph.trace
    return np.array(
        [
            t.end[row] - t.end[works].max()
            for row, works in _synchronised(graph)
            if len(works) and t.end[works].max() > t.start[row]
        ],
        np.int64,
    )


def between_streams(graph: Graph) -> Iterator[tuple[int, tuple[int, int]]]:
    """(work's node, dependency) where a stream was told to wait for the events of others."""
    t = graph.trace
    calls = t.rows(Cat.RUNTIME, Cat.DRIVER)
    named = [i for i in np.unique(t.name[calls]).tolist() if "StreamWaitEvent" in t.names[i]]
    works = np.flatnonzero(graph.is_work & (t.launch >= 0))
    works = works[np.argsort(t.start[t.launch[works]], kind="stable")]
    launches = t.launch[works]
    seen: set[int] = set()
    for call in calls[np.isin(t.name[calls], named)].tolist():
        later = int(np.searchsorted(t.start[launches], t.start[call]))
        after = launches[later : later + 64]
        mine = np.flatnonzero(t.track[after] == t.track[call])
        if not len(mine) or int(works[later + mine[0]]) in seen:
            continue
        work = int(works[later + mine[0]])
        seen.add(work)
        for other, rows in graph.streams.items():
            i = graph.issued_before(other, int(t.start[call]))
            if other == t.track[work] or i < 0 or t.device[rows[i]] != t.device[work]:
                continue
            room = int(t.start[work] - t.end[rows[i]])
            if room >= 0:
                yield 2 * work, (2 * int(rows[i]), min(room, graph.typical.gap))


def _as_wait(graph: Graph, row: int, works: Int64) -> tuple[int, int, Deps]:
    t, node = graph.trace, 2 * row + 1
    gap = int(graph.gap[node])
    waited = bool((t.end[works] > t.start[row]).any())
    own = min(gap, _OWN_NS) if waited else gap
    usual = graph.typical.delay
    deps = []
    for work in works.tolist():
        delay = int(t.end[row] - t.end[work])
        binds = waited and t.end[work] == t.end[works].max()
        deps.append((2 * work, usual if graph.uniform else delay if binds else min(delay, usual)))
    return node, own, tuple(deps)


def _synchronised(graph: Graph) -> Iterator[tuple[int, Int64]]:
    """Explicit waits, each with the last works that it waited for."""
    from detector.replay.graph import calls

    t = graph.trace
    issuing = set(t.launch[graph.is_work].tolist())
    everything = [bool(vocabulary.DEVICE_SYNC.search(name)) for name in t.names]
    for row in calls(t, "sync").tolist():
        if row in issuing:
            continue
        works = _ended(graph, int(t.start[row]), int(t.end[row]))
        if len(works) and not everything[t.name[row]]:
            works = _one(graph, row, works)
        if len(works):
            yield row, works


def _ended(graph: Graph, since: int, until: int) -> Int64:
    """The last work of each stream issued before ``since``, if it ended by ``until``."""
    t = graph.trace
    last = [
        int(rows[i])
        for track, rows in graph.streams.items()
        if (i := graph.issued_before(track, since)) >= 0
    ]
    return np.array([row for row in last if t.end[row] <= until + _CLOCKS_NS], np.int64)


def _one(graph: Graph, row: int, works: Int64) -> Int64:
    """Of the candidates of a stream's or an event's wait: what ended last in it, else what was
    issued last."""
    t = graph.trace
    ends = t.end[works]
    if ends.max() > t.start[row]:
        return works[[int(np.argmax(ends))]]
    return works[[int(np.argmax(graph.issued[works]))]]


def _copied(graph: Graph) -> Iterator[tuple[int, Int64]]:
    """Copies that returned when they were done."""
    from detector.replay.graph import calls

    t = graph.trace
    copies = np.zeros(len(t), np.bool_)
    copies[calls(t, "copy")] = True
    works = np.flatnonzero((t.cat == Cat.GPU_MEMCPY) & (t.launch >= 0))
    for work in works[copies[t.launch[works]]].tolist():
        row = int(t.launch[work])
        free = "Pinned" in t.names[t.name[work]] and t.end[row] < t.end[work] + _OWN_NS
        if t.end[work] <= t.end[row] + _CLOCKS_NS and not free:
            yield row, np.array([work])


def _queued(graph: Graph) -> Iterator[tuple[int, Int64]]:
    """Launches that found the queue full: they went on when earlier work had ended."""
    t = graph.trace
    for rows in graph.streams.values():
        ends = np.maximum.accumulate(t.end[rows])
        known = np.flatnonzero(t.launch[rows] >= 0)
        for i in known[t.dur[t.launch[rows[known]]] > _LONG_NS].tolist():
            call = int(t.launch[rows[i]])
            if t.cat[rows[i]] == Cat.GPU_MEMCPY:
                continue
            before = int(np.searchsorted(ends, t.end[call], "right")) - 1
            if before >= 0 and i - before >= _QUEUED and ends[before] > t.start[call]:
                yield call, rows[[before]]


def _implied(graph: Graph) -> Iterator[tuple[int, Int64]]:
    """Allocations that ended just after the work that was under way (``cudaFree`` waits)."""
    from detector.replay.graph import calls

    t = graph.trace
    for row in calls(t, "alloc").tolist():
        if t.dur[row] < _OWN_NS:
            continue
        works = _ended(graph, int(t.start[row]), int(t.end[row]))
        near = len(works) and t.end[works].max() > max(t.start[row], t.end[row] - _NEAR_NS)
        if near:
            yield row, works
