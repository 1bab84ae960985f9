"""One rank of a real job made late, by the replay of all its ranks: the others wait for it.

    job = Job.open(paths)
    documents = late(job, rank=3, why="data", ns=20_000_000, before=2).documents

A replay of one rank leaves collectives as long as they were recorded. Of all ranks, a collective
goes on when the last of them has come, and each leaves it as long after that as recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from dataset.inject.apply import Replayed, replayed
from dataset.inject.base import Base
from dataset.inject.document import write
from dataset.inject.edits import Alter, Call, Edit, Insert, Unfit
from detector.jobs.match import Matched, match
from detector.jobs.rank import RankTrace, reduced
from detector.trace import Int64

Why = Literal["data", "compute", "host"]
_LOADER: Final = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@dataclass(frozen=True, eq=False)
class Job:
    """Bases that are ranks of one job, and their collectives, which a device runs: what a host's
    own collectives hold up their traces do not say."""

    bases: tuple[Base, ...]
    ranks: tuple[RankTrace, ...]
    matched: Matched

    @classmethod
    def open(cls, paths: Sequence[Path]) -> Job:
        """Read all ranks, in the order of their numbers. Raises TraceError, Unfit."""
        bases = tuple(Base.open(path) for path in paths)
        if not all(base.activity.has_device for base in bases):
            raise Unfit(f"{paths[0]}: its collectives do not run on a device")
        ranks = tuple(reduced(base.trace) for base in bases)
        return cls(bases, ranks, match(ranks))

    def rows(self, rank: int) -> tuple[Int64, Int64]:
        """The matched collectives that this rank is in, and their rows in its trace."""
        mine = np.flatnonzero(self.matched.present[:, rank])
        return mine, self.bases[rank].activity.comm_rows[self.matched.place[mine, rank]]


def together(job: Job, edits: Mapping[int, Sequence[Edit]]) -> list[Replayed]:
    """All ranks with these edits, by rank: collectives end for all when the last one has come.

    A round settles at least the first collective that is not settled yet. Raises Unfit.
    """
    m = job.matched
    start, lasting = m.start.copy(), m.end - m.start
    after = m.end - m.arrived[:, None]  # from the last arrival to each rank's end
    for _ in range(len(m) + 1):
        found = [_alone(job, r, edits.get(r, ()), lasting[:, r]) for r in range(len(job.bases))]
        for r, rank in enumerate(found):
            mine, rows = job.rows(r)
            start[mine, r] = rank.outcome.start[rows] + job.ranks[r].base_ns - m.offset[r]
        arrived = np.where(m.present, start, np.iinfo(np.int64).min).max(axis=1)
        new = np.where(m.present, np.maximum(arrived[:, None] + after - start, 1), 1)
        if (new == lasting)[m.present].all():
            break
        lasting = new
    return found


def _alone(job: Job, rank: int, edits: Sequence[Edit], lasting: Int64) -> Replayed:
    mine, rows = job.rows(rank)
    recorded = job.bases[rank].trace.dur[rows]
    longer = [
        Alter(int(row), dur=int(ns), faulty=False)
        for row, ns, was in zip(rows, lasting[mine], recorded, strict=True)
        if ns != was
    ]
    return replayed(job.bases[rank], [*edits, *longer])


@dataclass(frozen=True)
class Late:
    """The ranks' documents, and by how much later the job is done, ns."""

    documents: tuple[dict[str, Any], ...]
    added: int


def late(job: Job, rank: int, why: Why, ns: int, before: int) -> Late:
    """The job with ``rank`` (a place) late by ``ns`` to a matched collective. Raises Unfit."""
    found = together(job, {rank: [delay(job, rank, why, ns, before)]})
    documents = (write(base, r.outcome) for base, r in zip(job.bases, found, strict=True))
    return Late(tuple(documents), max(r.added for r in found))


def delay(job: Job, rank: int, why: Why, ns: int, before: int) -> Edit:
    """What makes a rank late to the matched collective ``before``."""
    base = job.bases[rank]
    mine, rows = job.rows(rank)
    row = int(rows[np.searchsorted(mine, before)])
    trace = base.trace
    if why == "compute":
        work = base.activity.compute_rows
        work = work[trace.end[work] <= trace.start[row]]
        if not len(work):
            raise Unfit(f"{base.name}: no compute before collective {before}")
        longest = int(work[trace.start[work].argmax()])
        return Alter(longest, dur=int(trace.dur[longest]) + ns)
    call = int(trace.launch[row]) if trace.launch[row] >= 0 else row
    while trace.parent[call] >= 0 and trace.dur[trace.parent[call]] < trace.dur.max() // 2:
        call = int(trace.parent[call])
    track, at = int(trace.track[call]), int(trace.start[call]) - 1
    if why == "data":
        return Insert(track, at, (Call(_LOADER, "user_annotation", ns),))
    return Insert(track, at, (), gap=ns)
