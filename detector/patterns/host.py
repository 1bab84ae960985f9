"""The host: it feeds the device too slowly, is stopped, or computes what the device should."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector import vocabulary
from detector.patterns.pattern import Pattern
from detector.patterns.repairs import calls_of, quicker_host
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.signals.python import Gaps, gap_before, gaps, loop_rounds, ordinary_gap
from detector.trace import Int64

GRAPH_SHARE: Final = 0.1  # of the host's time per kernel: what a graph replay leaves
RESTS_NS: Final = 20_000  # what an op takes that was not stopped


def _as_a_graph(s: Signals, rows: Int64) -> Repair:
    """All between the launches goes but a tenth; longer gaps are the program's own Python."""
    return quicker_host(s, rows, GRAPH_SHARE, ordinary_gap(s))


def _to_the_usual(s: Signals, rows: Int64) -> Repair:
    """Gaps before these events shrink to the usual one, in whatever frame they lie."""
    found = gaps(s)
    return _shorter_gaps(s, found.where(np.isin(found.after, rows)))


def _shorter_gaps(s: Signals, found: Gaps) -> Repair:
    """The time goes from the frame that holds it, else from the idle time of the thread."""
    excess = np.maximum(found.end - found.start - found.usual, 0)
    held = found.owner >= 0
    owners, which = np.unique(found.owner[held], return_inverse=True)
    spent = np.bincount(which, excess[held], len(owners)).astype(np.int64)
    own = np.maximum(s.own_time[owners] - spent, 0)
    free = found.after[~held]
    return Repair(own=(owners, own), idle=(free, np.full(len(free), found.usual)))


def _one_op(s: Signals, rows: Int64) -> Repair:
    """Of each loop one round stays."""
    trace, ops = s.trace, s.on(s.activity.top_ops, s.main_thread)
    gone = [rows[:0]]
    for first, last in zip(*loop_rounds(s), strict=True):
        mine = rows[(rows > first) & (rows <= last)]
        if len(mine):
            gone.append(ops[(ops >= mine[0]) & (trace.start[ops] <= trace.start[mine[-1]])])
    all_gone = np.unique(np.concatenate(gone))
    return Repair(remove=all_gone, idle=(all_gone, np.zeros(len(all_gone), np.int64)))


def _no_collection(s: Signals, rows: Int64) -> Repair:
    """Collections that were seen go, pauses shrink to the usual gap."""
    seen = np.intersect1d(rows, s["collection"])
    return Repair(remove=seen) | _to_the_usual(s, np.setdiff1d(rows, seen))


def _on_device(s: Signals, rows: Int64) -> Repair:
    """The op and the copies there and back go; the device does it in no time."""
    trace, a = s.trace, s.activity
    out, back = a.copies_of("d2h"), a.copies_of("h2d")
    left = np.searchsorted(trace.end[out], trace.start[rows], side="right") - 1
    right = np.searchsorted(trace.start[back], trace.end[rows])
    copies = np.union1d(out[left[left >= 0]], back[right[right < len(back)]])
    calls = calls_of(s, copies)
    ops = s.enclosing(trace.op[copies].astype(np.int64), vocabulary.READS_BACK)
    waits = np.unique(ops[ops >= 0])
    inside = a.spans(waits).covered(trace.start[a.sync_rows], trace.start[a.sync_rows] + 1) > 0
    return Repair(remove=rows, unwait=np.union1d(calls, a.sync_rows[inside]), drop=copies)


def _shares_launches(s: Signals) -> bool:
    return len(s.activity.launches) > 0


PATTERNS: Final = (
    Pattern(
        "host-launch-bound",
        "host",
        "opportunity",
        "launching",
        _as_a_graph,
        "a graph replay, or a compiled step, leaves a tenth of the host's time between kernels",
        (
            "dispatch",
            "call",
            "framework",
            "between",
            "latency",
            "restart",
            "op-stall",
            "blocked-launch",
        ),
        _shares_launches,
    ),
    Pattern(
        "host-python-overhead",
        "host",
        "opportunity",
        "python-gap",
        _to_the_usual,
        "the work can be hoisted out of the step; gaps shrink to the usual one",
        ("python", "between", "restart"),
        place=gap_before,
    ),
    Pattern(
        "host-loop-indexing",
        "host",
        "fault",
        "row-loop",
        _one_op,
        "one vectorised op takes as long as one round of the loop",
        ("dispatch", "python", "between"),
    ),
    Pattern(
        "host-gc-pause",
        "host",
        "fault",
        "gc-pause",
        _no_collection,
        "an isolated pause of the interpreter is a collection; collecting can wait",
        ("collection", "nothing", "between", "python"),
        place=gap_before,
    ),
    Pattern(
        "host-cpu-fallback",
        "host",
        "fault",
        "fallback-op",
        _on_device,
        "the device has the op, and computes it in no time",
        ("preprocessing", "sync-tensor", "copy"),
    ),
)
