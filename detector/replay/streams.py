"""What device work waits for: its launch, the work before it, work of other streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from detector.replay.solve import Edge
from detector.replay.threads import follow
from detector.trace import Bool, Int64

if TYPE_CHECKING:
    from detector.replay.graph import Graph

_SEEN_NS = 2_000  # a later start than this takes a reason
# Work of another stream that ended so shortly before may be that reason: an event reaches another
# stream in 6 µs on NVIDIA, 10 to 20 µs on AMD. By chance one ends within a tenth of a delay in one
# case of ten on a busy stream.
_NEAR_NS, _NEAR_MOST_NS, _NEAR_SHARE = 6_000, 30_000, 0.1


def place(graph: Graph) -> list[Edge]:
    """Sets the gap of every device work. What it waits for beside its stream."""
    t = graph.trace
    edges: list[Edge] = []
    for track, rows in graph.streams.items():
        since, between = graph.observed(rows)
        known = t.launch[rows] >= 0
        latency = np.where(known, np.minimum(since, graph.typical.latency), since)
        gap = np.where(known, np.minimum(between, graph.typical.gap), between)
        if graph.uniform:
            latency[known], gap[known] = graph.typical.latency, graph.typical.gap
            latency[0] = since[0]  # behind a queue of before the recording
        graph.gap[2 * rows] = np.where(known, gap, np.minimum(gap, between))
        linked = known & graph.is_host[t.launch[rows]]
        if not linked[0] and graph.first >= 0:
            edges += follow(graph, 2 * rows[:1], t.start[rows[:1]])
        causes = _explain(graph, track, rows, known & linked, latency)
        mine = rows[linked]
        edges.append((2 * mine, 2 * t.launch[mine].astype(np.int64), latency[linked]))
        edges.append(causes)
        graph.gap[2 * rows[0]] = graph.typical.gap  # of what an edit puts before it
    return edges


def _explain(graph: Graph, track: int, rows: Int64, linked: Bool, latency: Int64) -> Edge:
    """Starts that neither the launch nor the work before accounts for: other streams, or an edge
    of its own length (then ``latency`` or the gap is stretched)."""
    t = graph.trace
    since, between = graph.observed(rows)
    by_launch = graph.issued[rows] + latency
    by_stream = t.start[rows] - between + graph.gap[2 * rows]
    late = t.start[rows] - np.maximum(by_launch, by_stream)
    cause = np.full(len(rows), -1)
    asked = np.flatnonzero((t.launch[rows] >= 0) & (late > _SEEN_NS))
    cause[asked] = _causes(graph, track, rows[asked], late[asked])
    if not graph.uniform:
        own = (t.launch[rows] >= 0) & (late > 0) & (cause < 0)
        launched = own & linked & (by_launch >= by_stream)
        latency[launched] = since[launched]
        queued = own & ~launched
        graph.gap[2 * rows[queued]] = between[queued]
    found = cause >= 0
    delay = t.start[rows[found]] - t.end[cause[found]]
    if graph.uniform:
        delay = np.full(len(delay), graph.typical.gap)
    return 2 * rows[found], 2 * cause[found], delay


def _causes(graph: Graph, track: int, rows: Int64, late: Int64) -> Int64:
    """The work of another stream of the same device whose end set each of these off; -1.
    ``late``: how much later each began than all else accounts for, ns."""
    t = graph.trace
    start, issued = t.start[rows], graph.issued[rows]
    near = np.clip(_NEAR_SHARE * late, _NEAR_NS, _NEAR_MOST_NS).astype(np.int64)
    best, best_end = np.full(len(rows), -1), start - near
    for other, theirs, ends in graph.largest_streams:
        if other == track:
            continue
        i = np.searchsorted(ends, start, "right") - 1
        better = (i >= 0) & (ends[i] > best_end) & (graph.issued[theirs[i]] <= issued)
        better &= t.device[theirs[0]] == t.device[rows]
        best[better], best_end[better] = theirs[i[better]], ends[i[better]]
    return best
