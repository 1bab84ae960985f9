"""Which faults act now, and the mark that a program puts around a fault's code.

A program asks ``if "host-gc-pause" in SWITCH.acting`` and wraps what follows in
``with Mark(SWITCH.tag["host-gc-pause"])``. Both are plain reads and C code on purpose: a Python
call would show up as a frame in traces recorded with stacks. ``dataset.marks`` turns the marks
into regions and removes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# torch's own record_function without its Python frames: it leaves one event, with this name.
from torch._C._profiler import _RecordFunctionFast as Mark

__all__ = ["PREFIX", "SWITCH", "Mark"]

PREFIX = "@@"


class Switch:
    """The one switchboard of a recording process."""

    def __init__(self) -> None:
        self.built: frozenset[str] = frozenset()  # faults this program is built with
        self.acting: frozenset[str] = frozenset()  # those that act in the present step
        self.tag: dict[str, str] = {}
        self.plan: Sequence[frozenset[str]] = ()  # by step index

    def arm(self, patterns: Iterable[str], steps: Sequence[bool]) -> None:
        """Build with ``patterns``; they act in the steps whose flag is set."""
        self.built = frozenset(patterns)
        self.tag = {pattern: PREFIX + pattern for pattern in self.built}
        self.plan = tuple(self.built if on else frozenset() for on in steps)
        self.acting = self.plan[0] if self.plan else frozenset()


SWITCH = Switch()
