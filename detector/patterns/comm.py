"""Communication: collectives beside no compute, too many, or too often.

From one rank's trace only transfer can be repaired; what a rank waits for others needs theirs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from detector import vocabulary
from detector.patterns.pattern import Pattern
from detector.patterns.repairs import dropped, removed
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.signals.comm import fastest_alike
from detector.trace import Int64


def _overlapped(s: Signals, rows: Int64) -> Repair:
    """The transfer goes behind compute; waiting for other ranks stays, where it can be told."""
    if not s.activity.has_device:
        return Repair(own=(rows, np.zeros(len(rows), np.int64)))
    return Repair(work=(rows, s.trace.dur[rows] - fastest_alike(s, rows)))


def _bucketed(s: Signals, rows: Int64) -> Repair:
    """All but one of sixteen go, with the ops that call for them."""
    gone = rows[np.arange(len(rows)) % 16 > 0]
    if not s.activity.has_device:
        return Repair(remove=gone)
    ops = s.enclosing(s.trace.op[gone].astype(np.int64), vocabulary.HOST["collective_op"])
    return Repair(remove=np.unique(ops[ops >= 0]), drop=gone)


PATTERNS: Final = (
    Pattern(
        "comm-exposed",
        "comm",
        "opportunity",
        "exposed-collective",
        _overlapped,
        "there is compute to hide all transfers behind",
        ("communication", "rank-wait"),
        lambda s: not s.activity.has_device or len(s.activity.compute) > 0,
    ),
    Pattern(
        "comm-small-collectives",
        "comm",
        "opportunity",
        "small-collective",
        _bucketed,
        "one collective takes the place of sixteen",
        ("communication", "rank-wait", "dispatch", "framework"),
    ),
    Pattern(
        "comm-straggler",
        "comm",
        "fault",
        "straggler",
        dropped,
        "needs the traces of several ranks",
        ("rank-wait",),
    ),
    Pattern(
        "comm-unused-parameters",
        "comm",
        "fault",
        "unused-parameters",
        removed,
        "the graph is static",
        ("framework", "dispatch"),
    ),
    Pattern(
        "comm-missing-no-sync",
        "comm",
        "fault",
        "extra-round",
        dropped,
        "only the last micro-step has to reduce",
        ("communication", "rank-wait"),
    ),
)
