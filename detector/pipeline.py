"""The whole product: a trace in, a report out. One direction, no stage calls back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from detector import __version__, features, guards, heap, ledger
from detector.activity import Activity
from detector.analysis import Analysis, analyze
from detector.candidates import Candidates
from detector.evidence import Evidence, excerpt, gather, heaviest
from detector.evidence.context import Contexts
from detector.evidence.heaviest import Heavy
from detector.evidence.views import Views
from detector.features import candidate
from detector.findings import USUAL, Case, Settings, findings_of, places_of, suspects
from detector.flagger import Flagger, Scores
from detector.flagger.confidence import Confidence
from detector.identity import identity
from detector.intervals import Intervals
from detector.judge import UNSURE, Answers, AskingJudge, Judge
from detector.patterns import IDS
from detector.programs import heavy_ops
from detector.region import Region, halves, merge, top_features
from detector.report import (
    CoverageInfo,
    Finding,
    LedgerPlace,
    LedgerRow,
    NotChecked,
    ProgramOp,
    Report,
    SourceInfo,
    StepInfo,
    Summary,
    Tool,
    WindowScore,
)
from detector.shown import Excerpt, ExcerptTrack, TopEvent
from detector.signals import Place
from detector.trace import NS_PER_US, Int64, Trace
from detector.window import AnalyzedTime, Window

Windower = Callable[[AnalyzedTime], tuple[Window, ...]]


def detect(
    trace: Trace,
    *,
    windower: Windower,
    flagger: Flagger,
    confidence: Confidence,
    judge: Judge,
    settings: Settings = USUAL,
    config: Mapping[str, object] | None = None,
) -> Report:
    """Analyze one trace. Raises what the judge's backend cannot turn into a warning."""
    analysis = analyze(trace)
    heap.trim()
    analyzed, found = analysis.analyzed, analysis.candidates.found
    windows = windower(analyzed)
    matrix = features.extract(analysis, windows)
    heap.trim()
    scores = flagger.score(matrix)
    learnt = confidence.score(candidate.matrix(analysis)).tolist()
    own = places_of(found, learnt, analyzed, windows, scores)
    own = [replace(p, top_features=top_features(p, scores, flagger, matrix)) for p in own]
    flagged: tuple[Region, ...] = ()
    if judge.names_more and analysis.why_not is None:
        flagged = merge(windows, scores, flagger, matrix, analysis.activity.busy)
    cases, answers = _judge(analysis, own, flagged, learnt, judge, settings)
    by_pattern = {c.pattern.id: case for c, case in zip(found, cases, strict=False)}
    names = {c.pattern.id: identity(analysis.signals, c) for c in found}
    sure, leads = findings_of(
        found, learnt, by_pattern, cases[len(own) :], analyzed, settings, features.in_words, names
    )
    places = {c.pattern.id: (r.start, r.end) for c, r in zip(found, own, strict=False)}
    return _report(
        analysis,
        tool=_tool(flagger, confidence, judge, config or {}),
        windows=_window_scores(windows, scores),
        findings=tuple(_with_excerpt(analysis, finding, places) for finding in sure),
        leads=leads,
        judging=answers.judging,
        warnings=(*guards.warnings(analysis.activity, analyzed), *answers.warnings),
    )


def _judge(
    analysis: Analysis,
    own: Sequence[Region],
    flagged: Sequence[Region],
    learnt: Sequence[float],
    judge: Judge,
    settings: Settings,
) -> tuple[list[Case], Answers]:
    """Verdicts on the candidates' own places, then on the weightiest of the flagged regions."""
    found = analysis.candidates.found
    order = sorted(flagged, key=lambda region: -region.score * region.dur)
    beside = [
        replace(region, candidates=suspects(found, learnt, region.start, region.end))
        for region in order[: max(settings.max_regions - len(own), 0)]
    ]
    places = [*own, *beside]

    def ask(regions: Sequence[Region]) -> tuple[list[Case], Answers]:
        brief = not judge.names_more
        evidence = gather(analysis.activity, analysis.analyzed, regions, brief=brief)
        if brief:
            answers = judge.judge(evidence)
        else:
            contexts = Contexts(analysis.signals, analysis.ledger, analysis.candidates)
            evidence = [replace(e, context=contexts.of(e.region)) for e in evidence]
            answers = _asked(judge, evidence, Views(contexts))
        pairs = zip(regions, evidence, answers.verdicts, strict=True)
        return [Case(*pair, judge.name) for pair in pairs], answers

    return _finer(*ask(places), ask)


