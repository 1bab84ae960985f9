"""Findings beside labels: of each finding what it is, of each problem whether it was found.

A finding has the place that it states; where nobody knows what is wrong nothing is cut out of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from detector.intervals import Intervals
from detector.lab.scoring.prediction import Prediction, Predictions, joined
from detector.lab.scoring.truth import INJECTED, Problem, Truth, intervals

Kind = Literal["right", "sized", "misplaced", "harmless", "unknown", "wrong"]
"""``sized``: pattern and place are right, the size is not. ``misplaced``: the pattern is right, the
place is not. ``harmless``: a problem that costs next to nothing, neither right nor wrong.
``unknown``: no label, and mostly where nobody knows, or the untouched base has it as well."""

LEAST: Final = 0.01  # of the analyzed time: what saves less is no finding
COSTLY: Final = 0.05  # findings and problems of the primary figures
IOU: Final = 0.3
COVERED: Final = 0.5  # of a label's time
FACTOR: Final = 2.0  # between the savings and the label's cost
DOUBT: Final = 0.5  # of a finding's time; more of it unknown: nobody knows whether it is wrong
RISE: Final = 0.03  # of the analyzed time, and ...
RISE_PART: Final = 0.3  # ... of its own size: what rises less over the base is the base's own
NOTHING: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True)
class Graded:
    """A finding with its kind; ``share`` of the analyzed time that it says a fix saves."""

    prediction: Prediction
    kind: Kind
    share: float


@dataclass(frozen=True)
class Matched:
    """A labeled problem, its cost as a share of the analyzed time, and the finding of its pattern:
    none, or what that is. ``nearest``: the pattern of the finding that fits its place best,
    whatever it is called; "" where none fits."""

    problem: Problem
    share: float
    finding: Graded | None
    nearest: str

    @property
    def named(self) -> bool:
        """Pattern and place are right."""
        return self.finding is not None and self.finding.kind in ("right", "sized")

    @property
    def right(self) -> bool:
        """So is the size."""
        return self.finding is not None and self.finding.kind == "right"

    @property
    def costly(self) -> bool:
        """Whether the primary figures count it."""
        return not self.problem.harmless and self.share >= COSTLY


@dataclass(frozen=True)
class GradedTrace:
    """A scanned trace: its findings of at least ``LEAST`` and all of its labeled problems."""

    truth: Truth
    findings: tuple[Graded, ...]
    problems: tuple[Matched, ...]


def grade(truths: Mapping[str, Truth], predictions: Predictions) -> list[GradedTrace]:
    """The traces that were scanned, in the order of ``truths``."""
    before = of_bases(truths, predictions)
    return [
        grade_trace(t, predictions[name], before.get(t.base, {}))
        for name, t in truths.items()
        if name in predictions
    ]


def of_bases(truths: Mapping[str, Truth], predictions: Predictions) -> dict[str, dict[str, float]]:
    """By base and pattern, the share that is reported of the base as it is."""
    return {
        t.base: {p.pattern: p.savings_us / t.analyzed_us for p in joined(predictions[name])}
        for name, t in truths.items()
        if t.untouched and name in predictions
    }


def grade_trace(
    truth: Truth, predictions: Sequence[Prediction], before: Mapping[str, float] = NOTHING
) -> GradedTrace:
    """The findings of one pattern count as one. ``before``: see ``kind_of``."""
    findings = tuple(_graded(truth, predictions, before))
    by_pattern = {f.prediction.pattern: f for f in findings}
    problems = tuple(
        Matched(
            problem,
            problem.cost / truth.analyzed_us,
            by_pattern.get(problem.pattern),
            _nearest(problem, findings),
        )
        for problem in truth.problems
    )
    return GradedTrace(truth, findings, problems)


def _graded(
    truth: Truth, predictions: Sequence[Prediction], before: Mapping[str, float]
) -> Iterator[Graded]:
    for prediction in joined(predictions):
        share = prediction.savings_us / truth.analyzed_us
        if share >= LEAST:
            yield Graded(prediction, kind_of(prediction, truth, before), share)


def kind_of(prediction: Prediction, truth: Truth, before: Mapping[str, float] = NOTHING) -> Kind:
    """What a finding is, beside the label of its trace.

    ``before``: by pattern the share that the same tool reports of the untouched base. What hardly
    rises over it in an injected trace is the base's own, of which nobody knows: a fault that was
    put in vouches for no other pattern in its place; and where the base has the pattern of the
    fault itself, the label knows only what was added: the size is that of the rise.
    """
    spans = intervals(prediction.spans_us)
    problem = truth.by_pattern.get(prediction.pattern)
    if problem and problem.harmless:
        return "harmless"
    if problem and in_place(spans, intervals(problem.spans_us)):
        known = prediction.savings_us - _of_the_base(prediction, truth, before)
        return "right" if within_factor(known, problem.cost) else "sized"
    doubted = (spans & truth.doubt(prediction.pattern)).measure
    if doubted > DOUBT * spans.measure:
        return "unknown"
    if problem:
        return "misplaced"
    return "unknown" if _is_the_base_s_own(prediction, truth, before) else "wrong"


def _of_the_base(prediction: Prediction, truth: Truth, before: Mapping[str, float]) -> float:
    """What the tool reports of the untouched base by this pattern, us; 0 where none was injected
    into."""
    if truth.origin != INJECTED:
        return 0.0
    base_us = truth.analyzed_us - sum(p.cost for p in truth.problems)
    return before.get(prediction.pattern, 0.0) * base_us


def _is_the_base_s_own(prediction: Prediction, truth: Truth, before: Mapping[str, float]) -> bool:
    if truth.origin != INJECTED or prediction.pattern not in before:
        return False
    share = prediction.savings_us / truth.analyzed_us
    return share - before[prediction.pattern] < max(RISE, RISE_PART * share)


def in_place(found: Intervals, label: Intervals) -> bool:
    """Whether a finding lies where the label does: an IoU of 0.3, or half of the label."""
    return iou(found, label) >= IOU or (found & label).measure >= COVERED * label.measure > 0


def iou(one: Intervals, other: Intervals) -> float:
    """Shared over joint time, 0 where there is none."""
    shared = (one & other).measure
    both = one.measure + other.measure - shared
    return shared / both if both else 0.0


def within_factor(savings: float, cost: float) -> bool:
    """Whether savings are within 2× of what the label says, either way."""
    return cost > 0 and cost / FACTOR <= savings <= cost * FACTOR


def _nearest(problem: Problem, findings: Sequence[Graded]) -> str:
    """Of equal fits the label's own pattern, then the first name."""
    label = intervals(problem.spans_us)
    fits = [(f.prediction.pattern, intervals(f.prediction.spans_us)) for f in findings]
    near = [(iou(spans, label), name) for name, spans in fits if in_place(spans, label)]
    if not near:
        return ""
    return min(near, key=lambda fit: (-fit[0], fit[1] != problem.pattern, fit[1]))[1]
