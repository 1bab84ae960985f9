"""What the confidence model sees of a candidate: its savings, its occurrences, and the trace.

One row for each candidate, float32[len(COLUMNS)]; NaN where a number is not defined. No column
names the trace, its program or its file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from detector.analysis import Analysis
from detector.candidates import Candidate
from detector.ledger import CAUSES
from detector.patterns import PATTERNS
from detector.patterns.capability import generation
from detector.signals import Signals
from detector.trace import Cat
from detector.window import AnalyzedTime

Float32 = npt.NDArray[np.float32]

# Host events that show what kind of program this is: kinds of ``vocabulary.HOST``.
_KINDS: Final = ("backward", "optimizer_step", "loader", "compiled_region")


def _ledger_column(cause: str) -> str:
    return f"ledger_{cause.replace('-', '_')}"


OWN: Final = (
    "pattern",
    "opportunity",
    "share",
    "share_alone",
    "share_rest",
    "rest_of_alone",
    "log_savings_us",
    "log_savings_each_us",
    "log_occurrences",
    "log_occurrences_a_step",
    "log_occurrence_us",
    "covered",
    "span",
    "steps_with",
    "gain_spread",
    "gain_of_one_step",
    "explained",
    "of_explained",
)
AMONG: Final = ("rank", "candidates", "share_joint", "share_of_largest_other")
PROGRAM: Final = (
    "device",
    "rocm",
    "generation",
    "steps",
    "log_analyzed_us",
    "log_kernels_a_ms",
    "log_ops_a_ms",
    "log_kernel_us",
    "stacks",
    "shapes",
    "linked",
    *_KINDS,
)
COLUMNS: Final = (
    *OWN,
    *AMONG,
    *PROGRAM,
    *(_ledger_column(cause.id) for cause in CAUSES),
)
_INDEX: Final = {pattern.id: i for i, pattern in enumerate(PATTERNS)}


def matrix(analysis: Analysis) -> Float32:
    """float32[candidates, len(COLUMNS)], in their order."""
    found, ledger, analyzed = analysis.candidates.found, analysis.ledger, analysis.analyzed
    if not found:
        return np.zeros((0, len(COLUMNS)), np.float32)
    wall = max(1, ledger.end - ledger.start)
    total = ledger.total()
    causes = [total.get(cause.id, 0) / wall for cause in CAUSES]
    about = _program(analysis.signals, analyzed, wall)
    rows = [
        [*_own(one, total, analyzed, wall), *_among(i, found, analysis.candidates.joint_ns / wall)]
        for i, one in enumerate(found)
    ]
    return np.array([[*row, *about, *causes] for row in rows], np.float32)


def guesses(matrix: Float32) -> npt.NDArray[np.bool_]:
    """Which candidates of a ``matrix`` lack the proof that their pattern asks for."""
    found = np.zeros(len(matrix), bool)
    for pattern in PATTERNS:
        if pattern.proof:
            proof = matrix[:, COLUMNS.index(_ledger_column(pattern.proof))]
            found |= (matrix[:, 0] == _INDEX[pattern.id]) & ~(proof > 0)
    return found


def _own(one: Candidate, total: dict[str, int], analyzed: AnalyzedTime, wall: int) -> list[float]:
    where = one.occurrences
    count = max(1, len(where))
    explained = sum(total.get(cause, 0) for cause in one.pattern.explains)
    first, last = int(where.start.min()), int(where.end.max())
    return [
        _INDEX[one.pattern.id],
        one.pattern.kind == "opportunity",
        one.share,
        one.alone_ns / wall,
        one.rest_ns / wall,
        one.rest_ns / max(1, one.alone_ns),
        _log(one.best_ns / 1e3),
        _log(one.best_ns / 1e3 / count),
        _log(count),
        _log(count / max(1, len(analyzed.steps))),
        _log(float(np.median(where.end - where.start)) / 1e3),
        where.spans.measure / wall,
        (last - first) / wall,
        *_by_step(one, analyzed),
        explained / wall,
        one.best_ns / explained if explained else np.nan,
    ]


def _by_step(one: Candidate, analyzed: AnalyzedTime) -> tuple[float, float, float]:
    """The share of steps in which it occurs, how uneven its gain is, and the largest step's."""
    if len(analyzed.steps) < 2:
        return np.nan, np.nan, np.nan
    start = np.array([step.start for step in analyzed.steps])
    step = np.searchsorted(start, one.occurrences.start, side="right")
    gain = np.array(one.by_step_ns, np.float64)
    mean = float(gain.mean()) if len(gain) else 0.0
    touched = len(np.unique(step)) / len(analyzed.steps)
    if mean <= 0:
        return touched, np.nan, np.nan
    return touched, float(gain.std()) / mean, float(gain.max() / gain.sum())


def _among(i: int, found: Sequence[Candidate], joint: float) -> list[float]:
    others = [c.share for k, c in enumerate(found) if k != i]
    return [i, len(found), joint, max(others, default=0.0)]


def _program(signals: Signals, analyzed: AnalyzedTime, wall: int) -> list[float]:
    activity, trace = signals.activity, signals.trace
    kernels = len(activity.kernels)
    ms = wall / 1e6
    mean = float(trace.dur[activity.kernels].mean()) / 1e3 if kernels else np.nan
    return [
        activity.has_device,
        trace.vendor == "rocm",
        generation(signals),
        len(analyzed.steps),
        _log(wall / 1e3),
        _log(kernels / ms),
        _log(len(activity.of(Cat.CPU_OP)) / ms),
        _log(mean) if kernels else np.nan,
        trace.has_stacks,
        trace.has_shapes,
        trace.coverage.kernels_with_launch,
        *(len(activity.host(kind)) > 0 for kind in _KINDS),
    ]


def _log(value: float) -> float:
    """log10(1 + value), of a negative value 0."""
    return float(np.log10(1 + max(value, 0.0)))
