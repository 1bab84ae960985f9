"""Training the confidence: labeled candidates -> trees and their calibration.

A candidate is right where the label of its trace names its pattern there (``scoring.kind_of``).
What nobody knows teaches nothing: in an injected trace, what the untouched base has as well; in a
simulated one, whatever was not put in.

Everything is deterministic for a table and a seed. Confidences are held out by program: no
candidate is ever scored by trees, or calibrated by a curve, that saw its program; nor did the trees
whose scores the curve was fitted to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from detector.errors import DetectorError
from detector.features.candidate import COLUMNS
from detector.flagger import Float32, calibration
from detector.flagger.confidence import KINDS, Float64, calibrated, kind_of
from detector.lab.programs import groups, program
from detector.lab.scoring import Prediction, Truth, read_truths
from detector.lab.scoring.graded import kind_of as kind_of_finding
from detector.lab.scoring.graded import of_bases
from detector.lab.scoring.truth import EVERYTHING
from detector.lab.tables import table

Bools = npt.NDArray[np.bool_]

REAL: Final = ("injected", "recorded", "natural")  # origins to calibrate by and to measure on
SIMULATED: Final = "simulated"
TAUGHT: Final = ("right", "sized")  # pattern and place: the size is the replay's affair
NOBODY_KNOWS: Final = ("unknown", "harmless")
LEAST_SHARE: Final = 0.03  # of the analyzed time: smaller candidates calibrate nothing
POINTS: Final = 41  # of a calibration curve
EDGE: Final = 0.005  # scores beyond say no more
RISING: Final = ("share", "share_alone", "share_rest")  # larger savings never speak against one


@dataclass(frozen=True)
class ConfidenceTraining:
    """Settings of a training run (``conf/experiment/confidence.yaml``).

    ``weights``: of the candidates of a trace together, by its origin, before the root of their
    number; ``folds``: groups of programs that are left out in turn to calibrate.
    """

    seed: int = 0
    rounds: int = 150
    leaves: int = 7
    learning_rate: float = 0.05
    weights: dict[str, float] = field(
        default_factory=lambda: {
            "recorded": 2.0,
            "injected": 1.0,
            "simulated": 0.3,
            "natural": 5.0,
            "doubted": 0.3,
        }
    )
    folds: int = 8
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Rows of the table ``candidates`` as arrays, with what the labels say of each.

    ``kind``: of ``scoring``; ``finding``: as a scan reports it.
    """

    matrix: Float32
    trace: npt.NDArray[np.str_]
    origin: npt.NDArray[np.str_]
    program: npt.NDArray[np.str_]
    kind: npt.NDArray[np.str_]
    share: Float64
    finding: tuple[Prediction, ...]

    def __len__(self) -> int:
        return len(self.trace)

    def at(self, rows: Bools) -> Candidates:
        """Those chosen."""
        return Candidates(
            self.matrix[rows],
            self.trace[rows],
            self.origin[rows],
            self.program[rows],
            self.kind[rows],
            self.share[rows],
            tuple(f for f, chosen in zip(self.finding, rows.tolist(), strict=True) if chosen),
        )


# -- reading ---------------------------------------------------------------------------------------


def read(data: Path, same: Mapping[str, str]) -> Candidates:
    """The candidates of the real traces of a built benchmark. ``same``: by the beginning of a
    workload's name the program that it is a version of. Raises DetectorError where something is
    missing."""
    frame, truths = table(data, "candidates", EVERYTHING), read_truths(data)
    found = tuple(map(_finding, frame.to_dict("records")))
    mine = [truths[f.trace] for f in found]
    of_trace: dict[str, list[Prediction]] = {}
    for one in found:
        of_trace.setdefault(one.trace, []).append(one)
    before = of_bases(truths, of_trace)
    pairs = list(zip(found, mine, strict=True))
    return Candidates(
        np.array(frame["numbers"].tolist(), np.float32).reshape(-1, len(COLUMNS)),
        frame["trace"].to_numpy(np.str_),
        frame["origin"].to_numpy(np.str_),
        np.array([program(t.program, same) for t in mine], np.str_),
        np.array([_kind(f, t, before.get(t.base, {})) for f, t in pairs], np.str_),
        np.array([f.savings_us / t.analyzed_us for f, t in pairs]),
        found,
    )


def _kind(found: Prediction, truth: Truth, before: Mapping[str, float]) -> str:
    """What is beside the fault of a simulated program is the simulator's choice."""
    kind = kind_of_finding(found, truth, before)
    return "unknown" if truth.origin == SIMULATED and kind not in TAUGHT else kind


def _finding(row: Mapping[str, Any]) -> Prediction:
    spans = zip(row["starts_us"], row["ends_us"], strict=True)
    places = tuple((float(a), float(b)) for a, b in spans)
    return Prediction(row["trace"], row["pattern"], places, 1.0, row["savings_us"])


# -- training --------------------------------------------------------------------------------------


