"""A Report out of an analysis: everything in it that needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detector import gpu_specs, ledger
from detector.activity import Activity
from detector.analysis import Analysis, guards
from detector.analysis.heavy_ops import heavy_ops
from detector.candidates import Candidates
from detector.evidence import heaviest
from detector.intervals import Intervals
from detector.jobs.gradients import communication
from detector.patterns import capability
from detector.report import (
    CoverageInfo,
    Finding,
    LedgerPlace,
    LedgerRow,
    NotChecked,
    Report,
    SourceInfo,
    StepInfo,
    Summary,
)
from detector.report.events import Peaks
from detector.signals import Place
from detector.trace import NS_PER_US
from detector.window import AnalyzedTime


def report_of(analysis: Analysis, **rest: Any) -> Report:
    """The fields that need no model, and the ``rest`` of a Report."""
    why, found = analysis.why_not, analysis.candidates
    return Report(
        analyzable=why is None,
        why_not=why.reason if why else None,
        record_instead=why.record if why else None,
        source=_source(analysis),
        summary=_summary(analysis.activity, analysis.analyzed, rest["findings"]),
        ledger=_ledger(analysis),
        unexplained=_unexplained(found),
        top_kernels=heaviest.kernels(analysis.activity, analysis.analyzed),
        top_ops=heaviest.ops(analysis.activity, analysis.analyzed),
        peaks=_peaks(analysis.activity),
        communication=communication(analysis.signals, analysis.analyzed),
        not_checked=_not_checked(analysis),
        **rest,
    )


def _source(analysis: Analysis) -> SourceInfo:
    trace, analyzed = analysis.trace, analysis.analyzed
    coverage = trace.coverage
    end = int(trace.end.max()) if len(trace) else 0
    start = int(trace.start[0]) if len(trace) else 0
    return SourceInfo(
        path=trace.source.path,
        sha256=trace.source.sha256,
        bytes=trace.source.bytes,
        events=trace.source.events,
        kernels=trace.kernels,
        devices=trace.device_names,
        rank=trace.rank,
        span_us=(start / NS_PER_US, end / NS_PER_US),
        steps=tuple(
            StepInfo(s.name, s.start / NS_PER_US, s.end / NS_PER_US) for s in analyzed.steps
        ),
        program=heavy_ops(analysis.activity, analyzed),
        coverage=CoverageInfo(
            coverage.read_fraction,
            dict(coverage.repaired),
            dict(coverage.dropped),
            coverage.kernels_with_launch,
            coverage.kernels_with_op,
        ),
    )


def _ledger(analysis: Analysis) -> tuple[LedgerRow, ...]:
    times, steps = analysis.ledger, analysis.analyzed.steps
    wall = max(1, times.end - times.start)
    start = np.array([step.start for step in steps], np.int64)
    end = np.array([step.end for step in steps], np.int64)
    each = times.by_span(start, end)
    return tuple(
        _row(cause, ns, ns / wall, times.places(cause), [step.get(cause, 0) for step in each])
        for cause, ns in times.total().items()
    )


def _unexplained(found: Candidates) -> tuple[LedgerRow, ...]:
    return tuple(_row(u.cause, u.ns, u.share, u.places) for u in found.unexplained)


def _row(
    cause: str, ns: int, share: float, places: Sequence[Place], by_step: Sequence[int] = ()
) -> LedgerRow:
    known = ledger.BY_ID[cause]
    where = tuple(LedgerPlace(p.name, p.file, p.line, p.ns / NS_PER_US) for p in places)
    steps = tuple(ns / NS_PER_US for ns in by_step)
    return LedgerRow(cause, known.label, known.group, ns / NS_PER_US, share, where, steps)


def _summary(activity: Activity, analyzed: AnalyzedTime, findings: Sequence[Finding]) -> Summary:
    wall = max(1, analyzed.end - analyzed.start)
    trace = activity.trace
    whole = int(trace.end.max() - trace.start.min()) if len(trace) else 0

    def share(spans: Intervals) -> float:
        return spans.clip(analyzed.start, analyzed.end).measure / wall

    busy = share(activity.busy)
    return Summary(
        analyzed_us=(analyzed.end - analyzed.start) / NS_PER_US,
        trace_us=whole / NS_PER_US,
        gpu_busy=busy,
        exposed_copy=share(activity.exposed_copy),
        exposed_comm=share(activity.exposed_comm),
        gpu_idle=1 - busy if analyzed.end > analyzed.start else 0.0,
        estimated_savings_us=float(sum(f.estimated_savings_us for f in findings)),
    )


def _not_checked(analysis: Analysis) -> tuple[NotChecked, ...]:
    settings = guards.settings(analysis.activity, analysis.analyzed)
    return tuple(NotChecked(p, why, settings.get(why, "")) for p, why in analysis.blind.items())


def _peaks(activity: Activity) -> Peaks | None:
    d = gpu_specs.find_device(capability.device_name(activity)) if activity.has_device else None
    if not d:
        return None
    fp32, tf32, fp16, bf16, bandwidth = map(float, (d.fp32, d.tf32, d.fp16, d.bf16, d.bandwidth))
    return Peaks(fp32, tf32, fp16, bf16, bandwidth, d.source)
