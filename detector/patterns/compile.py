"""Compilation: it goes on in steady state, or falls back to eager ops in the middle."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector.patterns.pattern import Pattern
from detector.patterns.repairs import quicker_host, removed
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.trace import Int64

LEFT: Final = 0.1  # of the host's time between two regions, if both are one


def _one_region(s: Signals, rows: Int64) -> Repair:
    """What the host does between a region and the one that goes on after it."""
    regions, trace = s["compiled-region"], s.trace
    before = np.searchsorted(regions, rows) - 1
    ends = trace.end[regions[np.maximum(before, 0)]]
    ops = s.on(np.sort(s.host_program), int(trace.track[rows[0]]) if len(rows) else -1)
    at = trace.start[ops]
    which = np.searchsorted(trace.start[rows], at)  # the region that comes next
    known = which < len(rows)
    inside = known & (at >= ends[np.minimum(which, len(rows) - 1)]) if len(rows) else known
    return quicker_host(s, np.union1d(ops[inside], rows), LEFT, 1_000_000)


PATTERNS: Final = (
    Pattern(
        "compile-graph-break",
        "compile",
        "fault",
        "graph-break",
        _one_region,
        "without the break a tenth of the host's time between the regions is left",
        ("dispatch", "framework", "python", "between"),
    ),
    Pattern(
        "compile-recompile",
        "compile",
        "fault",
        "compilation",
        removed,
        "steady state does not compile",
        ("compilation",),
    ),
)
