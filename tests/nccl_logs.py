"""Makes NCCL debug logs of a job, sound ones and ones with one thing wrong, for the tests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

OPS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")


@dataclass(frozen=True)
class Call:
    op: str
    count: int
    dtype: int
    redop: int = 0
    root: int = 0


@dataclass(frozen=True)
class Style:
    """How a version and a setting write."""

    stamps: str = ""  # "date" or "ticks"
    named: bool = True  # before v2.3.7 the operation's name is missing
    comm_id: bool = True
    extra: str = ""  # what RCCL appends
    mixed: bool = True  # ranks in one file, lines in the order of time


@dataclass(frozen=True)
class Wrong:
    """What was put in."""

    kind: str
    rank: int
    call: int


STYLES = (
    Style(),
    Style(stamps="date"),
    Style(stamps="ticks", extra=" task 0 globalrank {rank}"),
    Style(named=False),
    Style(stamps="date", mixed=False),
)


def program(rng: random.Random, steps: int) -> list[Call]:
    """One rank's calls: the same buckets every step, as data-parallel training makes them."""
    buckets = [
        Call(rng.choice(OPS), rng.randrange(1, 1 << 20) * 8, rng.choice((6, 7, 9)))
        for _ in range(rng.randrange(3, 9))
    ]
    return [replace(c, root=0) for _ in range(steps) for c in buckets]


def injected(
    rng: random.Random, kind: str, calls: list[list[Call]]
) -> tuple[list[list[Call]], Wrong]:
    """One rank does something else once, or stops."""
    rank, at = rng.randrange(len(calls)), rng.randrange(len(calls[0]) // 4, len(calls[0]) * 3 // 4)
    mine = list(calls[rank])
    if kind == "skipped-call":
        del mine[at]
    elif kind == "extra-call":
        mine.insert(at, Call("AllReduce", 7, 7))
    elif kind == "mismatched-size":
        mine[at] = replace(mine[at], count=mine[at].count + 8)
    elif kind == "mismatched-dtype":
        mine[at] = replace(mine[at], dtype={6: 7, 7: 9, 9: 6}[mine[at].dtype])
    elif kind == "mismatched-op":
        mine[at] = replace(mine[at], op="Reduce")
    elif kind == "stopped":
        del mine[at:]
    elif kind == "missing-rank":
        mine, at = [], -1
    return [mine if r == rank else c for r, c in enumerate(calls)], Wrong(kind, rank, at)


def lines(
    rng: random.Random, calls: list[list[Call]], style: Style, *, absent: int = -1, cut: int = 0
) -> list[list[str]]:
    """The log's files. ``cut``: so many lines of the end are missing."""
    ranks = len(calls)
    comm_id = f" commId 0x{rng.getrandbits(60):x}" if style.comm_id else ""
    clock = 1_700_000_000.0
    events: list[tuple[float, int, str]] = []
    pointer = [0x55D5F0000000 + 0x1000 * r for r in range(ranks)]
    for rank in range(ranks):
        if rank == absent:
            continue
        head = f"comm 0x{pointer[rank]:x} rank {rank} nranks {ranks} cudaDev {rank}"
        init = f"ncclCommInitRank {head} busId {rank}000{comm_id} - Init "
        events += [(clock, rank, init + "START"), (clock + 1, rank, init + "COMPLETE")]
        time = clock + 2
        for call in calls[rank]:
            time += rng.random() * 0.01
            events.append((time, rank, _call(call, pointer[rank], ranks, rank, style)))
        if len(calls[rank]) == max(map(len, calls)) and not cut:
            events.append((time + 5, rank, f"{head} busId {rank}000 - Destroy COMPLETE"))
    events.sort(key=lambda e: e[0])
    events = events[: len(events) - cut] if cut else events
    # One device's number in brackets, whoever writes: it means nothing.
    written = [(rank, _prefix(rank, time, style) + text) for time, rank, text in events]
    if style.mixed:
        return [[text for _, text in written]]
    return [[text for r, text in written if r == rank] for rank in range(ranks) if rank != absent]


def _prefix(rank: int, time: float, style: Style) -> str:
    stamp = "[2023-11-14 22:13:20] " if style.stamps == "date" else ""
    ticks = f"{int(time * 1e6)} " if style.stamps == "ticks" else ""
    return f"{stamp}node-{rank // 8}:{4000 + rank}:{4000 + rank} [0] {ticks}NCCL INFO "


def _call(call: Call, pointer: int, ranks: int, rank: int, style: Style) -> str:
    name = f"{call.op}: " if style.named else ""
    size = "" if style.named else "size 4 "
    return (
        f"{name}opCount a1 sendbuff 0x7f00 recvbuff (nil) count {call.count} {size}datatype"
        f" {call.dtype} op {call.redop} root {call.root} comm 0x{pointer:x} [nranks={ranks}]"
        f" stream 0x55aa{style.extra.format(rank=rank)}"
    )


def many(count: int, ranks: int = 8) -> Iterator[str]:
    """A long log of one job, line by line."""
    rng = random.Random(3)
    calls = program(rng, 1)
    start = lines(rng, [[] for _ in range(ranks)], Style(), cut=0)[0][: 2 * ranks]
    yield from start
    written, at = len(start), 0
    while written < count:
        call = calls[at % len(calls)]
        for rank in range(min(ranks, count - written)):
            text = _call(call, 0x55D5F0000000 + 0x1000 * rank, ranks, rank, Style())
            yield _prefix(rank, 0.0, Style()) + text
            written += 1
        at += 1
