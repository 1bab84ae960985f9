"""Python frames: whose code an event runs in, and on which line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from detector import vocabulary
from detector.index_sets import distinct
from detector.kineto import nesting
from detector.trace import Cat, Int8, Int32, Int64, Trace

NO_FRAME: Final = 0  # no file frame around it: no stacks were recorded, or only built-ins
LIBRARY: Final = 1
OWN: Final = 2  # the profiled program's own files
_BUILT_IN: Final = re.compile(r"^<")


@dataclass(frozen=True)
class Place:
    """Where time goes, ns: a line of the program, or, without stacks, the event's name."""

    name: str
    ns: int
    file: str = ""
    line: int = 0


def owners(trace: Trace) -> Int8:
    """For each name of the trace whose frame it is: ``OWN``, ``LIBRARY`` or ``NO_FRAME``."""
    owner = np.zeros(len(trace.names), np.int8)
    for i in distinct(trace.name[trace.cat == Cat.PYTHON_FUNCTION]).tolist():
        name = trace.names[i]
        if vocabulary.PYTHON_FRAME.match(name) and not _BUILT_IN.match(name):
            owner[i] = LIBRARY if vocabulary.LIBRARY_FRAME.search(name) else OWN
    return owner


def readable(trace: Trace, owner: Int8) -> Int8:
    """``owner``, where frames that no reader can change count as ``LIBRARY``."""
    shown = owner.copy()
    for i in np.flatnonzero(owner == OWN).tolist():
        if vocabulary.INTERNAL_FRAME.search(trace.names[i]):
            shown[i] = LIBRARY
    return shown


def climb(trace: Trace, rows: Int64 | Int32, wanted: Int8, at_least: int) -> Int64:
    """The innermost event at or around each row whose name has ``wanted`` >= ``at_least``; or -1.

    ``wanted``: a value for each name; rows of -1 stay -1.
    """
    chosen = wanted >= at_least
    if not chosen.any():
        return np.full(len(rows), -1, np.int64)
    return nesting.climb(trace.parent, rows, trace.name, chosen)


def place(name: str, ns: int) -> Place:
    """A frame's or an event's name as a place."""
    match = vocabulary.PYTHON_FRAME.match(name)
    if match is None:
        return Place(name, ns)
    return Place(match["function"], ns, match["file"], min(int(match["line"][:10]), 2**31 - 1))
