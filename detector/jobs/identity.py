"""Which traces are ranks of one job. A file's name alone is never enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from detector.jobs.rank import RankTrace

ANOTHER_DAY: Final = 36 * 3_600 * 10**9  # ns: no clock is off by so much
ALIKE: Final = 0.5  # of the kinds of collectives that two ranks of a job have in common


@dataclass(frozen=True)
class Together:
    """One job: places in the list that was given, in order of rank; what was left out, and why."""

    members: tuple[int, ...]
    left_out: tuple[tuple[int, str], ...] = ()
    """Places, each with the line that says why."""


def jobs(ranks: Sequence[RankTrace]) -> list[Together]:
    """Jobs of two ranks and more. A rank that is there twice is left out the second time."""
    found: list[tuple[list[int], list[tuple[int, str]]]] = []
    for i, mine in enumerate(ranks):
        if mine.rank is None or not len(mine.collectives):
            continue
        for members, left_out in found:
            same = [ranks[m] for m in members]
            if not _fits(mine, same):
                continue
            twin = next((other for other in same if other.rank == mine.rank), None)
            if twin is None:
                members.append(i)
            else:
                left_out.append((i, _twice(mine, twin)))
            break
        else:
            found.append(([i], []))
    return [
        Together(tuple(sorted(members, key=lambda m: ranks[m].rank or 0)), tuple(left_out))
        for members, left_out in found
        if len(members) > 1
    ]


def _twice(mine: RankTrace, twin: RankTrace) -> str:
    same = "is the same file as" if mine.sha256 == twin.sha256 else "was read before, from"
    return f"{mine.path}: rank {mine.rank} of this job {same} {twin.path}; left out"


def _fits(mine: RankTrace, members: Sequence[RankTrace]) -> bool:
    """Whether a trace belongs with these: nothing they state differs, and they ran together."""
    return all(
        _agree(mine.world_size, other.world_size)
        and _same_groups(mine, other)
        and mine.start < other.end
        and other.start < mine.end
        for other in members
    ) and any(_alike(mine, other) for other in members)


def _agree(a: object, b: object) -> bool:
    return a is None or b is None or a == b


def _same_groups(a: RankTrace, b: RankTrace) -> bool:
    """Groups that both belong to, by name, have the same members."""
    shared = a.groups.keys() & b.groups.keys()
    return all(
        a.groups[g] == b.groups[g]
        for g in shared
        if {a.rank, b.rank} <= set(a.groups[g]) | set(b.groups[g])
    )


def _alike(a: RankTrace, b: RankTrace) -> bool:
    """Whether they make the same collectives: as often, to within what one may have missed."""
    if not (a.rank_is_stated or a.world_size or a.groups) and a.rank == b.rank:
        return a.sha256 == b.sha256
    ours, theirs = _counts(a), _counts(b)
    common = sum((ours & theirs).values())
    return common >= ALIKE * max(1, min(ours.total(), theirs.total()))


def _counts(rank: RankTrace) -> Counter[tuple[str, str, str]]:
    kinds = [(k.op, k.dtype, k.group_ranks) for k in rank.kinds]
    return Counter(kinds[k] for k in rank.collectives.kind.tolist())


def alone(jobs_: Sequence[Together], ranks: Sequence[RankTrace]) -> list[str]:
    """A line for each trace that says it is one of several ranks, as others here do, and is of no
    job with them: why."""
    ranks_beside: dict[int, set[int | None]] = {}  # by place, the ranks that its job has
    for job in jobs_:
        present = {ranks[m].rank for m in job.members}
        for place in (*job.members, *(left for left, _ in job.left_out)):
            ranks_beside[place] = present
    lines = []
    for i, mine in enumerate(ranks):
        if i in ranks_beside or mine.rank is None or not mine.world_size:
            continue
        others = [
            r
            for j, r in enumerate(ranks)
            if mine.rank not in ranks_beside.get(j, {r.rank})  # else it is of another run
            and r.world_size == mine.world_size
            and _same_groups(mine, r)
            and _apart(mine, r) < ANOTHER_DAY
        ]
        if others:
            of = f"rank {mine.rank} of {mine.world_size}"
            lines.append(f"{mine.path}: {of}, reported alone: {_why_alone(mine, others)}")
    return lines


def _apart(a: RankTrace, b: RankTrace) -> int:
    """Time between two recordings, ns; not above 0 where they overlap."""
    return max(a.start - b.end, b.start - a.end)


def _why_alone(mine: RankTrace, others: Sequence[RankTrace]) -> str:
    if not len(mine.collectives):
        return "it has no collectives"
    apart = min(_apart(mine, r) for r in others)
    if apart > 0:
        return f"by its clock it ran {_long(apart / 1e9)} apart from the other ranks"
    return "its collectives are not those of the other ranks"


def _long(seconds: float) -> str:
    """A time between runs: ``3.0 h``."""
    for least, unit in ((3600, "h"), (60, "min")):
        if seconds >= least:
            return f"{seconds / least:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def mixed(jobs_: Sequence[Together], ranks: Sequence[RankTrace]) -> str:
    """The line that says that a folder holds traces of several jobs; empty where it does not."""
    if len(jobs_) < 2:
        return ""
    first = ", ".join(ranks[job.members[0]].path for job in jobs_[:4])
    return f"traces of {len(jobs_)} jobs, reported apart: that of {first}"
