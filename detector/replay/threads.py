"""The host's threads: which is the main one, where others begin anew, and who waits for whom."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from detector import vocabulary
from detector.index_sets import difference, distinct
from detector.replay.solve import Edge
from detector.trace import Bool, Cat, Int64

if TYPE_CHECKING:
    from detector.replay.graph import Graph

BURST_NS = 100_000  # idle for so long, a second thread begins anew when the first has got so far
_SEEN_NS = 2_000  # a later start than this takes a reason
_NEARLY = 0.8  # of a thread's time: the rest are hooks and calls between the ops
_LOOP = ("optimizer_step", "loader")
_NONE = np.zeros(0, np.int64)
_WOKEN_NS = 20_000  # so soon after another thread's last event a waiting one goes on
_MOST_THREADS = 8  # between which joins are sought: the busiest


def main(graph: Graph) -> int:
    """The thread that holds the training loop (steps, optimizer, loader); without those the one
    that launches most, else does most, but the backward engine's own only if there is no other."""
    t = graph.trace
    events = np.bincount(t.track[graph.is_host], minlength=len(t.tracks))
    tracks: list[int] = np.flatnonzero(events).tolist()
    if not tracks:
        return -1
    launching = distinct(t.launch[graph.is_work & (t.launch >= 0)])
    counts = np.bincount(t.track[launching], minlength=len(t.tracks))
    engines, loops = _engines(graph), _loops(graph)
    return max(tracks, key=lambda k: (loops[k], not engines[k], counts[k], events[k]))


def _loops(graph: Graph) -> Int64:
    """For each track how many annotations it has that only a training loop has."""
    t = graph.trace
    notes = t.rows(Cat.USER_ANNOTATION)
    used = distinct(t.name[notes])
    marks = [i for i in used.tolist() if any(vocabulary.HOST[k].search(t.names[i]) for k in _LOOP)]
    steps = np.array([step.start for step in t.steps], np.int64)
    mine = np.isin(t.name[notes], marks) | np.isin(t.start[notes], steps)
    return np.bincount(t.track[notes[mine]], minlength=len(t.tracks))


def _engines(graph: Graph) -> Bool:
    """Whether nearly all of each track's time is backward."""
    t = graph.trace
    top = np.flatnonzero(graph.is_host & (t.parent < 0))
    used = distinct(t.name[top])
    backward = [i for i in used.tolist() if vocabulary.HOST["backward"].search(t.names[i])]
    mine = np.isin(t.name[top], backward)
    whole = np.bincount(t.track[top], t.dur[top], len(t.tracks))
    part = np.bincount(t.track[top[mine]], t.dur[top[mine]], len(t.tracks))
    return np.asarray((part > 0) & (part >= _NEARLY * whole))


def working(graph: Graph) -> Bool:
    """Whether each track runs the program: launches work (without any: runs ops), is the main
    thread or the backward engine's. The others fetch data, or watch."""
    t = graph.trace
    found = _engines(graph)
    ops = t.launch[graph.is_work & (t.launch >= 0)]
    found[t.track[ops if len(ops) else t.rows(Cat.CPU_OP)]] = True
    found[[k for k in (graph.first,) if k >= 0]] = True
    return found


def attach(graph: Graph) -> list[Edge]:
    """Where each second thread begins anew, and who waits for whom (the main thread for the
    backward's)."""
    edges = _handed(graph)
    begun = np.concatenate([_NONE, *(node for node, _, _ in edges)])
    for track in graph.threads:
        if track != graph.first:
            edges += _attach(graph, track, begun)
    return edges


def _handed(graph: Graph) -> list[Edge]:
    """Between any two threads but the main one's own waits; a thread that only watches has none."""
    busiest = sorted(graph.threads, key=lambda k: -len(graph.threads[k]))[:_MOST_THREADS]
    second = working(graph)
    second[[k for k in (graph.first,) if k >= 0]] = False
    pairs = itertools.permutations(busiest, 2)
    return [edge for a, b in pairs if second[a] for edge in _wait(graph, a, b)]


def follow(graph: Graph, nodes: Int64, times: Int64) -> list[Edge]:
    """Let nodes begin when the main thread has got as far as it had then."""
    mine = graph.threads[graph.first]
    at = graph.recorded(mine)
    i = np.searchsorted(at, times, "right") - 1
    found = i >= 0
    i = i[found]
    graph.gap[nodes[found]] = 0
    return [(nodes[found], mine[i].astype(np.int64), times[found] - at[i])]


