"""Training the confidence: labelled candidates -> trees and their calibration.

A candidate is right where the label of its trace names its pattern there (``scoring.kind_of``).
What nobody knows teaches nothing. A candidate beside the fault that was put in says little where
the program may have it by nature: in an injected trace where the untouched base has it as well, in
a simulated one always.

Everything is deterministic for a table and a seed. Confidences are held out by program: no
candidate is ever scored by trees, or calibrated by a curve, that saw its program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from detector.errors import DetectorError
from detector.features.candidate import COLUMNS
from detector.flagger import Float32, calibration
from detector.flagger.confidence import KINDS, Float64, calibrated, kind_of
from detector.lab.scoring import Prediction, Truth, read_truths
from detector.lab.scoring.judged import kind_of as kind_of_finding
from detector.lab.scoring.truth import EVERYTHING
from detector.lab.tables import program, table

if TYPE_CHECKING:
    pass

Bools = npt.NDArray[np.bool_]

REAL: Final = ("injected", "recorded", "natural")  # origins to calibrate by and to measure on
TAUGHT: Final = ("right", "sized")  # pattern and place: the size is the replay's affair
NOBODY_KNOWS: Final = ("unknown", "harmless")
NEW: Final = 0.03  # of the analyzed time, and ...
NEW_PART: Final = 0.3  # ... of its own size: what a candidate gains less by is the base's own
LEAST_SHARE: Final = 0.03  # of the analyzed time: smaller candidates calibrate nothing
POINTS: Final = 41  # of a calibration curve
EDGE: Final = 0.005  # scores beyond say no more
RISING: Final = ("share", "share_alone", "share_rest")  # larger savings never speak against one


@dataclass(frozen=True)
class ConfidenceTraining:
    """Settings of a training run (``conf/experiment/confidence.yaml``).

    ``weights``: of the candidates of a trace together, by its origin, before the root of their
    number; ``own_weight``: of a candidate that the program may have by nature; ``folds``: groups of
    programs that are left out in turn to calibrate.
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
        }
    )
    own_weight: float = 0.1
    folds: int = 8
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Rows of the table ``candidates`` as arrays, with what the labels say of each.

    ``kind``: of ``scoring``; ``own``: which the program may have by nature; ``finding``: as a scan
    reports it.
    """

    matrix: Float32
    trace: npt.NDArray[np.str_]
    origin: npt.NDArray[np.str_]
    program: npt.NDArray[np.str_]
    kind: npt.NDArray[np.str_]
    share: Float64
    own: Bools
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
            self.own[rows],
            tuple(f for f, chosen in zip(self.finding, rows.tolist(), strict=True) if chosen),
        )


# -- reading ---------------------------------------------------------------------------------------


def read(data: Path, same: Mapping[str, str]) -> Candidates:
    """The candidates of a built benchmark. ``same``: by the beginning of a workload's name the
    program that it is a version of. Raises DetectorError where something is missing."""
    frame, truths = table(data, "candidates", EVERYTHING), read_truths(data)
    found = tuple(map(_finding, frame.to_dict("records")))
    mine = [truths[f.trace] for f in found]
    share = np.array([f.savings_us / t.analyzed_us for f, t in zip(found, mine, strict=True)])
    return Candidates(
        np.array(frame["numbers"].tolist(), np.float32).reshape(-1, len(COLUMNS)),
        frame["trace"].to_numpy(np.str_),
        frame["origin"].to_numpy(np.str_),
        np.array([program(t.program, same) for t in mine], np.str_),
        np.array([kind_of_finding(f, t) for f, t in zip(found, mine, strict=True)], np.str_),
        share,
        _own(found, mine, share),
        found,
    )


def _finding(row: Mapping[str, Any]) -> Prediction:
    spans = zip(row["starts_us"], row["ends_us"], strict=True)
    places = tuple((float(a), float(b)) for a, b in spans)
    return Prediction(row["trace"], row["pattern"], places, 1.0, row["savings_us"])


def _own(found: Sequence[Prediction], truths: Sequence[Truth], share: Float64) -> Bools:
    """Which candidates were not put in, and hardly rise above those of the untouched base; of a
    simulated program, which has none, all that are not labelled."""
    untouched = {
        (t.base, f.pattern): s for f, t, s in zip(found, truths, share, strict=True) if t.untouched
    }
    rise = [
        np.inf if f.pattern in t.by_pattern else s - untouched.get((t.base, f.pattern), -np.inf)
        for f, t, s in zip(found, truths, share, strict=True)
    ]
    origin = np.array([t.origin for t in truths], np.str_)
    labelled = np.array([f.pattern in t.by_pattern for f, t in zip(found, truths, strict=True)])
    hardly = np.array(rise) < np.maximum(NEW, NEW_PART * share)
    own: Bools = ((origin == "injected") & hardly) | ((origin == "simulated") & ~labelled)
    return own


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
    weight = weight / np.sqrt(count[which])
    weight = np.where(rows.own, settings.own_weight * weight, weight)
    return np.where(np.isin(rows.kind, NOBODY_KNOWS), 0.0, weight)


def folds(rows: Candidates, settings: ConfidenceTraining) -> Iterator[Bools]:
    """Candidates of the real programs in groups; with fewer than two programs, DetectorError."""
    programs = np.unique(rows.program[np.isin(rows.origin, REAL)])
    if len(programs) < 2:
        raise DetectorError(f"{len(programs)} real programs: leaving one out needs two and more")
    order = np.random.default_rng(settings.seed).permutation(programs)
    for group in np.array_split(order, min(settings.folds, len(programs))):
        yield np.isin(rows.program, group)


def held_out(
    rows: Candidates, settings: ConfidenceTraining
) -> tuple[Float64, npt.NDArray[np.int64]]:
    """Raw scores by trees that never saw the program, and the number of the fold; NaN and -1 for
    candidates of programs that are nothing but simulated."""
    raw, fold = np.full(len(rows), np.nan), np.full(len(rows), -1, np.int64)
    for number, mine in enumerate(folds(rows, settings)):
        trees = fit(rows.at(~mine), settings)
        raw[mine], fold[mine] = trees.predict(rows.matrix[mine]), number
    return raw, fold


def curves(
    rows: Candidates, raw: Float64, chosen: Bools, settings: ConfidenceTraining
) -> list[calibration.Curve]:
    """By kind of trace, from held-out raw scores of the candidates chosen to the share of right
    ones: pattern, place and size."""
    real = chosen & np.isin(rows.origin, REAL) & (rows.share >= LEAST_SHARE)
    real &= ~np.isin(rows.kind, NOBODY_KNOWS)
    weight = np.where(rows.own, settings.own_weight, 1.0)
    weight = np.where(rows.origin == "natural", settings.weights.get("natural", 0.0), weight)
    kind, right = kind_of(rows.matrix), rows.kind == "right"
    found = []
    for k in range(len(KINDS)):
        mine = real & (kind == k) & (weight > 0)
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
    """Each candidate's confidence by trees and curves that never saw its program."""
    raw, fold = held_out(rows, settings)
    kind, found = kind_of(rows.matrix), np.zeros(len(rows))
    for number in range(fold.max() + 1):
        mine = fold == number
        curve = curves(rows, raw, (fold >= 0) & ~mine, settings)
        found[mine] = calibrated(raw[mine], kind[mine], curve)
    return found
