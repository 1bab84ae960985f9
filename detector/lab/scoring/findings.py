"""What a user with an unknown trace would see: the primary figures of a tool's findings.

Each figure has a 95 % interval from a bootstrap over clusters (bases, else workloads). Masked
figures leave out findings where nobody knows what is wrong; unmasked ones count them as wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
import numpy.typing as npt

from detector.lab.metrics import Bin, Estimate, by_cluster, difference, ece, reliability
from detector.lab.scoring.graded import COSTLY, Graded, GradedTrace, Matched, grade
from detector.lab.scoring.prediction import Predictions
from detector.lab.scoring.truth import Truth

ROUNDS: Final = 500
SURE: Final = 0.9  # stated confidence from which on a finding claims to be certain

Float64 = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """Of one pattern: costly problems, how many are named (pattern and place) and right (size
    too); costly findings that count, and how many of these are not right."""

    problems: int
    named: int
    right: int
    findings: int
    not_right: int


@dataclass(frozen=True)
class FindingFigures:
    """Figures of one tool on some traces. ``missing``: traces without a prediction, which are in no
    figure. ``kinds``: of the costly findings, before any mask. ``figures``: by the names of
    ``FIGURES``. ``savings_error``: quartiles of predicted less labeled share, of named costly
    problems; None without one."""

    masked: bool
    traces: int
    missing: int
    clusters: int
    healthy: int
    findings: int
    problems: int
    kinds: Mapping[str, int]
    figures: Mapping[str, Estimate]
    reliability: tuple[Bin, ...]
    savings_error: tuple[float, float, float] | None
    patterns: Mapping[str, Counts]


class Columns:
    """Graded traces as arrays. A resample of traces is ``weight``: how often each is drawn."""

    def __init__(self, traces: Sequence[GradedTrace], masked: bool) -> None:
        left_out = ("harmless", "unknown") if masked else ("harmless",)
        self.traces = traces
        self.cluster = np.array([t.truth.cluster for t in traces], object)
        self.healthy = np.array([t.truth.healthy for t in traces], bool)
        self.wrong = np.array([_wrong(t, left_out) for t in traces], float)
        self.findings = [
            (i, f)
            for i, t in enumerate(traces)
            for f in t.findings
            if f.share >= COSTLY and f.kind not in left_out
        ]
        self.problems = [(i, p) for i, t in enumerate(traces) for p in t.problems if p.costly]

    @cached_property
    def finding_trace(self) -> Rows:
        """Of each finding."""
        return np.array([i for i, _ in self.findings], np.int64)

    @cached_property
    def problem_trace(self) -> Rows:
        """Of each problem."""
        return np.array([i for i, _ in self.problems], np.int64)

    @cached_property
    def right(self) -> npt.NDArray[np.bool_]:
        """Which findings are right."""
        return np.array([f.kind == "right" for _, f in self.findings], bool)

    @cached_property
    def confidence(self) -> Float64:
        """What each finding states."""
        stated = [f.prediction.confidence for _, f in self.findings]
        return np.array(stated, np.float64)

    def of_problems(self, what: Callable[[Matched], bool]) -> npt.NDArray[np.bool_]:
        """Of each problem."""
        return np.array([what(p) for _, p in self.problems], bool)

    @cached_property
    def named(self) -> npt.NDArray[np.bool_]:
        """Which problems have their pattern and place named."""
        return self.of_problems(lambda p: p.named)

    @cached_property
    def solved(self) -> npt.NDArray[np.bool_]:
        """Which problems have their size right, too."""
        return self.of_problems(lambda p: p.right)

    @cached_property
    def located(self) -> npt.NDArray[np.bool_]:
        """Which problems have any finding in their place."""
        return self.of_problems(lambda p: bool(p.nearest))

    @cached_property
    def well_named(self) -> npt.NDArray[np.bool_]:
        """Which problems have their own pattern as that of the finding that fits best."""
        return self.of_problems(lambda p: p.nearest == p.problem.pattern)

    @cached_property
    def classes(self) -> Rows:
        """A number for the pattern of each problem, then of each finding that counts."""
        names = [p.problem.pattern for _, p in self.problems]
        names += [f.prediction.pattern for _, f in self.findings]
        return np.unique(np.array(names, np.str_), return_inverse=True)[1]


def _wrong(trace: GradedTrace, left_out: tuple[str, ...]) -> int:
    """Findings of any size that are wrong; of interest in a healthy trace."""
    return sum(f.kind not in (*left_out, "right") for f in trace.findings)


def _share(part: npt.NDArray[np.bool_], trace: Rows, weight: Float64) -> float:
    """Of rows that lie in traces, as often as these are drawn."""
    whole = weight[trace].sum()
    return float((part * weight[trace]).sum() / whole) if whole else float("nan")


# -- the figures, by name, each of Columns and weight ----------------------------------------------


def precision(of: Columns, weight: Float64) -> float:
    """Findings of 5 % and more that are right in pattern, place and size."""
    return _share(of.right, of.finding_trace, weight)


def recall(of: Columns, weight: Float64) -> float:
    """Problems that cost 5 % and more and whose pattern and place are named, at whatever size."""
    return _share(of.named, of.problem_trace, weight)


def strict_recall(of: Columns, weight: Float64) -> float:
    """The same with a size within 2× of the label's."""
    return _share(of.solved, of.problem_trace, weight)


