"""Who waits for which device work: read off the calls' names and the recorded times.

Which stream a call waits for a trace seldom says. A wait is believed where the recorded times agree
with it: the call cannot have returned before what it waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from detector import vocabulary
from detector.index_sets import distinct, groups
from detector.replay.solve import Edge
from detector.trace import Bool, Cat, Int64, Trace

if TYPE_CHECKING:
    from detector.replay.graph import Graph

_CLOCKS_NS: Final = 1_000  # the host's and the device's clocks agree no better
OWN_NS: Final = 5_000  # what a call takes that need not wait
_LONG_NS: Final = 50_000  # a launch that takes longer found its queue full
_QUEUED: Final = 256  # works ahead of it then
_NEAR_NS: Final = 30_000  # a driver's implicit wait ends so soon after the work
_STAGED_NS: Final = 10_000  # a copy from pageable memory ends so soon after its call
_WITHIN: Final = 64  # launches after a stream was made to wait, the first on its thread is meant


@dataclass(frozen=True)
class Waits:
    """Calls that wait: for each of ``works`` the call ``which`` among ``rows``; and by call and
    stream (columns ``tracks``) whether it also waits for whatever else was issued before it."""

    rows: Int64
    which: Int64
    works: Int64
    tracks: Int64
    covers: Bool

    def only(self, keep: Bool) -> Waits:
        """The waits of these calls alone."""
        number = np.cumsum(keep) - 1
        mine = keep[self.which]
        which, works = number[self.which[mine]], self.works[mine]
        return Waits(self.rows[keep], which, works, self.tracks, self.covers[keep])


def find(graph: Graph) -> tuple[Waits, Edge]:
    """Every call that waits, and for what. Sets what such a call takes of its own."""
    kinds = [graph_waits(graph) for graph_waits in (synchronized, _copied, _queued, _implied)]
    rows = np.concatenate([kind.rows for kind in kinds])
    first = np.zeros(len(rows), np.bool_)
    first[np.unique(rows, return_index=True)[1]] = True
    ends = np.cumsum([len(kind.rows) for kind in kinds])
    parts = [k.only(m) for k, m in zip(kinds, np.split(first, ends[:-1]), strict=True)]
    waits = _joined(parts)
    return waits, _edge(graph, waits)


def _joined(parts: Sequence[Waits]) -> Waits:
    offsets = np.cumsum([0, *(len(part.rows) for part in parts)])
    return Waits(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([p.which + o for p, o in zip(parts, offsets[:-1], strict=True)]),
        np.concatenate([part.works for part in parts]),
        parts[0].tracks,
        np.concatenate([part.covers for part in parts]),
    )


def _edge(graph: Graph, waits: Waits) -> Edge:
    t, node = graph.trace, 2 * waits.rows + 1
    last = t.start[waits.rows].copy()
    np.maximum.at(last, waits.which, t.end[waits.works])
    gap = graph.gap[node]
    # A call so short need not have waited, even where the work ended in it.
    waited = (last > t.start[waits.rows]) & (gap > OWN_NS)
    graph.gap[node[waited]] = OWN_NS
    call, usual = waits.rows[waits.which], graph.typical.delay
    delay = t.end[call] - t.end[waits.works]
    binds = waited[waits.which] & (t.end[waits.works] == last[waits.which])
    if graph.uniform:
        delay[:] = usual
    return 2 * call + 1, 2 * waits.works, np.where(binds, delay, np.minimum(delay, usual))


def delays(graph: Graph) -> Int64:
    """ns from the end of awaited work to the return, of explicit waits that were waits."""
    t, waits = graph.trace, synchronized(graph)
    last = np.full(len(waits.rows), np.iinfo(np.int64).min)
    np.maximum.at(last, waits.which, t.end[waits.works])
    long = (t.dur[waits.rows] > OWN_NS) & (last > t.start[waits.rows])
    return np.asarray(t.end[waits.rows[long]] - last[long])


def between_streams(graph: Graph) -> list[Edge]:
    """Where a stream was made to wait for the events of others."""
    t = graph.trace
    asked = named(t, lambda name: "StreamWaitEvent" in name)
    if not len(asked):
        return []
    calls, works = _next_works(graph, asked)
    edges = []
    for other, rows in graph.streams.items():
        i = graph.issued_before(other, t.start[calls])
        last = rows[i]
        room = t.start[works] - t.end[last]
        fits = (i >= 0) & (t.track[works] != other) & (t.device[last] == t.device[works])
        fits &= room >= 0
        delay = np.minimum(room[fits], graph.typical.gap)
        edges.append((2 * works[fits], 2 * last[fits], delay))
    return edges


def _next_works(graph: Graph, calls: Int64) -> tuple[Int64, Int64]:
    """Calls that make a stream wait, each with the work that is issued next, each work once."""
    t = graph.trace
    works = np.flatnonzero(graph.is_work & (t.launch >= 0))
    works = works[np.argsort(t.start[t.launch[works]], kind="stable")]
    starts, threads = t.start[t.launch[works]], t.track[t.launch[works]]
    since = np.searchsorted(starts, t.start[calls])
    after = np.full(len(calls), len(works))
    for thread in np.unique(t.track[calls]):
        mine, here = np.flatnonzero(t.track[calls] == thread), np.flatnonzero(threads == thread)
        next_one = np.searchsorted(here, since[mine])
        after[mine] = np.append(here, len(works))[next_one]
    near = (after < len(works)) & (after - since < _WITHIN)
    calls, chosen = calls[near], works[after[near]]
    first = np.sort(np.unique(chosen, return_index=True)[1])
    return calls[first], chosen[first]


def synchronized(graph: Graph) -> Waits:
    """Explicit waits, each with the last works that it waited for."""
    t = graph.trace
    rows = named(t, vocabulary.CALLS["sync"].search)
    rows = rows[~np.isin(rows, t.launch[graph.is_work])]
    last, ended = _last_issued(graph, rows)
    everything = _waits_for_all(t, rows)[:, None]
    chosen = ended & (everything | _awaited(graph, rows, last, ended))
    none = ~chosen.any(axis=1, keepdims=True)
    unused = (last < 0) & (everything | (none & (_tracks(graph) == graph.busiest)))
    return _waits(graph, rows, last, chosen, unused | chosen)


def _waits_for_all(trace: Trace, rows: Int64) -> Bool:
    """Whether each call waits for all work of the device."""
    (used,), which = groups(trace.name[rows])
    names = [trace.names[i] for i in used.tolist()]
    return np.array([bool(vocabulary.DEVICE_SYNC.search(n)) for n in names], np.bool_)[which]


def _tracks(graph: Graph) -> Int64:
    return np.array(list(graph.streams), np.int64)


def _waits(graph: Graph, rows: Int64, last: Int64, chosen: Bool, covers: Bool) -> Waits:
    """The waits in matrices of calls by streams; calls that wait for nothing are left out."""
    any_one = covers.any(axis=1)
    chosen, last = chosen[any_one], last[any_one]
    which = np.nonzero(chosen)[0]
    return Waits(rows[any_one], which, last[chosen], _tracks(graph), covers[any_one])


def _last_issued(graph: Graph, rows: Int64) -> tuple[Int64, Bool]:
    """By call and stream the last work issued before the call (-1 without one), and whether it
    ended by the call's end."""
    t = graph.trace
    last = np.full((len(rows), len(graph.streams)), -1, np.int64)
    for k, (track, works) in enumerate(graph.streams.items()):
        i = graph.issued_before(track, t.start[rows])
        last[:, k] = np.where(i >= 0, works[i], -1)
    return last, (last >= 0) & (t.end[last] <= t.end[rows][:, None] + _CLOCKS_NS)


