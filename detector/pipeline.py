"""The whole product: a trace in, a report out. One direction, no stage calls back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from detector import __version__, features, process_memory
from detector.analysis import Analysis, analyze, guards
from detector.build_report import excerpt_of, report_of
from detector.evidence import Evidence, gather
from detector.evidence.context import Contexts
from detector.evidence.views import Views
from detector.features import candidate
from detector.findings import USUAL, Assessed, Case, Settings, findings_of, places_of, suspects
from detector.findings.identity import identity
from detector.flagger import Flagger, Scores
from detector.flagger.confidence import Confidence
from detector.judge import UNSURE, Answers, AskingJudge, Judge
from detector.patterns import IDS
from detector.region import Region, halves, merge, top_features
from detector.report import Report, Tool, WindowScore
from detector.trace import NS_PER_US, Trace
from detector.window import AnalyzedTime, Window

Windower = Callable[[AnalyzedTime], tuple[Window, ...]]


def detect(trace: Trace, **stages: Any) -> Report:
    """Analyze one trace; ``stages`` as of ``report_on``. Raises TraceError where its events lie too
    far apart, and what the judge's backend cannot turn into a warning."""
    return report_on(analyze(trace), **stages)


def report_on(
    analysis: Analysis,
    *,
    windower: Windower,
    flagger: Flagger,
    confidence: Confidence,
    judge: Judge,
    settings: Settings = USUAL,
    config: Mapping[str, object] | None = None,
) -> Report:
    """The report of an analyzed trace. Raises what the judge's backend cannot turn into a
    warning."""
    process_memory.trim()
    analyzed, found = analysis.analyzed, analysis.candidates.found
    windows = windower(analyzed)
    matrix = features.extract(analysis, windows)
    process_memory.trim()
    scores = flagger.score(matrix)
    learnt = confidence.score(candidate.matrix(analysis)).tolist()
    own = places_of(found, learnt, analyzed, windows, scores)
    own = [replace(p, top_features=top_features(p, scores, flagger, matrix)) for p in own]
    flagged: tuple[Region, ...] = ()
    if judge.names_more and analysis.why_not is None:
        flagged = merge(windows, scores, flagger, matrix, analysis.activity.busy)
    cases, answers = _judge(analysis, own, flagged, learnt, judge, settings)
    assessed = [
        Assessed(c, identity(analysis.signals, c), confident, case)
        for c, confident, case in zip(found, learnt, cases[: len(own)], strict=True)
    ]
    findings, leads = findings_of(
        assessed, cases[len(own) :], analyzed, settings, features.in_words
    )
    shown = {c.pattern.id: (c, (r.start, r.end)) for c, r in zip(found, own, strict=True)}
    return report_of(
        analysis,
        tool=_tool(flagger, confidence, judge, config or {}),
        windows=_window_scores(windows, scores),
        findings=tuple(
            replace(f, excerpt=excerpt_of(analysis, *shown[f.pattern])) for f in findings
        ),
        leads=leads,
        judging=answers.judging,
        warnings=(
            *guards.warnings(analysis.activity, analyzed, analyzable=analysis.why_not is None),
            *answers.warnings,
        ),
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
    contexts = Contexts(analysis.signals, analysis.ledger, analysis.candidates)
    views = Views(contexts)

    def serve(one: Evidence, view: str) -> str:
        return views.text(one.region, view)

    def ask(regions: Sequence[Region]) -> tuple[list[Case], Answers]:
        brief = not judge.names_more
        evidence = gather(analysis.activity, analysis.analyzed, regions, brief=brief)
        if not brief:
            evidence = [replace(e, context=contexts.of(e.region)) for e in evidence]
        if isinstance(judge, AskingJudge):
            answers = judge.judge_with_views(evidence, serve)
        else:
            answers = judge.judge(evidence)
        pairs = zip(regions, evidence, answers.verdicts, strict=True)
        return [Case(*pair, judge.name) for pair in pairs], answers

    return _finer(*ask(places), ask)


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
            best = max(known, key=lambda case: case.verdict.first.confidence)
            own = replace(cases[i].verdict, fallback="")
            cases[i] = replace(best, verdict=combined(own, Outcome(best.verdict)))
            clear += 1
    judging = joined(answers.judging, more.judging, clear)
    return cases, Answers(answers.verdicts, (*answers.warnings, *more.warnings), judging)


def _tool(
    flagger: Flagger, confidence: Confidence, judge: Judge, config: Mapping[str, object]
) -> Tool:
    taxonomy = hashlib.sha256("\n".join(IDS).encode()).hexdigest()[:12]
    return Tool(__version__, flagger.name, confidence.name, judge.name, taxonomy, dict(config))


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
