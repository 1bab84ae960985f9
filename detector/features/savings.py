"""What repairing each candidate saves of a window, and where the window's time goes.

A candidate's savings are spread evenly over the time of its occurrences. Both come from the trace's
events alone: no label, marker or file name enters them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from detector.analysis import Analysis
from detector.candidates import Candidate
from detector.features.measure import Feature, Measure, time_share
from detector.intervals import EMPTY, Intervals
from detector.ledger import CAUSES
from detector.patterns import PATTERNS

# Waiting for another rank is no fault of this one's windows.
SHOWN: Final = tuple(pattern for pattern in PATTERNS if pattern.signal != "straggler")
SAVED: Final = {f"saved_{p.id.replace('-', '_')}": p.id for p in SHOWN}  # by feature's name


def _candidate(analysis: Analysis, pattern: str) -> Candidate | None:
    return next((c for c in analysis.candidates.found if c.pattern.id == pattern), None)


def spans(analysis: Analysis, pattern: str) -> Intervals:
    """The time of a candidate's occurrences."""
    found = _candidate(analysis, pattern)
    return found.occurrences.spans if found else EMPTY


def density(analysis: Analysis, pattern: str) -> float:
    """What a candidate saves for each ns of its occurrences."""
    found = _candidate(analysis, pattern)
    return found.best_ns / max(1, found.occurrences.spans.measure) if found else 0.0


# Sets and scales that take more than the trace's activity, by family; see ``sets``.
INTERVALS: Final[dict[str, Callable[[Analysis, str], Intervals]]] = {
    "ledger": lambda analysis, cause: analysis.ledger.spans(cause),
    "saved": spans,
}
SCALES: Final[dict[str, Callable[[Analysis, str], float]]] = {"saved": density}


def _saved(pattern: str) -> Measure:
    """The share of the window that repairing a pattern saves."""
    name = f"saved:{pattern}"
    return lambda cuts: cuts.sheet.scale(name) * cuts.covered(name) / cuts.length


FEATURES: Final = (
    *(
        Feature(name, f'what repairing "{pattern.title}" saves here', _saved(pattern.id))
        for name, pattern in zip(SAVED, SHOWN, strict=True)
    ),
    *(
        Feature(f"ledger_{c.id.replace('-', '_')}", c.label, time_share(f"ledger:{c.id}"))
        for c in CAUSES
    ),
)
