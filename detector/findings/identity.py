"""The name of a finding: its pattern and its place in the code, never a time.

A new recording of the same program gives the same name, so that a build knows what it has seen.
The place is that of all occurrences together: which step costs most changes with every run.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import numpy as np

from detector import vocabulary
from detector.candidates import Candidate
from detector.signals import SIGNALS, Signals
from detector.signals.frames import OWN, climb
from detector.signals.python import gaps
from detector.trace import Int8, Int64

_FOLDERS: Final = re.compile(r"^.*[/\\]")
_DIGITS: Final = re.compile(r"\d+")


def identity(signals: Signals, candidate: Candidate) -> str:
    """Twelve hexadecimal digits."""
    text = f"{candidate.pattern.id} {code_place(signals, candidate)}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def code_place(signals: Signals, candidate: Candidate) -> str:
    """Where most of the occurrences' time goes: a file and a function of the program; without
    stacks the innermost module; else the outermost op around it, and of a gap none.

    No line: it moves with every edit above it.
    """
    trace, spent = signals.trace, candidate.occurrences
    rows = _owners(signals, candidate)
    ns = np.maximum(spent.end - spent.start, 1)
    host = np.where(trace.is_device_work[rows], trace.launch[rows], rows)
    for wanted in (signals.frame_owner, signals.once(_modules)):
        found = climb(trace, host, wanted, OWN)
        if (found >= 0).any():
            return _frame(_heaviest(signals, found, ns))
    if SIGNALS[candidate.pattern.signal].is_gap:
        return ""  # nothing happens there that could name it
    ops = np.where(trace.op[rows] >= 0, trace.op[rows], rows)
    return _DIGITS.sub("#", _heaviest(signals, _outermost(signals, ops), ns))


def _owners(s: Signals, candidate: Candidate) -> Int64:
    """The event that each occurrence is; for a gap the frame around it, where there is one."""
    rows = candidate.occurrences.rows
    if not SIGNALS[candidate.pattern.signal].is_gap:
        return rows
    found = gaps(s)
    at = np.minimum(np.searchsorted(found.after, rows), max(len(found.after) - 1, 0))
    if not len(found.after):
        return rows
    known = (found.after[at] == rows) & (found.owner[at] >= 0)
    return np.where(known, found.owner[at], rows)


def _modules(s: Signals) -> Int8:
    """For each name of the trace ``OWN`` where it is the frame of an ``nn.Module``."""
    named = [vocabulary.MODULE_FRAME.match(name) is not None for name in s.trace.names]
    return np.where(named, OWN, 0).astype(np.int8)


def _outermost(s: Signals, rows: Int64) -> Int64:
    """The outermost op around each row."""
    top, up = rows.copy(), s.trace.parent[rows]
    is_op = np.zeros(len(s.trace), np.bool_)
    is_op[s.activity.aten] = True
    while (up >= 0).any():
        top = np.where((up >= 0) & is_op[up], up, top)
        up = np.where(up >= 0, s.trace.parent[up], -1)
    return top


def _heaviest(s: Signals, rows: Int64, ns: Int64) -> str:
    """The name with most time among these rows; of equal ones the first by alphabet."""
    known = rows >= 0
    time = np.bincount(s.trace.name[rows[known]], ns[known])
    return min(s.trace.names[i] for i in np.flatnonzero(time == time.max()).tolist())


def _frame(name: str) -> str:
    """``train.py step`` of a frame; a module's number counts instances, and stays."""
    match = vocabulary.PYTHON_FRAME.match(name)
    return f"{_FOLDERS.sub('', match['file'])} {match['function']}" if match else name
