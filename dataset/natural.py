"""Natural traces: files that others published, and what is wrong in them, labeled by hand.

One JSON file a trace in ``natural_labels``: whose trace it is (its base's name in ``bases.yaml``,
the sha256 of the unpacked JSON, and its public source), and what was seen where, each with its
reason and what it costs. The traces stay where they are. A base is known by its name and content,
so neither packing it anew nor cutting it short loses a label; another content under a known name
is an error. A development set: looked at as often as one likes, and never learned from.

Spans are µs on the trace file's own ``ts`` axis. ``unknown`` marks time about which somebody looked
and could not tell; ``healthy`` time that looks suspicious and is not. What neither names was looked
at as well and found sound; for a trace that a fault was put into, ``healthy`` alone counts, as a
second reader found problems of a few per cent in some of the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np

from dataset.bases import Found
from dataset.costs import Cost, with_costs
from dataset.labels import UNKNOWN, Label, LabelError, LabelRegion, Side, check
from detector.intervals import Intervals
from detector.trace import NS_PER_US

LABELS: Final = Path(__file__).with_name("natural_labels")


@dataclass(frozen=True)
class Source:
    """Where a trace is published."""

    repository: str  # owner/name on GitHub
    path: str  # inside the repository; "archive!member" for a file in an archive
    commit: str
    licence: str


@dataclass(frozen=True)
class Verdict:
    """What somebody saw in some spans of a trace, and why they say so.

    ``cost_us``: what a fix could save of the analyzed time, over all spans, which lie in ``steps``
    steps; only of a pattern.
    """

    side: Side
    reason: str
    spans_us: tuple[tuple[float, float], ...]
    pattern: str = ""  # of the taxonomy, or ``UNKNOWN``; empty for a healthy span
    cost_us: float | None = None
    steps: int = 0


@dataclass(frozen=True)
class Natural:
    """A hand-written label file."""

    base: str  # its name in ``bases.yaml``
    sha256: str  # of the JSON, unpacked
    source: Source
    labeler: str
    date: str
    remark: str
    regions: tuple[Verdict, ...]
    healthy: tuple[Verdict, ...]
    label: Label

    @property
    def sound(self) -> dict[Side, Intervals]:
        """Where somebody looked twice and found it sound, ns by side: the healthy spans less what
        the same label names."""
        return {
            side: _spans(self.healthy, side) - _spans(self.regions, side) for side in get_args(Side)
        }


def _spans(verdicts: Iterable[Verdict], side: Side) -> Intervals:
    """The spans of a side's verdicts, ns."""
    spans = [span for v in verdicts if v.side == side for span in v.spans_us]
    pairs = np.array([[round(t * NS_PER_US) for t in span] for span in spans], np.int64)
    pairs = pairs.reshape(-1, 2)
    return Intervals.union(pairs[:, 0], pairs[:, 1])


def by_base(bases: Iterable[Found]) -> dict[str, Natural]:
    """The label of each of these bases that was labeled by hand, by the base's name.

    Raises LabelError where a base has a labeled one's name and another content, or its content
    and another name: its label would be lost, or another trace's.
    """
    known = {label.base: label for label in read_all()}
    names = {label.sha256: label.base for label in known.values()}
    found = {}
    for base in bases:
        if names.get(base.sha256, base.name) != base.name:
            raise LabelError(f"{base.file}: the trace that is labeled as {names[base.sha256]}")
        if label := known.get(base.name):
            if label.sha256 != base.sha256:
                raise LabelError(
                    f"{base.file}: not the trace that {LABELS.name}/{base.name}.json labels"
                )
            found[base.name] = label
    return found


def read_all(folder: str | Path = LABELS) -> tuple[Natural, ...]:
    """All label files of a folder, by name; raises LabelError."""
    return tuple(read(path) for path in sorted(Path(folder).glob("*.json")))


def read(path: str | Path) -> Natural:
    """Read and check one label file; raises LabelError naming the file and the fault."""
    path = Path(path)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        regions = tuple(_verdict(v) for v in raw["regions"])
        found = Natural(
            base=raw["base"],
            sha256=raw["sha256"],
            source=Source(**raw["source"]),
            labeler=raw["labeller"],
            date=raw["date"],
            remark=raw["remark"],
            regions=regions,
            healthy=tuple(_verdict(v) for v in raw["healthy"]),
            label=_label(raw, regions),
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LabelError(f"{path}: {type(error).__name__}: {error}") from error
    check(found.label, str(path))
    return found


def _verdict(raw: dict[str, Any]) -> Verdict:
    spans = tuple((float(start), float(end)) for start, end in raw.pop("spans_us"))
    return Verdict(**raw, spans_us=spans)


def _label(raw: dict[str, Any], verdicts: tuple[Verdict, ...]) -> Label:
    regions = tuple(
        LabelRegion(start, end, verdict.pattern, verdict.side)
        for verdict in verdicts
        for start, end in verdict.spans_us
    )
    label = Label(
        origin="natural",
        pair=f"natural-{raw['pair']}",
        workload=raw["workload"],
        device=raw["device"],
        framework=raw["framework"],
        seed=0,
        step_us=raw["step_us"],
        quality="bad" if any(v.pattern != UNKNOWN for v in verdicts) else "good",
        regions=tuple(sorted(regions, key=lambda r: (r.start_us, r.end_us, r.pattern))),
    )
    return with_costs(label, _costs(verdicts, float(raw["step_us"])))


def _costs(verdicts: tuple[Verdict, ...], step_us: float) -> list[Cost]:
    """Of each pattern, its verdicts together. Raises ValueError where one has none."""
    found = {}
    for pattern in dict.fromkeys(v.pattern for v in verdicts if v.pattern != UNKNOWN):
        mine = [v for v in verdicts if v.pattern == pattern]
        if any(v.cost_us is None or v.steps < 1 for v in mine):
            raise ValueError(f"{pattern} without cost_us or steps")
        total = sum(v.cost_us or 0.0 for v in mine)
        found[pattern] = Cost(pattern, total, max(v.steps for v in mine), step_us)
    return list(found.values())
