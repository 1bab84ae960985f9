"""More views of a place, for a judge that asks: a closed list, each a text of bounded length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from detector.evidence import words
from detector.ledger import BY_ID

if TYPE_CHECKING:
    from detector.evidence.context import Contexts
    from detector.region import Region
    from detector.trace import Int64

VIEWS: Final = {
    "timeline": "what the device does and who holds it up, in each of 30 slices of the place",
    "kernels": "the longest kernels with start, length, blocks and stream",
    "ops": "the ops with the most host time, with input shapes and types",
    "stack": "the Python frames around the longest ops, innermost last",
    "neighbors": "the time by cause just before, in and just after the place",
    "steps": "the time by cause of each step, side by side",
    "collectives": "the longest collectives with size, length and what computes beside them",
    "unexplained": "the trace's largest times by cause, their places, and its longest idle gaps",
}
MOST_TOKENS: Final = 700
_SLICES: Final = 30
_MOST: Final = 14  # rows of a listing
_US: Final = 1_000


class Views:
    """Views of the places of one trace."""

    def __init__(self, contexts: Contexts) -> None:
        self.c, self.a, self.trace = contexts, contexts.a, contexts.trace
        self.ledger = contexts.ledger
        self._made: dict[str, Callable[[Region], Iterator[str]]] = {
            "timeline": self._timeline,
            "kernels": self._kernels,
            "ops": self._ops,
            "stack": self._stack,
            "neighbors": self._neighbors,
            "steps": self._steps,
            "collectives": self._collectives,
            "unexplained": self._unexplained,
        }

    def text(self, region: Region, view: str) -> str:
        """A view by its name, at most ``MOST_TOKENS`` long. Raises KeyError for another name."""
        lines: list[str] = []
        left = MOST_TOKENS
        for line in islice(self._made[view](region), 60):
            left -= words.tokens(line + "\n")
            if left < 0:
                lines.append("(the rest is left out)")
                break
            lines.append(line)
        return "\n".join(lines) or "nothing of this kind here"

    def _timeline(self, region: Region) -> Iterator[str]:
        edges = np.linspace(region.start, region.end, _SLICES + 1).astype(np.int64)
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            yield f"at {(start - region.start) / _US:.0f} µs: {self._causes(start, end, 2)}"

    def _causes(self, start: int, end: int, most: int = 4) -> str:
        """The largest causes of a span with their shares."""
        length = max(end - start, 1)
        rows = islice(self.ledger.total(start, end).items(), most)
        return "; ".join(f"{BY_ID[c].label} {100 * ns / length:.0f}%" for c, ns in rows) or "-"

    def _kernels(self, region: Region) -> Iterator[str]:
        rows = self._longest(self._inside(self.a.kernels, region), _MOST)
        for row in rows.tolist():
            name = words.quoted(words.kernel(self.trace.names[self.trace.name[row]]))
            blocks = int(self.trace.blocks[row])
            grid = (
                f", {blocks} blocks of {int(self.trace.threads[row])} threads" if blocks > 0 else ""
            )
            yield f"{name} {self._when(row, region)}{grid}, stream {int(self.trace.stream[row])}"

    def _ops(self, region: Region) -> Iterator[str]:
        for row in self._longest(self.c.ops_in(region), _MOST).tolist():
            name = words.quoted(words.plain(self.trace.names[self.trace.name[row]]))
            yield f"{name} {self._when(row, region)}{self._inputs(row)}"

    def _inputs(self, row: int) -> str:
        dims, types = int(self.trace.dims[row]), int(self.trace.types[row])
        shape = f", inputs {words.bounded(self.trace.names[dims], 90)}" if dims >= 0 else ""
        kind = f" of {words.bounded(self.trace.names[types], 60)}" if types >= 0 else ""
        return shape + kind

    def _stack(self, region: Region) -> Iterator[str]:
        for row in self._longest(self.c.ops_in(region), 3).tolist():
            path: list[str] = []
            at = row
            while at >= 0 and len(path) < 12:
                path.append(words.frame(self.trace.names[self.trace.name[at]]))
                at = int(self.trace.parent[at])
            yield " > ".join(words.quoted(name) for name in reversed(path))

    def _neighbors(self, region: Region) -> Iterator[str]:
        before = max(region.start - region.dur, self.ledger.start)
        after = min(region.end + region.dur, self.ledger.end)
        yield f"before: {self._causes(before, region.start)}"
        yield f"here: {self._causes(region.start, region.end)}"
        yield f"after: {self._causes(region.end, after)}"

    def _steps(self, region: Region) -> Iterator[str]:
        for i, step in enumerate(self.trace.steps):
            start, end = max(step.start, self.ledger.start), min(step.end, self.ledger.end)
            if end > start:
                here = ", here" if step.start < region.end and region.start < step.end else ""
                length = (step.end - step.start) / _US
                yield f"step {i + 1}{here}: {length:.0f} µs; {self._causes(start, end, 3)}"

    def _collectives(self, region: Region) -> Iterator[str]:
        for row in self._longest(self._inside(self.a.comm_rows, region), _MOST).tolist():
            start, end = int(self.trace.start[row]), int(self.trace.end[row])
            span = np.array([start], np.int64), np.array([end], np.int64)
            hidden = int(self.a.compute.covered(*span)[0]) / max(end - start, 1)
            size = int(self.trace.msg_elems[row])
            elements = f", {size} elements" if size >= 0 else ""
            name = words.quoted(words.kernel(self.trace.names[self.trace.name[row]]))
            beside = f", compute beside it {100 * hidden:.0f}%"
            yield f"{name} {self._when(row, region)}{elements}{beside}"

    def _unexplained(self, _: Region) -> Iterator[str]:
        wall = max(self.ledger.end - self.ledger.start, 1)
        for cause, ns in islice(self.ledger.total().items(), 6):
            yield f"{BY_ID[cause].label}: {ns / _US:.0f} µs, {100 * ns / wall:.1f}%"
            for place in self.ledger.places(cause, 2):
                name = f"{words.base_name(place.file)}:{place.line} " if place.file else ""
                yield f"  {words.quoted(name + words.plain(place.name))} {place.ns / _US:.0f} µs"
        idle = self.a.idle(self.ledger.start, self.ledger.end)
        length = idle.end - idle.start
        for i in np.argsort(-length, kind="stable")[:5].tolist():
            at = (int(idle.start[i]) - self.ledger.start) / _US
            causes = self._causes(int(idle.start[i]), int(idle.end[i]), 2)
            yield f"idle for {int(length[i]) / _US:.0f} µs at {at:.0f} µs: {causes}"

    # -- rows ----------------------------------------------------------------------------------

    def _inside(self, rows: Int64, region: Region) -> Int64:
        first, last = np.searchsorted(self.trace.start[rows], (region.start, region.end))
        return np.asarray(rows[first:last], np.int64)

    def _longest(self, rows: Int64, most: int) -> Int64:
        order = np.argsort(-self.trace.dur[rows], kind="stable")[:most]
        return np.asarray(rows[order], np.int64)

    def _when(self, row: int, region: Region) -> str:
        at = (int(self.trace.start[row]) - region.start) / _US
        return f"at {at:.0f} µs for {int(self.trace.dur[row]) / _US:.1f} µs"