def fit(rows: Candidates, settings: ConfidenceTraining) -> Any:
    """A ``lightgbm.Booster``. Raises DetectorError where there is nothing to learn from."""
    import lightgbm

    weight = _weights(rows, settings)
    used = weight > 0
    truth = np.isin(rows.kind, TAUGHT)[used]
    if truth.all() or not truth.any():
        raise DetectorError("the candidates are all right, or all wrong: nothing to learn from")
    data = lightgbm.Dataset(
        rows.matrix[used],
        truth.astype(np.int64),
        weight=weight[used],
        categorical_feature=[COLUMNS.index("pattern")],
        feature_name=[f"f{i}" for i in range(len(COLUMNS))],  # names live in the card
    )
    parameters = {
        "objective": "binary",
        "num_leaves": settings.leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": 20,
        "lambda_l2": 5.0,
        "cat_smooth": 20,
        "feature_fraction": 0.5,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "max_bin": 63,
        "monotone_constraints": [int(column in RISING) for column in COLUMNS],
        "seed": settings.seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,  # small: more only wait for each other
        "verbosity": -1,
        **settings.parameters,
    }
    return lightgbm.train(parameters, data, num_boost_round=settings.rounds)


def _weights(rows: Candidates, settings: ConfidenceTraining) -> Float64:
    """Each trace counts by the root of its number of candidates, and by its origin."""
    _, which, count = np.unique(rows.trace, return_inverse=True, return_counts=True)
    weight = np.array([settings.weights.get(str(origin), 0.0) for origin in rows.origin])
    return np.where(np.isin(rows.kind, NOBODY_KNOWS), 0.0, weight / np.sqrt(count[which]))


def folds(rows: Candidates, settings: ConfidenceTraining) -> Iterator[Bools]:
    """Candidates by groups of programs; with fewer than two programs, DetectorError."""
    found = groups(rows.program[np.isin(rows.origin, REAL)].tolist(), settings.folds)
    if len(found) < 2:
        raise DetectorError(f"{len(found)} real programs: leaving one out needs two and more")
    for group in found:
        yield np.isin(rows.program, group)


def held_out(rows: Candidates, settings: ConfidenceTraining) -> Float64:
    """Raw scores by trees that never saw the program."""
    raw = np.zeros(len(rows))
    for mine in folds(rows, settings):
        raw[mine] = _raw(rows.at(~mine), settings, rows.matrix[mine])
    return raw


def _raw(rest: Candidates, settings: ConfidenceTraining, matrix: Float32) -> Float64:
    """Scores by trees that learn from the rest; where that is all right, or all wrong, as in a
    handful of traces, the same for every candidate."""
    truth = np.isin(rest.kind, TAUGHT)[_weights(rest, settings) > 0]
    if len(truth) and (truth.all() or not truth.any()):
        return np.full(len(matrix), float(truth[0]))
    scores: Float64 = fit(rest, settings).predict(matrix)
    return scores


def curves(rows: Candidates, raw: Float64, settings: ConfidenceTraining) -> list[calibration.Curve]:
    """By kind of trace, from held-out raw scores to the share of right candidates: pattern, place
    and size. What was labeled by hand counts by its weight: a stranger's trace is of that kind."""
    known = (rows.share >= LEAST_SHARE) & ~np.isin(rows.kind, NOBODY_KNOWS)
    known &= np.isin(rows.origin, REAL)
    weight = np.where(rows.origin == "natural", settings.weights.get("natural", 0.0), 1.0)
    kind, right = kind_of(rows.matrix), rows.kind == "right"
    found = []
    for k in range(len(KINDS)):
        mine = known & (kind == k) & (weight > 0)
        fits = mine.any()
        found.append(
            _logistic(raw[mine], right[mine], weight[mine]) if fits else calibration.IDENTITY
        )
    return found


def _logistic(raw: Float64, right: Bools, weight: Float64) -> calibration.Curve:
    """Platt's scaling, as points of its curve: with so few candidates a free curve says 1.00 where
    a handful were right. ``IDENTITY`` where they are all alike, or the score says nothing."""
    from sklearn.linear_model import LogisticRegression

    if right.all() or not right.any():
        return calibration.IDENTITY
    model = LogisticRegression(C=10.0).fit(_logit(raw), right, sample_weight=weight)
    if model.coef_[0, 0] <= 0:
        return calibration.IDENTITY
    at = np.linspace(0, 1, POINTS)
    y = model.predict_proba(_logit(at))[:, 1]
    return tuple(zip(at.tolist(), y.tolist(), strict=True))


def _logit(score: Float64) -> Float64:
    """Log odds as a column, of scores kept from both ends."""
    inner = np.clip(score, EDGE, 1 - EDGE)
    column: Float64 = np.log(inner / (1 - inner))[:, None]
    return column


def strangers(rows: Candidates, settings: ConfidenceTraining) -> Float64:
    """Each candidate's confidence by trees and a curve that never saw its program."""
    found = np.zeros(len(rows))
    for mine in folds(rows, settings):
        rest, matrix = rows.at(~mine), rows.matrix[mine]
        curve = curves(rest, held_out(rest, settings), settings)
        found[mine] = calibrated(_raw(rest, settings, matrix), matrix, curve)
    return found