def _awaited(graph: Graph, rows: Int64, last: Int64, ended: Bool) -> Bool:
    """The work that a wait for a stream or an event is for: of those that had ended the one that
    ended last during the wait, else the one issued last."""
    t = graph.trace
    if not last.size:
        return ended
    low = np.iinfo(np.int64).min
    ends = np.where(ended, t.end[last], low)
    issued = np.where(ended, graph.issued[last], low)
    late = ends.max(axis=1) > t.start[rows]
    best = np.where(late, ends.argmax(axis=1), issued.argmax(axis=1))
    one = np.zeros_like(ended)
    one[np.arange(len(rows)), best] = True
    return one & ended


def _copied(graph: Graph) -> Waits:
    """Copies that returned when they were done."""
    t = graph.trace
    copies = np.zeros(len(t), np.bool_)
    copies[named(t, vocabulary.CALLS["copy"].search)] = True
    works = np.flatnonzero((t.cat == Cat.GPU_MEMCPY) & (t.launch >= 0))
    works = works[copies[t.launch[works]]]
    rows = t.launch[works].astype(np.int64)
    names, which = groups(t.name[rows], t.name[works])
    slack = [_slack_ns(t.names[a], t.names[b]) for a, b in zip(*names, strict=True)]
    late = t.end[works] - t.end[rows]
    done = late <= np.array(slack, np.int64)[which]
    done &= (late <= _CLOCKS_NS) | (t.start[works] < t.end[rows])
    return _single(graph, rows[done], works[done])


