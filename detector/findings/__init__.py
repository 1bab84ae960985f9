"""Candidates, with what the judge says of their places, become findings.

A candidate is sized by counterfactual wherever in the trace it occurs; the learned confidence and
the judge say how likely it is that the repair is worth making. A pattern of which they are not sure
is a lead, listed apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.candidates import Candidate
from detector.findings.cases import Case
from detector.flagger import Scores
from detector.intervals import Intervals
from detector.judge import feedback
from detector.patterns import BY_ID
from detector.region import Region
from detector.report import Candidate as Considered
from detector.report import Claim, Finding, Fix
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


@dataclass(frozen=True)
class Assessed:
    """A candidate with what the models say of it.

    ``name``: the finding's id; ``learned``: the learned confidence; ``case``: the verdict on its
    costliest place.
    """

    candidate: Candidate
    name: str
    learned: float
    case: Case


def findings_of(
    assessed: Sequence[Assessed],
    flagged: Sequence[Case],
    analyzed: AnalyzedTime,
    settings: Settings,
    in_words: Callable[[str], str],
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Findings and leads, the largest savings first.

    ``flagged``: the verdicts on the flagger's regions; ``in_words``: a feature's column for a
    reader.
    """
    made = [
        _finding(one, level, flagged, analyzed, settings, in_words)
        for one in sorted(assessed, key=lambda one: -one.candidate.best_ns)
        if (level := severity(one.candidate.share)) is not None
    ]
    sure = tuple(f for f in made if f.confidence >= settings.lead)
    return sure, tuple(f for f in made if f.confidence < settings.lead)


def _finding(
    one: Assessed,
    level: Severity,
    flagged: Sequence[Case],
    analyzed: AnalyzedTime,
    settings: Settings,
    in_words: Callable[[str], str],
) -> Finding:
    candidate, pattern = one.candidate, one.candidate.pattern
    spans = joined(candidate, analyzed)
    beside = [c for c in flagged if _overlaps(c.region, spans) and c.region.side == pattern.side]
    best = max([one.case, *beside], key=lambda case: case.probability(pattern.id))
    named = best.verdict.of(pattern.id) is not None
    shown = best if named else one.case  # its numbers and its words go together
    low, high = candidate.likely_ns(analyzed.end - analyzed.start)
    return Finding(
        id=one.name,
        pattern=pattern.id,
        side=pattern.side,
        start_us=int(spans.start[0]) / NS_PER_US,
        end_us=int(spans.end[-1]) / NS_PER_US,
        steps=_steps(analyzed, spans),
        score=one.case.region.score,
        confidence=(one.learned + best.probability(pattern.id)) / 2,
        severity=level,
        kind=pattern.kind,
        estimated_savings_us=candidate.best_ns / NS_PER_US,
        savings_range_us=(low / NS_PER_US, high / NS_PER_US),
        savings_alone_us=candidate.first_ns / NS_PER_US,
        by_step_us=tuple(ns / NS_PER_US for ns in candidate.by_step_ns),
        share=candidate.share,
        assumes=pattern.assumes,
        occurrences=len(candidate.occurrences),
        evidence=_evidence(shown, spans, settings, in_words),
        explanation=_explanation(pattern.id, shown),
        claims=_claims(pattern.id, shown),
        judged_by=_judged_by(pattern.id, shown),
        fix=_fix(pattern.id, shown),
        candidates=tuple(Considered(*pair) for pair in shown.verdict.candidates),
    )


def joined(candidate: Candidate, analyzed: AnalyzedTime) -> Intervals:
    """The candidate's occurrences, with the backward pass that a repair spares; those that lie
    close together, and in one step, as one.

    An occurrence without a length, of a clock too coarse for it, is a nanosecond.
    """
    where = candidate.occurrences
    spans = Intervals.union(where.start, np.maximum(where.end, where.start + 1))
    spans = spans | candidate.backward.clip(analyzed.start, analyzed.end)
    steps = np.array([step.start for step in analyzed.steps], np.int64)
    edges = (
        np.append(steps, analyzed.end) if len(steps) else np.array([analyzed.start, analyzed.end])
    )
    length = float(np.median(np.diff(edges)))
    return spans.bridged(NEAR * length, steps)


def _overlaps(region: Region, spans: Intervals) -> bool:
    edges = np.array([region.start], np.int64), np.array([region.end], np.int64)
    return int(spans.covered(*edges)[0]) > 0


def _explanation(pattern: str, shown: Case) -> str:
    """The judge's own words where it names the pattern, else the pattern's with the place's
    numbers."""
    if (named := shown.verdict.of(pattern)) is not None:
        return named.explanation
    return feedback.explain(shown.evidence, pattern)


def _fix(pattern: str, shown: Case) -> Fix:
    named = shown.verdict.of(pattern)
    own, place = (named.fix, named.place) if named is not None else ("", "")
    lines = sorted(shown.evidence.where, key=lambda w: f"{w.file}:{w.line}" != place)
    code = BY_ID[pattern].advise(shown.evidence.circumstances).code
    text = own or feedback.advise(shown.evidence, pattern)
    return Fix(text, code, tuple(lines), shown.evidence.modules)


def _claims(pattern: str, shown: Case) -> tuple[Claim, ...]:
    named = shown.verdict.of(pattern)
    return tuple(Claim(*claim) for claim in named.claims) if named is not None else ()


def _judged_by(pattern: str, shown: Case) -> str:
    if pattern in shown.verdict.unconfirmed:
        return f"embedded, not confirmed by {shown.judge}"
    reason = shown.verdict.fallback
    return f"embedded, in place of {shown.judge}: {reason}" if reason else shown.judge


def _steps(analyzed: AnalyzedTime, spans: Intervals) -> tuple[int, ...]:
    """Indices of the steps that the spans touch."""
    start = np.array([step.start for step in analyzed.steps], np.int64)
    end = np.array([step.end for step in analyzed.steps], np.int64)
    return tuple(np.flatnonzero(spans.covered(start, end)).tolist())


def _evidence(
    shown: Case,
    spans: Intervals,
    settings: Settings,
    in_words: Callable[[str], str],
) -> dict[str, object]:
    kept = _longest(spans, settings.max_occurrences)
    listed = [
        {"start_us": int(a) / NS_PER_US, "end_us": int(b) / NS_PER_US}
        for a, b in zip(spans.start[kept], spans.end[kept], strict=True)
    ]
    return {
        "top_features": [in_words(column) for column in shown.region.top_features],
        **{
            row.key: {"label": row.label, "value": row.value, "unit": row.unit, "rest": row.rest}
            for row in shown.evidence.table()
        },
        "occurrences": listed,
    }


def _longest(spans: Intervals, most: int) -> Int64:
    """Indices of the longest spans, in time order."""
    order = np.argsort(spans.start - spans.end, kind="stable")[:most]
    return np.sort(order)
