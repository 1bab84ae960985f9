"""Time stamps of log lines as numbers: a date, or RCCL's bare count of ticks."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from functools import lru_cache


def read(stamp: str | None, ticks: str | None) -> float:
    """Seconds since 1970 of a date, or the bare number; NaN without either."""
    if ticks is not None:
        return float(ticks)
    return math.nan if stamp is None else _seconds(stamp)


@lru_cache(maxsize=64)  # most lines share theirs with the line before
def _seconds(stamp: str) -> float:
    try:
        return datetime.fromisoformat(stamp.strip()).replace(tzinfo=timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def written(time: float) -> str:
    """The time stamp as a person reads it; empty without one."""
    if math.isnan(time):
        return ""
    if 1e9 <= time < 4e9:
        return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    return f"{time:.0f}"