def wrong_per_healthy(of: Columns, weight: Float64) -> float:
    """Wrong findings of any size (1 % and more) per healthy trace."""
    mine = weight * of.healthy
    return float((of.wrong * mine).sum() / mine.sum()) if mine.sum() else float("nan")


def sure_precision(of: Columns, weight: Float64) -> float:
    """Precision of the findings whose stated confidence is 0.9 and more."""
    sure = of.confidence >= SURE
    return _share(of.right[sure], of.finding_trace[sure], weight)


def calibration_error(of: Columns, weight: Float64) -> float:
    """ECE of the stated confidence, of findings of 5 % and more."""
    return ece(of.confidence, of.right, weight[of.finding_trace])


def class_accuracy(of: Columns, weight: Float64) -> float:
    """Of problems in whose place there is any finding: how often the one that fits best has the
    right name."""
    rows = of.located
    return _share(of.well_named[rows], of.problem_trace[rows], weight)


def macro_f1(of: Columns, weight: Float64) -> float:
    """F1 of each labeled pattern (strict hits; precision over its findings, recall over its
    problems), averaged over these patterns."""
    cut = len(of.problems)
    per_problem, per_finding = weight[of.problem_trace], weight[of.finding_trace]
    which = of.classes
    count = partial(np.bincount, minlength=which.max(initial=-1) + 1)
    problems, findings = count(which[:cut], per_problem), count(which[cut:], per_finding)
    hits = count(which[:cut], per_problem * of.solved)
    right = count(which[cut:], per_finding * of.right)
    labeled = problems > 0
    if not labeled.any():
        return float("nan")
    found = np.divide(hits, problems, out=np.zeros(len(problems)), where=labeled)
    true = np.divide(right, findings, out=np.zeros(len(problems)), where=findings > 0)
    both = found + true
    return float(np.divide(2 * found * true, both, out=both * 0, where=both > 0)[labeled].mean())


def within_2x(of: Columns, weight: Float64) -> float:
    """Of named problems: how often the size is within 2×."""
    rows = of.named
    return _share(of.solved[rows], of.problem_trace[rows], weight)


Figure = Callable[[Columns, Float64], float]
FIGURES: Final[Mapping[str, Figure]] = {
    "precision": precision,
    "recall": recall,
    "strict_recall": strict_recall,
    "wrong_per_healthy": wrong_per_healthy,
    "sure_precision": sure_precision,
    "ece": calibration_error,
    "class_accuracy": class_accuracy,
    "macro_f1": macro_f1,
    "within_2x": within_2x,
}


