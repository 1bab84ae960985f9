"""Repairs that several patterns share."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import OP_DEPTH
from detector.index_sets import among, difference, distinct, groups, union
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.signals.python import Gaps, gaps
from detector.trace import Int64

CALL_NS: Final = 5_000  # a call that does not wait


def removed(_: Signals, rows: Int64) -> Repair:
    """Host events are removed, with all inside them and the device work that these issued."""
    return Repair(remove=rows)


def spared_both_ways(s: Signals, rows: Int64) -> Repair:
    """Ops are removed, with all inside them, what these issued, and the backward of what they
    compute: an op that is not run leaves no node in the graph."""
    return Repair(remove=union(rows, backward_of(s, rows)))


def backward_of(s: Signals, ops: Int64) -> Int64:
    """The backward engine's calls for the nodes that these ops, or ops inside them, made.

    An op records the number of the next node, so the last of all ops with a number made that node.
    Nodes of the program's own functions and of compiled code are left out: no op of torch made
    them.
    """
    trace, a = s.trace, s.activity
    backward = a.host("backward")
    nodes = difference(backward, a.named(backward, vocabulary.CUSTOM_NODE))
    nodes = nodes[trace.sequence[nodes] >= 0]
    if not len(nodes) or not len(ops):
        return nodes[:0]
    forward = difference(a.aten, backward)
    forward = forward[trace.sequence[forward] >= 0]
    made = np.full(int(trace.sequence[nodes].max()) + 1, -1, np.int64)
    known = forward[trace.sequence[forward] < len(made)]
    np.maximum.at(made, trace.sequence[known], known)
    maker = made[trace.sequence[nodes]]
    mine = (maker >= 0) & (maker < nodes) & among(maker, s.inside(ops))
    around = trace.parent[nodes[mine]]
    found: Int64 = np.where(among(around, backward), around, nodes[mine])
    return distinct(found)


def dropped(s: Signals, rows: Int64) -> Repair:
    """Device work is removed; on a CPU run the ops."""
    return Repair(drop=rows) if s.activity.has_device else Repair(remove=rows)


def spared(s: Signals, work: Int64) -> Repair:
    """Device work goes, with the ops and the backward's nodes that launch nothing else: a fused op
    spares them, too. On a CPU run the ops."""
    if not s.activity.has_device:
        return Repair(remove=work)
    less, total = _launched(s, work), _launched(s, s.activity.device_work)
    ops = s.cpu_ops
    return Repair(remove=ops[(less[ops] > 0) & (less[ops] == total[ops])], drop=work)


def _launched(s: Signals, work: Int64) -> Int64:
    """For each op how much of this work is launched in it, as far up as ops nest."""
    at, count = s.trace.op[work].astype(np.int64), np.zeros(len(s.trace), np.int64)
    for _ in range(OP_DEPTH):
        at = at[at >= 0]
        count += np.bincount(at, minlength=len(count))
        at = s.trace.parent[at].astype(np.int64)
    return count


def shortened(s: Signals, rows: Int64, ns: Int64) -> Repair:
    """Device work takes at most this long; on a CPU run the ops' own time shrinks as much."""
    if s.activity.has_device:
        return Repair(work=(rows, ns))
    own = s.own_time[rows]
    share = ns / np.maximum(s.trace.dur[rows], 1)
    return Repair(own=(rows, (own * share).astype(np.int64)))


def quicker_host(s: Signals, rows: Int64, share: float, longest: int) -> Repair:
    """Host events keep a share of their own time, and of the idle time before them up to
    ``longest`` ns: longer gaps have other reasons."""
    own = (s.own_time[rows] * share).astype(np.int64)
    before = s.idle_before[rows]
    near = before <= longest
    idle = (before * share).astype(np.int64)
    return Repair(own=(rows, own), idle=(rows[near], idle[near]))


def shorter_gaps(s: Signals, rows: Int64) -> Repair:
    """Gaps before these events shrink to the usual one.

    The time is taken from the frames in the gap, in equal shares; the rest from right before the
    event, where most of it lies there, else from the frame around it.
    """
    known = gaps(s)
    found = known.where(among(known.after, rows))
    excess = np.maximum(found.end - found.start - found.usual, 0)
    inside, gap = _within(s, found)
    spent = np.bincount(gap, s.own_time[inside], len(excess))
    share = np.minimum(excess / np.maximum(spent, 1), 1.0)
    frames = inside, (s.own_time[inside] * (1 - share[gap])).astype(np.int64)
    excess = np.maximum(excess - spent, 0).astype(np.int64)
    before = s.idle_before[found.after]
    held = (found.owner >= 0) & (2 * before < found.end - found.start)
    (owners,), which = groups(found.owner[held])
    taken = np.bincount(which, excess[held], len(owners)).astype(np.int64)
    own = np.maximum(s.own_time[owners] - taken, 0)
    left = np.maximum(before - excess, 0)[~held]
    return Repair(own=frames) | Repair(own=(owners, own), idle=(found.after[~held], left))


def _within(s: Signals, found: Gaps) -> tuple[Int64, Int64]:
    """The main thread's events that lie wholly in a gap, and the index of that gap; without data
    preparation, which has a repair of its own."""
    trace = s.trace
    rows = difference(s.on(s.host_program, s.main_thread), s.inside(s["preprocessing"]))
    gap = np.searchsorted(found.start, trace.start[rows], side="right") - 1
    known = gap >= 0
    known[known] = trace.end[rows[known]] <= found.end[gap[known]]
    return rows[known], gap[known]
