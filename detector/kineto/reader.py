"""bytes -> Trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from detector.errors import TraceError
from detector.kineto import link, metadata, pairs, tolerant
from detector.kineto.blocks import Blocks
from detector.kineto.clean import clip_overlaps, time_order
from detector.kineto.columns import Builder, Columns
from detector.kineto.decode import Decoded, Decoders
from detector.kineto.limits import Limits
from detector.kineto.repair import salvage
from detector.kineto.steps import find_steps
from detector.kineto.stream import Stream, open_source
from detector.trace import DEVICE_WORK, Cat, Coverage, Source, Trace, Track


def read(
    path: str | Path | BinaryIO,
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    progress: Callable[[float], None] | None = None,
) -> Trace:
    """Read a trace file, ``-`` for standard input, or an open binary stream.

    ``progress`` is called with the share of the stored bytes read so far. Raises TraceError, one
    line that names the file and the cause, where nothing of the file can be read as a trace.
    """
    file, name = open_source(path)
    try:
        return _Reading(Stream(file, name, limits, progress), limits).trace()
    finally:
        if file is not path:
            file.close()


class _Reading:
    def __init__(self, stream: Stream, limits: Limits) -> None:
        self.stream = stream
        self.limits = limits
        self.blocks = Blocks(stream, limits)
        self.builder = Builder()
        self.decoders = Decoders()
        self.repaired: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.other: Counter[str] = Counter()
        self.pairs: list[dict[str, Any]] = []
        self.events = 0
        self.lost_bytes = 0
        self.closed = False

    def trace(self) -> Trace:
        for block, last in self.blocks:
            self._block(block, last)
            if self.events > self.limits.max_events:
                raise TraceError(
                    f"{self.stream.path}: more than {self.limits.max_events} events (max_events)"
                )
        if not self.blocks.found:
            raise TraceError(f"{self.stream.path}: {self._cause()}")
        if not self.events and self.lost_bytes:
            raise TraceError(f"{self.stream.path}: no event in it can be read")
        if not self.closed:
            self.repaired["no closing bracket"] += 1
        if self.pairs:
            joined = pairs.join(self.pairs, self.repaired)
            self._add(tolerant.convert(joined, self.repaired, self.dropped)[0])
        return self._finish()

    def _cause(self) -> str:
        head = self.blocks.header.strip()
        if not self.stream.size:
            return "the file is empty" if not self.stream.stored else "damaged gz, nothing readable"
        if not head:
            return "nothing but white space"
        return "JSON without traceEvents" if head.startswith(b"{") else "not JSON"

    def _block(self, block: memoryview, last: bool) -> None:
        """One block: fast where it is intact, event by event where it is not."""
        if last:
            self._salvage(bytes(block), last)
            return
        try:
            decoded = self.decoders.decode(block)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._salvage(bytes(block[1:-1]), last)
        else:
            self.events += decoded.count
            self._add(decoded)

    def _add(self, decoded: Decoded) -> None:
        self.other.update(decoded.other)
        for group in decoded.groups:
            self.builder.add(group)

    def _salvage(self, block: bytes, last: bool) -> None:
        saved = salvage(block, last)
        self.repaired.update(saved.repaired)
        self.dropped.update(saved.dropped)
        self.lost_bytes += saved.lost_bytes
        self.events += len(saved.events) + saved.dropped.total()
        decoded, begin_end = tolerant.convert(saved.events, self.repaired, self.dropped)
        self.pairs += begin_end
        self._add(decoded)
        if saved.tail is not None:
            self.closed = True
            self.blocks.end(saved.tail)
        elif saved.rest:
            self.blocks.give_back(saved.rest)

    def _columns(self) -> tuple[Columns, tuple[str, ...], tuple[Track, ...]]:
        times = self.builder.times()
        order = time_order(times, self.repaired, self.dropped)
        columns, names, tracks = self.builder.finish(order)
        columns |= {key: column[order] for key, column in times.items()}
        if clip_overlaps(columns, self.repaired):
            order = time_order(columns, self.repaired, self.dropped)
            columns = {key: column[order] for key, column in columns.items()}
        return columns, names, tracks

    def _finish(self) -> Trace:
        columns, names, tracks = self._columns()
        launch = link.launches(columns)
        parent = link.parents(columns)
        op = link.ops(columns, launch, parent)
        values, whole = metadata.parse(self.blocks.header, self.blocks.tail)
        if not whole:
            self.repaired["metadata"] += 1
        if self.stream.broken:
            self.repaired[self.stream.broken] += 1
        return Trace(
            **columns,
            launch=launch,
            parent=parent,
            op=op,
            names=names,
            tracks=tracks,
            steps=find_steps(columns, names),
            metadata=metadata.small(values),
            source=Source(self.stream.path, self.stream.sha256, self.stream.stored, self.events),
            coverage=self._coverage(columns, launch, op),
            base_ns=metadata.base_ns(values),
            has_shapes=bool((columns["dims"] >= 0).any()),
            has_stacks=bool((columns["cat"] == Cat.PYTHON_FUNCTION).any()),
            rank=metadata.rank(values, self.stream.path),
        )

    def _coverage(self, c: Columns, launch: Any, op: Any) -> Coverage:
        work = np.isin(c["cat"], DEVICE_WORK)
        count = int(work.sum())
        intact = 1 - self.lost_bytes / max(1, self.stream.size)
        # A cut gz lacks at least its trailer; how much more, nothing tells.
        missing = 8 if self.stream.broken == "truncated gz" else 0
        stored = 1 - (self.stream.unread + missing) / max(1, self.stream.stored + missing)
        return Coverage(
            read_fraction=max(0.0, intact * stored),
            repaired=_plain(self.repaired),
            dropped=_plain(self.dropped),
            other=_plain(self.other),
            kernels_with_launch=float((launch[work] >= 0).sum() / count) if count else 1.0,
            kernels_with_op=float((op[work] >= 0).sum() / count) if count else 1.0,
        )


def _plain(counts: Counter[str]) -> dict[str, int]:
    return {key: count for key, count in sorted(counts.items()) if count}
