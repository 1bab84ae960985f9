"""Candidates, with what the judge says of their places, become findings.

A candidate is sized by counterfactual wherever in the trace it occurs; the flagger and the judge
say how likely it is the matter there. A pattern of which the judge is not sure is a lead, listed
apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.candidates import Candidate
from detector.evidence import Evidence
from detector.flagger import Scores
from detector.intervals import Intervals
from detector.judge import Verdict, feedback
from detector.patterns import BY_ID
from detector.region import Region
from detector.report import Candidate as Considered
from detector.report import Claim, Finding, Fix, SourceLine
from detector.taxonomy import Severity, severity
from detector.trace import NS_PER_US, Int64
from detector.window import AnalyzedTime, Window

# Of a step, or of the analyzed time without steps: occurrences that lie closer are one place.
NEAR: Final = 0.1


@dataclass(frozen=True)
class Settings:
    """What the report shows.

    ``max_regions``: how many places the judge sees. ``lead``: below this confidence a pattern is
    no finding but a lead. ``max_occurrences``: of one finding, listed in the report.
    """

    max_regions: int = 48
    lead: float = 0.5
    max_occurrences: int = 200


USUAL: Final = Settings()


@dataclass(frozen=True)
class Case:
    """A place with its evidence and the judge's verdict."""

    region: Region
    evidence: Evidence
    verdict: Verdict
    judge: str = ""

    def probability(self, pattern: str) -> float:
        """How likely the judge finds a pattern here."""
        if (named := self.verdict.of(pattern)) is not None:
            return named.confidence
        return dict(self.verdict.candidates).get(pattern, 0.0)


# -- places ----------------------------------------------------------------------------------------


def places_of(
    found: Sequence[Candidate],
    confidence: Sequence[float],
    analyzed: AnalyzedTime,
    windows: Sequence[Window],
    scores: Scores,
) -> list[Region]:
    """Where each candidate costs most: its occurrences in the step that gains most, as a region
    with the flagger's score of the windows there, and with all candidates that occur there."""
    starts = np.array([w.start for w in windows], np.int64)
    ends = np.array([w.end for w in windows], np.int64)
    places = []
    for candidate in found:
        start, end = _costliest(candidate, analyzed)
        mine = np.flatnonzero((starts < end) & (ends > start))
        side = candidate.pattern.side
        score = float((scores.cpu if side == "cpu" else scores.gpu)[mine].max(initial=0.0))
        here = suspects(found, confidence, start, end, first=candidate)
        places.append(Region(start, end, score, side, tuple(mine.tolist()), (), here))
    return places


def suspects(
    found: Sequence[Candidate],
    confidence: Sequence[float],
    start: int,
    end: int,
    first: Candidate | None = None,
) -> tuple[tuple[str, float], ...]:
    """The candidates that occur in [start, end), ns, with their confidence: ``first``, whose place
    it is, then the surest."""
    here = [
        (candidate is not first, -sure, candidate.pattern.id)
        for candidate, sure in zip(found, confidence, strict=True)
        if len(candidate.occurrences.within(start, end))
    ]
    return tuple((pattern, -sure) for _, sure, pattern in sorted(here))


def _costliest(candidate: Candidate, analyzed: AnalyzedTime) -> tuple[int, int]:
    """From the first to the last of its occurrences in the step that gains most, ns."""
    where = candidate.occurrences
    if len(candidate.by_step_ns) == len(analyzed.steps) and analyzed.steps:
        step = analyzed.steps[int(np.argmax(candidate.by_step_ns))]
        inside = where.within(step.start, step.end)
        where = inside if len(inside) else where
    start = max(int(where.start.min()), analyzed.start)
    return start, max(min(int(where.end.max()), analyzed.end), start + 1)


# -- findings --------------------------------------------------------------------------------------


