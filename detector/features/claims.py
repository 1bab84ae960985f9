"""What repairing each pattern could save of a window, by the claims of ``cost``.

A claim is computed from the trace's events alone: no label, marker or file name enters it,
and no claim decides what is labelled, healthy or unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from detector import cost
from detector.activity import Activity
from detector.features.measure import LENGTH, Covered, Feature, Need, Product, Ratio, Scale
from detector.intervals import Intervals
from detector.patterns import PATTERNS, Pattern

# Not of the patterns that a single trace cannot show: their claims are always empty.
SHOWN: Final = tuple(pattern for pattern in PATTERNS if "ranks" not in pattern.needs)
# Patterns that the taxonomy checks with a device only, but whose claims measure CPU runs as well.
ON_CPU_RUNS: Final = ("compute-misaligned-gemm", "comm-exposed")


def spans(activity: Activity, pattern: str) -> Intervals:
    """The time that a pattern claims."""
    return cost.claim(activity, pattern).intervals


INTERVALS: Final[dict[str, Callable[[Activity], Intervals]]] = {
    f"claim:{pattern.id}": partial(spans, pattern=pattern.id) for pattern in SHOWN
}
SCALES: Final[dict[str, Callable[[Activity], float]]] = {
    f"weight:{pattern.id}": partial(cost.weight, pattern=pattern.id) for pattern in SHOWN
}


def recoverable(pattern: str) -> Ratio:
    """The share of the window that a pattern's repair could save."""
    return Ratio(Product(Scale(f"weight:{pattern}"), Covered(f"claim:{pattern}")), LENGTH)


def need(pattern: Pattern) -> Need | None:
    """What the trace must hold to show the pattern, by the taxonomy: the rarest of its needs."""
    if "device" in pattern.needs and pattern.id not in ON_CPU_RUNS:
        return "device"
    return "shapes" if "shapes" in pattern.needs else "host" if "host" in pattern.needs else None


CLAIMED: Final = {f"claim_{p.id.replace('-', '_')}": p.id for p in SHOWN}  # by feature's name

FEATURES: Final = tuple(
    Feature(
        name,
        "share",
        f'what repairing "{pattern.title}" could save here',
        recoverable(pattern.id),
        need(pattern),
    )
    for name, pattern in zip(CLAIMED, SHOWN, strict=True)
)
