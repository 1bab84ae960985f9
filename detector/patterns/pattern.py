"""What a pattern is: where it occurs, what it would take to repair it, what to tell about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from detector.intervals import Intervals
from detector.replay.repair import Repair
from detector.patterns.places import Place, own_time
from detector.signals import Signals
from detector.taxonomy import BY_ID as ROWS
from detector.taxonomy import Need, Side
from detector.trace import Int64

# A fault is something done wrong here; an opportunity a known better way, true of many good
# programs: it needs a device that has it, and a share worth having.
Kind = Literal["fault", "opportunity"]
Family = Literal["input", "sync", "host", "memory", "compute", "compile", "comm", "infer"]


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Where a pattern occurs: a row for each, and its time [start, end), ns."""

    rows: Int64
    start: Int64
    end: Int64

    def __len__(self) -> int:
        return len(self.rows)

    def within(self, start: int, end: int) -> Occurrences:
        """Those that begin in [start, end)."""
        inside = (self.start >= start) & (self.start < end)
        return Occurrences(self.rows[inside], self.start[inside], self.end[inside])

    @property
    def spans(self) -> Intervals:
        """Their time as a set."""
        return Intervals.union(self.start, self.end)


@dataclass(frozen=True)
class Pattern:
    """One anti-pattern. What the taxonomy says of it stands there: title, side, needs, advice.

    ``signal`` names its occurrences; ``repair`` turns their rows into what goes or takes less;
    ``assumes`` says in words under which assumptions; ``applies``: whether device and program
    allow the better way; ``explains``: the causes of the ledger that it accounts for; ``place``: the
    time of each occurrence.
    """

    id: str
    family: Family
    kind: Kind
    signal: str
    repair: Callable[[Signals, Int64], Repair]
    assumes: str
    explains: tuple[str, ...] = ()
    applies: Callable[[Signals], bool] = lambda _: True
    place: Place = own_time

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return ROWS[self.id].title

    @property
    def side(self) -> Side:
        """Who has to change: the host's program or the device's work."""
        return ROWS[self.id].side

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the trace has to hold; without it the pattern is not checked."""
        return ROWS[self.id].needs

    def occurrences(self, signals: Signals) -> Occurrences:
        """All of the trace, in time order; none where it does not apply."""
        rows = signals[self.signal] if self.applies(signals) else np.empty(0, np.int64)
        return Occurrences(rows, *self.place(signals, rows))
