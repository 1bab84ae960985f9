"""Ranks of one communicator must make the same calls: where one does not, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.logs.anomaly import Anomaly, Kind
from detector.logs.collectives import DTYPES, POINT_TO_POINT
from detector.logs.nccl import Calls, NcclLog
from detector.logs.timestamps import written
from detector.trace import Int64

LOOK: Final = 8  # calls after a difference that tell what kind it is
MOST: Final = 20  # differences of one rank
SLACK: Final = 2  # calls that a log which was cut off may lack
APART: Final = 16  # the same, of ranks with a file each: the host runs ahead of the device


@dataclass(frozen=True, eq=False)
class RankCalls:
    """The calls of one rank on one communicator."""

    rank: int
    rows: Int64  # of the log's calls
    keys: Int64  # equal numbers are equal calls
    file: int
    ended: bool


def check(log: NcclLog) -> list[Anomaly]:
    """Every difference between ranks of one communicator."""
    keys = _keys(log)
    found: list[Anomaly] = []
    groups: dict[str, list[RankCalls]] = {}
    collective = np.array([op not in POINT_TO_POINT for op in log.ops] or [True])
    order = np.argsort(log.calls.comm, kind="stable")
    edges = np.searchsorted(log.calls.comm[order], np.arange(len(log.communicators) + 1))
    for i, comm in enumerate(log.communicators):
        if comm.rank < 0:
            continue
        rows = order[edges[i] : edges[i + 1]]
        rows = rows[collective[log.calls.op[rows]]]
        mine = RankCalls(comm.rank, rows, keys[rows], log.order[i], comm.destroyed)
        groups.setdefault(comm.group, []).append(mine)
    for group, ranks in groups.items():
        if len(ranks) > 1:
            found += _differences(log, group, ranks)
    return found


def _keys(log: NcclLog) -> Int64:
    """One number for each distinct (op, count, type, reduction, root)."""
    c = log.calls
    if not len(c):
        return np.empty(0, np.int64)
    table = np.stack([c.op, c.count, c.dtype, c.redop, c.root], axis=1).astype(np.int64)
    width = np.ascontiguousarray(table).view(np.dtype((np.void, table.shape[1] * 8)))
    return np.unique(width.reshape(-1), return_inverse=True)[1].astype(np.int64)


def _differences(log: NcclLog, group: str, ranks: list[RankCalls]) -> list[Anomaly]:
    reference, odd, sure = _split(ranks)
    names = tuple(r.rank for r in ranks)
    found = []
    for mine in odd:
        for anomaly in _against(log, group, mine, reference):
            found.append(anomaly if sure else _either(anomaly, names))
    strange = {id(mine) for mine in odd}
    same = [mine for mine in ranks if id(mine) not in strange]
    return found + _stopped(log, group, same)


def _split(ranks: list[RankCalls]) -> tuple[RankCalls, list[RankCalls], bool]:
    """What most ranks do, the ranks that do otherwise, and whether it is most."""
    classes: list[list[RankCalls]] = []
    for mine in sorted(ranks, key=lambda r: -len(r.keys)):
        for alike in classes:
            if np.array_equal(alike[0].keys[: len(mine.keys)], mine.keys):
                alike.append(mine)
                break
        else:
            classes.append([mine])
    classes.sort(key=lambda alike: (-len(alike), _strange(alike[0], ranks), -len(alike[0].keys)))
    sure = len(classes) == 1 or len(classes[0]) > len(classes[1])
    if not sure:
        sure = _strange(classes[0][0], ranks) < _strange(classes[1][0], ranks)
    return classes[0][0], [mine for alike in classes[1:] for mine in alike], sure


def _strange(mine: RankCalls, ranks: list[RankCalls]) -> int:
    """How many calls are of a kind that this rank alone makes, and only once."""
    kinds, count = np.unique(np.concatenate([r.keys for r in ranks]), return_counts=True)
    return int(np.isin(mine.keys, kinds[count == 1]).sum())


def _either(anomaly: Anomaly, ranks: tuple[int, ...]) -> Anomaly:
    text = f"ranks {' and '.join(map(str, ranks))} differ: {anomaly.text}"
    return Anomaly(
        anomaly.kind, text, ranks, anomaly.where, anomaly.call, anomaly.line, anomaly.time
    )


def _against(log: NcclLog, group: str, mine: RankCalls, usual: RankCalls) -> list[Anomaly]:
    """Where a rank leaves the usual sequence; it is met again after each difference."""
    found: list[Anomaly] = []
    a, b = 0, 0  # place in mine, in usual
    while len(found) < MOST:
        n = min(len(mine.keys) - a, len(usual.keys) - b)
        apart = np.flatnonzero(mine.keys[a : a + n] != usual.keys[b : b + n])
        if not len(apart):
            break
        a, b = a + int(apart[0]), b + int(apart[0])
        scores = {
            step: _agreement(mine.keys[a + step[0] :], usual.keys[b + step[1] :])
            for step in ((1, 1), (0, 1), (1, 0))
        }
        step = max(scores, key=lambda s: scores[s])
        found.append(_difference(log, group, mine, usual, a, b, step))
        a, b = a + step[0], b + step[1]
    return found


def _agreement(a: Int64, b: Int64) -> float:
    n = min(len(a), len(b), LOOK)
    return float((a[:n] == b[:n]).sum()) / LOOK if n else 0.0


def _difference(
    log: NcclLog,
    group: str,
    mine: RankCalls,
    usual: RankCalls,
    a: int,
    b: int,
    step: tuple[int, int],
) -> Anomaly:
    row, other = int(mine.rows[a]), int(usual.rows[b])
    is_, was = _words(log, row), _words(log, other)
    kind: Kind
    if step == (1, 1):
        kind = _mismatch(log.calls, row, other)
        text = f"rank {mine.rank}, call {a}: {is_} where the others make {was}"
    elif step == (0, 1):
        kind, text = "skipped-call", f"rank {mine.rank} skips its call {a}, {was}"
    else:
        kind, text = "extra-call", f"rank {mine.rank} makes a call more than the others, {a}: {is_}"
    return _at(log, kind, text, mine.rank, group, a, row)


def _mismatch(calls: Calls, row: int, other: int) -> Kind:
    if calls.op[row] != calls.op[other]:
        return "mismatched-op"
    if calls.dtype[row] != calls.dtype[other]:
        return "mismatched-dtype"
    if calls.count[row] != calls.count[other]:
        return "mismatched-size"
    return "mismatched-root"


def _words(log: NcclLog, row: int) -> str:
    c = log.calls
    dtype = int(c.dtype[row])
    kind = DTYPES[dtype][0] if 0 <= dtype < len(DTYPES) else "elements of unknown type"
    op = log.ops[c.op[row]] or "a collective"
    root = f", root {c.root[row]}" if op in ("Broadcast", "Reduce") else ""
    return f"{op} of {c.count[row]:,} {kind}{root}"


def _stopped(log: NcclLog, group: str, ranks: list[RankCalls]) -> list[Anomaly]:
    """Ranks that make fewer calls than the others, and more so than the log's end explains."""
    if len(ranks) < 2:
        return []
    most = max(ranks, key=lambda r: len(r.keys))
    found = []
    for mine in ranks:
        made, lacks = len(mine.keys), len(most.keys) - len(mine.keys)
        if lacks <= _allowed(mine, most):
            continue
        row = int(most.rows[made])
        text = (
            f"rank {mine.rank} stops after {made} calls; others made {lacks} more, the first"
            f" {_words(log, row)}"
        )
        last = int(mine.rows[-1]) if made else row
        found.append(_at(log, "stopped", text, mine.rank, group, made, last))
    return found


def _allowed(mine: RankCalls, most: RankCalls) -> int:
    """Calls a rank may lack at the end: as many as it was behind before, where lines have order."""
    if most.ended:
        return 0
    if mine.file != most.file or not len(mine.rows):
        return APART
    ahead = np.searchsorted(most.rows, mine.rows) - np.arange(len(mine.rows))
    return max(SLACK, 2 * int(ahead.max()))


def _at(log: NcclLog, kind: Kind, text: str, rank: int, group: str, call: int, row: int) -> Anomaly:
    return Anomaly(
        kind,
        text,
        (rank,),
        f"communicator {group}",
        call,
        int(log.calls.line[row]),
        written(float(log.calls.time[row])),
    )


def ranks_text(ranks: Sequence[int]) -> str:
    """``3``, ``3 and 5``, ``0 to 3``."""
    ranks = sorted(ranks)
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]} to {ranks[-1]}"
    head = ", ".join(map(str, ranks[:-1][:8]))
    return f"{head} and {ranks[-1]}" if head else "".join(map(str, ranks))
