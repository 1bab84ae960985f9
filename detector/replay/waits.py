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
# A call, the last works that it waited for, and the streams on which it waits for all there is.
Waiting = tuple[int, Int64, set[int]]

_CLOCKS_NS: Final = 1_000  # the host's and the device's clocks agree no better
_OWN_NS: Final = 5_000  # what a call takes that need not wait
_LONG_NS: Final = 50_000  # a launch that takes longer found its queue full
_QUEUED: Final = 256  # works ahead of it then
_NEAR_NS: Final = 30_000  # a driver's implicit wait ends so soon after the work
_STAGED_NS: Final = 10_000  # a copy from pageable memory ends so soon after its call


def found(graph: Graph) -> Iterator[tuple[int, int, Deps, set[int]]]:
    """(end node of a call, its own time, what it waits for, streams on which it also waits for
    whatever else was issued before it) of every call that waits."""
    seen: set[int] = set()
    for kind in (_synchronised, _copied, _queued, _implied):
        for row, works, tracks in kind(graph):
            if row not in seen:
                seen.add(row)
                yield *_as_wait(graph, row, works), tracks


def delays(graph: Graph) -> Int64:
    """ns from the end of awaited work to the return, of explicit waits that were waits."""
    t = graph.trace
    return np.array(
        [
            t.end[row] - t.end[works].max()
            for row, works, _ in _synchronised(graph)
            if len(works) and t.dur[row] > _OWN_NS and t.end[works].max() > t.start[row]
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
    last = int(t.end[works].max(initial=t.start[row]))
    # A call so short need not have waited, even where the work ended in it.
    waited = last > t.start[row] and gap > _OWN_NS
    usual = graph.typical.delay
    deps = []
    for work in works.tolist():
        delay = int(t.end[row] - t.end[work])
        binds = waited and t.end[work] == last
        deps.append((2 * work, usual if graph.uniform else delay if binds else min(delay, usual)))
    return node, min(gap, _OWN_NS) if waited else gap, tuple(deps)


def _synchronised(graph: Graph) -> Iterator[Waiting]:
    """Explicit waits, each with the last works that it waited for."""
    from detector.replay.graph import calls

    t = graph.trace
    issuing = set(t.launch[graph.is_work].tolist())
    everything = [bool(vocabulary.DEVICE_SYNC.search(name)) for name in t.names]
    for row in calls(t, "sync").tolist():
        if row in issuing:
            continue
        start = int(t.start[row])
        works = _ended(graph, start, int(t.end[row]))
        unused = {k for k in graph.streams if graph.issued_before(k, start) < 0}
        if not everything[t.name[row]]:
            works = _one(graph, row, works)
            unused &= set() if len(works) else {graph.busiest}
        if len(works) or unused:
            yield row, works, unused | set(t.track[works].tolist())


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
    if not len(works):
        return works
    ends = t.end[works]
    if ends.max() > t.start[row]:
        return works[[int(np.argmax(ends))]]
    return works[[int(np.argmax(graph.issued[works]))]]


def _copied(graph: Graph) -> Iterator[Waiting]:
    """Copies that returned when they were done."""
    from detector.replay.graph import calls

    t = graph.trace
    copies = np.zeros(len(t), np.bool_)
    copies[calls(t, "copy")] = True
    works = np.flatnonzero((t.cat == Cat.GPU_MEMCPY) & (t.launch >= 0))
    for work in works[copies[t.launch[works]]].tolist():
        row = int(t.launch[work])
        late = int(t.end[work] - t.end[row])
        if late <= _patience(t.names[t.name[row]], t.names[t.name[work]]) and (
            late <= _CLOCKS_NS or t.start[work] < t.end[row]
        ):
            yield row, np.array([work]), set()


def _patience(call: str, copy: str) -> int:
    """By how much, ns, a copy may outlive a call that waited for it; negative where none waits."""
    if not call.endswith("Async"):
        return _CLOCKS_NS
    if not vocabulary.PAGEABLE.search(copy):
        return -(1 << 62)
    # From pageable memory the call stays until the last part has left for the device.
    return _STAGED_NS if vocabulary.COPY_DIRECTIONS["h2d"].search(copy) else _CLOCKS_NS


def _queued(graph: Graph) -> Iterator[Waiting]:
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
                yield call, rows[[before]], set()


def _implied(graph: Graph) -> Iterator[Waiting]:
    """Allocations that ended just after the work that was under way (``cudaFree`` waits)."""
    from detector.replay.graph import calls

    t = graph.trace
    for row in calls(t, "alloc").tolist():
        if t.dur[row] < _OWN_NS:
            continue
        works = _ended(graph, int(t.start[row]), int(t.end[row]))
        near = len(works) and t.end[works].max() > max(t.start[row], t.end[row] - _NEAR_NS)
        if near:
            yield row, works, set(t.track[works].tolist())
