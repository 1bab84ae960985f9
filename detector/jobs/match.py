"""Collectives matched across ranks, clocks aligned by their ends, waiting split from transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.jobs.rank import Lane, RankTrace
from detector.logs.collectives import POINT_TO_POINT
from detector.trace import Bool, Int32, Int64

MOST_SHIFT: Final = 8  # collectives that one rank may have recorded more of at its start
TOGETHER: Final = 500_000  # ns between ends of one collective: clocks of hosts differ by as much
ROUNDS: Final = 3  # of aligning clocks
NEVER: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class Matched:
    """Collectives that two ranks and more were in: rows; ranks: columns. ns on one common axis."""

    start: Int64  # (collectives, ranks); NEVER where the rank is not in it
    end: Int64
    place: Int32  # (collectives, ranks): which of the rank's collectives; -1
    present: Bool
    offset: Int64  # subtracted from each rank's times
    by: str
    """How: ``sequence``, ``group order``, ``stream order`` or ``ends``."""
    confidence: float
    """Share of matches in which operation and size agree."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def arrived(self) -> Int64:
        """When the last rank arrived."""
        found: Int64 = np.where(self.present, self.start, NEVER).max(axis=1)
        return found

    @property
    def first(self) -> Int64:
        """When the first rank arrived."""
        found: Int64 = np.where(self.present, self.start, np.iinfo(np.int64).max).min(axis=1)
        return found

    @property
    def last(self) -> Int64:
        """The column of the last rank to arrive."""
        found: Int64 = np.where(self.present, self.start, NEVER).argmax(axis=1)
        return found

    @property
    def skew(self) -> Int64:
        """From the first arrival to the last, ns."""
        return self.arrived - self.first

    @property
    def transfer(self) -> Int64:
        """The shortest time that a rank spends in it, ns: the last to arrive does not wait."""
        duration = np.where(self.present, self.end - self.start, np.iinfo(np.int64).max)
        found: Int64 = duration.min(axis=1)
        return found

    @property
    def done(self) -> Int64:
        """When it was over, ns: the median of the ranks' ends."""
        ends = np.where(self.present, self.end - self.arrived[:, None], np.nan).astype(np.float64)
        ends[~self.present] = np.nan
        return self.arrived + np.nanmedian(ends, axis=1).astype(np.int64)

    @property
    def waiting(self) -> Int64:
        """(collectives, ranks): time before the last rank arrived, ns; 0 where not in it."""
        inside = np.minimum(self.arrived[:, None], self.end) - self.start
        return np.where(self.present, np.maximum(inside, 0), 0)


def match(ranks: Sequence[RankTrace]) -> Matched:
    """Match the collectives of these ranks; messages between two ranks are left out."""
    found: list[dict[int, int]] = []
    by: set[str] = set()
    agreed: list[bool] = []
    for lanes, how in _lanes(ranks):
        rows, ways, fits = _in_lane(ranks, lanes, how)
        found += rows
        by |= ways
        agreed += fits
    rows = [row for row in found if len(row) > 1]
    shape = (len(rows), len(ranks))
    place = np.full(shape, -1, np.int32)
    start, end = np.full(shape, NEVER), np.full(shape, NEVER)
    for i, row in enumerate(rows):
        for rank, at in row.items():
            place[i, rank] = at
            start[i, rank] = ranks[rank].collectives.start[at]
            end[i, rank] = ranks[rank].collectives.end[at]
    present = place >= 0
    offset = _offsets(end, present)
    start, end = (np.where(present, t - offset, NEVER) for t in (start, end))
    order = np.argsort(np.where(present, start, NEVER).max(axis=1), kind="stable")
    return Matched(
        start[order],
        end[order],
        place[order],
        present[order],
        offset,
        _worst(by),
        sum(agreed) / len(agreed) if agreed else 0.0,
    )


def _worst(by: set[str]) -> str:
    return next((w for w in ("ends", "stream order", "group order", "sequence") if w in by), "")


# -- which collectives of which ranks have one order -----------------------------------------------


