"""What a feature is made of: sets of events, measured in windows, and divided by each other.

An expression computes itself on ``Cuts`` and spells its own formula, so the formula that the
documents show is the one that runs. Sets and weights are named in ``sets``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from detector.features.cuts import Cuts

Values = npt.NDArray[np.float64]
Need = Literal["device", "host", "stacks", "shapes"]


class Measure(Protocol):
    """A number for each window."""

    def __call__(self, cuts: Cuts) -> Values: ...


@dataclass(frozen=True)
class Length:
    """The window's length, ns."""

    def __call__(self, cuts: Cuts) -> Values:
        return cuts.length


@dataclass(frozen=True)
class Covered:
    """Time of the window that a set covers, ns."""

    of: str

    def __call__(self, cuts: Cuts) -> Values:
        return cuts.covered(self.of)


@dataclass(frozen=True)
class Spent:
    """Durations of a set's events, each clipped to the window, summed, ns."""

    of: str

    def __call__(self, cuts: Cuts) -> Values:
        return cuts.spent(self.of)


@dataclass(frozen=True)
class Count:
    """How many events of a set start in the window."""

    of: str

    def __call__(self, cuts: Cuts) -> Values:
        return cuts.count(self.of)


@dataclass(frozen=True)
class Sum:
    """A weight, summed over the events of a set that start in the window."""

    of: str
    weight: str

    def __call__(self, cuts: Cuts) -> Values:
        return cuts.total(self.of, self.weight)


@dataclass(frozen=True)
class Spread:
    """The standard deviation of a weight over the events of a set that start in the window."""

    of: str
    weight: str

    def __call__(self, cuts: Cuts) -> Values:
        mean = Ratio(Sum(self.of, self.weight), Count(self.of))(cuts)
        square = Ratio(Sum(self.of, f"{self.weight}^2"), Count(self.of))(cuts)
        return np.asarray(np.sqrt(np.maximum(square - mean**2, 0.0)), np.float64)


@dataclass(frozen=True)
class Longest:
    """The longest piece of an interval set inside the window, ns."""

    of: str

    def __call__(self, cuts: Cuts) -> Values:
        return cuts.longest(self.of)


@dataclass(frozen=True)
class Scale:
    """A constant of the trace."""

    of: str

    def __call__(self, cuts: Cuts) -> Values:
        return np.full(len(cuts), cuts.sheet.scale(self.of))


@dataclass(frozen=True)
class Product:
    """A constant of the trace times a measure."""

    scale: Scale
    of: Measure

    def __call__(self, cuts: Cuts) -> Values:
        return self.scale(cuts) * self.of(cuts)


@dataclass(frozen=True)
class Unit:
    """A number of ns that gives a time its unit."""

    ns: float
    name: str

    def __call__(self, cuts: Cuts) -> Values:
        return np.full(len(cuts), self.ns)


@dataclass(frozen=True)
class MedianLength:
    """The median length of the windows (of the wide ones: of the steps), ns."""

    def __call__(self, cuts: Cuts) -> Values:
        return np.full(len(cuts), np.median(cuts.length))


@dataclass(frozen=True)
class Most:
    """The largest of measures."""

    parts: tuple[Measure, ...]

    def __call__(self, cuts: Cuts) -> Values:
        values: Values = np.max([part(cuts) for part in self.parts], axis=0)
        return values


@dataclass(frozen=True)
class Ratio:
    """part / whole; not defined (NaN) where the whole is 0."""

    part: Measure
    whole: Measure

    def __call__(self, cuts: Cuts) -> Values:
        part, whole = self.part(cuts), self.whole(cuts)
        values: Values = np.divide(part, whole, out=np.full(len(cuts), np.nan), where=whole > 0)
        return values


@dataclass(frozen=True)
class Log:
    """log2 of a measure; not defined (NaN) where it is 0 or less."""

    of: Measure

    def __call__(self, cuts: Cuts) -> Values:
        values = self.of(cuts)
        return np.log2(values, out=np.full(len(cuts), np.nan), where=values > 0)


@dataclass(frozen=True)
class Log1p:
    """log2(1 + measure), for counts and rates that may be 0."""

    of: Measure

    def __call__(self, cuts: Cuts) -> Values:
        return np.asarray(np.log1p(self.of(cuts)) / np.log(2), np.float64)


@dataclass(frozen=True)
class Feature:
    """A number for each window: a name, a unit, a meaning, and the measure that is its formula.

    ``needs`` is the detail of the trace without which it is not defined (NaN everywhere).
    """

    name: str
    unit: str
    meaning: str
    measure: Measure
    needs: Need | None = None

    def compute(self, cuts: Cuts) -> Values:
        """float64[len(cuts)]; NaN where not defined."""
        if self.needs is not None and not cuts.sheet.has(self.needs):
            return np.full(len(cuts), np.nan)
        return self.measure(cuts)


LENGTH = Length()
US = Unit(1e3, "us")
MS = Unit(1e6, "ms")


def time_share(of: str) -> Ratio:
    """The share of the window that a set covers."""
    return Ratio(Covered(of), LENGTH)


def count_share(part: str, whole: str) -> Ratio:
    """How many of a set are of another."""
    return Ratio(Count(part), Count(whole))


def spent_share(part: str, whole: str) -> Ratio:
    """How much of a set's time another takes."""
    return Ratio(Spent(part), Spent(whole))


def mean(of: str, weight: str) -> Ratio:
    """The mean weight of a set's events."""
    return Ratio(Sum(of, weight), Count(of))


def rate(of: str) -> Log1p:
    """Events of a set for each ms of the window."""
    return Log1p(Ratio(Count(of), Ratio(LENGTH, MS)))
