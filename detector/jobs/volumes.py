"""The communication profile: what a job sends, how often, in which sizes, how fast.

One table whatever it comes from: traces, debug logs, Inspector records or printed tables. What a
source does not tell stays empty or 0; it is never filled in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from detector.logs.collectives import DTYPES, bus_factor, element_bytes, total_factor
from detector.logs.inspector import Record
from detector.logs.nccl import NcclLog
from detector.logs.tables import Table

SEVERAL: Final = "several"


@dataclass(frozen=True)
class ProfileRow:
    """Collectives of one kind and size."""

    op: str
    dtype: str
    group: str
    ranks: int
    """Of the group; 0 where it is not known."""
    bytes: int
    """Of one message, as NCCL counts: one rank's share of a gather or scatter; -1 where unknown."""
    calls: int
    """Over all ranks."""
    elements: int
    """Over all calls; -1 where unknown."""
    total_bytes: int
    """Over all calls; -1 where unknown."""
    algorithm: str = ""
    protocol: str = ""
    channels: int = 0
    best_us: float = 0.0
    """The shortest; 0 where the source has no times."""
    bus_gbs: float = 0.0
    """Bus bandwidth at the typical time; 0 where unknown."""
    best_bus_gbs: float = 0.0
    """Of the fastest of the same operation and size in any group."""


@dataclass(frozen=True)
class Profile:
    """The rows, the most bytes first."""

    rows: tuple[ProfileRow, ...]

    @property
    def calls(self) -> int:
        """Over all ranks."""
        return sum(row.calls for row in self.rows)

    @property
    def elements(self) -> int:
        """Over all calls whose size is known."""
        return sum(max(0, row.elements) for row in self.rows)

    @property
    def total_bytes(self) -> int:
        """Over all calls whose size is known."""
        return sum(max(0, row.total_bytes) for row in self.rows)

    def sizes(self) -> dict[int, int]:
        """Calls by log2 of a message's bytes, the smallest size first."""
        found: dict[int, int] = defaultdict(int)
        for row in self.rows:
            if row.bytes > 0:
                found[row.bytes.bit_length() - 1] += row.calls
        return dict(sorted(found.items()))


def joined(profiles: Sequence[Profile]) -> Profile:
    """All rows together."""
    rows = [row for profile in profiles for row in profile.rows]
    return Profile(tuple(sorted(rows, key=lambda r: -r.total_bytes)))


def of_log(log: NcclLog) -> Profile:
    """The profile of a debug log: no times, so no bandwidth; algorithms where rank 0 wrote them."""
    chosen = _chosen(log)
    c = log.calls
    group = np.array(list(_groups(log)[0]) or [0], np.int64)[c.comm] if len(c) else c.comm
    names, sizes = _groups(log)[1:]
    key = np.stack([c.op, c.dtype, group, c.count], axis=1).astype(np.int64)
    rows = []
    kinds, times = np.unique(key, axis=0, return_counts=True) if len(c) else (key, key[:, 0])
    for (op_at, dtype, where, count), calls in zip(kinds.tolist(), times.tolist(), strict=True):
        op, known = log.ops[op_at], 0 <= dtype < len(DTYPES)
        size = count * DTYPES[dtype][1] if known else -1
        whole = size * total_factor(op, sizes[where]) if known else -1
        algorithm, protocol, channels = (
            chosen.get((op, size)) or chosen.get((op, whole)) or ("", "", 0)
        )
        name, total = (DTYPES[dtype][0], size * calls) if known else ("", -1)
        rows.append(
            ProfileRow(
                op,
                name,
                names[where],
                sizes[where],
                size,
                calls,
                count * calls,
                total,
                algorithm,
                protocol,
                channels,
            )
        )
    return joined([Profile(tuple(rows))])


def _groups(log: NcclLog) -> tuple[list[int], list[str], list[int]]:
    """Each communicator's group as a number, the groups' names and sizes."""
    numbers: dict[str, int] = {}
    of = [numbers.setdefault(c.group, len(numbers)) for c in log.communicators]
    sizes = [0] * len(numbers)
    for number, comm in zip(of, log.communicators, strict=True):
        sizes[number] = max(sizes[number], comm.ranks)
    return of, list(numbers), sizes


def _chosen(log: NcclLog) -> dict[tuple[str, int], tuple[str, str, int]]:
    """Algorithm, protocol and channels by operation and bytes; ``several`` where they vary."""
    found: dict[tuple[str, int], tuple[str, str, int]] = {}
    for t in log.tuning:
        old = found.get((t.op, t.bytes), (t.algorithm, t.protocol, t.channels))
        found[t.op, t.bytes] = (
            t.algorithm if old[0] == t.algorithm else SEVERAL,
            t.protocol if old[1] == t.protocol else SEVERAL,
            max(old[2], t.channels),
        )
    return found


def of_records(records: Sequence[Record]) -> Profile:
    """The profile of NCCL Inspector's records, with the bandwidths that it gives."""
    alike: dict[tuple[str, str, int, int], list[Record]] = defaultdict(list)
    for r in records:
        alike[r.op, r.comm, r.ranks, r.bytes].append(r)
    rows = [
        ProfileRow(
            op,
            "",
            comm,
            ranks,
            size,
            len(mine),
            elements=-1,
            total_bytes=size * len(mine),
            best_us=min(r.time_us for r in mine),
            bus_gbs=float(np.median([r.bus_gbs for r in mine])),
        )
        for (op, comm, ranks, size), mine in alike.items()
    ]
    return joined([Profile(with_best(rows))])


def of_tables(tables: Sequence[Table]) -> Profile:
    """The profile of printed tables: each row is one size."""
    rows = [
        ProfileRow(
            t.op or t.test,
            r.dtype,
            " ".join(t.nodes),
            t.ranks,
            r.bytes,
            calls=1,
            elements=r.count,
            total_bytes=r.bytes,
            best_us=r.time_us,
            bus_gbs=r.bus_gbs,
        )
        for t in tables
        for r in t.rows
    ]
    return joined([Profile(with_best(rows))])


def with_best(rows: Sequence[ProfileRow]) -> tuple[ProfileRow, ...]:
    """Each row beside the highest bandwidth of its operation and power of two of bytes."""
    best: dict[tuple[str, int], float] = defaultdict(float)
    for row in rows:
        key = row.op, row.bytes.bit_length()
        best[key] = max(best[key], row.bus_gbs, busiest(row))
    return tuple(replace(row, best_bus_gbs=best[row.op, row.bytes.bit_length()]) for row in rows)


def busiest(row: ProfileRow) -> float:
    """Bus bandwidth of the shortest, GB/s; 0 without a time or a size."""
    if row.best_us <= 0 or row.bytes <= 0:
        return 0.0
    whole = row.bytes * total_factor(row.op, row.ranks)
    return whole / row.best_us / 1e3 * bus_factor(row.op, row.ranks)


def bytes_of(elements: int, dtype: str) -> int:
    """Bytes of a message; -1 where its type or its length is not known."""
    size = element_bytes(dtype)
    return elements * size if size and elements >= 0 else -1