def _lanes(ranks: Sequence[RankTrace]) -> list[tuple[dict[int, int], str]]:
    """Lanes that belong together, {rank: its lane}, and how one knows."""
    groups: dict[tuple[str, str], dict[int, int]] = {}
    streams: dict[int, list[tuple[int, Lane]]] = {}
    for r, rank in enumerate(ranks):
        for number, lane in enumerate(rank.lanes):
            if lane.group:
                groups.setdefault((lane.group, _members(rank, number)), {})[r] = number
            else:
                streams.setdefault(r, []).append((number, lane))
    named = [(lanes, "group order") for lanes in groups.values()]
    return named + [(lanes, "stream order") for lanes in _by_stream(streams)]


def _members(rank: RankTrace, lane: int) -> str:
    """A group's ranks: names alone are given anew to each rank's groups in some versions."""
    kinds = rank.collectives.kind[rank.collectives.lane == lane]
    listed = {rank.kinds[k].group_ranks for k in np.unique(kinds).tolist()} - {""}
    return min(listed) if listed else ""


def _by_stream(streams: dict[int, list[tuple[int, Lane]]]) -> list[dict[int, int]]:
    """Lanes by the stream's number where all ranks use the same, else by order of first use."""
    used = [{lane.stream for _, lane in lanes} for lanes in streams.values()]
    if used and all(u == used[0] for u in used):
        return [
            {r: n for r, lanes in streams.items() for n, lane in lanes if lane.stream == stream}
            for stream in sorted(used[0])
        ]
    most = max((len(lanes) for lanes in streams.values()), default=0)
    return [{r: lanes[i][0] for r, lanes in streams.items() if i < len(lanes)} for i in range(most)]


# -- matching within a lane ------------------------------------------------------------------------


def _in_lane(
    ranks: Sequence[RankTrace], lanes: dict[int, int], how: str
) -> tuple[list[dict[int, int]], set[str], list[bool]]:
    """Rows {rank: place}, how they were matched, and whether each agrees over ranks."""
    places = {r: _collective_places(ranks[r], lane) for r, lane in lanes.items()}
    places = {r: p for r, p in places.items() if len(p)}
    if len(places) < 2:
        return [], set(), []
    sequences = {r: ranks[r].collectives.sequence[p] for r, p in places.items()}
    numbered = all((s >= 0).all() and len(np.unique(s)) == len(s) for s in sequences.values())
    keys = {r: _keys(ranks[r], p) for r, p in places.items()}
    rows: dict[int, dict[int, int]] = {}
    shifts = {} if numbered else _shifts(keys)
    for r, mine in places.items():
        numbers = sequences[r] if numbered else np.arange(len(mine)) + shifts[r]
        for number, at in zip(numbers.tolist(), mine.tolist(), strict=True):
            rows.setdefault(number, {})[r] = at
    of = {r: dict(zip(p.tolist(), keys[r], strict=True)) for r, p in places.items()}
    on_device = all(ranks[r].is_device for r in places)  # a CPU backend's ranks leave as they can
    if on_device and not numbered and _apart(ranks, [row for row in rows.values() if len(row) > 1]):
        # Some ranks lack collectives in the middle: only ends can tell which belong together.
        together = _by_ends(ranks, of)
        return together, {"ends"}, [len(row) > 1 for row in together]
    fits = [len({of[r][at] for r, at in row.items()}) == 1 for row in rows.values() if len(row) > 1]
    return list(rows.values()), {"sequence" if numbered else how}, fits


def _apart(ranks: Sequence[RankTrace], rows: list[dict[int, int]]) -> bool:
    """Whether ranks do not leave together what their order says is one collective."""
    ends = np.full((len(rows), len(ranks)), np.nan)
    took = np.full((len(rows), len(ranks)), np.nan)
    origin = ranks[0].start
    for i, row in enumerate(rows):
        for r, at in row.items():
            c = ranks[r].collectives
            ends[i, r] = c.end[at] - origin
            took[i, r] = c.end[at] - c.start[at]
    if len(rows) < 2:
        return False
    # A clock that is off moves all ends of a rank alike.
    usual = np.nanmedian(ends, axis=1)[:, None]
    behind = ends - usual
    used = ~np.isnan(behind).all(axis=0)
    behind = behind[:, used] - np.nanmedian(behind[:, used], axis=0)
    return bool(np.nanmedian(np.abs(behind)) > max(TOGETHER, 0.1 * np.nanmedian(took)))


