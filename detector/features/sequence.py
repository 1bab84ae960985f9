"""Repeats, runs and neighbors in a sequence of events, without a loop."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from detector.trace import Bool, Int64


def shifted(flags: Bool, by: int) -> Bool:
    """flags[i - by]; False where there is none."""
    result = np.zeros(len(flags), np.bool_)
    if by < len(flags):
        result[by:] = flags[: len(flags) - by]
    return result


def distance(keys: npt.NDArray[np.integer]) -> Int64:
    """How many places before each key an equal one last occurred; 0 where none did."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    back = np.zeros(len(keys), np.int64)
    same = ranked[1:] == ranked[:-1]
    back[order[1:][same]] = (order[1:] - order[:-1])[same]
    return back


def recurs(keys: npt.NDArray[np.integer], period: int, times: int) -> Bool:
    """Whether a key equals the one ``period`` places back, and so ``times`` periods back."""
    equal = np.zeros(len(keys), np.bool_)
    if period < len(keys):
        equal[period:] = keys[period:] == keys[:-period]
    result = equal.copy()
    for i in range(1, times):
        result &= shifted(equal, i * period)
    return result
