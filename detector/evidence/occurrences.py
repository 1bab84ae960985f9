"""Which named events a pattern consists of in a region: those that its savings are counted on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from detector.activity import Activity
from detector.evidence import words
from detector.evidence.listing import around
from detector.evidence.sheet import Item
from detector.kineto.nesting import nearest
from detector.patterns import BY_ID, Cited
from detector.region import Region
from detector.signals import SIGNALS, signals_of
from detector.signals.device import issued
from detector.signals.python import gaps
from detector.trace import NS_PER_US, Cat, Int64


@dataclass(frozen=True, eq=False)
class _Named:
    """Events to cite: where each begins, the name it goes by, and its time, ns."""

    start: Int64
    name: Int64
    ns: Int64


class Occurring:
    """The occurrences of patterns in one trace, by name."""

    def __init__(self, activity: Activity) -> None:
        self.a, self.trace = activity, activity.trace
        self.signals = signals_of(self.trace, activity)
        self._known: dict[str, _Named] = {}

    def items(self, region: Region, patterns: Collection[str]) -> dict[str, Item]:
        """By pattern the name with most time among the occurrences that begin in the region."""
        kinds = {name: BY_ID[name].cites for name in sorted(patterns)}
        return {
            name: item
            for name, kind in kinds.items()
            if kind is not None and (item := self._top(name, kind, region)) is not None
        }

    def _top(self, pattern: str, kind: Cited, region: Region) -> Item | None:
        if pattern not in self._known:
            self._known[pattern] = self._all(pattern, kind)
        named = self._known[pattern]
        inside = (named.start >= region.start) & (named.start < region.end)
        if not inside.any():
            return None
        ids, which, count = np.unique(named.name[inside], return_inverse=True, return_counts=True)
        spent = np.bincount(which, named.ns[inside])
        best = int(np.argmax(spent))
        share = min(float(spent[best]) / max(region.end - region.start, 1), 1.0)
        total = float(spent[best]) / NS_PER_US
        return Item(kind, self._words(int(ids[best])), int(count[best]), total, share, None)

    def _all(self, pattern: str, kind: Cited) -> _Named:
        """What to cite of all occurrences in the trace."""
        rows = BY_ID[pattern].occurrences(self.signals).rows
        if SIGNALS[BY_ID[pattern].signal].is_gap:
            return self._gaps(rows)
        ops = rows[self.trace.cat[rows] == Cat.CPU_OP]
        if kind == "launched" and self.a.has_device and not self.trace.is_device_work[rows].any():
            return self._launched(rows)
        return self._rows(kind, ops if kind == "op" and len(ops) else rows)

    def _gaps(self, after: Int64) -> _Named:
        """The frames that hold the time before these events."""
        found = gaps(self.signals)
        mine = np.isin(found.after, after) & (found.owner >= 0)
        start, end = found.start[mine], found.end[mine]
        return _Named(start, self.trace.name[found.owner[mine]].astype(np.int64), end - start)

    def _launched(self, rows: Int64) -> _Named:
        """Device work by the event among these that issued it."""
        trace, work = self.trace, issued(self.signals, rows)
        work = work[trace.op[work] >= 0]
        position = nearest(trace.parent, rows)[trace.op[work]]
        work, position = work[position >= 0], position[position >= 0]
        spent = np.bincount(position, trace.dur[work], len(rows)).astype(np.int64)
        return _Named(trace.start[rows], trace.name[rows].astype(np.int64), spent)

    def _rows(self, kind: Cited, rows: Int64) -> _Named:
        """The events by their own names or their ops'; each less what lies inside it, but of
        frames the outermost."""
        trace = self.trace
        if kind == "frame":
            rows = rows[around(trace, rows) < 0]
        inner = around(trace, rows)
        nested = np.flatnonzero(inner >= 0)
        spent = trace.dur[rows] - np.bincount(
            inner[nested], trace.dur[rows[nested]], len(rows)
        ).astype(np.int64)
        return _Named(trace.start[rows], self._names(kind, rows), np.maximum(spent, 0))

    def _names(self, kind: Cited, rows: Int64) -> Int64:
        """The name to cite for each row: its collective's or its op's, where it has one."""
        trace = self.trace
        other = np.full(len(rows), -1)
        if kind == "collective":
            other = trace.collective[rows]
        elif kind in ("op", "launched"):
            other = np.where(trace.op[rows] >= 0, trace.name[trace.op[rows]], -1)
        return np.where(other >= 0, other, trace.name[rows]).astype(np.int64)

    def _words(self, name: int) -> str:
        text = self.trace.names[name]
        return words.kernel(text) if name in self._kernel_names else words.frame(text)

    @cached_property
    def _kernel_names(self) -> frozenset[int]:
        return frozenset(np.unique(self.trace.name[self.a.kernels]).tolist())
