"""Blocks of a file -> the rows in a Builder, and what was repaired, dropped or not kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from detector.errors import TraceError
from detector.kineto import tolerant
from detector.kineto.blocks import Blocks
from detector.kineto.columns import Builder
from detector.kineto.decode import Decoded, Decoders
from detector.kineto.limits import Limits
from detector.kineto.repair import salvage


@dataclass
class Counts:
    """What a stretch of a file holds beside its rows."""

    repaired: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    pairs: list[dict[str, Any]] = field(default_factory=list)  # B and E events
    events: int = 0
    lost_bytes: int = 0
    closed: bool = False  # the array's end was seen
    tail: bytes = b""  # what stands behind it

    def extend(self, later: Counts) -> None:
        """Add what follows in the file."""
        self.repaired.update(later.repaired)
        self.dropped.update(later.dropped)
        self.other.update(later.other)
        self.pairs += later.pairs
        self.events += later.events
        self.lost_bytes += later.lost_bytes
        self.closed = self.closed or later.closed
        self.tail += later.tail


class Intake:
    """Takes one block after the other."""

    def __init__(self, blocks: Blocks, limits: Limits, path: str) -> None:
        self.blocks = blocks
        self.builder = Builder()
        self.counts = Counts()
        self._decoders = Decoders()
        self._limit = limits.max_events
        self._path = path

    def take(self, block: memoryview, last: bool) -> None:
        """One block: fast where it is intact, event by event where it is not."""
        if last:
            self._salvage(bytes(block), last)
        else:
            try:
                decoded = self._decoders.decode(block)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._salvage(bytes(block[1:-1]), last)
            else:
                self.counts.events += decoded.count
                self.add(decoded)
        self.check()

    def check(self) -> None:
        """Raises TraceError where there are more events than the limit."""
        if self.counts.events > self._limit:
            raise TraceError(f"{self._path}: more than {self._limit} events (max_events)")

    def add(self, decoded: Decoded) -> None:
        """Keep the rows of one block."""
        self.counts.other.update(decoded.other)
        for group in decoded.groups:
            self.builder.add(group)

    def _salvage(self, block: bytes, last: bool) -> None:
        counts = self.counts
        saved = salvage(block, last)
        counts.repaired.update(saved.repaired)
        counts.dropped.update(saved.dropped)
        counts.lost_bytes += saved.lost_bytes
        counts.events += len(saved.events) + saved.dropped.total()
        decoded, begin_end = tolerant.convert(saved.events, counts.repaired, counts.dropped)
        counts.pairs += begin_end
        self.add(decoded)
        if saved.tail is not None:
            counts.closed = True
            self.blocks.end(saved.tail)
        elif saved.rest:
            self.blocks.give_back(saved.rest)
