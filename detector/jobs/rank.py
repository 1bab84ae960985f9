"""One rank's trace, reduced to what a job needs of it: collectives, causes, steps, amounts of work.

The trace itself is let go: a rank of 50 MB leaves about a megabyte.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from detector import ledger
from detector.activity import Activity
from detector.ledger import CODE
from detector.logs.collectives import kernel_of, op_of
from detector.signals import Signals, signals_of
from detector.signals.event_sets import first_type, is_shape, parsed
from detector.trace import Int8, Int32, Int64, Trace
from detector.window import AnalyzedTime, analyzed_time

MOST_ELEMENTS: Final = 1 << 50  # of a message; shapes that say more are made up


@dataclass(frozen=True, eq=False)
class Collectives:
    """Collectives in the order of their stream; columns of equal length."""

    start: Int64  # ns, absolute: base_ns is in it
    end: Int64
    called: Int64  # when the host called for it; its start where that is not known
    kind: Int32  # index into the rank's kinds
    lane: Int32  # index into the rank's lanes
    elements: Int64  # into it; -1 where unknown
    sequence: Int64  # "Seq"; -1 where unknown

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Kind:
    """What a collective is, as far as its name and arguments tell."""

    op: str
    dtype: str
    algorithm: str
    protocol: str
    group: str
    group_size: int
    group_ranks: str


@dataclass(frozen=True)
class Lane:
    """Collectives with an order of their own: a process group's, else a stream's."""

    group: str
    """Empty where no group was recorded."""
    stream: int


@dataclass(frozen=True, eq=False)
class Calls:
    """A trace's collectives with what they are."""

    kinds: tuple[Kind, ...]
    lanes: tuple[Lane, ...]
    collectives: Collectives
    purposes: dict[str, str]  # of groups, by name


@dataclass(frozen=True, eq=False)
class RankTrace(Calls):
    """What is kept of one rank."""

    path: str
    sha256: str
    rank: int | None
    rank_is_stated: bool
    """By the trace itself; otherwise its file's name says so."""
    world_size: int | None
    groups: dict[str, tuple[int, ...]]
    start: int  # of the whole trace, ns, absolute
    end: int
    base_ns: int
    analyzed: tuple[int, int]  # analyzed time, absolute
    steps: tuple[tuple[int, int], ...]  # of the analyzed time, absolute
    is_device: bool
    piece_start: Int64  # the ledger's, absolute
    piece_end: Int64
    piece_cause: Int8
    work_start: Int64  # compute, absolute: how much there is of it between two instants
    work_shape: Int64  # a hash of what it works on


def reduced(trace: Trace) -> RankTrace:
    """The rank of this trace."""
    return reduced_from(signals_of(trace), analyzed_time(trace))


def reduced_from(signals: Signals, analyzed: AnalyzedTime) -> RankTrace:
    """The rank of a trace whose signals and analyzed time are known already."""
    trace, activity = signals.trace, signals.activity
    base = trace.base_ns
    start = int(trace.start.min()) if len(trace) else 0
    end = int(trace.end.max()) if len(trace) else 0
    pieces = _pieces(ledger.build(signals, start, end), base)
    work = activity.compute_rows
    info, calls = _info(trace), calls_of(trace, activity)
    return RankTrace(
        kinds=calls.kinds,
        lanes=calls.lanes,
        collectives=calls.collectives,
        purposes=calls.purposes,
        path=trace.source.path,
        sha256=trace.source.sha256,
        rank=trace.rank,
        rank_is_stated=trace.rank is not None and info.get("rank") == trace.rank,
        world_size=info["world_size"] if isinstance(info.get("world_size"), int) else None,
        groups=_groups(info),
        start=start + base,
        end=end + base,
        base_ns=base,
        analyzed=(analyzed.start + base, analyzed.end + base),
        steps=tuple((s.start + base, s.end + base) for s in analyzed.steps),
        is_device=activity.has_device,
        piece_start=pieces[0],
        piece_end=pieces[1],
        piece_cause=pieces[2],
        work_start=trace.start[work] + base,
        work_shape=_shapes(trace, work),
    )


def _info(trace: Trace) -> dict[str, Any]:
    info = trace.metadata.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def _groups(info: dict[str, object]) -> dict[str, tuple[int, ...]]:
    """Process groups of distributedInfo, by name."""
    config = info.get("pg_config")
    found = {}
    for row in config if isinstance(config, list) else ():
        ranks = row.get("ranks") if isinstance(row, dict) else None
        if isinstance(ranks, list):
            found[str(row.get("pg_name"))] = tuple(r for r in ranks if isinstance(r, int))
    return found


def _purposes(info: dict[str, object]) -> dict[str, str]:
    config = info.get("pg_config")
    rows = [row for row in config if isinstance(row, dict)] if isinstance(config, list) else []
    return {str(row.get("pg_name")): str(row.get("pg_desc", ""))[:100] for row in rows}


