"""Ranks of one job -> what the report says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from detector.jobs import stragglers
from detector.jobs.match import Matched, match, spread
from detector.jobs.rank import RankTrace, causes
from detector.jobs.stragglers import Late, Lateness
from detector.jobs.traffic import traffic
from detector.ledger import CAUSES, CODE
from detector.report.job import Job, JobCause, JobCollective, JobRank, JobStraggler
from detector.trace import NS_PER_US, Int64
from detector.units import per_cent

MOST_MISSING: Final = 1 << 14  # ranks that are named as missing
LISTED: Final = 200  # collectives, in the report
DOUBTFUL: Final = 0.8  # of collectives that agree; below nobody is called a straggler


def build(ranks: Sequence[RankTrace], notes: Sequence[str] = ()) -> Job:
    """The job of these ranks, which are in order of their numbers."""
    matched = match(ranks)
    edges = _edges(ranks, matched)
    late = stragglers.lateness(matched, ranks, edges)
    how, straggler, pause = stragglers.judge(late, ranks)
    if matched.confidence < DOUBTFUL:
        how, straggler, pause = "uneven", None, None
        notes = (*notes, _doubt(matched))
    reference = straggler.column if straggler else int(late.by_step.sum(axis=1).argmax())
    missing, lost = _missing(ranks)
    job = Job(
        world_size=_world(ranks),
        reference=_number(ranks, reference),
        ranks=_ranks(ranks, matched, late),
        missing=missing,
        matched_by=matched.by,
        confidence=matched.confidence,
        clock_error_us=spread(matched) / NS_PER_US,
        step_us=max(_step(r) for r in ranks),
        waiting_us=_mean(matched.waiting.sum(axis=0)),
        transfer_us=_mean((matched.transfer[:, None] * matched.present).sum(axis=0)),
        balanced_us=_balanced(matched, late) / NS_PER_US,
        without_straggler_us=_without(matched, late, straggler.column) / NS_PER_US
        if straggler
        else 0.0,
        pattern=how,
        stragglers=_described(matched, ranks, late, straggler),
        pauses=_described(matched, ranks, late, pause),
        path=_path(matched, ranks, late),
        heat=tuple(tuple(float(x) / NS_PER_US for x in row) for row in late.by_step),
        collectives=_listed(matched, ranks, late),
        traffic=traffic(ranks, matched),
        notes=(*notes, *lost),
    )
    # Instants so far are on the first rank's axis; the reader opens the reference rank's.
    return _on_axis(job, int(matched.offset[reference]) - ranks[reference].base_ns)


def _doubt(matched: Matched) -> str:
    return (
        f"only {per_cent(matched.confidence)} of the collectives agree over the ranks: who waits "
        "for whom is not known"
    )


def _number(ranks: Sequence[RankTrace], column: int) -> int:
    rank = ranks[column].rank
    return column if rank is None else rank


def _edges(ranks: Sequence[RankTrace], matched: Matched) -> Int64:
    """Where steps begin, and the end of the last, on the common axis: the median over ranks."""
    aligned = [
        [*(start - offset for start, _ in rank.steps), rank.steps[-1][1] - offset]
        for rank, offset in zip(ranks, matched.offset.tolist(), strict=True)
        if rank.steps
    ]
    # A trace that was cut has fewer steps than the others: these tell where the job's are.
    count = Counter(map(len, aligned)).most_common(1)[0][0] if aligned else 0
    usual = [e for e in aligned if len(e) == count]
    if len(aligned) == len(ranks) and 2 * len(usual) > len(ranks):
        edges = np.array(usual)
        return np.unique(edges[0] + np.median(edges - edges[0], axis=0).astype(np.int64))
    starts = [r.analyzed[0] - o for r, o in zip(ranks, matched.offset.tolist(), strict=True)]
    ends = [r.analyzed[1] - o for r, o in zip(ranks, matched.offset.tolist(), strict=True)]
    return np.array([min(starts), max(max(ends), min(starts) + 1)])


def _described(
    matched: Matched, ranks: Sequence[RankTrace], late: Lateness, who: Late | None
) -> tuple[JobStraggler, ...]:
    return (stragglers.describe(matched, ranks, late, who),) if who else ()


def _world(ranks: Sequence[RankTrace]) -> int | None:
    return next((r.world_size for r in ranks if r.world_size), None)


def _missing(ranks: Sequence[RankTrace]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    world = _world(ranks)
    present = {r.rank for r in ranks if r.rank is not None}
    groups = {rank for r in ranks for members in r.groups.values() for rank in members}
    everybody = set(range(min(world, MOST_MISSING))) if world else groups
    lost = tuple(sorted(everybody - present))
    if not lost:
        return (), ()
    from detector.logs.sequences import ranks_text

    who = f"rank {ranks_text(lost)}, of {len(everybody)}"
    if world and world > MOST_MISSING:
        who = f"{world - len(present):,} of {world:,} ranks"
    return lost, (f"no trace of {who}: when they arrive is not known",)


def _step(rank: RankTrace) -> float:
    if rank.steps:
        return float(np.median([end - start for start, end in rank.steps])) / NS_PER_US
    return (rank.analyzed[1] - rank.analyzed[0]) / NS_PER_US


def _mean(ns: Int64) -> float:
    return float(ns.mean()) / NS_PER_US if len(ns) else 0.0


def _ranks(ranks: Sequence[RankTrace], matched: Matched, late: Lateness) -> tuple[JobRank, ...]:
    waiting = matched.waiting.sum(axis=0)
    transfer = (matched.transfer[:, None] * matched.present).sum(axis=0)
    return tuple(
        JobRank(
            rank=_number(ranks, r),
            path=rank.path,
            clock_offset_us=float(matched.offset[r]) / NS_PER_US,
            step_us=_step(rank),
            waiting_us=float(waiting[r]) / NS_PER_US,
            transfer_us=float(transfer[r]) / NS_PER_US,
            late_us=float(late.by_step[r].sum()) / NS_PER_US,
            ledger=_causes(causes(rank, *rank.analyzed)),
        )
        for r, rank in enumerate(ranks)
    )


def _causes(sums: Int64) -> tuple[JobCause, ...]:
    order = np.argsort(-sums, kind="stable").tolist()
    return tuple(
        JobCause(CAUSES[i].id, CAUSES[i].label, float(sums[i]) / NS_PER_US)
        for i in order
        if sums[i] > 0
    )


# -- what balance would save -----------------------------------------------------------------------


def _balanced(matched: Matched, late: Lateness) -> float:
    """Every collective begins when its slowest rank comes; balanced, when the mean one does."""
    inside = late.step >= 0
    own = late.worked[inside]
    count = np.maximum(matched.present[inside].sum(axis=1), 1)
    return float((own.max(axis=1, initial=0) - own.sum(axis=1) / count).sum())


def _without(matched: Matched, late: Lateness, column: int) -> float:
    """The same with one rank's work between collectives at most the median of the others'."""
    saved = 0.0
    own = late.worked
    for k in np.flatnonzero((late.step >= 0) & matched.present[:, column]).tolist():
        others = np.delete(own[k], column)[np.delete(matched.present[k], column)]
        new = max(float(others.max()), min(float(own[k, column]), float(np.median(others))))
        saved += max(0.0, float(own[k].max()) - new)
    return saved


def _path(matched: Matched, ranks: Sequence[RankTrace], late: Lateness) -> tuple[JobCause, ...]:
    sums = np.zeros(len(CAUSES), np.int64)
    for k in np.flatnonzero(late.step >= 0).tolist():
        r = int(late.late[k])
        offset = int(matched.offset[r])
        span = int(late.began[k, r]) + offset, int(matched.start[k, r]) + offset
        sums += causes(ranks[r], *span)
        sums[CODE["communication"]] += int(matched.transfer[k])
    return _causes(sums)


# -- the collectives -------------------------------------------------------------------------------


def _listed(
    matched: Matched, ranks: Sequence[RankTrace], late: Lateness
) -> tuple[JobCollective, ...]:
    order = np.sort(np.argsort(-matched.skew, kind="stable")[:LISTED])
    worst = int(late.caused.argmax()) if len(matched) else -1
    return tuple(
        _collective(matched, ranks, late, k, full=k == worst or len(matched) <= 32)
        for k in order.tolist()
    )


def _collective(
    matched: Matched, ranks: Sequence[RankTrace], late: Lateness, k: int, *, full: bool
) -> JobCollective:
    from detector.jobs.volumes import bytes_of

    r = int(matched.last[k])
    c, at = ranks[r].collectives, int(matched.place[k, r])
    kind = ranks[r].kinds[c.kind[at]]
    lane = ranks[r].lanes[c.lane[at]]
    first = int(matched.first[k])
    arrivals = [
        float(s - first) / NS_PER_US if p else -1.0
        for s, p in zip(matched.start[k].tolist(), matched.present[k].tolist(), strict=True)
    ]
    return JobCollective(
        op=kind.op,
        group=lane.group or (f"stream {lane.stream}" if lane.stream >= 0 else ""),
        bytes=bytes_of(int(c.elements[at]), kind.dtype),
        step=int(late.step[k]) if late.step[k] >= 0 and late.by_step.shape[1] > 1 else None,
        start_us=first / NS_PER_US,
        end_us=float(matched.done[k]) / NS_PER_US,
        skew_us=float(matched.skew[k]) / NS_PER_US,
        transfer_us=float(matched.transfer[k]) / NS_PER_US,
        last=_number(ranks, r),
        arrivals_us=tuple(arrivals) if full else (),
    )


def _on_axis(job: Job, shift: int) -> Job:
    """Instants in µs of the reference rank's file; ``shift``: ns to add."""
    by = shift / NS_PER_US
    moved = [replace(c, start_us=c.start_us + by, end_us=c.end_us + by) for c in job.collectives]
    return replace(job, collectives=tuple(moved))
