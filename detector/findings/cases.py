"""Cases: places with their evidence and the judge's verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from detector.analysis import Analysis
from detector.evidence import Evidence, gather
from detector.evidence.context import Contexts
from detector.evidence.views import Views
from detector.judge import Answers, Judge, Verdict
from detector.region import Region


@dataclass(frozen=True)
class Case:
    """A place with its evidence and the judge's verdict."""

    region: Region
    evidence: Evidence
    verdict: Verdict
    judge: str = ""

    def probability(self, pattern: str) -> float:
        """How likely a pattern is here, as the judge sees it."""
        if (named := self.verdict.of(pattern)) is not None:
            return named.confidence
        return dict(self.verdict.candidates).get(pattern, 0.0)


def judge_places(
    analysis: Analysis, places: Sequence[Region], judge: Judge
) -> tuple[list[Case], Answers]:
    """A case for each place, in order, and how the judge was asked."""
    contexts = Contexts(analysis.signals, analysis.ledger, analysis.candidates)
    views = Views(contexts)
    is_brief = not judge.names_more
    evidence = gather(analysis.activity, analysis.analyzed, places, brief=is_brief)
    if not is_brief:
        evidence = [replace(e, context=contexts.of(e.region)) for e in evidence]
    answers = judge.judge(evidence, lambda one, view: views.text(one.region, view))
    judged = zip(places, evidence, answers.verdicts, strict=True)
    return [Case(*one, judge.name) for one in judged], answers
