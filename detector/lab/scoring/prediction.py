"""What a tool says of traces: findings with a place, a confidence and the savings of a fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from detector.errors import DetectorError
from detector.lab.scoring.truth import Spans, Truth
from detector.report import Report, occurrences
from detector.taxonomy import UNCLEAR


@dataclass(frozen=True)
class Prediction:
    """One finding: ``spans_us`` are its occurrences or one span, µs on the trace's own axis;
    ``confidence`` lies in [0, 1], ``savings_us`` is what fixing it saves of the analyzed time."""

    trace: str
    pattern: str
    spans_us: Spans
    confidence: float
    savings_us: float


Predictions = Mapping[str, Sequence[Prediction]]
"""By trace, of all traces that were scanned: one in which nothing was found has an empty row, one
that is missing was not scanned."""


def predictions_of(report: Report, trace: str) -> list[Prediction]:
    """The findings of a report; what its judge left unclear is none."""
    return [
        Prediction(trace, f.pattern, occurrences(f), f.confidence, f.estimated_savings_us)
        for f in report.findings
        if f.pattern != UNCLEAR
    ]


def joined(predictions: Iterable[Prediction]) -> list[Prediction]:
    """One finding for each pattern of a trace, as there is one label: all its places, the sum of
    its savings, the highest confidence."""
    found: dict[str, Prediction] = {}
    for one in predictions:
        if other := found.get(one.pattern):
            one = Prediction(
                one.trace,
                one.pattern,
                (*other.spans_us, *one.spans_us),
                max(other.confidence, one.confidence),
                other.savings_us + one.savings_us,
            )
        found[one.pattern] = one
    return list(found.values())


# -- an answer that sees nothing -------------------------------------------------------------------

LEAST_COST: Final = 0.05  # of the analyzed time: problems that the constant answer is drawn from


@dataclass(frozen=True)
class Constant:
    """The same answer to every trace: one pattern over all of the analyzed time.

    ``share``: its savings; ``confidence``: how often it is true of the traces it was learned from.
    """

    pattern: str
    share: float
    confidence: float

    def predict(self, truths: Iterable[Truth]) -> dict[str, list[Prediction]]:
        """Raises DetectorError for a trace whose analyzed time has no place."""
        return {truth.trace: [self._of(truth)] for truth in truths}

    def _of(self, truth: Truth) -> Prediction:
        if truth.span_us is None:
            raise DetectorError(f"{truth.trace}: no windows say where its analyzed time lies")
        savings = self.share * truth.analyzed_us
        return Prediction(truth.trace, self.pattern, (truth.span_us,), self.confidence, savings)


def constant(training: Iterable[Truth]) -> Constant:
    """The constant answer that is right most often: the most frequent costly pattern of training
    traces, with the median of its cost. Raises DetectorError where none has a costly problem."""
    truths = list(training)
    shares: dict[str, list[float]] = {}
    for truth in truths:
        for problem in truth.problems:
            share = problem.cost / truth.analyzed_us
            if not problem.harmless and share >= LEAST_COST:
                shares.setdefault(problem.pattern, []).append(share)
    if not shares:
        raise DetectorError(f"no costly problem in {len(truths)} training traces")
    pattern = min(shares, key=lambda name: (-len(shares[name]), name))
    return Constant(pattern, median(shares[pattern]), len(shares[pattern]) / len(truths))
