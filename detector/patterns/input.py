"""Input: batches that come too late, and copies that cost more than their bytes."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector import vocabulary
from detector.patterns import capability
from detector.patterns.pattern import Pattern
from detector.patterns.places import op_around
from detector.patterns.repairs import CALL_NS, calls_of, removed
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.signals.copies import made_for
from detector.trace import Int64

_LOADER: Final = ("loader",)
_PRODUCTIVE: Final = ("copy", "pageable", "sync-copy", "restart", "dispatch", "latency")


def _pinned(s: Signals, rows: Int64) -> Repair:
    """The call returns at once, and the copy runs at the speed of pinned memory."""
    calls = calls_of(s, rows)
    waits = _waits_for(s, rows)
    most = capability.pinned_copy_ns(s, rows)
    own = np.full(len(calls), CALL_NS)
    return Repair(unwait=np.union1d(calls, waits), own=(calls, own), work=(rows, most))


def _waits_for(s: Signals, copies: Int64) -> Int64:
    """Synchronisations in the op that copies."""
    waits = s["input-copy-wait"]
    ops = s.enclosing(s.trace.op[copies].astype(np.int64), vocabulary.MOVES)
    spans = s.activity.spans(ops[ops >= 0])
    at = s.trace.start[waits]
    found: Int64 = waits[spans.covered(at, at + 1) > 0]
    return found


def _no_transfer(s: Signals, rows: Int64) -> Repair:
    """The op that moves the tensor goes, with its copy and its wait."""
    ops = s.enclosing(s.trace.op[rows].astype(np.int64), vocabulary.MOVES)
    known = ops >= 0
    calls = calls_of(s, rows[~known])
    return Repair(remove=np.union1d(ops[known], calls), drop=rows)


def _made_on_device(s: Signals, rows: Int64) -> Repair:
    """Neither the factory op on the host nor the transfer; a fill on the device costs nothing."""
    copies, factory = made_for(s)
    mine = np.isin(copies, rows) & (factory >= 0)
    return _no_transfer(s, rows) | Repair(remove=np.unique(factory[mine]))


def _behind_compute(s: Signals, rows: Int64) -> Repair:
    """As much of the copies goes as there is compute to hide them behind."""
    copies, compute = s.activity.spans(rows).measure, s.activity.compute.measure
    left = max(0.0, 1 - compute / max(1, copies))
    return Repair(work=(rows, (s.trace.dur[rows] * left).astype(np.int64)))


PATTERNS: Final = (
    Pattern(
        "input-dataloader-sync",
        "input",
        "fault",
        "loader-sync",
        removed,
        "workers make batches as fast as they are consumed",
        _LOADER,
    ),
    Pattern(
        "input-dataloader-starved",
        "input",
        "fault",
        "loader-workers",
        removed,
        "with enough workers no batch is waited for",
        _LOADER,
    ),
    Pattern(
        "input-main-thread-preprocessing",
        "input",
        "fault",
        "preprocessing",
        removed,
        "workers do this in parallel, and keep up",
        ("preprocessing",),
    ),
    Pattern(
        "input-pageable-copy",
        "input",
        "fault",
        "pageable-copy",
        _pinned,
        "the memory can be pinned; copies run at the pinned bandwidth of the device's generation",
        ("pageable", "copy", "sync-copy"),
    ),
    Pattern(
        "input-copy-not-overlapped",
        "input",
        "fault",
        "inline-copy",
        _behind_compute,
        "a side stream copies the next batch while this one computes",
        ("copy",),
    ),
    Pattern(
        "input-tiny-copies",
        "input",
        "fault",
        "tiny-copy",
        _no_transfer,
        "the values are packed into a transfer that is made anyway, or are built on the device",
        _PRODUCTIVE,
    ),
    Pattern(
        "input-cpu-tensor-to-device",
        "input",
        "fault",
        "factory-copy",
        _made_on_device,
        "the tensor can be made on the device at no cost",
        _PRODUCTIVE,
        place=op_around(vocabulary.MOVES),
    ),
)
