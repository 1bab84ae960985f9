"""Traces with an injected fault beside their untouched base: what the fault changed in a report.

That needs no guess of what a base holds by nature: only what rises counts, in µs of savings.
Faults that add at least 3 % of their base's analyzed time are scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from detector.lab.metrics import Estimate, by_cluster
from detector.lab.scoring.graded import within_factor
from detector.lab.scoring.prediction import Prediction, Predictions, joined
from detector.lab.scoring.truth import INJECTED, Truth

ADDED: Final = 0.03  # of the base's analyzed time: the least that a fault must add
NAMED: Final = 0.02  # of the faulty trace's analyzed time
NEW: Final = 0.3  # of what was added
ALARM: Final = 0.03  # of the faulty trace's analyzed time
ROUNDS: Final = 500


@dataclass(frozen=True)
class Pair:
    """One injected fault. ``named``: its pattern is reported with 2 % and more; ``rise``: by how
    much its savings exceed those in the base, over the added time."""

    trace: str
    base: str
    pattern: str
    named: bool
    rise: float

    @property
    def family(self) -> str:
        """The first word of the pattern."""
        return self.pattern.split("-")[0]

    @property
    def new(self) -> bool:
        """It rises by at least 30 % of what was added."""
        return self.rise >= NEW

    @property
    def within_2x(self) -> bool:
        """The rise is within 2× of what was added."""
        return within_factor(self.rise, 1.0)


@dataclass(frozen=True)
class PairedRow:
    """Some faults: shares with intervals over bases, and the quartiles of rise over added time."""

    faults: int
    bases: int
    named: Estimate
    new: Estimate
    within_2x: Estimate
    rise: tuple[float, float, float]


@dataclass(frozen=True)
class PairedFigures:
    """``alarms``: other patterns that rise by 3 % and more, a trace; ``unpaired``: scanned faulty
    traces whose base was not scanned; ``faint``: faults that add less than 3 %."""

    traces: int
    unpaired: int
    faint: int
    alarms: Estimate
    all: PairedRow | None
    families: Mapping[str, PairedRow]
    patterns: Mapping[str, PairedRow]


def paired_figures(
    truths: Mapping[str, Truth], predictions: Predictions, *, rounds: int = ROUNDS
) -> PairedFigures:
    """Figures of all faults that were put into a base, of each family and of each pattern."""
    faulty = [t for t in truths.values() if t.origin == INJECTED and t.problems]
    faulty = [t for t in faulty if t.trace in predictions]
    bases = {t.base: t for t in truths.values() if t.untouched and t.trace in predictions}
    both = [(t, bases[t.base]) for t in faulty if t.base in bases]
    kept = [(t, base) for t, base in both if _strong(t, base)]
    pairs = [pair for t, base in kept for pair in _pairs(t, base, predictions)]
    groups = {name: _grouped(pairs, key, rounds) for name, key in _KEYS.items()}
    return PairedFigures(
        len(kept),
        len(faulty) - len(both),
        sum(len(t.problems) - len(_strong(t, base)) for t, base in both),
        _alarms_a_trace(kept, predictions, rounds),
        _row(pairs, rounds) if pairs else None,
        groups["family"],
        groups["pattern"],
    )


def _strong(truth: Truth, base: Truth) -> list[str]:
    """The patterns of the faults that add enough to be scored."""
    return [p.pattern for p in truth.problems if p.cost >= ADDED * base.analyzed_us]


def _pairs(truth: Truth, base: Truth, predictions: Predictions) -> Iterator[Pair]:
    after, before = (_savings(predictions[t.trace]) for t in (truth, base))
    for name in _strong(truth, base):
        named = after.get(name, 0.0) >= NAMED * truth.analyzed_us
        rise = (after.get(name, 0.0) - before.get(name, 0.0)) / truth.by_pattern[name].cost
        yield Pair(truth.trace, truth.base, name, named, rise)


def _savings(predictions: Sequence[Prediction]) -> dict[str, float]:
    """By pattern, µs."""
    return {p.pattern: p.savings_us for p in joined(predictions)}


def _alarms_a_trace(
    kept: Sequence[tuple[Truth, Truth]], predictions: Predictions, rounds: int
) -> Estimate:
    count = [_alarms(*both, predictions) for both in kept]
    bases = np.array([truth.base for truth, _ in kept], object)
    return _mean(count, bases, rounds)


def _alarms(truth: Truth, base: Truth, predictions: Predictions) -> int:
    """Patterns without a fault that rise all the same."""
    after, before = (_savings(predictions[t.trace]) for t in (truth, base))
    least = ALARM * truth.analyzed_us
    others = after.keys() - truth.by_pattern.keys()
    return sum(after[name] - before.get(name, 0.0) >= least for name in others)


_KEYS: Final[Mapping[str, Callable[[Pair], str]]] = {
    "family": lambda pair: pair.family,
    "pattern": lambda pair: pair.pattern,
}


def _grouped(
    pairs: Sequence[Pair], key: Callable[[Pair], str], rounds: int
) -> dict[str, PairedRow]:
    names = sorted({key(p) for p in pairs})
    return {name: _row([p for p in pairs if key(p) == name], rounds) for name in names}


def _row(pairs: Sequence[Pair], rounds: int) -> PairedRow:
    bases = np.array([p.base for p in pairs], object)
    low, middle, high = np.quantile([p.rise for p in pairs], [0.25, 0.5, 0.75]).tolist()
    return PairedRow(
        len(pairs),
        len(set(bases)),
        _mean([p.named for p in pairs], bases, rounds),
        _mean([p.new for p in pairs], bases, rounds),
        _mean([p.within_2x for p in pairs], bases, rounds),
        (low, middle, high),
    )


def _mean(values: Sequence[float], bases: npt.NDArray[np.object_], rounds: int) -> Estimate:
    """With an interval over bases."""
    if not len(values):
        return Estimate(*[float("nan")] * 3)
    mine = np.array(values, float)
    return by_cluster(lambda rows: float(mine[rows].mean()), bases, rounds=rounds)
