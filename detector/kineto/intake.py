"""Blocks of a file -> rows in a Builder, and counts of what was repaired, dropped or not kept."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from detector.errors import TraceError
from detector.kineto.blocks import Blocks
from detector.kineto.columns import Builder
from detector.kineto.limits import Limits
from detector.kineto.scanner import Scanner

if TYPE_CHECKING:
    from detector.kineto.decode import Decoded, Decoders

_AFTER = re.compile(rb'\s*(?:,\s*"|\}|\Z)')  # what may follow the end of the array


@dataclass
class Counts:
    """What a file holds beside its rows."""

    repaired: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    pairs: list[dict[str, Any]] = field(default_factory=list)  # B and E events
    events: int = 0
    lost_bytes: int = 0
    closed: bool = False  # the array's end was seen
    tail: bytes = b""  # what follows the array


class Intake:
    """Takes one block after the other."""

    def __init__(self, blocks: Blocks, limits: Limits, path: str) -> None:
        self.blocks = blocks
        self.builder = Builder()
        self.counts = Counts()
        self._scanner = Scanner()
        self._decoders: Decoders | None = None
        self._limit = limits.max_events
        self._path = path

    def take(self, block: memoryview, last: bool) -> None:
        """One block: fast where it is intact, event by event where it is not.

        The last may end in the middle of an event, and reach past the end of the array.
        """
        if not self._scan(block, last) and (last or not self._decode(block)):
            self._salvage(bytes(block[1:] if last else block[1:-1]), last)
        if self.counts.events > self._limit:
            raise TraceError(f"{self._path}: more than {self._limit} events (max_events)")

    def _scan(self, block: memoryview, last: bool) -> bool:
        scanned = self._scanner.scan(block)
        if scanned is None:
            return False
        tail = bytes(block[scanned.used :])
        if (tail and not last) or not (_AFTER.match(tail) and tail.isascii()):
            return False
        self.counts.events += scanned.count
        self.counts.other.update(scanned.other)
        self.builder.add_scanned(scanned)
        if last:
            self.counts.closed = True
            self.blocks.end(tail)
        return True

    def _decode(self, block: memoryview) -> bool:
        # Imported only here: reading by the scanner takes less time than these imports.
        import msgspec

        from detector.kineto import decode

        if self._decoders is None:
            self._decoders = decode.Decoders()
        try:
            decoded = self._decoders.decode(block)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        self.counts.events += decoded.count
        self.add(decoded)
        return True

    def release(self) -> None:
        """Free the memory that only reading needs."""
        self._scanner = Scanner()

    def add(self, decoded: Decoded) -> None:
        """Keep the rows of one block."""
        self.counts.other.update(decoded.other)
        for group in decoded.groups:
            self.builder.add(group)

    def _salvage(self, block: bytes, last: bool) -> None:
        from detector.kineto import tolerant
        from detector.kineto.repair import salvage

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
