"""Reports of the ranks of one job -> one report: what holds on all ranks is said once."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from detector.patterns import BY_ID, PATTERNS
from detector.report import Finding, Fix, NotChecked, Report
from detector.report.job import Job, JobStraggler
from detector.taxonomy import severity
from detector.units import per_cent

STRAGGLER: Final = next(p.id for p in PATTERNS if p.signal == "straggler")
EXPOSED: Final = next(p.id for p in PATTERNS if p.signal == "exposed-collective")
ONE_STEP: Final = "in the one step that the traces hold"
_SURE: Final = 0.9  # how likely a straggler is that the ranks' own clocks show

_SHARES: Final = ("data", "compute")  # where an even share of the data helps
ADVICE: Final = {
    "data": "Its batches come late: give that rank's loader more workers, or its share of the data"
    " the same size and storage as the others'.",
    "host": "Its host is late: look at what that process does between collectives, and what else"
    " runs on its cores.",
    "compute": "It computes longer: give it the same share of the work, or look at that device's"
    " clock and neighbors.",
    "sync": "It waits for its own device: remove the synchronization that the other ranks do not"
    " make.",
    "copy": "Its copies take longer: pin its memory, or look at that device's link.",
    "before": "Record more steps: it is late when its recording begins, so the reason lies before.",
    "unknown": "Record stacks on that rank: what it does meanwhile is not in its trace.",
}


def joined(job: Job, reports: Mapping[int, Report]) -> Report:
    """One report of these ranks' reports; that of the rank the others wait for leads."""
    base = reports[job.reference]
    findings = _merged(job, reports, lambda report: report.findings)
    straggler = [_straggler(job, s, base) for s in job.stragglers]
    found = [f for f in (*straggler, *findings) if f is not None]
    found.sort(key=lambda f: (-f.share, f.start_us, f.pattern))
    known = {f.pattern for f in found}
    leads = [f for f in _merged(job, reports, lambda r: r.leads) if f.pattern not in known]
    # Of the reference rank's own time. Its lateness is made of what its other findings say.
    saved = sum(f.estimated_savings_us for f in findings if job.reference in f.ranks)
    late = sum(f.estimated_savings_us for f in found if f.pattern == STRAGGLER)
    saved = min(max(saved, late), base.summary.analyzed_us)
    return replace(
        base,
        source=replace(base.source, path=_label(list(reports.values()))),
        summary=replace(base.summary, estimated_savings_us=float(saved)),
        findings=tuple(found),
        leads=tuple(leads),
        not_checked=_not_checked(job, list(reports.values())),
        warnings=_warnings(job, reports),
        job=job,
    )


def _label(reports: Sequence[Report]) -> str:
    paths = [report.source.path for report in reports]
    try:
        folder = os.path.commonpath(paths)
    except ValueError:  # some paths are absolute, some are not
        folder = str(Path(paths[0]).parent)
    return f"{folder or '.'} ({len(paths)} ranks)"


def _merged(
    job: Job, reports: Mapping[int, Report], of: Callable[[Report], tuple[Finding, ...]]
) -> list[Finding]:
    """Each pattern once, with the ranks that show it: the reference rank's finding where it is
    one of them, else the costliest."""
    by_pattern: dict[str, list[tuple[int, Finding]]] = defaultdict(list)
    for rank, report in sorted(reports.items()):
        for finding in of(report):
            if (kept := _without_waiting(job, rank, finding, report)) is not None:
                by_pattern[kept.pattern].append((rank, kept))
    found = []
    for mine in by_pattern.values():
        first = next((f for rank, f in mine if rank == job.reference), None)
        shown = first or max((f for _, f in mine), key=lambda f: f.estimated_savings_us)
        of_shown = next(rank for rank, f in mine if f is shown)
        ranks = [of_shown, *(r for r in dict.fromkeys(r for r, _ in mine) if r != of_shown)]
        found.append(replace(shown, ranks=tuple(ranks)))
    return found


