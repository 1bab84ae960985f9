"""What a pattern is: where it occurs, what it would take to repair it, what to say about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from detector.intervals import Intervals
from detector.patterns.circumstances import Circumstances
from detector.patterns.conditions import Condition
from detector.patterns.places import Place, own_time
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.taxonomy import Need, Side
from detector.trace import Int64

# A fault is something done wrong here; an opportunity a known better way, true of many good
# programs: it needs a device that has it, and a share worth having.
Kind = Literal["fault", "opportunity"]
# What of a region's named events an explanation cites.
Cited = Literal["op", "launched", "kernel", "copy", "call", "frame", "collective"]

# What known faults cost, over what their replays say; `scripts/pair_gains.py` measures it.
WHOLE: Final = (0.75, 1.33)  # where a repair takes out whole what was recorded
LEFT: Final = (0.67, 1.5)  # where it leaves a share that recordings have shown
PAUSED: Final = (0.75, 1.75)  # after a long pause what comes is slower, too: caches are cold
SHARED: Final = (0.5, 2.0)  # where it leaves an assumed share, or what it takes out is not all


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Where a pattern occurs: a row for each, and its time [start, end), ns."""

    rows: Int64
    start: Int64
    end: Int64

    def __len__(self) -> int:
        return len(self.rows)

    def within(self, start: int, end: int) -> Occurrences:
        """The occurrences that begin in [start, end)."""
        inside = (self.start >= start) & (self.start < end)
        if inside.all():
            return self
        return Occurrences(self.rows[inside], self.start[inside], self.end[inside])

    @property
    def spans(self) -> Intervals:
        """The time of all occurrences as a set."""
        return Intervals.union(self.start, self.end)


@dataclass(frozen=True)
class Advice:
    """What to change, in a sentence or two, and the code that shows it.

    ``when``: all of these conditions must hold for it to fit; none: it fits always.
    ``{optimizer}`` in the code stands for the class seen in the trace.
    """

    text: str
    code: str
    when: tuple[Condition, ...] = ()

    def fits(self, circumstances: Circumstances) -> bool:
        """Whether it is right for this device and program."""
        return all(condition.holds(circumstances) for condition in self.when)


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """One anti-pattern, whole: nothing else in the product knows its id.

    ``id``: kebab-case, its family first; the label of datasets, the class of models, the key of
    reports; it never changes its meaning. ``side``: who has to change, the host's program or the
    work on the device. ``needs``: what the trace has to hold. ``signal`` names its occurrences;
    ``needs_on_cpu``: the same of a CPU run, where it differs;
    ``repair`` turns their rows into what goes or takes less; ``assumes`` says in words under which
    assumptions; ``explains``: the causes of the ledger that it accounts for; ``applies``: whether
    device and program allow the better way; ``place``: the time of each occurrence; ``error``: from
    how little to how much of what a replay says repairing it saves; ``proof``: the cause of the
    ledger without which the pattern is a guess, and a lead at most.

    For people: ``title``; ``what`` is wrong; where to ``look`` in a trace; what it ``costs``; what
    is ``repaired`` in the replay that sizes it; when it is ``harmless``; ``advice``, of which the
    first that fits is given, the last without a condition; ``facts``: keys of the measures that an
    explanation rests on, the most telling first; ``cites``: which named event it adds; ``counted``:
    what its occurrences are called, None where their number tells a reader nothing.
    """

    id: str
    kind: Kind
    side: Side
    needs: tuple[Need, ...]
    signal: str
    repair: Callable[[Signals, Int64], Repair]
    assumes: str
    explains: tuple[str, ...]
    applies: Callable[[Signals], bool] = lambda _: True
    needs_on_cpu: tuple[Need, ...] | None = None
    place: Place = own_time
    error: tuple[float, float] = SHARED
    proof: str = ""
    title: str
    what: str
    look: str
    costs: str
    repaired: str
    harmless: str
    advice: tuple[Advice, ...]
    facts: tuple[str, ...]
    cites: Cited | None = None
    counted: str | None = "times"

    def needed(self, *, has_device: bool) -> tuple[Need, ...]:
        """What a trace with, or without, a device has to hold."""
        return self.needs if has_device or self.needs_on_cpu is None else self.needs_on_cpu

    @property
    def family(self) -> str:
        """The first word of the id: input, sync, host, memory, compute, compile, comm, infer."""
        return self.id.partition("-")[0]

    @property
    def fix(self) -> str:
        """The general advice."""
        return self.advice[-1].text

    @property
    def code(self) -> str:
        """The code of the general advice."""
        return self.advice[-1].code

    def advise(self, circumstances: Circumstances) -> Advice:
        """The first advice that fits, for the optimizer that was seen."""
        found = next(a for a in self.advice if a.fits(circumstances))
        optimizer = circumstances.optimizers[0] if circumstances.optimizers else "AdamW"
        return Advice(found.text, found.code.replace("{optimizer}", optimizer), found.when)

    def occurrences(self, signals: Signals) -> Occurrences:
        """All of the trace, in time order; none where it does not apply."""
        rows = signals[self.signal] if self.applies(signals) else np.empty(0, np.int64)
        return Occurrences(rows, *self.place(signals, rows))
