"""Synchronisation: the host waits for the device, and the device runs dry behind it."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from detector import vocabulary
from detector.patterns.pattern import Pattern
from detector.patterns.places import op_around
from detector.patterns.repairs import CALL_NS, calls_of, removed
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.trace import Cat, Int64


def _unread(s: Signals, rows: Int64) -> Repair:
    """The op that reads the value goes, with its copy and its wait."""
    ops = s.enclosing(rows, vocabulary.READS_BACK)
    return Repair(remove=np.unique(ops[ops >= 0]), unwait=rows)


def _sized_before(s: Signals, rows: Int64) -> Repair:
    """The wait goes, the copy of the size, and the op's time on the host: what it launches stays,
    and a mask is part of an op that is there anyway."""
    copies = _copies_beside(s, rows, vocabulary.HOST["dynamic_shape"])
    ops = s.enclosing(rows, vocabulary.HOST["dynamic_shape"])
    inside = s.inside(np.unique(ops[ops >= 0]))
    own = Repair(own=(inside, np.zeros(len(inside), np.int64)))
    return own | Repair(unwait=np.union1d(rows, calls_of(s, copies)), drop=copies)


def _left_on_device(s: Signals, rows: Int64) -> Repair:
    """The waits and the copies go; the calls stay."""
    copies = _copies_beside(s, rows, vocabulary.READS_BACK)
    return Repair(unwait=np.union1d(rows, calls_of(s, copies)), drop=copies)


def _copies_beside(s: Signals, waits: Int64, ops: re.Pattern[str]) -> Int64:
    """Copies to the host that the op around each wait issued."""
    around = s.enclosing(waits, ops)
    spans = s.activity.spans(around[around >= 0])
    copies = s.activity.copies_of("d2h")
    launch = s.trace.launch[copies]
    at = s.trace.start[np.where(launch >= 0, launch, copies)]
    found: Int64 = copies[(launch >= 0) & (spans.covered(at, at + 1) > 0)]
    return found


def _queued(s: Signals, rows: Int64) -> Repair:
    """Each launch takes what a launch takes, and no wait follows it."""
    own = np.full(len(rows), CALL_NS)
    launches = rows[np.isin(s.trace.cat[rows], (Cat.RUNTIME, Cat.DRIVER))]
    return Repair(own=(rows, own), unwait=launches)


_BEHIND: Final = ("restart",)

PATTERNS: Final = (
    Pattern(
        "sync-scalar-readback",
        "sync",
        "fault",
        "scalar-readback-wait",
        _unread,
        "nobody needs the value now",
        ("sync-scalar", *_BEHIND),
        place=op_around(vocabulary.READS_BACK),
    ),
    Pattern(
        "sync-tensor-readback",
        "sync",
        "fault",
        "tensor-readback-wait",
        _left_on_device,
        "nobody needs the tensor on the host now",
        ("sync-tensor", "copy", *_BEHIND),
        place=op_around(vocabulary.READS_BACK),
    ),
    Pattern(
        "sync-explicit",
        "sync",
        "fault",
        "explicit-wait",
        removed,
        "nothing but a clock on the host needs the call",
        ("sync-explicit", *_BEHIND),
    ),
    Pattern(
        "sync-dynamic-shape",
        "sync",
        "fault",
        "dynamic-shape-wait",
        _sized_before,
        "a mask does the same on the device, and computes as much",
        ("sync-shape", *_BEHIND),
        place=op_around(vocabulary.HOST["dynamic_shape"]),
    ),
    Pattern(
        "sync-blocking-launch",
        "sync",
        "fault",
        "blocking-launch",
        _queued,
        "launches queue up as fast as they are called",
        ("blocked-launch", "call", *_BEHIND),
    ),
)
