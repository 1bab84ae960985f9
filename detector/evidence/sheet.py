"""What the evidence for a region is: numbers beside the rest, named events, places in the code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from detector.patterns import Circumstances
from detector.region import Region
from detector.report import SourceLine

Unit = Literal["share", "count", "us", "GB/s", "elements", "MB"]
Kind = Literal["op", "launched", "kernel", "copy", "call", "frame", "annotation", "collective"]


@dataclass(frozen=True)
class EvidenceRow:
    """One number.

    ``rest`` is the same in the analyzed time outside the region, None where there is none of it;
    for a count it is what the rest has in as much time. Shares are in [0, 1].
    """

    key: str
    label: str
    value: float
    unit: Unit
    rest: float | None


@dataclass(frozen=True)
class Item:
    """Events of one name: ``total_us`` inside the region is ``share`` of its length.

    ``rest`` is their share of the analyzed time outside. ``user`` names come from the profiled
    program rather than from a library. ``mb`` is what copies moved (0 where nothing is known).
    """

    kind: Kind
    name: str
    count: int
    total_us: float
    share: float
    rest: float | None
    mb: float = 0.0
    user: bool = False

    @property
    def mean_us(self) -> float:
        """Mean time of one event."""
        return self.total_us / max(self.count, 1)


@dataclass(frozen=True)
class Place:
    """Where the region lies: its length, and its part of the marked steps (-1 without)."""

    dur_us: float
    analyzed_us: float
    step_us: float  # median length of an analyzed step; 0 without steps
    first_step: int
    last_step: int
    offset: float  # start inside the first step, in steps
    steps: int  # number of analyzed steps


@dataclass(frozen=True)
class Context:
    """What a reader should know beside the region's own events.

    ``notes`` are lines about the device, the program and what is not shown; ``rows`` the time by
    cause and what repairs save; ``views`` what was shown later, on request.
    """

    notes: tuple[str, ...] = ()
    rows: tuple[EvidenceRow, ...] = ()
    views: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Notes and views as lines."""
        return "\n".join((*self.notes, *self.views))


@dataclass(frozen=True)
class Evidence:
    """Everything a judge sees of one region. Nothing in it can be used to read more."""

    region: Region
    place: Place
    vendor: str
    rows: tuple[EvidenceRow, ...]  # every measure, in the order of ``measures.MEASURES``
    items: tuple[Item, ...]  # by kind, the most telling first
    where: tuple[SourceLine, ...]
    visible: frozenset[str]  # ids of the patterns that this trace can show
    circumstances: Circumstances = field(default_factory=Circumstances)  # of the whole trace
    # By pattern: the name with most time among its own occurrences that begin in the region.
    occurring: Mapping[str, Item] = field(default_factory=dict)
    # The path of the module with most of the time, the outermost first; () where modules hold
    # little.
    modules: tuple[str, ...] = ()
    context: Context = field(default_factory=Context)

    def table(self) -> tuple[EvidenceRow, ...]:
        """The numbers worth a person's look: those that are not zero, here or in the rest."""
        return tuple(row for row in self.rows if _matters(row))

    def row(self, key: str) -> EvidenceRow:
        """The measure with this key. Raises KeyError."""
        for row in self.rows:
            if row.key == key:
                return row
        raise KeyError(key)

    def value(self, key: str) -> float:
        """The value of a measure. Raises KeyError."""
        return self.row(key).value

    def of(self, kind: Kind) -> tuple[Item, ...]:
        """The named events of a kind, the most telling first."""
        return tuple(item for item in self.items if item.kind == kind)


def _matters(row: EvidenceRow) -> bool:
    least = 0.0005 if row.unit == "share" else 0.0
    values = (row.value, row.rest or 0.0)
    return all(map(math.isfinite, values)) and max(map(abs, values)) > least
