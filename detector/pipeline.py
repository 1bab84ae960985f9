"""The whole product: a trace in, a report out. One direction, no stage calls back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from detector import __version__, cost, features, guards
from detector.activity import Activity
from detector.evidence import Evidence, gather
from detector.flagger import Flagger, Scores
from detector.intervals import EMPTY, Intervals
from detector.judge import Judge, Verdict
from detector.region import Region, merge
from detector.report import (
    Candidate,
    CoverageInfo,
    Finding,
    Fix,
    NotChecked,
    Report,
    SourceInfo,
    SourceLine,
    StepInfo,
    Summary,
    Tool,
    WindowScore,
)
from detector.taxonomy import BY_ID, IDS, NONE, UNCLEAR, severity
from detector.trace import NS_PER_US, Int64, Trace
from detector.window import Judged, Window, judge_time

Windower = Callable[[Judged], tuple[Window, ...]]


@dataclass(frozen=True)
class Settings:
    """What the report shows.

    ``min_share``: the least share of the judged time worth a finding. ``max_regions``: how many
    regions the judge sees; the others take the verdict of a judged one of the same kind.
    ``also``: from which probability a judge's second thought is weighed too. ``min_confidence``:
    a pattern that the judge holds for less likely is no finding, whatever it would cost.
    """

    min_share: float = 0.01
    max_regions: int = 48
    also: float = 0.3
    min_confidence: float = 0.3
    max_occurrences: int = 200


@dataclass
class _Case:
    """A region with its verdict, on the way to a finding."""

    region: Region
    evidence: Evidence | None
    verdict: Verdict


def detect(
    trace: Trace,
    *,
    windower: Windower,
    flagger: Flagger,
    judge: Judge,
    settings: Settings = Settings(),
    config: Mapping[str, object] | None = None,
) -> Report:
    """Judge one trace. Raises what the judge's backend cannot turn into a warning."""
    activity = Activity(trace)
    judged = judge_time(trace)
    windows = windower(judged)
    matrix = features.extract(activity, judged, windows)
    scores = flagger.score(matrix)
    regions = merge(windows, scores, flagger, matrix, activity.busy)
    blind = guards.blind(activity, judged)
    cases, judge_warnings = _judge(activity, judged, regions, judge, settings)
    findings = _findings(activity, judged, cases, blind, settings)
    return Report(
        tool=_tool(flagger, judge, config or {}),
        source=_source(trace, judged),
        summary=_summary(activity, judged, findings),
        windows=_window_scores(windows, scores),
        findings=findings,
        not_checked=tuple(NotChecked(p, because) for p, because in blind.items()),
        warnings=(*guards.warnings(activity, judged), *judge_warnings),
    )


# -- verdicts --------------------------------------------------------------------------------------


def _judge(
    activity: Activity,
    judged: Judged,
    regions: Sequence[Region],
    judge: Judge,
    settings: Settings,
) -> tuple[list[_Case], tuple[str, ...]]:
    """Verdicts for all regions; the costliest are judged, the rest go by their like."""
    order = sorted(range(len(regions)), key=lambda i: -regions[i].score * regions[i].dur)
    chosen = sorted(_spread(regions, order, settings.max_regions))
    evidence = [gather(activity, judged, regions[i]) for i in chosen]
    answers = judge.judge(evidence)
    told = dict(zip(chosen, zip(evidence, answers.verdicts, strict=True), strict=True))
    by_kind: dict[tuple[str, str], Verdict] = {}
    for i in order:
        if i in told:
            by_kind.setdefault(_kind(regions[i]), told[i][1])
    cases = []
    for i, region in enumerate(regions):
        if i in told:
            cases.append(_Case(region, *told[i]))
        elif _kind(region) in by_kind:
            cases.append(_Case(region, None, by_kind[_kind(region)]))
    return cases, answers.warnings


def _kind(region: Region) -> tuple[str, str]:
    best = next((name for name, _ in region.candidates if name != NONE), NONE)
    return region.side, best


