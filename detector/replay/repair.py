"""What a program would be without a fault: things that go or take less, and nothing added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from detector.index_sets import distinct
from detector.replay.solve import Stuck
from detector.trace import Int64

_NO_CAP: Final = np.iinfo(np.int64).max
_GONE: Final = ("remove", "unwait", "drop")
_CAPPED: Final = ("own", "idle", "work", "tail")
Capped = tuple[Int64, Int64]  # rows, ns: given, one figure may stand for all


def _none() -> Int64:
    return np.zeros(0, np.int64)


def _uncapped() -> Capped:
    return _none(), _none()


@dataclass(frozen=True, eq=False)
class Repair:
    """Rows of a trace that go, or take at most so many ns. Repairs join with ``|``: the smaller
    duration wins, and what goes is gone.

    ``remove``: host rows, with all inside them and the device work that these issued. The time in
    which nothing is recorded before and after one stays, outside ops less 5 µs for the call itself.
    ``own``: host rows, their own time (less that of the events right inside) at most so long. A
    wait for a thread that only fetches data is own time; for device work or the backward it is not.
    ``unwait``: calls that no longer wait for device work; what they cost of their own stays.
    ``idle``: host rows, the time of their thread in which nothing is recorded right before they
    begin (since the begin or end of an event before it) at most so long.
    ``drop``: device work that goes alone; its launch stays.
    ``work``: device work, its duration at most so long.
    ``tail``: like ``idle``, of the time right before they end.
    """

    remove: Int64 = field(default_factory=_none)
    own: Capped = field(default_factory=_uncapped)
    unwait: Int64 = field(default_factory=_none)
    idle: Capped = field(default_factory=_uncapped)
    drop: Int64 = field(default_factory=_none)
    work: Capped = field(default_factory=_uncapped)
    tail: Capped = field(default_factory=_uncapped)

    def __post_init__(self) -> None:
        for name in _GONE:
            object.__setattr__(self, name, distinct(_whole(getattr(self, name))))
        for name in _CAPPED:
            object.__setattr__(self, name, _smallest(*getattr(self, name)))

    def __or__(self, other: Repair) -> Repair:
        return joined([self, other])

    def __bool__(self) -> bool:
        return any(map(len, self.rows))

    @property
    def rows(self) -> list[Int64]:
        """All rows that it names, by what is done to them."""
        return [getattr(self, name) for name in _GONE] + [
            getattr(self, name)[0] for name in _CAPPED
        ]

    def since(self, start: Int64, time: int) -> Repair:
        """What of it lies in rows that begin at ``time`` or later; ``start``: of all rows, ns,
        ascending."""
        first = int(np.searchsorted(start, time))

        def late(rows: Int64) -> slice:
            return slice(int(np.searchsorted(rows, first)), None)

        gone = {name: rows[late(rows)] for name in _GONE for rows in (getattr(self, name),)}
        capped = {
            name: (rows[late(rows)], most[late(rows)])
            for name in _CAPPED
            for rows, most in (getattr(self, name),)
        }
        return _trusted(**gone, **capped)

    def of_rows(self, number: Callable[[Int64], Int64]) -> Repair:
        """The same of a trace in which rows have other numbers, in the same order."""
        gone = {name: number(getattr(self, name)) for name in _GONE}
        capped = {
            name: (number(rows), most) for name in _CAPPED for rows, most in (getattr(self, name),)
        }
        return _trusted(**gone, **capped)


def joined(repairs: Sequence[Repair]) -> Repair:
    """All of these as one."""
    gone = {name: _in_any([getattr(one, name) for one in repairs]) for name in _GONE}
    capped = {name: _least_of([getattr(one, name) for one in repairs]) for name in _CAPPED}
    return _trusted(**gone, **capped)


def _trusted(**fields: Int64 | Capped) -> Repair:
    """A repair of rows that are in order, each once: they need no sorting."""
    made = object.__new__(Repair)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _in_any(sets: Sequence[Int64]) -> Int64:
    filled = [rows for rows in sets if len(rows)]
    if len(filled) < 2:
        return filled[0] if filled else _none()
    found = np.zeros(_reach(filled), np.bool_)
    for rows in filled:
        found[rows] = True
    return np.flatnonzero(found)


def _reach(sets: Sequence[Int64]) -> int:
    """How many rows there are up to the last of these. Raises Stuck for a negative one."""
    if (first := min(int(rows[0]) for rows in sets)) < 0:
        raise Stuck(f"row {first} is no row")
    return max(int(rows[-1]) for rows in sets) + 1


def _least_of(sets: Sequence[Capped]) -> Capped:
    """The least by row; through a table, as the rows of the largest repairs are most of a trace."""
    filled = [capped for capped in sets if len(capped[0])]
    if len(filled) < 2:
        return filled[0] if filled else _uncapped()
    least = np.full(_reach([rows for rows, _ in filled]), _NO_CAP)
    for rows, most in filled:
        least[rows] = np.minimum(least[rows], most)
    found = np.flatnonzero(least < _NO_CAP)
    return found, least[found]


def _whole(values: npt.ArrayLike) -> Int64:
    return np.atleast_1d(np.asarray(values, np.int64))


def _smallest(rows: npt.ArrayLike, most: npt.ArrayLike) -> Capped:
    """Each row once, in order, with its smallest figure. One figure may stand for all rows."""
    whole = _whole(rows)
    cap = np.broadcast_to(_whole(most) if len(whole) else _none(), whole.shape)
    cap = np.maximum(cap, 0)
    if (whole[1:] > whole[:-1]).all():
        return whole, cap
    order = np.argsort(whole, kind="stable")  # fast where a few sorted runs are joined
    whole, cap = whole[order], cap[order]
    first = np.flatnonzero(np.append(True, whole[1:] != whole[:-1]))
    return whole[first], np.minimum.reduceat(cap, first)
