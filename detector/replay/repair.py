"""What a program would be without a fault: things that go or take less, and nothing added."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from detector.rowset import distinct
from detector.trace import Int64

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
    """

    remove: Int64 = field(default_factory=_none)
    own: Capped = field(default_factory=_uncapped)
    unwait: Int64 = field(default_factory=_none)
    idle: Capped = field(default_factory=_uncapped)
    drop: Int64 = field(default_factory=_none)
    work: Capped = field(default_factory=_uncapped)

    def __post_init__(self) -> None:
        for name in ("remove", "unwait", "drop"):
            object.__setattr__(self, name, distinct(_whole(getattr(self, name))))
        for name in ("own", "idle", "work"):
            object.__setattr__(self, name, _smallest(*getattr(self, name)))

    def __or__(self, other: Repair) -> Repair:
        return Repair(
            np.concatenate([self.remove, other.remove]),
            _joined(self.own, other.own),
            np.concatenate([self.unwait, other.unwait]),
            _joined(self.idle, other.idle),
            np.concatenate([self.drop, other.drop]),
            _joined(self.work, other.work),
        )

    def __bool__(self) -> bool:
        gone = self.remove, self.unwait, self.drop
        return any(map(len, gone)) or any(len(c[0]) for c in (self.own, self.idle, self.work))

    def since(self, start: Int64, time: int) -> Repair:
        """What of it lies in rows that begin at ``time`` or later; ``start``: of all rows, ns."""

        def late(rows: Int64) -> Int64:
            return rows[start[rows] >= time]

        def late_capped(capped: Capped) -> Capped:
            rows, most = capped
            return rows[start[rows] >= time], most[start[rows] >= time]

        return Repair(
            late(self.remove),
            late_capped(self.own),
            late(self.unwait),
            late_capped(self.idle),
            late(self.drop),
            late_capped(self.work),
        )


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


def _joined(one: Capped, other: Capped) -> Capped:
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])