def _spread(regions: Sequence[Region], order: list[int], most: int) -> list[int]:
    """The costliest region of each kind first, then the second of each, up to ``most``."""
    seen: dict[tuple[str, str], int] = {}
    ranked = []
    for place, i in enumerate(order):
        turn = seen[_kind(regions[i])] = seen.get(_kind(regions[i]), -1) + 1
        ranked.append((turn, place, i))
    return [i for _, _, i in sorted(ranked)[:most]]


# -- findings --------------------------------------------------------------------------------------


def _findings(
    activity: Activity,
    judged: Judged,
    cases: Sequence[_Case],
    blind: Mapping[str, str],
    settings: Settings,
) -> tuple[Finding, ...]:
    """One finding per pattern, costliest first, with disjoint claims."""
    wall = max(1, judged.end - judged.start)
    by_pattern = _by_pattern(cases, blind, settings)
    claims = {
        pattern: cost.claim(activity, pattern).within(_spans(judged, group))
        for pattern, group in by_pattern.items()
        if pattern in BY_ID
    }
    findings, taken = [], EMPTY
    for pattern in sorted(claims, key=lambda p: -_standing(claims[p], by_pattern[p], p)):
        claim = claims[pattern].without(taken)
        share = claim.recoverable_ns / wall
        if not share or share < settings.min_share:
            continue
        taken = taken | claim.intervals
        findings.append(_finding(pattern, by_pattern[pattern], claim, share, judged, settings))
    findings.extend(_unclear(by_pattern.get(UNCLEAR, []), judged, settings))
    return tuple(sorted(findings, key=lambda f: -f.recoverable_us))


def _standing(claim: cost.Claim, cases: Sequence[_Case], pattern: str) -> float:
    """Who claims first: recoverable time, weighed by how sure the judge is."""
    return claim.recoverable_ns * max(_confidence(case, pattern) for case in cases)


def _by_pattern(
    cases: Sequence[_Case], blind: Mapping[str, str], settings: Settings
) -> dict[str, list[_Case]]:
    groups: dict[str, list[_Case]] = {}
    for case in cases:
        named = [case.verdict.pattern]
        if named != [UNCLEAR]:  # its candidates are the flagger's, which nobody confirmed
            thoughts = case.verdict.candidates
            named += [name for name, probability in thoughts if probability >= settings.also]
        for pattern in dict.fromkeys(named):
            sure = pattern == UNCLEAR or _confidence(case, pattern) >= settings.min_confidence
            if pattern != NONE and pattern not in blind and sure:
                groups.setdefault(pattern, []).append(case)
    return groups


def _spans(judged: Judged, cases: Sequence[_Case]) -> Intervals:
    return _regions(cases).clip(judged.start, judged.end)


def _regions(cases: Sequence[_Case]) -> Intervals:
    return Intervals.union(*_edges(cases))


def _edges(cases: Sequence[_Case]) -> tuple[Int64, Int64]:
    start = np.array([c.region.start for c in cases], np.int64)
    return start, np.array([c.region.end for c in cases], np.int64)


def _covered(spans: Intervals, cases: Sequence[_Case]) -> list[int]:
    """How much of each case's region these cover, ns."""
    return [int(ns) for ns in spans.covered(*_edges(cases))]


def _confidence(case: _Case, pattern: str) -> float:
    if case.verdict.pattern == pattern:
        return case.verdict.confidence
    return dict(case.verdict.candidates).get(pattern, 0.0)