def finding_figures(
    truths: Mapping[str, Truth],
    predictions: Predictions,
    masked: bool = True,
    *,
    rounds: int = ROUNDS,
) -> FindingFigures:
    """All figures of a tool's findings on the traces that it scanned. ``predictions`` of traces
    beyond ``truths`` are left out."""
    of = Columns(grade(truths, predictions), masked)
    kinds = Counter[str](f.kind for t in of.traces for f in t.findings if f.share >= COSTLY)
    return FindingFigures(
        masked,
        len(of.traces),
        len(truths) - len(of.traces),
        len(set(of.cluster)),
        int(of.healthy.sum()),
        len(of.findings),
        len(of.problems),
        dict(kinds),
        {name: _estimate(figure, of, rounds) for name, figure in FIGURES.items()},
        reliability(of.confidence, of.right),
        _savings_error([p for _, p in of.problems]),
        _by_pattern([f for _, f in of.findings], [p for _, p in of.problems]),
    )


def _estimate(figure: Figure, of: Columns, rounds: int) -> Estimate:
    if not of.traces:
        return Estimate(*[float("nan")] * 3)
    return by_cluster(_metric(figure, of), of.cluster, rounds=rounds)


def _metric(figure: Figure, of: Columns) -> Callable[[Rows], float]:
    return lambda rows: figure(of, np.bincount(rows, minlength=len(of.traces)).astype(float))


def finding_differences(
    truths: Mapping[str, Truth],
    one: Predictions,
    other: Predictions,
    masked: bool = True,
    *,
    rounds: int = ROUNDS,
) -> dict[str, Estimate]:
    """By how much the figures of one tool exceed another's on the traces that both scanned, on the
    same resamples (paired cluster bootstrap)."""
    both = {name: t for name, t in truths.items() if name in one and name in other}
    if not both:
        return {}
    a, b = (Columns(grade(both, tool), masked) for tool in (one, other))
    return {
        name: difference(_metric(figure, a), _metric(figure, b), a.cluster, rounds=rounds)
        for name, figure in FIGURES.items()
    }


def _savings_error(problems: Sequence[Matched]) -> tuple[float, float, float] | None:
    """[lower quartile, median, upper quartile]."""
    errors = [p.finding.share - p.share for p in problems if p.named and p.finding is not None]
    if not errors:
        return None
    low, middle, high = np.quantile(errors, [0.25, 0.5, 0.75]).tolist()
    return low, middle, high


def _by_pattern(findings: Sequence[Graded], problems: Sequence[Matched]) -> dict[str, Counts]:
    """Patterns by name."""
    names = {f.prediction.pattern for f in findings} | {p.problem.pattern for p in problems}
    found = {}
    for name in sorted(names):
        mine = [p for p in problems if p.problem.pattern == name]
        right = [f.kind == "right" for f in findings if f.prediction.pattern == name]
        hits = sum(p.named for p in mine), sum(p.right for p in mine)
        found[name] = Counts(len(mine), *hits, len(right), right.count(False))
    return found


def figures_by_origin(
    truths: Mapping[str, Truth], predictions: Predictions, *, rounds: int = ROUNDS
) -> dict[str, dict[str, FindingFigures]]:
    """``finding_figures`` masked and unmasked, of all traces and of each origin."""
    groups = {"all origins": dict(truths)}
    for origin in sorted({t.origin for t in truths.values()}):
        groups[origin] = {name: t for name, t in truths.items() if t.origin == origin}
    return {
        group: masked_and_unmasked(mine, predictions, rounds=rounds)
        for group, mine in groups.items()
    }


def masked_and_unmasked(
    truths: Mapping[str, Truth], predictions: Predictions, *, rounds: int = ROUNDS
) -> dict[str, FindingFigures]:
    """``finding_figures`` both ways."""
    return {
        how: finding_figures(truths, predictions, how == "masked", rounds=rounds)
        for how in ("masked", "unmasked")
    }
