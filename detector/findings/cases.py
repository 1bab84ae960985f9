"""Cases: places with their evidence and the judge's verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from detector.analysis import Analysis
from detector.evidence import Evidence, gather
from detector.evidence.context import Contexts
from detector.evidence.views import Views
from detector.judge import UNSURE, Answers, Judge, Verdict
from detector.region import Region, halves


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


Answered = tuple[list[Case], Answers]


def judge_places(analysis: Analysis, places: Sequence[Region], judge: Judge) -> Answered:
    """A case for each place, in order. What is unclear to a model is asked about once more, cut in
    two."""
    contexts = Contexts(analysis.signals, analysis.ledger, analysis.candidates)
    views = Views(contexts)

    def serve(evidence: Evidence, view: str) -> str:
        return views.text(evidence.region, view)

    def ask(regions: Sequence[Region]) -> Answered:
        is_brief = not judge.names_more
        evidence = gather(analysis.activity, analysis.analyzed, regions, brief=is_brief)
        if not is_brief:
            evidence = [replace(e, context=contexts.of(e.region)) for e in evidence]
        answers = judge.judge(evidence, serve)
        parts = zip(regions, evidence, answers.verdicts, strict=True)
        return [Case(*one, judge.name) for one in parts], answers

    return _finer(*ask(places), ask)


def _finer(
    cases: list[Case], answers: Answers, ask: Callable[[Sequence[Region]], Answered]
) -> Answered:
    """Ask again about each half of an unclear place: the half that is clear speaks for the whole,
    beside the verdict that stood in."""
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