def _pieces(times: ledger.Ledger, base: int) -> tuple[Int64, Int64, Int8]:
    """The ledger's pieces, neighbors of one cause joined."""
    p = times.pieces
    if not len(p):
        return p.start + base, p.end + base, p.cause
    first = np.flatnonzero(np.r_[True, (p.cause[1:] != p.cause[:-1]) | (p.start[1:] != p.end[:-1])])
    last = np.r_[first[1:], len(p)] - 1
    return p.start[first] + base, p.end[last] + base, p.cause[first]


def calls_of(trace: Trace, activity: Activity) -> Calls:
    """The collectives of this trace."""
    rows = activity.comm_rows
    keys = np.stack(
        [
            column[rows].astype(np.int64)
            for column in (
                trace.name,
                trace.collective,
                trace.group,
                trace.group_size,
                trace.group_ranks,
                trace.element_type,
                trace.types,
            )
        ],
        axis=1,
    )
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    kinds = tuple(_kind(trace, key) for key in distinct.tolist())
    lanes: dict[Lane, int] = {}
    named = [kinds[i].group for i in which.reshape(-1).tolist()]
    streams = trace.stream[rows] if activity.has_device else np.full(len(rows), -1, np.int64)
    # A lane is a group; where none was recorded, a stream.
    of = [
        lanes.setdefault(Lane(group, -1 if group else stream), len(lanes))
        for group, stream in zip(named, streams.tolist(), strict=True)
    ]
    launched = trace.launch[rows]
    collectives = Collectives(
        start=trace.start[rows] + trace.base_ns,
        called=trace.start[np.where(launched >= 0, launched, rows)] + trace.base_ns,
        end=trace.end[rows] + trace.base_ns,
        kind=which.reshape(-1).astype(np.int32),
        lane=np.array(of, np.int32),
        elements=_elements(trace, rows),
        sequence=trace.comm_sequence[rows],
    )
    return Calls(kinds, tuple(lanes), collectives, _purposes(_info(trace)))


def _elements(trace: Trace, rows: Int64) -> Int64:
    """Into each collective; where only shapes were recorded, as a CPU backend's are, by these."""
    recorded, names = trace.msg_elems[rows], trace.names
    found = recorded.copy()
    shaped = np.flatnonzero((recorded < 0) & (trace.dims[rows] >= 0) & (trace.types[rows] >= 0))
    texts = np.stack([trace.dims[rows[shaped]], trace.types[rows[shaped]]], axis=1)
    distinct, which = np.unique(texts, axis=0, return_inverse=True)
    counts = [elements_of(names[dims], names[types]) for dims, types in distinct.tolist()]
    found[shaped] = np.array(counts, np.int64)[which.reshape(-1)]
    return found


def elements_of(dims: str, types: str) -> int:
    """Elements of all tensors in "Input Dims" and "Input type"; -1 where one is not known."""
    shapes, kinds = parsed(dims), parsed(types)
    if not shapes or len(shapes) != len(kinds) or not all(kinds):
        return -1
    if not all(shape == [] or is_shape(shape) for shape in shapes):  # [] is a number's
        return -1
    count = sum(math.prod(shape) for shape in shapes if isinstance(shape, list))
    return count if 0 <= count < MOST_ELEMENTS else -1


def _kind(trace: Trace, key: list[int]) -> Kind:
    name, collective, group, size, ranks, dtype, types = key

    def text(number: int) -> str:
        return trace.names[number] if number >= 0 else ""

    kernel = kernel_of(text(name))
    return Kind(
        op=op_of(text(collective)) or kernel.op or op_of(text(name)) or "unknown",
        dtype=text(dtype) or kernel.dtype or first_type(text(types)),
        algorithm=kernel.algorithm,
        protocol=kernel.protocol,
        group=text(group),
        group_size=max(size, 0),
        group_ranks=text(ranks),
    )


def _shapes(trace: Trace, work: Int64) -> Int64:
    """A number for the shapes that each piece of work was given; 0 where none were recorded."""
    op = trace.op[work].astype(np.int64) if trace.is_device_work.any() else work
    known = op >= 0
    texts: dict[int, int] = {-1: 0}
    found = np.zeros(len(work), np.int64)
    dims = trace.dims[op[known]].tolist()
    for number in set(dims):
        # Names are numbered by each trace on its own: the text itself is what ranks share.
        texts.setdefault(number, _digest(trace.names[number]) if number >= 0 else 0)
    found[known] = [texts[number] for number in dims]
    return found


def _digest(text: str) -> int:
    """The same number in every process, which Python's own hash is not."""
    import zlib

    return zlib.crc32(text.encode("utf-8", "replace"))


def causes(rank: RankTrace, start: int, end: int) -> Int64:
    """Time of each of the ledger's causes in [start, end), ns, absolute; by the cause's code."""
    sums = np.zeros(len(CODE), np.int64)
    a = int(np.searchsorted(rank.piece_end, start, side="right"))
    b = int(np.searchsorted(rank.piece_start, end, side="left"))
    if b > a:
        ns = np.minimum(rank.piece_end[a:b], end) - np.maximum(rank.piece_start[a:b], start)
        np.add.at(sums, rank.piece_cause[a:b], ns)
    return sums