def _finding(
    pattern: str,
    cases: Sequence[_Case],
    claim: cost.Claim,
    share: float,
    judged: Judged,
    settings: Settings,
) -> Finding:
    """The finding for a pattern, told by the region where the judge was surest."""
    paid = [c for c, ns in zip(cases, _covered(claim.intervals, cases), strict=True) if ns]
    best = max(paid, key=lambda c: (c.verdict.pattern == pattern, _confidence(c, pattern)))
    told = next((c.evidence for c in [best, *paid] if c.evidence is not None), None)
    row = BY_ID[pattern]
    own = best.verdict.pattern == pattern
    return Finding(
        id=_identity(pattern, paid[0].region),
        pattern=pattern,
        side=row.side,
        start_us=min(c.region.start for c in paid) / NS_PER_US,
        end_us=max(c.region.end for c in paid) / NS_PER_US,
        steps=_steps(judged, paid),
        score=max(c.region.score for c in paid),
        confidence=_confidence(best, pattern),
        severity=severity(share) or "info",
        recoverable_us=claim.recoverable_ns / NS_PER_US,
        share=share,
        occurrences=len(paid),
        evidence=_evidence(told, paid, settings),
        explanation=best.verdict.explanation if own else row.what,
        fix=Fix(
            best.verdict.fix if own and best.verdict.fix else row.fix,
            row.code,
            tuple(SourceLine(w.file, w.line, w.function) for w in told.where) if told else (),
        ),
        candidates=tuple(Candidate(n, p) for n, p in best.verdict.candidates),
    )


def _unclear(cases: Sequence[_Case], judged: Judged, settings: Settings) -> list[Finding]:
    """What no judge could name: one finding, with the flagger's candidates and no claim."""
    if not cases:
        return []
    best = max(cases, key=lambda c: c.region.score * c.region.dur)
    return [
        Finding(
            id=_identity(UNCLEAR, best.region),
            pattern=UNCLEAR,
            side=best.region.side,
            start_us=min(c.region.start for c in cases) / NS_PER_US,
            end_us=max(c.region.end for c in cases) / NS_PER_US,
            steps=_steps(judged, cases),
            score=best.region.score,
            occurrences=len(cases),
            evidence=_evidence(best.evidence, cases, settings),
            explanation=best.verdict.explanation,
            candidates=tuple(Candidate(n, p) for n, p in best.region.candidates),
        )
    ]


def _steps(judged: Judged, cases: Sequence[_Case]) -> tuple[int, ...]:
    """Indices of the steps that any of the cases touches."""
    spans = _regions(cases)
    start = np.array([step.start for step in judged.steps], np.int64)
    end = np.array([step.end for step in judged.steps], np.int64)
    return tuple(np.flatnonzero(spans.covered(start, end)).tolist())


def _identity(pattern: str, region: Region) -> str:
    return hashlib.sha256(f"{pattern} {region.start}".encode()).hexdigest()[:12]


def _evidence(
    evidence: Evidence | None, cases: Sequence[_Case], settings: Settings
) -> dict[str, object]:
    listed = [
        {"start_us": c.region.start / NS_PER_US, "end_us": c.region.end / NS_PER_US}
        for c in cases[: settings.max_occurrences]
    ]
    rows = evidence.table() if evidence else ()
    return {
        "drivers": next((_in_words(c.region.drivers) for c in cases if c.region.drivers), []),
        **{
            row.key: {"label": row.label, "value": row.value, "unit": row.unit, "rest": row.rest}
            for row in rows
        },
        "occurrences": listed,
    }


def _in_words(columns: Sequence[str]) -> list[str]:
    return [features.in_words(column) for column in columns]


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


def _summary(activity: Activity, judged: Judged, findings: Sequence[Finding]) -> Summary:
    wall = max(1, judged.end - judged.start)

    def share(spans: Intervals) -> float:
        return spans.clip(judged.start, judged.end).measure / wall

    busy = share(activity.busy)
    return Summary(
        judged_us=(judged.end - judged.start) / NS_PER_US,
        device_busy=busy,
        exposed_copy=share(activity.exposed_copy),
        exposed_comm=share(activity.exposed_comm),
        device_idle=1 - busy if judged.end > judged.start else 0.0,
        recoverable_us=float(sum(f.recoverable_us for f in findings)),
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
