"""The whole product: a trace in, a report out. One direction, no stage calls back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from detector import __version__, features, process_memory
from detector.analysis import Analysis, analyze, guards
from detector.build_report import report_of
from detector.evidence.excerpt import excerpt
from detector.features import candidate
from detector.findings import USUAL, Assessed, Settings, findings_of, places_of, suspects
from detector.findings.cases import Case, judge_places
from detector.findings.identity import identity
from detector.findings.unsized import unsized
from detector.flagger import Flagger, Float32, Scores
from detector.flagger.confidence import Confidence
from detector.judge import Judge
from detector.patterns import IDS
from detector.region import Region, merge, top_features
from detector.report import Finding, Report, Tool, WindowScore
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
    scored = _scored(analysis, windower, flagger)
    learned = confidence.score(candidate.matrix(analysis)).tolist()
    places = _places(analysis, scored, learned)
    if judge.names_more and analysis.why_not is None:
        places += _flagged(analysis, scored, learned, settings.max_regions - len(places))
    cases, answers = judge_places(analysis, places, judge)
    findings, leads = _findings(analysis, learned, cases, settings)
    candidates = {one.pattern.id for one in analysis.candidates.found}
    is_analyzable = analysis.why_not is None
    doubts = guards.warnings(analysis.activity, analysis.analyzed, analyzable=is_analyzable)
    return report_of(
        analysis,
        tool=_tool(flagger, confidence, judge, config or {}),
        windows=_window_scores(scored),
        findings=findings,
        leads=leads,
        judging=replace(answers.judging, unsized=unsized(cases, candidates)),
        warnings=(*doubts, *answers.warnings),
    )


@dataclass(frozen=True, eq=False)
class _Scored:
    """The windows of the analyzed time, a row of features each, and how suspicious they are."""

    windows: tuple[Window, ...]
    matrix: Float32
    flagger: Flagger
    scores: Scores


def _scored(analysis: Analysis, windower: Windower, flagger: Flagger) -> _Scored:
    process_memory.trim()
    windows = windower(analysis.analyzed)
    matrix = features.extract(analysis, windows)
    process_memory.trim()
    return _Scored(windows, matrix, flagger, flagger.score(matrix))


def _places(analysis: Analysis, scored: _Scored, learned: Sequence[float]) -> list[Region]:
    """Where each candidate costs most."""
    found, scores = analysis.candidates.found, scored.scores
    return [
        replace(place, top_features=top_features(place, scores, scored.flagger, scored.matrix))
        for place in places_of(found, learned, analysis.analyzed, scored.windows, scores)
    ]


def _flagged(
    analysis: Analysis, scored: _Scored, learned: Sequence[float], most: int
) -> list[Region]:
    """The weightiest of the flagger's regions, for a judge that can name what no candidate has."""
    busy = analysis.activity.busy
    regions = merge(scored.windows, scored.scores, scored.flagger, scored.matrix, busy)
    weightiest = sorted(regions, key=lambda region: -region.score * region.dur)[: max(most, 0)]
    found = analysis.candidates.found
    return [replace(r, candidates=suspects(found, learned, r.start, r.end)) for r in weightiest]


def _findings(
    analysis: Analysis, learned: Sequence[float], cases: Sequence[Case], settings: Settings
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Findings, each with the events around its place, and leads. ``cases``: a candidate's own
    each, then those of flagged regions."""
    found = analysis.candidates.found
    own, flagged = cases[: len(found)], cases[len(found) :]
    assessed = {
        one.pattern.id: Assessed(one, identity(analysis.signals, one), confidence, case)
        for one, confidence, case in zip(found, learned, own, strict=True)
    }
    findings, leads = findings_of(
        list(assessed.values()), flagged, analysis.analyzed, settings, features.in_words
    )

    def with_excerpt(finding: Finding) -> Finding:
        shown = assessed[finding.pattern]
        place = shown.case.region.start, shown.case.region.end
        occurrences = shown.candidate.occurrences
        events = excerpt(analysis.activity, analysis.analyzed, place, occurrences)
        return replace(finding, excerpt=events)

    return tuple(map(with_excerpt, findings)), leads


def _tool(
    flagger: Flagger, confidence: Confidence, judge: Judge, config: Mapping[str, object]
) -> Tool:
    taxonomy = hashlib.sha256("\n".join(IDS).encode()).hexdigest()[:12]
    return Tool(__version__, flagger.name, confidence.name, judge.name, taxonomy, dict(config))


def _window_scores(scored: _Scored) -> tuple[WindowScore, ...]:
    cpu, gpu = scored.scores.cpu.tolist(), scored.scores.gpu.tolist()
    return tuple(
        WindowScore(w.start / NS_PER_US, w.end / NS_PER_US, w.step, max(host, device), host, device)
        for w, host, device in zip(scored.windows, cpu, gpu, strict=True)
    )
