"""Old time -> new time along one thread or stream, for what the replay does not time itself."""

from __future__ import annotations

import numpy as np

from detector.trace import Bool, Int32, Int64


class Axis:
    """Piecewise-linear through the starts and ends of events that were replayed.

    Where a stretch grew, an instant keeps its distance to the nearer of the two events around it;
    where it shrank, it is scaled. Order is kept either way.
    """

    def __init__(self, old_start: Int64, old_end: Int64, start: Int64, end: Int64) -> None:
        old = np.concatenate([old_end, old_start])  # at a tie the start comes last, and counts
        order = np.argsort(old, kind="stable")
        self._old = old[order]
        self._new = np.maximum.accumulate(np.concatenate([end, start])[order])

    def __len__(self) -> int:
        return len(self._old)

    def at(self, times: Int64) -> Int64:
        """New times, ns."""
        if not len(self._old):
            return times
        i = np.searchsorted(self._old, times, side="right") - 1
        left, right = np.maximum(i, 0), np.minimum(i + 1, len(self._old) - 1)
        before, after = times - self._old[left], self._old[right] - times
        room, now = self._old[right] - self._old[left], self._new[right] - self._new[left]
        near = np.where(before <= after, self._new[left] + before, self._new[right] - after)
        scaled = self._new[left] + before * now // np.maximum(room, 1)
        moved = np.where(now >= room, near, scaled)
        moved = np.where(i < 0, self._new[0] + times - self._old[0], moved)
        last = i >= len(self._old) - 1
        found: Int64 = np.where(last, self._new[-1] + times - self._old[-1], moved)
        return found


def axes(
    track: Int32, count: int, rows: Bool, old: tuple[Int64, Int64], new: tuple[Int64, Int64]
) -> list[Axis]:
    """An axis for each of ``count`` tracks, through those ``rows``."""
    found = []
    for number in range(count):
        mine = np.flatnonzero(rows & (track == number))
        found.append(Axis(old[0][mine], old[1][mine], new[0][mine], new[1][mine]))
    return found