def _by_ends(
    ranks: Sequence[RankTrace], keys: dict[int, dict[int, tuple[str, int]]]
) -> list[dict[int, int]]:
    """Collectives of one kind that end within half a millisecond, each rank at most once."""
    ends = sorted(
        (int(ranks[r].collectives.end[at]), r, at) for r, places in keys.items() for at in places
    )
    rows: list[dict[int, int]] = []
    since = NEVER
    for end, r, at in ends:
        row = rows[-1] if rows else {}
        alike = any(keys[r][at] == keys[other][place] for other, place in row.items())
        if row and end - since <= TOGETHER and r not in row and alike:
            row[r] = at
        else:
            rows.append({r: at})
            since = end
    return rows


def _collective_places(rank: RankTrace, lane: int) -> Int64:
    c = rank.collectives
    mine = np.flatnonzero(c.lane == lane)
    keep = np.array([k.op not in ("Send", "Recv") for k in rank.kinds] or [True], np.bool_)
    found: Int64 = mine[keep[c.kind[mine]]] if len(mine) else mine
    return found


def _keys(rank: RankTrace, places: Int64) -> list[tuple[str, int]]:
    """Operation and size; sizes of an all-to-all differ between ranks."""
    c = rank.collectives
    kinds = [rank.kinds[k].op for k in c.kind[places].tolist()]
    sizes = c.elements[places].tolist()
    uneven = POINT_TO_POINT | {"AllToAll", "AllGather"}
    return [(op, -1 if op in uneven else size) for op, size in zip(kinds, sizes, strict=True)]


def _shifts(keys: dict[int, list[tuple[str, int]]]) -> dict[int, int]:
    """How far each rank's order is behind the longest rank's: recordings begin apart."""
    base = max(keys, key=lambda r: len(keys[r]))
    found = {}
    for r, mine in keys.items():
        tries = sorted(range(-MOST_SHIFT, MOST_SHIFT + 1), key=abs)
        found[r] = max(tries, key=lambda shift: _agreement(keys[base], mine, shift))
    return found


def _agreement(base: list[tuple[str, int]], mine: list[tuple[str, int]], shift: int) -> float:
    """Share of places that agree, less a little for each place that is lost."""
    pairs = [(base[i + shift], key) for i, key in enumerate(mine) if 0 <= i + shift < len(base)]
    if not pairs:
        return -1.0
    same = sum(a == b for a, b in pairs)
    return same / len(pairs) - 0.02 * (len(mine) - len(pairs)) - 1e-6 * abs(shift)


# -- clocks ----------------------------------------------------------------------------------------


def _offsets(end: Int64, present: Bool) -> Int64:
    """What to subtract from each rank's times so that collectives end together.

    All ranks leave a collective within microseconds, however they came to it. A rank's offset is
    the median over its collectives of how far it ends behind the median rank. Ranks that share no
    collective with the rest keep their own clock.
    """
    ranks = end.shape[1]
    if not len(end):
        return np.zeros(ranks, np.int64)
    origin = end[present].min()
    ends = np.where(present, (end - origin).astype(np.float64), np.nan)
    offset = np.zeros(ranks)
    for _ in range(ROUNDS):
        usual = np.nanmedian(ends - offset, axis=1)
        behind = ends - offset - usual[:, None]
        for r in range(ranks):
            if present[:, r].any():
                offset[r] += np.nanmedian(behind[:, r])
    # The first rank keeps its clock: its trace is what a reader opens.
    found: Int64 = np.rint(offset - offset[0]).astype(np.int64)
    return found


def spread(matched: Matched, share: float = 0.9) -> float:
    """How far apart ranks end a collective, ns: at most so far in this share; 0 without any."""
    if not len(matched):
        return 0.0
    high = np.where(matched.present, matched.end, NEVER).max(axis=1)
    low = np.where(matched.present, matched.end, np.iinfo(np.int64).max).min(axis=1)
    return float(np.quantile(high - low, share))