def _without_waiting(job: Job, rank: int, finding: Finding, report: Report) -> Finding | None:
    """Exposed communication saves no more than the transfer: the rest is waiting for others, which
    the job's own finding names and sizes."""
    if finding.pattern == STRAGGLER:
        return None
    if finding.pattern != EXPOSED:
        return finding
    transfer = next((r.transfer_us for r in job.ranks if r.rank == rank), 0.0)
    saved = min(finding.estimated_savings_us, transfer)
    share = saved / (report.summary.analyzed_us or 1.0)
    level = severity(share)
    if level is None:
        return None
    low, high = finding.savings_range_us
    return replace(
        finding,
        estimated_savings_us=saved,
        savings_range_us=(min(low, saved), min(high, transfer)),
        share=share,
        severity=level,
    )


def _not_checked(job: Job, reports: Sequence[Report]) -> tuple[NotChecked, ...]:
    """What no rank's trace can show. Stragglers are looked for now."""
    rows = [{row.pattern: row for row in r.not_checked} for r in reports]
    everywhere = set.intersection(*(set(row) for row in rows))
    checked = {STRAGGLER} if job.collectives else set()
    return tuple(row for pattern, row in rows[0].items() if pattern in everywhere - checked)


def _warnings(job: Job, reports: Mapping[int, Report]) -> tuple[str, ...]:
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, report in sorted(reports.items()):
        for warning in report.warnings:
            ranks[warning].append(rank)
    said = [
        text if len(at) == len(reports) else f"rank {', '.join(map(str, at))}: {text}"
        for text, at in ranks.items()
    ]
    return (*job.notes, *said)


def _straggler(job: Job, straggler: JobStraggler, base: Report) -> Finding | None:
    """The finding that this rank is; None where balance would save nothing to speak of."""
    saved = job.without_straggler_us
    share = saved / (base.summary.analyzed_us or 1.0)
    mine = [c for c in job.collectives if c.last == straggler.rank]
    if not mine or (level := severity(share)) is None:
        return None
    row = BY_ID[STRAGGLER]
    spans = [{"start_us": c.start_us, "end_us": c.end_us} for c in mine]
    return Finding(
        id=f"{STRAGGLER}-{straggler.rank}",
        pattern=STRAGGLER,
        side=row.side,
        start_us=min(c.start_us for c in mine),
        end_us=max(c.end_us for c in mine),
        steps=straggler.steps,
        confidence=_SURE * job.confidence,
        severity=level,
        estimated_savings_us=saved,
        savings_range_us=(saved, max(saved, job.balanced_us)),
        share=share,
        assumes="the late rank arrives with the median of the others; at most, all with the mean",
        occurrences=len(mine),
        evidence={"occurrences": spans},
        explanation=explain(job, straggler),
        fix=Fix(ADVICE[straggler.kind], row.advice[0].code if straggler.kind in _SHARES else ""),
        ranks=(straggler.rank,),
    )


def others_wait(job: Job) -> str:
    """The beginning of a sentence about a late rank."""
    others = len(job.ranks) - 1
    return "The other rank waits" if others == 1 else f"The other {others} ranks wait"


def explain(job: Job, straggler: JobStraggler) -> str:
    """Who waits for whom, for how long, and what the late rank does meanwhile."""
    how = ONE_STEP if straggler.how == "one step" else straggler.how
    text = (
        f"{others_wait(job)} {straggler.waited_us / 1e3:,.1f} ms for rank {straggler.rank}"
        f" ({per_cent(straggler.share)} of all waiting, {how})."
    )
    if straggler.causes:
        listed = ", ".join(f"{c.us / 1e3:,.1f} ms {c.label}" for c in straggler.causes[:3])
        text += f" Beyond what they take, it takes: {listed}."
    return f"{text} {straggler.detail}.".replace(" .", "") if straggler.detail else text