def _asked(judge: Judge, evidence: Sequence[Evidence], views: Views) -> Answers:
    """The answers of a judge that may want to see more of a place."""
    if not isinstance(judge, AskingJudge):
        return judge.judge(evidence)
    return judge.judge_with_views(evidence, lambda one, view: views.text(one.region, view))


def _finer(
    cases: list[Case],
    answers: Answers,
    ask: Callable[[Sequence[Region]], tuple[list[Case], Answers]],
) -> tuple[list[Case], Answers]:
    """What was unclear to a model is cut in two and asked about again, once: the half that is clear
    speaks for the place, beside the verdict that stood in."""
    unsure = [i for i, case in enumerate(cases) if case.verdict.fallback == UNSURE]
    if not unsure:
        return cases, answers
    from detector.judge.rounds import Outcome, combined, joined  # with all that asks a server

    again, more = ask([half for i in unsure for half in halves(cases[i].region)])
    clear = 0
    for i, pair in zip(unsure, zip(again[::2], again[1::2], strict=True), strict=True):
        known = [case for case in pair if not case.verdict.fallback]
        if known:
            best = max(known, key=lambda case: case.verdict.confidence)
            own = replace(cases[i].verdict, fallback="")
            cases[i] = replace(best, verdict=combined(own, Outcome(best.verdict)))
            clear += 1
    judging = joined(answers.judging, more.judging, clear)
    return cases, Answers(answers.verdicts, (*answers.warnings, *more.warnings), judging)


# -- the rest of the report ------------------------------------------------------------------------


def _report(analysis: Analysis, **rest: Any) -> Report:
    """What needs no model, and the ``rest``."""
    why, found = analysis.why_not, analysis.candidates
    return Report(
        analyzable=why is None,
        why_not=why.reason if why else None,
        record_instead=why.record if why else None,
        source=_source(analysis),
        summary=_summary(analysis.activity, analysis.analyzed, rest["findings"]),
        ledger=_ledger(analysis),
        unexplained=_unexplained(found),
        top_kernels=_top(heaviest.kernels(analysis.activity, analysis.analyzed)),
        top_ops=_top(heaviest.ops(analysis.activity, analysis.analyzed)),
        not_checked=_not_checked(analysis),
        **rest,
    )


def _tool(
    flagger: Flagger, confidence: Confidence, judge: Judge, config: Mapping[str, object]
) -> Tool:
    taxonomy = hashlib.sha256("\n".join(IDS).encode()).hexdigest()[:12]
    return Tool(__version__, flagger.name, confidence.name, judge.name, taxonomy, dict(config))


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
        program=tuple(
            ProgramOp(op.name, op.shapes, op.calls) for op in heavy_ops(analysis.activity, analyzed)
        ),
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


def _top(heavy: Sequence[Heavy]) -> tuple[TopEvent, ...]:
    return tuple(
        TopEvent(h.name, h.count, h.own_ns / NS_PER_US, h.device_ns / NS_PER_US, h.shapes)
        for h in heavy
    )


def _with_excerpt(
    analysis: Analysis, finding: Finding, places: Mapping[str, tuple[int, int]]
) -> Finding:
    """The finding with the events around its costliest place."""
    where = {c.pattern.id: c.occurrences for c in analysis.candidates.found}[finding.pattern]
    place = places[finding.pattern]
    made = excerpt.excerpt(analysis.activity, analysis.analyzed, place, where)
    names: dict[str, int] = {}
    tracks = tuple(_track(analysis.trace, strip, made.start, names) for strip in made.strips)
    spans = zip(*(_us(edge - made.start) for edge in made.spans), strict=True)
    shown = Excerpt(
        made.start / NS_PER_US,
        made.end / NS_PER_US,
        (made.place[0] / NS_PER_US, made.place[1] / NS_PER_US),
        made.events,
        made.hidden,
        tuple(names),
        tuple(spans),
        tracks,
    )
    return replace(finding, excerpt=shown)


def _track(trace: Trace, strip: excerpt.Strip, start: int, names: dict[str, int]) -> ExcerptTrack:
    """One track of an excerpt; adds to ``names`` what it calls."""
    labels = [excerpt.label_of(trace, row) for row in strip.row.tolist()]
    return ExcerptTrack(
        strip.label,
        strip.is_device,
        _us(strip.start - start),
        _us(strip.end - strip.start),
        _us(strip.busy),
        tuple(strip.depth.tolist()),
        tuple(names.setdefault(label, len(names)) for label in labels),
        tuple(strip.count.tolist()),
        tuple(np.flatnonzero(strip.at_fault).tolist()),
    )


def _us(ns: Int64) -> tuple[float, ...]:
    return tuple((ns / NS_PER_US).tolist())


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
