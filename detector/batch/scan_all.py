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
from detector.scan_file import Scanned, failure, scan_path


@dataclass(frozen=True)
class Outcome:
    """A report with the target that stands for it, or what could not be scanned."""

    target: Target
    report: Report | None
    error: TraceError | None = None


def scan_all(
    targets: Sequence[Target],
    overrides: Sequence[str],
    config_dir: Path | None,
    executor: Executor,
) -> tuple[list[Outcome], list[str]]:
    """Outcomes in the order of the targets, a job at its first rank's place; lines to say."""
    scanned = list(_scan(targets, overrides, config_dir, executor))
    places = [i for i, s in enumerate(scanned) if s.rank is not None and s.report is not None]
    ranks = [r for i in places if (r := scanned[i].rank) is not None]
    jobs = identity.jobs(ranks)
    notes = [note for note in (identity.mixed(jobs, ranks),) if note]
    notes += [line for job in jobs for _, line in job.left_out]
    notes += identity.alone(jobs, ranks)
    outcomes = {i: _outcome(t, s) for i, (t, s) in enumerate(zip(targets, scanned, strict=True))}
    for job in jobs:
        mine = [places[m] for m in job.members]
        for gone in [*mine, *(places[m] for m, _ in job.left_out)]:
            del outcomes[gone]
        outcomes[min(mine)] = _job(mine, targets, scanned)
    return [outcomes[i] for i in sorted(outcomes)], notes


def _scan(
    targets: Sequence[Target],
    overrides: Sequence[str],
    config_dir: Path | None,
    executor: Executor,
) -> Iterator[Scanned]:
    calls: list[tuple[Any, ...]] = [
        (str(t.path), t.label, tuple(overrides), config_dir) for t in targets
    ]
    scan: Callable[..., Scanned] = scan_path
    if executor.keep:
        from detector.batch import checkpoint

        scan = checkpoint.scan_path
        calls = [(executor.keep, *call) for call in calls]
    size = sum(t.path.stat().st_size for t in targets if t.path and t.path.is_file())
    if isinstance(executor, Local) and size < SMALL:
        executor = Local(1, executor.keep)
    for result in executor.map(scan, calls):
        yield result or Scanned(None, error="its process was killed twice: out of memory?")


def _outcome(target: Target, scanned: Scanned) -> Outcome:
    if scanned.report is not None:
        return Outcome(target, scanned.report)
    return Outcome(target, None, failure(scanned))


def _job(mine: Sequence[int], targets: Sequence[Target], scanned: Sequence[Scanned]) -> Outcome:
    ranks = [r for i in mine if (r := scanned[i].rank) is not None]
    job = build(ranks)
    reports = {
        rank.rank: report
        for rank, i in zip(ranks, mine, strict=True)
        if rank.rank is not None and (report := scanned[i].report) is not None
    }
    at = next(i for rank, i in zip(ranks, mine, strict=True) if rank.rank == job.reference)
    report = joined(job, reports)
    return Outcome(Target(report.source.path, targets[at].path), report)
