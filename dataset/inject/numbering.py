"""Ids of events that were not there: they stand where the file would have numbered them.

Real files number in program order. A fresh id follows that of the event before it, and all higher
ones move up; ids of events that are gone leave no hole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from detector.trace import Int64


class Numbering:
    """One space of ids.

    ``anchors`` are, for each fresh event in order, the id after which it comes; ``gone`` are ids
    whose events were removed; ``stride`` is how far ids of neighbors lie apart.
    """

    def __init__(self, anchors: Sequence[int], gone: Int64, stride: int = 1) -> None:
        self._stride = stride
        self._gone = np.unique(gone)
        order = np.argsort(np.array(anchors, np.int64), kind="stable")
        self._anchors = np.array(anchors, np.int64)[order]
        fresh = self._anchors - self._lower(self._anchors)
        fresh = fresh + stride * np.arange(1, len(order) + 1)
        self.fresh = np.empty(len(order), np.int64)
        self.fresh[order] = fresh
        self._sorted, self._removed = self._anchors.tolist(), self._gone.tolist()

    def _lower(self, ids: Int64) -> Int64:
        """How many removed ids lie at or below each id."""
        return np.searchsorted(self._gone, ids, side="right").astype(np.int64)

    @property
    def changes(self) -> bool:
        """Whether any id moves."""
        return bool(len(self._anchors) or len(self._gone))

    def moved(self, value: Any) -> Any:
        """The new id of an event that stays; what is no positive id stays as it is."""
        if type(value) is not int or value <= 0:
            return value
        above = self._stride * bisect_left(self._sorted, value)
        return value + above - bisect_right(self._removed, value)


def stride_of(ids: Int64) -> int:
    """The commonest distance of neighboring ids, at least 1."""
    apart = np.diff(np.unique(ids))
    return int(np.bincount(np.minimum(apart, 64)).argmax()) if len(apart) else 1
