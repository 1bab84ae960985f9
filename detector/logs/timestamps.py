"""Time stamps of log lines as numbers: a date, or RCCL's bare count of ticks."""

from __future__ import annotations

import math
from datetime import datetime, timezone


class Stamps:
    """Reads time stamps; most lines share theirs with the line before."""

    def __init__(self) -> None:
        self._last: tuple[str, float] = ("", math.nan)

    def time(self, stamp: str | None, ticks: str | None) -> float:
        """Seconds since 1970 of a date, or the bare number; NaN without either."""
        if ticks is not None:
            return float(ticks)
        if stamp is None:
            return math.nan
        if stamp != self._last[0]:
            self._last = (stamp, _seconds(stamp))
        return self._last[1]


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
