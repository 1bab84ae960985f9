"""What a model doubts where a pattern costs most it is not asked about again for little.

A candidate's own place is asked about whatever its score. Each doubt of a pattern there, an answer
that does not name it or not with even odds, halves what is left between the flagger's threshold and
certainty: a flagged region in which nothing but doubted patterns is suspected must score more to be
asked about. Findings stay as they are; doubted candidates are listed, to learn from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from detector.evidence import Evidence
from detector.judge import EVEN, Verdict
from detector.judge.rounds import NS_PER_US, Failure, Outcome
from detector.region import Region
from detector.report.judging import Doubted

SPARED: Final = "doubted where it costs most"  # why a region was not asked about


def in_turn(
    evidence: Sequence[Evidence], ask: Callable[[Sequence[Evidence]], list[Outcome]]
) -> list[Outcome]:
    """An outcome for each place: ``ask`` gets the candidates' own places, then those of the
    flagged regions whose score is above the threshold as it stands by then."""
    own = [i for i, one in enumerate(evidence) if not one.region.threshold]
    found = dict(zip(own, ask([evidence[i] for i in own]), strict=True))
    doubts = _doubts([(evidence[i].region, found[i].verdict) for i in own])
    rest = [
        i
        for i, one in enumerate(evidence)
        if one.region.threshold and worth_asking(one.region, doubts)
    ]
    found |= zip(rest, ask([evidence[i] for i in rest]), strict=True)
    spared = Outcome(failure=Failure(SPARED))
    return [found.get(i, spared) for i in range(len(evidence))]


def worth_asking(region: Region, doubts: Mapping[str, int]) -> bool:
    """Whether a flagged region reaches the threshold of any pattern that is suspected there."""
    left = 1 - region.threshold
    fewest = min((doubts.get(p, 0) for p, _ in region.candidates), default=0)
    return region.score >= 1 - left * 0.5**fewest


def doubted(evidence: Sequence[Evidence], outcomes: Sequence[Outcome]) -> tuple[Doubted, ...]:
    """The candidates that the model doubts at their own places."""
    pairs = zip(evidence, outcomes, strict=True)
    return tuple(
        Doubted(mine[0], one.region.start / NS_PER_US, one.region.end / NS_PER_US)
        for one, outcome in pairs
        if outcome.verdict is not None
        and not one.region.threshold
        and (mine := [p for p, _ in one.region.candidates[:1]])
        and not confirms(outcome.verdict, mine[0])
    )


def confirms(verdict: Verdict, pattern: str) -> bool:
    """Whether a model names a pattern, with even odds and more."""
    named = verdict.of(pattern)
    return named is not None and named.confidence >= EVEN


def _doubts(answered: Sequence[tuple[Region, Verdict | None]]) -> Counter[str]:
    """How often each pattern is suspected and not confirmed; 0 where it is confirmed anywhere."""
    doubts: Counter[str] = Counter()
    sure: set[str] = set()
    for region, verdict in answered:
        for pattern, _ in region.candidates:
            if verdict is None or confirms(verdict, pattern):
                sure.add(pattern)
            else:
                doubts[pattern] += 1
    return Counter({p: n for p, n in doubts.items() if p not in sure})
