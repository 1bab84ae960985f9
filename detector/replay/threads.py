"""The host's threads: which is the main one, where others begin anew, and who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from detector import vocabulary
from detector.replay.solve import Edge
from detector.trace import Bool, Cat, Int64

if TYPE_CHECKING:
    from detector.replay.graph import Graph

BURST_NS = 100_000  # idle for so long, a second thread begins anew when the first has got so far
_SEEN_NS = 2_000  # a later start than this takes a reason
_NEARLY = 0.8  # of a thread's time: the rest are hooks and calls between the ops
_LOOP = ("optimizer_step", "loader")


def main(graph: Graph) -> int:
    """The thread that holds the training loop (steps, optimizer, loader); without those the one
    that launches most, else does most, but the backward engine's own only if there is no other."""
    t = graph.trace
    tracks: list[int] = np.unique(t.track[graph.is_host]).tolist()
    if not tracks:
        return -1
    launching = np.unique(t.launch[graph.is_work & (t.launch >= 0)])
    counts = np.bincount(t.track[launching], minlength=len(t.tracks))
    events = np.bincount(t.track[graph.is_host], minlength=len(t.tracks))
    engines, loops = _engines(graph), _loops(graph)
    return max(tracks, key=lambda k: (loops[k], not engines[k], counts[k], events[k]))


def _loops(graph: Graph) -> Int64:
    """By track how many annotations it has that only a training loop has."""
    t = graph.trace
    notes = t.rows(Cat.USER_ANNOTATION)
    used = np.unique(t.name[notes])
    marks = [i for i in used.tolist() if any(vocabulary.HOST[k].search(t.names[i]) for k in _LOOP)]
    steps = np.array([step.start for step in t.steps], np.int64)
    mine = np.isin(t.name[notes], marks) | np.isin(t.start[notes], steps)
    return np.bincount(t.track[notes[mine]], minlength=len(t.tracks))


def _engines(graph: Graph) -> Bool:
    """By track whether nearly all of its time is backward."""
    t = graph.trace
    top = np.flatnonzero(graph.is_host & (t.parent < 0))
    used = np.unique(t.name[top])
    backward = [i for i in used.tolist() if vocabulary.HOST["backward"].search(t.names[i])]
    mine = np.isin(t.name[top], backward)
    whole = np.bincount(t.track[top], t.dur[top], len(t.tracks))
    part = np.bincount(t.track[top[mine]], t.dur[top[mine]], len(t.tracks))
    return np.asarray((part > 0) & (part >= _NEARLY * whole))


def attach(graph: Graph) -> list[Edge]:
    """Where each second thread begins anew, and where the main one waits for it (the backward)."""
    edges: list[Edge] = []
    for track in graph.threads:
        if track != graph.first:
            edges += _attach(graph, track)
    return edges


def follow(graph: Graph, nodes: Int64, times: Int64) -> list[Edge]:
    """Let nodes begin when the main thread has got as far as it had then."""
    mine = graph.threads[graph.first]
    at = graph.origin[mine]
    i = np.searchsorted(at, times, "right") - 1
    found = i >= 0
    i = i[found]
    graph.gap[nodes[found]] = 0
    return [(nodes[found], mine[i].astype(np.int64), times[found] - at[i])]


def _attach(graph: Graph, track: int) -> list[Edge]:
    nodes = graph.threads[track].astype(np.int64)
    times, gaps = graph.origin[nodes], graph.gap[nodes]
    step = 1 - 2 * (nodes % 2)
    depth = np.cumsum(step) - step
    begins = (gaps > BURST_NS) & (depth == 0)
    begins[0] = True
    reached = np.searchsorted(graph.origin[graph.threads[graph.first]], times, "right")
    begins[1:] &= np.diff(reached) > 0  # the main thread got ahead meanwhile
    first = np.flatnonzero(begins)
    return [*follow(graph, nodes[first], times[first]), *_join(graph, nodes, times, first)]


def _join(graph: Graph, nodes: Int64, times: Int64, begun: Int64) -> list[Edge]:
    """The main thread's gaps that this thread fills: there it waits for it."""
    mine = graph.threads[graph.first].astype(np.int64)
    at = graph.origin[mine]
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
    anew = np.setdiff1d(a[(a > 0) & (nodes[a] % 2 == 0)], begun)
    return [join, *follow(graph, nodes[anew], times[anew])]