def _single(graph: Graph, rows: Int64, works: Int64) -> Waits:
    """Calls that wait for one work each, and for nothing else."""
    covers = np.zeros((len(rows), len(graph.streams)), np.bool_)
    return Waits(rows, np.arange(len(rows)), works, _tracks(graph), covers)


def _slack_ns(call: str, copy: str) -> int:
    """The ns by which a copy may end after a call that waited for it; negative where none waits."""
    if not call.endswith("Async"):
        return _CLOCKS_NS
    if not vocabulary.PAGEABLE.search(copy):
        return -(1 << 62)
    # From pageable memory the call stays until the last part has left for the device.
    return _STAGED_NS if vocabulary.COPY_DIRECTIONS["h2d"].search(copy) else _CLOCKS_NS


def _queued(graph: Graph) -> Waits:
    """Launches that found the queue full: they went on when earlier work had ended."""
    t = graph.trace
    found, works = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rows in graph.streams.values():
        ends = np.maximum.accumulate(t.end[rows])
        long = (t.launch[rows] >= 0) & (t.dur[t.launch[rows]] > _LONG_NS)
        i = np.flatnonzero(long & (t.cat[rows] != Cat.GPU_MEMCPY))
        call = t.launch[rows[i]].astype(np.int64)
        before = np.searchsorted(ends, t.end[call], "right") - 1
        full = (before >= 0) & (i - before >= _QUEUED)
        full &= ends[before] > t.start[call]
        found.append(call[full])
        works.append(rows[before[full]])
    return _single(graph, np.concatenate(found), np.concatenate(works))


def _implied(graph: Graph) -> Waits:
    """Allocations that ended just after the work that was under way (``cudaFree`` waits)."""
    t = graph.trace
    rows = named(t, vocabulary.CALLS["alloc"].search)
    rows = rows[t.dur[rows] >= OWN_NS]
    last, ended = _last_issued(graph, rows)
    ends = np.where(ended, t.end[last], np.iinfo(np.int64).min)
    latest = ends.max(axis=1, initial=np.iinfo(np.int64).min)
    near = latest > np.maximum(t.start[rows], t.end[rows] - _NEAR_NS)
    return _waits(graph, rows[near], last[near], ended[near], ended[near])


def named(trace: Trace, matches: Callable[[str], object]) -> Int64:
    """Rows of runtime and driver calls whose names match."""
    rows = np.flatnonzero((trace.cat == Cat.RUNTIME) | (trace.cat == Cat.DRIVER))
    used = distinct(trace.name[rows])
    wanted = [i for i in used.tolist() if matches(trace.names[i])]
    return np.asarray(rows[np.isin(trace.name[rows], wanted)])
