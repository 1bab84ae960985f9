"""bytes -> Trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from detector.errors import TraceError
from detector.kineto import link, metadata
from detector.kineto.blocks import Blocks
from detector.kineto.categories import table
from detector.kineto.clean import clip_overlaps, time_order
from detector.kineto.columns import Columns
from detector.kineto.intake import Intake
from detector.kineto.limits import Limits
from detector.kineto.steps import find_steps
from detector.kineto.stream import Stream, open_source
from detector.trace import DEVICE_WORK, Cat, Coverage, Source, Trace, Track

_IS_WORK = table(*DEVICE_WORK)


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
    stream = Stream(file, name, limits, progress)
    try:
        reading = _Reading(stream, limits)
        reading.run()
        return reading.trace()
    finally:
        stream.close()
        if file is not path:
            file.close()


class _Reading:
    """One way through the file."""

    def __init__(self, stream: Stream, limits: Limits) -> None:
        self.stream = stream
        self.blocks = Blocks(stream, limits)
        self.intake = Intake(self.blocks, limits, stream.path)
        self.counts = self.intake.counts

    def run(self) -> None:
        """Take in the events."""
        for block, last in self.blocks:
            self.intake.take(block, last)
        self.counts.tail = self.blocks.tail

    def trace(self) -> Trace:
        counts, path = self.counts, self.stream.path
        if not self.blocks.found:
            raise TraceError(f"{path}: {self._cause()}")
        if not counts.events and counts.lost_bytes:
            raise TraceError(f"{path}: no event in it can be read")
        if not counts.closed:
            counts.repaired["no closing bracket"] += 1
        if counts.pairs:
            from detector.kineto import pairs, tolerant

            joined = pairs.join(counts.pairs, counts.repaired)
            self.intake.add(tolerant.convert(joined, counts.repaired, counts.dropped)[0])
        return self._finish()

    def _cause(self) -> str:
        head = self.blocks.header.strip()
        if not self.stream.size:
            return "the file is empty" if not self.stream.stored else "damaged gz, nothing readable"
        if not head:
            return "nothing but white space"
        if head[:9].lower().startswith((b"<!doctype", b"<html")):
            return "an HTML page, not a trace"
        return "JSON without traceEvents" if head.startswith(b"{") else "not JSON"

    def _columns(self) -> tuple[Columns, tuple[str, ...], tuple[Track, ...]]:
        builder = self.intake.builder
        self.blocks.release()
        self.intake.release()
        times = builder.times()
        order = time_order(times, self.counts.repaired, self.counts.dropped)
        columns, names, tracks = builder.finish(order)
        for key in list(times):
            columns[key] = times.pop(key)[order]
        del order
        if clip_overlaps(columns, self.counts.repaired):
            order = time_order(columns, self.counts.repaired, self.counts.dropped)
            columns = {key: column[order] for key, column in columns.items()}
        return columns, names, tracks

    def _finish(self) -> Trace:
        stream = self.stream
        columns, names, tracks = self._columns()
        launch = link.launches(columns)
        parent = link.parents(columns, len(tracks))
        op = link.ops(columns, launch, parent)
        values, whole = metadata.parse(self.blocks.header, self.counts.tail)
        if not whole:
            self.counts.repaired["metadata"] += 1
        if stream.broken:
            self.counts.repaired[stream.broken] += 1
        return Trace(
            **columns,
            launch=launch,
            parent=parent,
            op=op,
            names=names,
            tracks=tracks,
            steps=find_steps(columns, names),
            metadata=metadata.small(values),
            source=Source(
                self.stream.path, self.stream.sha256, self.stream.stored, self.counts.events
            ),
            coverage=self._coverage(columns, launch, op),
            base_ns=metadata.base_ns(values),
            has_shapes=bool((columns["dims"] >= 0).any()),
            has_stacks=bool((columns["cat"] == Cat.PYTHON_FUNCTION).any()),
            rank=metadata.rank(values, stream.path),
        )

    def _coverage(self, c: Columns, launch: Any, op: Any) -> Coverage:
        work = np.flatnonzero(_IS_WORK[c["cat"]])
        count = len(work)
        intact = 1 - self.counts.lost_bytes / max(1, self.stream.size)
        # A cut gz lacks at least its trailer; how much more, nothing tells.
        missing = 8 if self.stream.broken == "truncated gz" else 0
        stored = 1 - (self.stream.unread + missing) / max(1, self.stream.stored + missing)
        return Coverage(
            read_fraction=max(0.0, intact * stored),
            repaired=_plain(self.counts.repaired),
            dropped=_plain(self.counts.dropped),
            other=_plain(self.counts.other),
            kernels_with_launch=float((launch[work] >= 0).sum() / count) if count else 1.0,
            kernels_with_op=float((op[work] >= 0).sum() / count) if count else 1.0,
        )


def _plain(counts: Counter[str]) -> dict[str, int]:
    return {key: count for key, count in sorted(counts.items()) if count}
