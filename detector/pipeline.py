"""The whole product: a trace in, a report out. One direction, no stage calls back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from detector import __version__, analyzable, candidates, features, guards, ledger
from detector.activity import Activity
from detector.candidates import Candidates
from detector.evidence import gather
from detector.findings import USUAL, Case, Settings, findings_of, place_of
from detector.flagger import Flagger, Scores
from detector.intervals import Intervals
from detector.judge import Judge
from detector.ledger import Ledger
from detector.patterns import IDS
from detector.region import Region, merge
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
    Tool,
    WindowScore,
)
from detector.signals import Place, signals_of
from detector.trace import NS_PER_US, Int64, Trace
from detector.window import Judged, Window, judge_time

Windower = Callable[[Judged], tuple[Window, ...]]


def detect(
    trace: Trace,
    *,
    windower: Windower,
    flagger: Flagger,
    judge: Judge,
    settings: Settings = USUAL,
    config: Mapping[str, object] | None = None,
) -> Report:
    """Analyze one trace. Raises what the judge's backend cannot turn into a warning."""
    activity = Activity(trace)
    judged = judge_time(trace)
    windows = windower(judged)
    matrix = features.extract(activity, judged, windows)
    scores = flagger.score(matrix)
    signals = signals_of(trace, activity)
    times = ledger.build(signals, judged.start, judged.end)
    why = analyzable.why_not(times, judged)
    blind = guards.blind(activity, judged) | analyzable.blind(signals)
    found = Candidates((), 0, ())
    flagged: tuple[Region, ...] = ()
    if why is None:
        found = candidates.find(signals, times, _edges(judged), blind)
        flagged = merge(windows, scores, flagger, matrix, activity.busy)
    own = {c.pattern.id: place_of(c, judged, windows, scores) for c in found.found}
    cases, judge_warnings = _judge(activity, judged, [*own.values()], flagged, judge, settings)
    places = dict(zip(own, cases, strict=False))
    sure, leads = findings_of(
        found.found,
        places,
        cases[len(own) :],
        judged,
        activity.has_device,
        settings,
        features.in_words,
    )
    return Report(
        analyzable=why is None,
        why_not=why.reason if why else None,
        record_instead=why.record if why else None,
        tool=_tool(flagger, judge, config or {}),
        source=_source(trace, judged),
        summary=_summary(activity, judged, sure),
        ledger=_ledger(times),
        unexplained=_unexplained(found),
        windows=_window_scores(windows, scores),
        findings=sure,
        leads=leads,
        not_checked=tuple(NotChecked(p, because) for p, because in blind.items()),
        warnings=(*guards.warnings(activity, judged), *judge_warnings),
    )


def _edges(judged: Judged) -> Int64 | None:
    """Where the steps begin, and the end of the last."""
    starts = [step.start for step in judged.steps]
    return np.array([*starts, judged.end], np.int64) if starts else None


def _judge(
    activity: Activity,
    judged: Judged,
    own: Sequence[Region],
    flagged: Sequence[Region],
    judge: Judge,
    settings: Settings,
) -> tuple[list[Case], tuple[str, ...]]:
    """Verdicts on the candidates' own places, then on the weightiest of the flagged regions."""
    order = sorted(flagged, key=lambda region: -region.score * region.dur)
    places = [*own, *order[: max(settings.max_regions - len(own), 0)]]
    evidence = [gather(activity, judged, region) for region in places]
    answers = judge.judge(evidence)
    cases = map(Case, places, evidence, answers.verdicts)
    return list(cases), answers.warnings


# -- the rest of the report ------------------------------------------------------------------------


def _tool(flagger: Flagger, judge: Judge, config: Mapping[str, object]) -> Tool:
    taxonomy = hashlib.sha256("\n".join(IDS).encode()).hexdigest()[:12]
    return Tool(__version__, flagger.name, judge.name, taxonomy, dict(config))


def _source(trace: Trace, judged: Judged) -> SourceInfo:
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
        steps=tuple(StepInfo(s.name, s.start / NS_PER_US, s.end / NS_PER_US) for s in judged.steps),
        coverage=CoverageInfo(
            coverage.read_fraction,
            dict(coverage.repaired),
            dict(coverage.dropped),
            coverage.kernels_with_launch,
            coverage.kernels_with_op,
        ),
    )


def _ledger(times: Ledger) -> tuple[LedgerRow, ...]:
    wall = max(1, times.end - times.start)
    return tuple(
        _row(cause, ns, ns / wall, times.places(cause)) for cause, ns in times.total().items()
    )


def _unexplained(found: Candidates) -> tuple[LedgerRow, ...]:
    return tuple(_row(u.cause, u.ns, u.share, u.places) for u in found.unexplained)


def _row(cause: str, ns: int, share: float, places: Sequence[Place]) -> LedgerRow:
    known = ledger.BY_ID[cause]
    where = tuple(LedgerPlace(p.name, p.file, p.line, p.ns / NS_PER_US) for p in places)
    return LedgerRow(cause, known.label, known.group, ns / NS_PER_US, share, where)


def _summary(activity: Activity, judged: Judged, findings: Sequence[Finding]) -> Summary:
    wall = max(1, judged.end - judged.start)
    trace = activity.trace
    whole = int(trace.end.max() - trace.start.min()) if len(trace) else 0

    def share(spans: Intervals) -> float:
        return spans.clip(judged.start, judged.end).measure / wall

    busy = share(activity.busy)
    return Summary(
        analyzed_us=(judged.end - judged.start) / NS_PER_US,
        trace_us=whole / NS_PER_US,
        gpu_busy=busy,
        exposed_copy=share(activity.exposed_copy),
        exposed_comm=share(activity.exposed_comm),
        gpu_idle=1 - busy if judged.end > judged.start else 0.0,
        estimated_savings_us=float(sum(f.estimated_savings_us for f in findings)),
    )


def _window_scores(windows: Sequence[Window], scores: Scores) -> tuple[WindowScore, ...]:
    return tuple(
        WindowScore(
            w.start / NS_PER_US,
            w.end / NS_PER_US,
            w.step,
            float(max(scores.cpu[i], scores.gpu[i])),
            float(scores.cpu[i]),
            float(scores.gpu[i]),
        )
        for i, w in enumerate(windows)
    )
