"""Several traces -> reports: the ranks of one job as one, every other trace on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detector.batch.executors import SMALL, Executor, Local
from detector.cli.targets import Target
from detector.errors import TraceError
from detector.jobs import identity
from detector.jobs.build import build
from detector.jobs.merge import joined
from detector.report import Report
from detector.scan_file import Scanned, scan_path


@dataclass(frozen=True)
class Outcome:
    """A report with the target that stands for it, or why there is none."""

    target: Target
    result: Report | Exception


def scan_all(
    targets: Sequence[Target],
    overrides: Sequence[str],
    config_dir: Path | None,
    executor: Executor,
) -> tuple[list[Outcome], list[str]]:
    """Outcomes in the order of the targets, a job at its first rank's place; lines to say."""
    scanned = list(_scan(targets, overrides, config_dir, executor))
    outcomes = {
        i: Outcome(target, one.report if isinstance(one, Scanned) else one)
        for i, (target, one) in enumerate(zip(targets, scanned, strict=True))
    }
    found = {i: one for i, one in enumerate(scanned) if isinstance(one, Scanned)}
    places = [i for i, one in found.items() if one.rank is not None]
    ranks = [rank for one in found.values() if (rank := one.rank) is not None]
    jobs = identity.jobs(ranks)
    notes = [note for note in (identity.mixed(jobs, ranks),) if note]
    notes += [line for job in jobs for _, line in job.left_out]
    notes += identity.alone(jobs, ranks)
    for job in jobs:
        mine = [places[m] for m in job.members]
        for gone in [*mine, *(places[m] for m, _ in job.left_out)]:
            del outcomes[gone]
        outcomes[min(mine)] = _job([(targets[i], found[i]) for i in mine])
    return [outcomes[i] for i in sorted(outcomes)], notes


def _scan(
    targets: Sequence[Target],
    overrides: Sequence[str],
    config_dir: Path | None,
    executor: Executor,
) -> Iterator[Scanned | Exception]:
    calls: list[tuple[Any, ...]] = [
        (str(t.path), t.label, tuple(overrides), config_dir) for t in targets
    ]
    scan: Callable[..., Scanned | Exception] = scan_path
    if executor.keep:
        from detector.batch import checkpoint

        scan = checkpoint.scan_path
        calls = [(executor.keep, *call) for call in calls]
    size = sum(t.path.stat().st_size for t in targets if t.path and t.path.is_file())
    if isinstance(executor, Local) and size < SMALL:
        executor = Local(1, executor.keep)
    for result in executor.map(scan, calls):
        yield result or TraceError("its process was killed twice: out of memory?")


def _job(members: Sequence[tuple[Target, Scanned]]) -> Outcome:
    job = build([one.rank for _, one in members if one.rank is not None])
    by_rank = {
        one.rank.rank: (target, one.report)
        for target, one in members
        if one.rank is not None and one.rank.rank is not None
    }
    report = joined(job, {rank: report for rank, (_, report) in by_rank.items()})
    return Outcome(Target(report.source.path, by_rank[job.reference][0].path), report)
