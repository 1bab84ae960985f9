"""NCCL Inspector's JSON lines: how long each collective took on each rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from detector.logs import text
from detector.logs.anomaly import Anomaly
from detector.logs.collectives import op_of

FEWEST: Final = 4  # collectives, before a rank is called late
LATE: Final = 0.5  # share of collectives that a rank ends in the shortest time, and of it lost


@dataclass(frozen=True)
class Record:
    """One collective on one rank. Its time is shortest on the rank that came last."""

    comm: str
    rank: int
    ranks: int
    nodes: int
    op: str
    sequence: int
    bytes: int
    time_us: float
    bus_gbs: float


def looks_like(head: bytes) -> bool:
    """Whether the first bytes of a file are such records."""
    return b'"coll_perf"' in head or b'"p2p_perf"' in head


def read(path: Path) -> tuple[tuple[Record, ...], int]:
    """The records of a file, and how many lines or objects of it are none. Raises OSError."""
    return records(text.lines(path))


def records(lines: Iterator[str]) -> tuple[tuple[Record, ...], int]:
    """Records of these lines; an object may stand on one line or on several."""
    found, lost = [], 0
    for part in _objects(lines):
        try:
            found.append(_record(msgspec.json.decode(part)))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            lost += 1
    return tuple(found), lost


def _objects(lines: Iterator[str]) -> Iterator[str]:
    pending: list[str] = []
    depth = 0
    for line in lines:
        if not pending and not line.lstrip().startswith("{"):
            continue
        # Braces in these records stand in no text: hosts and ids hold none.
        depth += line.count("{") - line.count("}")
        pending.append(line)
        if depth <= 0 or len(pending) > 1 << 16:
            yield "\n".join(pending)
            pending, depth = [], 0
    if pending:
        yield "\n".join(pending)


def _record(value: Any) -> Record:
    header = value["header"]
    perf, kind = value.get("coll_perf"), "coll"
    if perf is None:
        perf, kind = value["p2p_perf"], "p2p"
    return Record(
        comm=str(header["id"]),
        rank=int(header["rank"]),
        ranks=int(header["n_ranks"]),
        nodes=int(header.get("nnodes", 0)),
        op=op_of(str(perf[kind])) or str(perf[kind]),
        sequence=int(perf[f"{kind}_sn"]),
        bytes=int(perf[f"{kind}_msg_size_bytes"]),
        time_us=float(perf[f"{kind}_exec_time_us"]),
        bus_gbs=float(perf[f"{kind}_busbw_gbs"]),
    )


def check(records: Sequence[Record]) -> tuple[Anomaly, ...]:
    """Ranks that others wait for: those that most collectives of a communicator keep shortest."""
    calls: dict[tuple[str, str, int], dict[int, Record]] = defaultdict(dict)
    for r in records:
        calls[r.comm, r.op, r.sequence][r.rank] = r
    last: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    total: dict[str, int] = defaultdict(int)
    for (comm, _, _), by_rank in calls.items():
        if len(by_rank) > 1:
            shortest = min(by_rank.values(), key=lambda r: r.time_us)
            usual = median(r.time_us for r in by_rank.values() if r.rank != shortest.rank)
            total[comm] += 1
            if shortest.time_us < (1 - LATE) * usual:
                last[comm][shortest.rank].append(usual - shortest.time_us)
    return tuple(
        _late(comm, rank, waits, total[comm])
        for comm, by in last.items()
        for rank, waits in by.items()
        if total[comm] >= FEWEST and len(waits) >= LATE * total[comm]
    )


def _late(comm: str, rank: int, waits: list[float], calls: int) -> Anomaly:
    text = (
        f"rank {rank} comes last to {len(waits)} of {calls} collectives; the others wait"
        f" {median(waits):,.0f} µs for it"
    )
    return Anomaly("late-rank", text, (rank,), f"communicator {comm}")
