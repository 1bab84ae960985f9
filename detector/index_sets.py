"""Sets of row indices as ascending arrays in which each stands once.

What numpy's ``unique``, ``union1d`` and ``setdiff1d`` do, but for arrays that are mostly in order
already: they hash every number, which takes ten times as long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


def distinct(rows: npt.ArrayLike) -> Int64:
    """Each of these once, ascending: the array itself where it is so already."""
    given = np.asarray(rows, np.int64)
    rises = given[1:] > given[:-1]
    if rises.all():
        return given
    merged = np.sort(given, kind="stable")  # fast where a few ascending runs were joined
    found: Int64 = merged[np.append(True, merged[1:] != merged[:-1])]
    return found


def union(*sets: npt.ArrayLike) -> Int64:
    """What is in any of these, which may be in any order."""
    return distinct(np.concatenate([np.asarray(one, np.int64) for one in sets]))


def difference(rows: Int64, other: npt.ArrayLike) -> Int64:
    """What of ``rows`` is not in ``other``; both in any order."""
    mine = distinct(rows)
    return mine[np.isin(mine, np.asarray(other), assume_unique=True, invert=True)]
