"""(Trace, regions) -> evidence: array operations on the rows inside each region.

What belongs to the trace rather than to a region is prepared once for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import CALLS, Activity
from detector.analysis import guards
from detector.evidence import words
from detector.evidence.fields import Fields, Pair
from detector.evidence.frames import Frames
from detector.evidence.listing import Listing, Sums, around, each_once
from detector.evidence.measures import MEASURES, Spec
from detector.evidence.occurrences import Occurring
from detector.evidence.sheet import Evidence, EvidenceRow, Item, Kind, Place
from detector.memoize import memoized
from detector.patterns import IDS, Circumstances, circumstances_of
from detector.region import Region
from detector.signals import signals_of
from detector.trace import NS_PER_US, Cat, Int64
from detector.window import AnalyzedTime

# As much of its length must lie outside a place for a baseline to tell anything.
LEAST_REST: Final = 0.1
_STEP: Final = re.compile(r"^ProfilerStep#")
# Named events of each kind, at most, in the order in which they are listed.
MOST: Final[dict[Kind, int]] = {
    "kernel": 12,
    "op": 14,
    "launched": 14,
    "copy": 6,
    "collective": 4,
    "call": 8,
    "annotation": 6,
    "frame": 10,
}
CITED: Final[tuple[Kind, ...]] = ("annotation",)  # by what the patterns' own texts say


def gather(
    activity: Activity, analyzed: AnalyzedTime, regions: Sequence[Region], *, brief: bool = False
) -> list[Evidence]:
    """The evidence for regions of a trace.

    ``brief``: of named events only those that a report without a language model cites.
    """
    return _Prepared(activity, analyzed).gather(regions, brief) if regions else []


def visible(activity: Activity, analyzed: AnalyzedTime) -> frozenset[str]:
    """Ids of the patterns whose needs this trace meets."""
    return frozenset(IDS) - guards.blind(activity, analyzed).keys()


class _Prepared:
    """A trace made ready: events grouped by name, analyzed totals."""

    def __init__(self, activity: Activity, analyzed: AnalyzedTime) -> None:
        self.a, self.trace, self.analyzed = activity, activity.trace, analyzed
        self.visible = visible(activity, analyzed)
        self.frames = Frames(activity)
        self.occurring = Occurring(activity)

    def gather(self, regions: Sequence[Region], brief: bool) -> list[Evidence]:
        measured = self._measured(regions)
        return [self._of(*pair, brief) for pair in zip(regions, measured, strict=True)]

    def _of(self, region: Region, rows: tuple[EvidenceRow, ...], brief: bool) -> Evidence:
        named = self.visible & {p for p, _ in region.candidates} if brief else self.visible
        return Evidence(
            region,
            self._place(region),
            self.trace.vendor if self.a.has_device else "cpu",
            rows,
            self._items(region, CITED if brief else tuple(MOST)),
            self.frames.where(region),
            self.visible,
            self._circumstances,
            self.occurring.items(region, named),
            self.frames.module_path(region),
        )

    @cached_property
    def _circumstances(self) -> Circumstances:
        return circumstances_of(signals_of(self.trace, self.a))

    # -- numbers -------------------------------------------------------------------------------

    def _measured(self, regions: Sequence[Region]) -> list[tuple[EvidenceRow, ...]]:
        """All measures of each region. One measure at a time: what it is computed from is as large
        as the trace."""
        fields = Fields(self.a)
        table = [self._rows(spec, spec.make(fields), regions) for spec in MEASURES]
        return list(zip(*table, strict=True))

    def _rows(self, spec: Spec, pair: Pair, regions: Sequence[Region]) -> list[EvidenceRow]:
        amount, over = pair
        whole = self.analyzed.start, self.analyzed.end
        totals = amount(*whole), over(*whole)
        return [self._row(spec, pair, totals, region) for region in regions]

    def _row(
        self, spec: Spec, pair: Pair, totals: tuple[float, float], region: Region
    ) -> EvidenceRow:
        amount, over = pair
        start, end = region.start, region.end
        inner = max(start, self.analyzed.start), min(end, self.analyzed.end)
        outside = self.analyzed.end - self.analyzed.start - max(inner[1] - inner[0], 0)
        value, base = amount(start, end), over(start, end)
        rest: float | None = None
        if outside > LEAST_REST * (end - start):
            there = totals[0] - (amount(*inner) if inner[1] > inner[0] else 0.0)
            if spec.unit == "count":
                rest = there * (end - start) / outside
            else:
                of = totals[1] - (over(*inner) if inner[1] > inner[0] else 0.0)
                rest = there / of if of > 0 else 0.0
        of_region = value / base if base > 0 else 0.0
        return EvidenceRow(spec.key, self._label(spec), of_region, spec.unit, rest)

    def _label(self, spec: Spec) -> str:
        """On a trace without a GPU the CPU is what computes."""
        return spec.label if self.a.has_device else spec.label.replace("GPU", "CPU")

    # -- names ---------------------------------------------------------------------------------

    def _items(self, region: Region, kinds: Sequence[Kind]) -> tuple[Item, ...]:
        length = self.analyzed.end - self.analyzed.start
        return tuple(
            item
            for kind in kinds
            if len((listing := self._listing(kind)).start)
            for item in listing.items(
                region.start, region.end, self._sums(kind), length, MOST[kind]
            )
        )

    @memoized
    def _sums(self, kind: Kind) -> Sums:
        return self._listing(kind).sums(self.analyzed.start, self.analyzed.end)

    @memoized
    def _listing(self, kind: Kind) -> Listing:
        match kind:
            case "kernel":
                return self._kernels()
            case "op":
                return self._ops()
            case "launched":
                return self._launched()
            case "copy":
                return self._named(kind, np.union1d(self.a.copies, self.a.memsets))
            case "collective":
                return self._collectives()
            case "call":
                return self._named(kind, self.a.of(*CALLS))
            case "annotation":
                return self._annotations()
            case "frame":
                return self.frames.listing

    def _named(self, kind: Kind, rows: Int64) -> Listing:
        ids, key = np.unique(self.trace.name[rows], return_inverse=True)
        return Listing(self.trace, kind, rows, key, [words.plain(self.trace.names[i]) for i in ids])

    def _kernels(self) -> Listing:
        rows = self.a.kernels
        ids, which = np.unique(self.trace.name[rows], return_inverse=True)
        names, same = each_once([words.kernel(self.trace.names[i]) for i in ids])
        return Listing(self.trace, "kernel", rows, same[which], names)

    def _ops(self) -> Listing:
        """Ops by their own time, keyed by the outermost op around them and their name."""
        rows, owner, key, names = self._op_keys
        return Listing(self.trace, "op", rows, key, names, owner)

    @cached_property
    def _op_keys(self) -> tuple[Int64, Int64, Int64, list[str]]:
        """Ops outside the loader: rows, owners, keys and the keys' names."""
        trace = self.trace
        rows = np.setdiff1d(self.a.of(Cat.CPU_OP), self.a.loader_rows, assume_unique=True)
        owner = around(trace, rows)
        top = _outermost(owner)
        pair = trace.name[rows[top]].astype(np.int64) << 32 | trace.name[rows]
        ids, key = np.unique(pair, return_inverse=True)
        names = [self._path(int(i) >> 32, int(i) & 0xFFFFFFFF) for i in ids]
        return rows, owner, key, names

    def _launched(self) -> Listing:
        """Device work by the op that issued it, whenever that op ran."""
        ops, _, key, names = self._op_keys
        work = self.a.device_work
        issuer = self.trace.op[work].astype(np.int64)
        known = np.isin(issuer, ops)
        at = np.searchsorted(ops, issuer[known])
        return Listing(self.trace, "launched", work[known], key[at], names)

    def _path(self, top: int, leaf: int) -> str:
        names = self.trace.names
        if top == leaf:
            return words.plain(names[leaf])
        return words.bounded(f"{words.plain(names[top])} > {words.plain(names[leaf])}", 110)

    def _collectives(self) -> Listing:
        """Collectives by what they are called, not by their kernels."""
        rows = self.a.comm_rows
        called = self.trace.collective[rows]
        ids, key = np.unique(
            np.where(called >= 0, called, self.trace.name[rows]), return_inverse=True
        )
        names = [words.kernel(self.trace.names[i]) for i in ids]
        return Listing(self.trace, "collective", rows, key, names)

    def _annotations(self) -> Listing:
        """Host annotations; those that no library is known for are the user's own."""
        rows = self.a.of(Cat.USER_ANNOTATION)
        rows = np.setdiff1d(rows, self.a.named(rows, _STEP), assume_unique=True)
        ids, key = np.unique(self.trace.name[rows], return_inverse=True)
        names = [self.trace.names[i] for i in ids]
        known = [any(p.search(name) for p in vocabulary.HOST.values()) for name in names]
        user = ~np.array(known, np.bool_)
        labels = [words.plain(name) for name in names]
        return Listing(self.trace, "annotation", rows, key, labels, user=user)

    # -- place ---------------------------------------------------------------------------------

    def _place(self, region: Region) -> Place:
        steps = self.analyzed.steps
        start = np.array([step.start for step in steps], np.int64)
        length = np.array([step.end - step.start for step in steps], np.int64)
        step_ns = float(np.median(length)) if len(steps) else 0.0
        first = max(int(np.searchsorted(start, region.start, side="right")) - 1, 0)
        last = max(int(np.searchsorted(start, region.end)) - 1, first)
        return Place(
            (region.end - region.start) / NS_PER_US,
            (self.analyzed.end - self.analyzed.start) / NS_PER_US,
            step_ns / NS_PER_US,
            first if len(steps) else -1,
            last if len(steps) else -1,
            (region.start - int(start[first])) / max(step_ns, 1.0) if len(steps) else 0.0,
            len(steps),
        )


def _outermost(owner: Int64) -> Int64:
    """For each position: the position of the last owner on the way up, or itself."""
    top = np.where(owner >= 0, owner, np.arange(len(owner)))
    while True:
        further = top[top]
        if np.array_equal(further, top):
            return top
        top = further
