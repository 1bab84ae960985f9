"""What a pattern is: where it occurs, how it is repaired in a replay, and what to say about it."""

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

# A fault is something done wrong here; an opportunity is a known better way that many good programs
# lack: it needs a device that supports it, and a share that is worth the change.
Kind = Literal["fault", "opportunity"]
# Which kind of event an explanation cites.
Cited = Literal["op", "launched", "kernel", "copy", "call", "frame", "collective"]

# The cost of known faults divided by the replay's figure, which `scripts/pair_gains.py` measures.
WHOLE: Final = (0.75, 1.33)  # where the repair removes all that was recorded of the fault
LEFT: Final = (0.67, 1.5)  # where it leaves a share that recordings have shown
PAUSED: Final = (0.75, 1.75)  # after a long pause caches are cold, and what follows is slower, too
SHARED: Final = (0.5, 2.0)  # where it leaves an assumed share, or removes only a part


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

    It fits where all conditions of ``when`` hold. ``{optimizer}`` in the code stands for the class
    seen in the trace.
    """

    text: str
    code: str
    when: tuple[Condition, ...] = ()

    def fits(self, circumstances: Circumstances) -> bool:
        """Whether it is right for this device and program."""
        return all(condition.holds(circumstances) for condition in self.when)


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """One anti-pattern. No other place in the product spells its id.

    ``id``: kebab-case, its family first; the label of datasets, the class of models, the key of
    reports; it never changes its meaning. ``side``: what has to change, the host's program or the
    work on the device. ``needs``: what the trace must contain; ``needs_on_cpu``: the same for a CPU
    run, where it differs. ``signal``: the name of its occurrences. ``repair``: from their rows to
    what is removed or shortened in the replay. ``assumes``: the assumptions behind that, in words.
    ``explains``: the causes of the ledger that it accounts for. ``applies``: whether device and
    program allow the better way. ``place``: the time of each occurrence. ``error``: the range of
    true savings, as factors of the replay's. ``proof``: the cause of the ledger without which the
    pattern is a guess, and a lead at most.

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
