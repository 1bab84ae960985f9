"""What is known of a benchmark's traces: their problems, what these cost, where nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.errors import DetectorError
from detector.intervals import EMPTY, Intervals
from detector.lab.tables import table
from detector.patterns import BY_ID
from detector.trace import NS_PER_US

if TYPE_CHECKING:
    import pandas as pd

Spans = tuple[tuple[float, float], ...]  # (start, end), µs

UNKNOWN: Final = "unknown"  # the pattern of a region of which nobody knows what is wrong there
EVERYTHING: Final = ("train", "validation", "test", "natural", "excluded")
INJECTED: Final = "injected"
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "traces": ("trace", "origin", "workload", "base", "analyzed_us", "healthy"),
    "regions": ("trace", "start_us", "end_us", "pattern", "side", "cost_us", "harmless"),
}


@dataclass(frozen=True)
class Problem:
    """All labeled regions of one pattern in one trace, and the analyzed time that they add, µs.

    ``harmless``: it costs so little that naming it is neither right nor wrong.
    """

    pattern: str
    side: str
    spans_us: Spans
    cost_us: float | None
    harmless: bool = False

    @property
    def cost(self) -> float:
        """``cost_us``. Raises DetectorError where the label has none."""
        if self.cost_us is None:
            raise DetectorError(f"{self.pattern}: a labeled problem without its cost")
        return self.cost_us


@dataclass(frozen=True)
class Truth:
    """One labeled trace. ``unknown``: by side, where nobody knows what is wrong; ``span_us``: from
    the start to the end of the analyzed time, None where no table tells."""

    trace: str
    origin: str
    program: str  # its workload
    base: str  # the real trace that it was made from or is, by name; "" for others
    analyzed_us: float
    healthy: bool
    problems: tuple[Problem, ...] = ()
    unknown: Mapping[str, Spans] = field(default_factory=dict)
    span_us: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Raises DetectorError: the figures are shares of the analyzed time, one problem for each
        pattern."""
        if not self.analyzed_us > 0:
            raise DetectorError(f"{self.trace}: analyzed_us is {self.analyzed_us}, not above 0")
        if len({p.pattern for p in self.problems}) < len(self.problems):
            raise DetectorError(f"{self.trace}: several problems of one pattern; join their spans")

    @property
    def cluster(self) -> str:
        """What the bootstrap draws as one: its base where there is one, else its program."""
        return f"base/{self.base}" if self.base else f"program/{self.program}"

    @property
    def untouched(self) -> bool:
        """A base as it is, to compare with what was injected into it."""
        return self.origin == INJECTED and not self.problems

    @cached_property
    def by_pattern(self) -> Mapping[str, Problem]:
        """The problems by their pattern."""
        return {p.pattern: p for p in self.problems}

    @cached_property
    def unknown_ns(self) -> Mapping[str, Intervals]:
        """By side, where nobody knows; ns."""
        return {side: intervals(spans) for side, spans in self.unknown.items()}

    def doubt(self, pattern: str) -> Intervals:
        """Where nobody knows what is wrong on the side on which a pattern acts; ns."""
        return self.unknown_ns.get(BY_ID[pattern].side, EMPTY)


def intervals(spans_us: Iterable[tuple[float, float]]) -> Intervals:
    """The union of spans in µs, in ns."""
    edges = np.array(list(spans_us), np.float64).reshape(-1, 2)
    times = np.round(edges * NS_PER_US).astype(np.int64)
    return Intervals.union(times[:, 0], times[:, 1])


# -- from a built benchmark ------------------------------------------------------------------------


def read_truths(
    data: Path, parts: Sequence[str] = EVERYTHING, scheme: str = "split"
) -> dict[str, Truth]:
    """The traces of a built benchmark by name, those of some parts of a scheme. Only the folder's
    manifest and tables are read. Raises DetectorError where something is missing."""
    traces = _needed(data, "traces")
    if scheme not in traces:
        raise DetectorError(f"{data}: its traces have no scheme {scheme!r}")
    traces = traces[traces[scheme].isin(list(parts))]
    if not len(traces):
        raise DetectorError(f"{data}: no traces in {', '.join(parts)} of {scheme}")
    regions, span = _by_trace(_needed(data, "regions")), _analyzed(data)
    return {
        row["trace"]: _truth(row, regions.get(row["trace"], ()), span.get(row["trace"]))
        for row in traces.to_dict("records")
    }


def _needed(data: Path, name: str) -> pd.DataFrame:
    """A table with the columns that scoring needs. Raises DetectorError."""
    found = table(data, name, EVERYTHING)
    if missing := [column for column in NEEDED[name] if column not in found]:
        raise DetectorError(f"{data}: its {name} have no {', '.join(missing)}: build it anew")
    return found


def _by_trace(regions: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in regions.to_dict("records"):
        found.setdefault(row["trace"], []).append(row)
    return found


def _analyzed(data: Path) -> dict[str, tuple[float, float]]:
    """From the first to the last window of each trace, µs; nothing without a table of windows."""
    try:
        windows = table(data, "windows", EVERYTHING, ("trace", "start_us", "end_us"))
    except DetectorError:
        return {}
    mine = windows.groupby("trace")
    first, last = mine["start_us"].min(), mine["end_us"].max()
    return {str(name): (float(first[name]), float(last[name])) for name in first.index}


def _truth(
    row: Mapping[str, Any], regions: Sequence[Mapping[str, Any]], span: tuple[float, float] | None
) -> Truth:
    named: dict[str, list[Mapping[str, Any]]] = {}
    unknown: dict[str, list[tuple[float, float]]] = {}
    for region in regions:
        if region["pattern"] == UNKNOWN:
            unknown.setdefault(region["side"], []).append(_span(region))
        else:
            named.setdefault(region["pattern"], []).append(region)
    return Truth(
        row["trace"],
        row["origin"],
        row["workload"],
        row["base"],
        float(row["analyzed_us"]),
        bool(row["healthy"]),
        tuple(_problem(row["trace"], pattern, mine) for pattern, mine in named.items()),
        {side: tuple(spans) for side, spans in unknown.items()},
        span,
    )


def _problem(trace: str, pattern: str, regions: Sequence[Mapping[str, Any]]) -> Problem:
    """Raises DetectorError for a region without a cost."""
    cost = sum(float("nan") if r["cost_us"] is None else float(r["cost_us"]) for r in regions)
    if not np.isfinite(cost):
        raise DetectorError(f"{trace}: a labeled region of {pattern} has no cost_us")
    harmless = all(bool(r["harmless"]) for r in regions)
    spans = tuple(_span(r) for r in regions)
    return Problem(pattern, regions[0]["side"], spans, cost, harmless)


def _span(region: Mapping[str, Any]) -> tuple[float, float]:
    return float(region["start_us"]), float(region["end_us"])
