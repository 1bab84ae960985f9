"""The communication profile of traces: what each group sends, how often and how fast."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from detector.jobs.match import Matched
from detector.jobs.rank import Calls, Kind
from detector.jobs.volumes import bytes_of
from detector.logs.collectives import bus_factor, total_factor
from detector.report.job import JobTraffic
from detector.trace import NS_PER_US, Int64

_DIMENSIONS: Final = (
    ("expert", re.compile(r"(?i)expert|(^|[_\W])ep([_\W]|$)")),
    ("pipeline", re.compile(r"(?i)pipeline|(^|[_\W])pp([_\W]|$)")),
    ("tensor", re.compile(r"(?i)tensor|(^|[_\W])(tp|mp)([_\W]|$)")),
    ("data", re.compile(r"(?i)data|fsdp|ddp|(^|[_\W])dp([_\W]|$)")),
)


def traffic(ranks: Sequence[Calls], matched: Matched | None = None) -> tuple[JobTraffic, ...]:
    """Rows by kind and size, most bytes first. Transfer is the matched one where there is one."""
    alike: dict[tuple[Kind, int], list[Int64]] = defaultdict(list)
    for r, rank in enumerate(ranks):
        c = rank.collectives
        took = (c.end - c.start).copy()
        if matched is not None:
            mine = matched.present[:, r]
            took[matched.place[mine, r]] = matched.transfer[mine]
        for kind, size in {*zip(c.kind.tolist(), c.elements.tolist(), strict=True)}:
            same = (c.kind == kind) & (c.elements == size)
            alike[rank.kinds[kind], size].append(took[same])
    purposes = {name: p for rank in ranks for name, p in rank.purposes.items()}
    rows = [
        _row(kind, size, np.concatenate(times), purposes.get(kind.group, kind.group))
        for (kind, size), times in alike.items()
    ]
    return tuple(sorted(rows, key=lambda t: (-max(t.bytes, 0) * t.calls, -t.calls, t.op)))


def dimension(purpose: str) -> str:
    """The way of parallelism that a group's description tells of; "" where it tells of none."""
    return next((name for name, word in _DIMENSIONS if word.search(purpose)), "")


def _row(kind: Kind, elements: int, took: Int64, purpose: str) -> JobTraffic:
    size = bytes_of(elements, kind.dtype)
    whole = max(size, 0) * total_factor(kind.op, kind.group_size)
    factor = bus_factor(kind.op, kind.group_size) * whole if kind.group_size > 1 else 0.0

    def speed(ns: float) -> float:
        return factor / ns if ns > 0 else 0.0  # bytes a ns are GB a second

    return JobTraffic(
        op=kind.op,
        dtype=kind.dtype,
        group=kind.group,
        dimension=dimension(purpose),
        group_size=kind.group_size,
        algorithm=kind.algorithm,
        protocol=kind.protocol,
        bytes=size,
        calls=len(took),
        elements=elements * len(took) if elements >= 0 else -1,
        transfer_us=float(took.min()) / NS_PER_US,
        bus_gbs=speed(float(np.median(took))),
        best_bus_gbs=speed(float(took.min())),
    )
