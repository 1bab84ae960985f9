"""Inference: what only training needs, and caches that grow by copying."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector.patterns.pattern import Pattern
from detector.patterns.repairs import shortened
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.signals.device import issued
from detector.trace import Int64

RECORDING: Final = 0.1  # of an op's host time that recording the graph takes
APPENDED: Final = 0.125  # of a cat that adds a little to much


def _without_graph(s: Signals, rows: Int64) -> Repair:
    """Ops keep 0.9 of their own time; dropout goes."""
    dropout = np.intersect1d(rows, s["needless-dropout"])
    rows = np.setdiff1d(rows, dropout)
    own = (s.own_time[rows] * (1 - RECORDING)).astype(np.int64)
    return Repair(remove=dropout, own=(rows, own))


def _static_cache(s: Signals, rows: Int64) -> Repair:
    """Only the new part is written."""
    work = issued(s, rows) if s.activity.has_device else rows
    return shortened(s, work, (s.trace.dur[work] * APPENDED).astype(np.int64))


PATTERNS: Final = (
    Pattern(
        "infer-autograd",
        "infer",
        "fault",
        "needless-autograd",
        _without_graph,
        "recording the graph takes a tenth of an op's time on the host",
        ("dispatch", "cpu-compute"),
    ),
    Pattern(
        "infer-kv-cat",
        "infer",
        "fault",
        "cat-append",
        _static_cache,
        "writing the new part takes an eighth of copying all",
        ("compute", "cpu-compute"),
    ),
)
