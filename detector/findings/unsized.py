"""What a language model names and no replay sizes: listed in the report, never as a finding."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from detector.findings.cases import Case
from detector.judge import EVEN, Named, feedback
from detector.judge.facts import NUMBER
from detector.patterns import BY_ID
from detector.report.judging import Unsized
from detector.trace import NS_PER_US


def unsized(cases: Sequence[Case], candidates: Collection[str]) -> tuple[Unsized, ...]:
    """Patterns without a candidate that the judge names with even odds and by a number of the
    evidence; each once, where it is surest."""
    found: dict[str, Unsized] = {}
    named = [
        (one, case)
        for case in cases
        for one in case.verdict.named
        if one.pattern in BY_ID and one.pattern not in candidates and _cites(one, case)
    ]
    for one, case in sorted(named, key=lambda pair: -pair[0].confidence):
        start, end = case.region.start / NS_PER_US, case.region.end / NS_PER_US
        mine = Unsized(one.pattern, start, end, one.confidence, one.explanation)
        found.setdefault(one.pattern, mine)
    return tuple(found.values())


def _cites(named: Named, case: Case) -> bool:
    """Of a model's explanation grounding leaves what the evidence holds; of one that holds nothing
    the project's own words stand in its place."""
    own = named.explanation != feedback.explain(case.evidence, named.pattern)
    said = own and NUMBER.search(named.explanation) is not None
    return named.confidence >= EVEN and (said or bool(named.claims))