def _depth(nodes: Int64) -> Int64:
    """For each node how many events were open before it."""
    step = 1 - 2 * (nodes & 1)
    return np.asarray(np.cumsum(step) - step)


def _attach(graph: Graph, track: int, begun: Int64) -> list[Edge]:
    """Dependencies of a second thread, but for nodes that are ``begun`` by another one."""
    nodes = graph.threads[track].astype(np.int64)
    times, gaps = graph.recorded(nodes), graph.gap[nodes]
    begins = (gaps > BURST_NS) & ((_depth(nodes) == 0) | _asleep(graph, nodes))
    begins[0] = True
    reached = np.searchsorted(graph.recorded(graph.threads[graph.first]), times, "right")
    begins[1:] &= np.diff(reached) > 0  # the main thread got ahead meanwhile
    handed = np.isin(nodes, begun)
    first = np.flatnonzero(begins & ~handed)
    anew = follow(graph, nodes[first], times[first])
    return [*anew, *_join(graph, nodes, times, np.flatnonzero(begins | handed))]


def _asleep(graph: Graph, nodes: Int64) -> Bool:
    """Before which nodes the innermost open event was a sleep until another thread wakes it."""
    t, row = graph.trace, nodes // 2
    inside = np.where(nodes % 2 == 1, row, t.parent[row])
    used = distinct(t.name[inside[inside >= 0]])
    sleeps = [i for i in used.tolist() if vocabulary.SLEEPS.search(t.names[i])]
    return np.asarray((inside >= 0) & np.isin(t.name[inside], sleeps))


def _wait(graph: Graph, track: int, other: int) -> list[Edge]:
    """Where a second thread stopped inside an event while another, that had been idle, did nearly
    all of that time something, and went on as soon as this was done: it set this off and waited
    for it."""
    nodes, its = (graph.threads[k].astype(np.int64) for k in (track, other))
    times, at = graph.recorded(nodes), graph.recorded(its)
    gap = np.diff(times)
    i = np.flatnonzero((gap > BURST_NS // 2) & (_depth(nodes)[1:] > 0))
    i = i[graph.gap[nodes[i + 1]] == gap[i]]  # not waiting for a third
    a, b = np.searchsorted(at, times[i], "right"), np.searchsorted(at, times[i + 1], "left")
    found = b - a >= 2
    i, a, b = i[found], a[found], b[found]
    filled = at[b - 1] - at[a] >= _NEARLY * gap[i]
    filled &= times[i + 1] - at[b - 1] <= _WOKEN_NS
    filled &= (_depth(its)[a] == 0) & ((a == 0) | (at[a] - at[a - 1] > BURST_NS // 2))
    i, a, b = i[filled], a[filled], b[filled]
    graph.gap[nodes[i + 1]] = _SEEN_NS
    joins = nodes[i + 1], its[b - 1], times[i + 1] - at[b - 1]
    if other == graph.first:
        return [joins]
    graph.gap[its[a]] = 0
    return [joins, (its[a], nodes[i], at[a] - times[i])]


def _join(graph: Graph, nodes: Int64, times: Int64, begun: Int64) -> list[Edge]:
    """The main thread's gaps that this thread fills: there it waits for it."""
    mine = graph.threads[graph.first].astype(np.int64)
    at = graph.recorded(mine)
    gap = np.diff(at)
    i = np.flatnonzero(gap > BURST_NS // 2)
    a, b = np.searchsorted(times, at[i], "right"), np.searchsorted(times, at[i + 1], "right")
    filled = b - a >= 2
    i, a, b = i[filled], a[filled], b[filled]
    filled = times[b - 1] - times[a] >= 0.5 * gap[i]
    i, a, b = i[filled], a[filled], b[filled]
    node = mine[i + 1]
    graph.gap[node] = np.minimum(gap[i], _SEEN_NS)
    join = (node, nodes[b - 1], at[i + 1] - times[b - 1])
    anew = difference(a[(a > 0) & (nodes[a] % 2 == 0)], begun)
    return [join, *follow(graph, nodes[anew], times[anew])]
