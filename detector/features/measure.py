"""What a feature is made of: sets of events, measured in windows, and divided by each other.

A measure takes windows and gives a number for each. The names of sets, weights and scales are those
of ``sets``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from detector.trace import NS_PER_MS

if TYPE_CHECKING:
    from detector.features.cuts import Cuts

Values = npt.NDArray[np.float64]
Need = Literal["device", "host", "stacks", "shapes"]
Measure = Callable[["Cuts"], Values]


@dataclass(frozen=True)
class Feature:
    """A number for each window: a name, what it means in words, its formula, and its unit.

    ``needs``: the detail of the trace without which it is not defined (NaN everywhere).
    """

    name: str
    meaning: str
    measure: Measure
    unit: str = "share"
    needs: Need | None = None

    def compute(self, cuts: Cuts) -> Values:
        """float64[len(cuts)]; NaN where not defined."""
        if self.needs is not None and not cuts.sheet.has(self.needs):
            return np.full(len(cuts), np.nan)
        return self.measure(cuts)


def needing(need: Need, *features: Feature) -> tuple[Feature, ...]:
    """The same features, not defined for a trace that lacks this."""
    return tuple(replace(feature, needs=need) for feature in features)


# -- amounts ---------------------------------------------------------------------------------------


def length(cuts: Cuts) -> Values:
    """The window's length, ns."""
    return cuts.length


def covered(of: str) -> Measure:
    """Time of the window that a set covers, ns."""
    return lambda cuts: cuts.covered(of)


def spent(of: str) -> Measure:
    """Durations of a set's events, each clipped to the window, summed, ns."""
    return lambda cuts: cuts.spent(of)


def count(of: str) -> Measure:
    """How many events of a set start in the window."""
    return lambda cuts: cuts.count(of)


def longest(of: str) -> Measure:
    """The longest piece of a set of time inside the window, ns."""
    return lambda cuts: cuts.longest(of)


def scale(of: str) -> Measure:
    """A constant of the trace."""
    return lambda cuts: np.full(len(cuts), cuts.sheet.scale(of))


# -- quotients and logarithms ----------------------------------------------------------------------


def over(part: Values, whole: Values) -> Values:
    """part / whole; not defined (NaN) where the whole is 0."""
    values: Values = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return values


def ratio(part: Measure, whole: Measure) -> Measure:
    """part / whole; not defined (NaN) where the whole is 0."""
    return lambda cuts: over(part(cuts), whole(cuts))


def log(of: Measure, unit: float = 1.0) -> Measure:
    """log2 of a measure in a unit; not defined (NaN) where it is 0 or less."""

    def measure(cuts: Cuts) -> Values:
        values = of(cuts) / unit
        return np.log2(values, out=np.full(len(cuts), np.nan), where=values > 0)

    return measure


def log1p(of: Measure) -> Measure:
    """log2(1 + measure), for counts and rates that may be 0."""
    return lambda cuts: np.asarray(np.log1p(of(cuts)) / np.log(2), np.float64)


def time_share(of: str) -> Measure:
    """The share of the window that a set covers."""
    return ratio(covered(of), length)


def count_share(part: str, whole: str) -> Measure:
    """How many of a set are of another."""
    return ratio(count(part), count(whole))


def spent_share(part: str, whole: str) -> Measure:
    """How much of a set's time another takes."""
    return ratio(spent(part), spent(whole))


def covered_share(part: str, whole: str) -> Measure:
    """How much of the time that a set covers another covers."""
    return ratio(covered(part), covered(whole))


def mean(of: str, weight: str) -> Measure:
    """The mean weight of the events of a set that start in the window."""
    return lambda cuts: over(cuts.total(of, weight), cuts.count(of))


def per(of: str, each: str) -> Measure:
    """log2(1 + events of a set for each of another)."""
    return log1p(count_share(of, each))


def rate(of: str) -> Measure:
    """log2(1 + events of a set for each ms of the window)."""
    return log1p(lambda cuts: cuts.count(of) / (cuts.length / NS_PER_MS))