def findings_of(
    found: Sequence[Candidate],
    confidence: Sequence[float],
    own: Mapping[str, Case],
    flagged: Sequence[Case],
    analyzed: AnalyzedTime,
    settings: Settings,
    in_words: Callable[[str], str],
    names: Mapping[str, str],
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Findings and leads, the largest savings first.

    ``names``: by pattern the id; ``confidence``: of each candidate; ``own``: by pattern the case of
    a candidate's own place; ``flagged``: those of the flagger's regions; ``in_words``: a feature's
    column for a reader.
    """
    pairs = sorted(zip(found, confidence, strict=True), key=lambda pair: -pair[0].best_ns)
    made = [
        _finding(
            c,
            names[c.pattern.id],
            level,
            sure,
            own.get(c.pattern.id),
            flagged,
            analyzed,
            settings,
            in_words,
        )
        for c, sure in pairs
        if (level := severity(c.share)) is not None
    ]
    sure = tuple(f for f in made if f.confidence >= settings.lead)
    return sure, tuple(f for f in made if f.confidence < settings.lead)


def _finding(
    candidate: Candidate,
    name: str,
    level: Severity,
    learnt: float,
    own: Case | None,
    flagged: Sequence[Case],
    analyzed: AnalyzedTime,
    settings: Settings,
    in_words: Callable[[str], str],
) -> Finding:
    pattern = candidate.pattern
    spans = joined(candidate, analyzed)
    beside = [c for c in flagged if _overlaps(c.region, spans) and c.region.side == pattern.side]
    cases = ([own] if own is not None else []) + beside
    best = max(cases, key=lambda c: c.probability(pattern.id), default=None)
    said = best.probability(pattern.id) if best is not None else learnt
    named = best is not None and best.verdict.of(pattern.id) is not None
    shown = best if named or own is None else own  # its numbers and its words go together
    low, high = candidate.likely_ns(analyzed.end - analyzed.start)
    return Finding(
        id=name,
        pattern=pattern.id,
        side=pattern.side,
        start_us=int(spans.start[0]) / NS_PER_US,
        end_us=int(spans.end[-1]) / NS_PER_US,
        steps=_steps(analyzed, spans),
        score=own.region.score if own is not None else 0.0,
        confidence=(learnt + said) / 2,
        severity=level,
        kind=pattern.kind,
        estimated_savings_us=candidate.best_ns / NS_PER_US,
        savings_range_us=(low / NS_PER_US, high / NS_PER_US),
        by_step_us=tuple(ns / NS_PER_US for ns in candidate.by_step_ns),
        share=candidate.share,
        assumes=pattern.assumes,
        occurrences=len(candidate.occurrences),
        evidence=_evidence(shown, spans, settings, in_words),
        explanation=_explanation(pattern.id, shown),
        claims=_claims(pattern.id, shown),
        judged_by=_judged_by(pattern.id, shown),
        fix=_fix(pattern.id, shown),
        candidates=_considered(shown),
    )


def joined(candidate: Candidate, analyzed: AnalyzedTime) -> Intervals:
    """The candidate's occurrences; those that lie close together, and in one step, as one.

    An occurrence without a length, of a clock too coarse for it, is a nanosecond.
    """
    where = candidate.occurrences
    spans = Intervals.union(where.start, np.maximum(where.end, where.start + 1))
    steps = np.array([step.start for step in analyzed.steps], np.int64)
    edges = (
        np.append(steps, analyzed.end) if len(steps) else np.array([analyzed.start, analyzed.end])
    )
    length = float(np.median(np.diff(edges)))
    return spans.bridged(NEAR * length, steps)


def _overlaps(region: Region, spans: Intervals) -> bool:
    edges = np.array([region.start], np.int64), np.array([region.end], np.int64)
    return int(spans.covered(*edges)[0]) > 0


def _explanation(pattern: str, shown: Case | None) -> str:
    """The judge's own words where it names the pattern, else the pattern's with the place's
    numbers."""
    if shown is None:
        return BY_ID[pattern].what
    if (named := shown.verdict.of(pattern)) is not None:
        return named.explanation
    return feedback.explain(shown.evidence, pattern)


def _fix(pattern: str, shown: Case | None) -> Fix:
    row = BY_ID[pattern]
    if shown is None:
        return Fix(row.fix, row.code)
    named = shown.verdict.of(pattern)
    own, place = (named.fix, named.place) if named is not None else ("", "")
    lines = sorted(shown.evidence.where, key=lambda w: f"{w.file}:{w.line}" != place)
    where = tuple(SourceLine(w.file, w.line, w.function) for w in lines)
    code = row.advise(shown.evidence.circumstances).code
    text = own or feedback.advise(shown.evidence, pattern)
    return Fix(text, code, where, () if where else shown.evidence.modules)


def _claims(pattern: str, shown: Case | None) -> tuple[Claim, ...]:
    named = shown.verdict.of(pattern) if shown is not None else None
    return tuple(Claim(*claim) for claim in named.claims) if named is not None else ()


def _judged_by(pattern: str, shown: Case | None) -> str:
    if shown is None:
        return ""
    if pattern in shown.verdict.unconfirmed:
        return f"embedded, not confirmed by {shown.judge}"
    reason = shown.verdict.fallback
    return f"embedded, in place of {shown.judge}: {reason}" if reason else shown.judge


def _considered(shown: Case | None) -> tuple[Considered, ...]:
    return tuple(Considered(n, p) for n, p in shown.verdict.candidates) if shown else ()


def _steps(analyzed: AnalyzedTime, spans: Intervals) -> tuple[int, ...]:
    """Indices of the steps that the spans touch."""
    start = np.array([step.start for step in analyzed.steps], np.int64)
    end = np.array([step.end for step in analyzed.steps], np.int64)
    return tuple(np.flatnonzero(spans.covered(start, end)).tolist())


def _evidence(
    shown: Case | None,
    spans: Intervals,
    settings: Settings,
    in_words: Callable[[str], str],
) -> dict[str, object]:
    kept = _longest(spans, settings.max_occurrences)
    listed = [
        {"start_us": int(a) / NS_PER_US, "end_us": int(b) / NS_PER_US}
        for a, b in zip(spans.start[kept], spans.end[kept], strict=True)
    ]
    features = shown.region.top_features if shown else ()
    rows = shown.evidence.table() if shown else ()
    return {
        "top_features": [in_words(column) for column in features],
        **{
            row.key: {"label": row.label, "value": row.value, "unit": row.unit, "rest": row.rest}
            for row in rows
        },
        "occurrences": listed,
    }


def _longest(spans: Intervals, most: int) -> Int64:
    """Indices of the longest spans, in time order."""
    order = np.argsort(spans.start - spans.end, kind="stable")[:most]
    return np.sort(order)
