"""Training the LightGBM flagger: features and weak labels of windows -> two heads, thresholds.

Everything is deterministic for a table and a seed. Held-out scores come from folds that leave whole
workloads out, so no window is ever scored by a model that saw its workload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from detector.errors import DetectorError
from detector.features import COLUMNS
from detector.features.savings import SAVED
from detector.flagger import Float32
from detector.flagger.calibration import IDENTITY, Curve, apply
from detector.flagger.lightgbm import SIDES as SIDES
from detector.flagger.lightgbm import Heads, beginning
from detector.lab import calibration
from detector.lab.programs import groups
from detector.patterns import BY_ID

if TYPE_CHECKING:
    import lightgbm
    import pandas as pd

INSIDE: Final = 0.1
REAL: Final = ("recorded", "injected")  # origins that scores are held out of; simulated ones teach
FOLDS: Final = 5
ENOUGH: Final = 20_000  # windows to choose columns by
QUICK_ROUNDS: Final = 40


@dataclass(frozen=True)
class Training:
    """Settings of a training run (``conf/experiment/flagger.yaml``).

    ``columns``: how many the heads may go by, beside the savings. ``inside``: the covered share
    from which a window is suspicious; windows covered less, but not free, count little.
    ``false_alarms``: how many regions of a side a healthy trace may be flagged for, on average,
    which sets the threshold. ``monotone``: see ``rises``. ``unknown_weight``: how much a window of
    which nobody knows whether it is healthy counts as a healthy one; 0 leaves them out.
    """

    seed: int = 0
    columns: int = 200
    rounds: int = 60
    leaves: int = 15
    learning_rate: float = 0.15
    inside: float = INSIDE
    edge_weight: float = 0.2
    false_alarms: float = 0.25
    recorded_weight: float = 3.0
    unknown_weight: float = 0.0
    monotone: bool = True
    parameters: dict[str, Any] = field(default_factory=dict)


def matrix(frame: pd.DataFrame, columns: Sequence[str] = COLUMNS) -> Float32:
    """The feature columns, float32[windows, columns]."""
    return np.asarray(frame[list(columns)], np.float32)


def target(frame: pd.DataFrame, head: str, settings: Training) -> npt.NDArray[np.int64]:
    """What a head learns: suspicious or not on its side."""
    return np.asarray(frame[head] >= settings.inside, np.int64)


def is_known(frame: pd.DataFrame, head: str, inside: float = INSIDE) -> npt.NDArray[np.bool_]:
    """Which windows show a head something: not those without a fault of its side of which nobody
    knows whether they are healthy."""
    return np.asarray((frame[head] >= inside) | (frame[f"unknown_{head}"] < inside))


def weight_of_knowledge(
    frame: pd.DataFrame, head: str, settings: Training
) -> npt.NDArray[np.float64]:
    """1 for windows that show a head something, ``unknown_weight`` for those that nobody knows.

    The latter are unlabeled data taken for healthy with one constant weight: in most of them
    nothing is wrong. No rule or feature decides how much one counts.
    """
    return np.where(is_known(frame, head, settings.inside), 1.0, settings.unknown_weight)


def weights(frame: pd.DataFrame, head: str, settings: Training) -> npt.NDArray[np.float64]:
    """Equal weight for each trace, less for windows at a region's edge, more for recorded ones."""
    at_edge = ((frame[head] > 0) & (frame[head] < settings.inside)).to_numpy()
    per_trace = 1 / frame.groupby("trace")["trace"].transform("size").to_numpy()
    weight = per_trace * np.where(at_edge, settings.edge_weight, 1.0)
    weight *= np.where(frame["origin"] == "recorded", settings.recorded_weight, 1.0)
    return np.asarray(weight / weight.mean(), np.float64)


def fit(
    frame: pd.DataFrame,
    settings: Training,
    heads: Sequence[str] = SIDES,
    among: Sequence[str] = COLUMNS,
) -> Heads:
    """Train heads on a table of windows; ``among``: the columns that they may see."""
    columns = pick_columns(frame, settings, among)
    return Heads(columns, {head: _fit_head(frame, columns, head, settings) for head in heads})


def pick_columns(frame: pd.DataFrame, settings: Training, among: Sequence[str]) -> tuple[str, ...]:
    """The columns that quick heads of both sides gain most by, and the windows' own savings; in the
    order of ``among``."""
    if len(among) <= settings.columns:
        return tuple(among)
    kept = np.array([column in SAVED for column in among])
    few = frame.iloc[:: -(-len(frame) // ENOUGH)]
    quick = replace(settings, rounds=QUICK_ROUNDS, learning_rate=0.2)
    worth = np.zeros(len(among))
    for side in SIDES:
        gain = _fit_head(few, among, side, quick).feature_importance("gain")
        worth = np.maximum(worth, gain / max(gain.sum(), 1e-9))
    best = np.argsort(-worth, kind="stable")[: settings.columns]
    return tuple(among[i] for i in np.union1d(best, np.flatnonzero(kept)))


def _fit_head(
    frame: pd.DataFrame, columns: Sequence[str], head: str, settings: Training
) -> lightgbm.Booster:
    import lightgbm

    risen = [rises(column, head) for column in columns] if settings.monotone else None
    frame = frame[weight_of_knowledge(frame, head, settings) > 0]
    seen = matrix(frame, columns)
    data = lightgbm.Dataset(
        seen,
        target(frame, head, settings),
        init_score=beginning(columns, seen, head),
        weight=weights(frame, head, settings) * weight_of_knowledge(frame, head, settings),
        feature_name=[f"f{i}" for i in range(len(columns))],  # names live in the card
    )
    parameters = {
        "objective": "binary",
        "num_leaves": settings.leaves,
        "learning_rate": settings.learning_rate,
        "feature_fraction": 0.4,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "min_data_in_leaf": 10,
        "lambda_l2": 1.0,
        "max_bin": 63,
        "seed": settings.seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 2,
        "verbosity": -1,
        "monotone_constraints": risen,
        **settings.parameters,
    }
    return lightgbm.train(parameters, data, num_boost_round=settings.rounds)


def rises(column: str, side: str) -> int:
    """1 where a side's score must not fall while the column rises: savings of its patterns.

    Larger savings never speak for health; what trees make of it beyond that was learned
    from one set of devices and did not hold on others.
    """
    pattern = SAVED.get(column.partition("@")[0])
    return int(pattern is not None and BY_ID[pattern].side == side)


@dataclass(frozen=True, eq=False)
class Fold:
    """Real windows of a group of workloads (``rows`` of the table), and a head for each side that
    never saw these workloads, whatever their origin."""

    workloads: tuple[str, ...]
    rows: npt.NDArray[np.bool_]
    heads: Heads


def folds(frame: pd.DataFrame) -> Iterator[tuple[tuple[str, ...], npt.NDArray[np.bool_]]]:
    """(workloads, their rows): the real workloads in at most ``FOLDS`` groups of similar size."""
    real = frame["origin"].isin(REAL)
    for group in sorted(groups(frame.loc[real, "workload"], FOLDS)):
        yield group, (real & frame["workload"].isin(group)).to_numpy()


def fit_folds(
    frame: pd.DataFrame, settings: Training, among: Sequence[str] = COLUMNS
) -> list[Fold]:
    """The side heads of each fold; ``among``: the columns that they may see.

    Raises DetectorError where there is nothing to hold out, or nothing left to learn from.
    """
    fitted = []
    for workloads, rows in folds(frame):
        rest = frame[~frame["workload"].isin(workloads)]
        if rest.empty:
            raise DetectorError(f"no workload beside {workloads[0]}: nothing to learn from")
        fitted.append(Fold(workloads, rows, fit(rest, settings, SIDES, among)))
    if not fitted:
        raise DetectorError("no recorded traces: nothing to hold out")
    return fitted


def held_out(frame: pd.DataFrame, fitted: Sequence[Fold]) -> pd.DataFrame:
    """Raw scores of real windows by heads that never saw their workload.

    Columns ``cpu_score`` and ``gpu_score``, and the number of the ``fold``, beside the table's own
    label columns.
    """
    import pandas as pd

    parts = []
    for number, fold in enumerate(fitted):
        about = [c for c in frame.columns if c not in set(COLUMNS)]
        part = frame.loc[fold.rows, about].copy()
        seen = fold.heads.seen(matrix(frame[fold.rows]))
        for side in SIDES:
            part[f"{side}_score"] = fold.heads.raw(side, seen)
        parts.append(part.assign(fold=number))
    return pd.concat(parts)


def is_healthy(frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which windows are of a trace without a fault, every window of which is known: an untouched
    base is no such trace, as nobody looked at all of it."""
    unknown = frame[[f"unknown_{side}" for side in SIDES]].max(axis=1)
    seen = unknown.groupby(frame["trace"]).transform("max") == 0
    return np.asarray((frame["quality"] == "good") & seen)


def is_clear(frame: pd.DataFrame, side: str, inside: float = INSIDE) -> npt.NDArray[np.bool_]:
    """Which windows lie clearly inside or clearly outside a labeled region of a side."""
    whole = (frame[side] == 0) | (frame[side] >= inside)
    return np.asarray(whole & is_known(frame, side, inside))


def curves(scored: pd.DataFrame, settings: Training) -> dict[str, Curve]:
    """By side, raw score to probability, from held-out scores; each trace counts the same.

    Raw scores stay as they are where a curve does not bring those of a fold that it never saw
    nearer to the truth (Brier score).
    """
    found = {}
    for side in SIDES:
        clear = scored[is_clear(scored, side, settings.inside)]
        raw = clear[f"{side}_score"].to_numpy(np.float64)
        truth = (clear[side] >= settings.inside).to_numpy()
        weight = 1 / clear.groupby("trace")["trace"].transform("size").to_numpy(np.float64)
        calibrated = raw.copy()
        for number in np.unique(clear["fold"]):
            mine = (clear["fold"] == number).to_numpy()
            calibrated[mine] = apply(
                calibration.fit(raw[~mine], truth[~mine], weight[~mine]), raw[mine]
            )
        helps = np.average((calibrated - truth) ** 2, weights=weight) < np.average(
            (raw - truth) ** 2, weights=weight
        )
        found[side] = calibration.fit(raw, truth, weight) if helps else IDENTITY
    return found


def calibrate(scored: pd.DataFrame, curve: dict[str, Curve]) -> pd.DataFrame:
    """The same windows with probabilities for raw scores."""
    names = {side: f"{side}_score" for side in SIDES}
    return scored.assign(**{name: apply(curve[side], scored[name]) for side, name in names.items()})


def thresholds(scored: pd.DataFrame, settings: Training) -> dict[str, float]:
    """By side, the lowest score that makes at most ``false_alarms`` regions of a healthy trace.

    A region is a run of neighboring suspicious windows. Raises DetectorError without such traces.
    """
    limits = {}
    healthy = scored[is_healthy(scored)]
    if healthy.empty:
        raise DetectorError("no healthy recorded traces: nothing to set the thresholds by")
    most = settings.false_alarms * healthy["trace"].nunique()
    for side in SIDES:
        score = healthy[f"{side}_score"].to_numpy()
        known = is_known(healthy, side, settings.inside)
        above = np.append(np.unique(score[known]), 1.0)[::-1]
        limits[side] = 1.0
        for limit in above.tolist():  # downwards: regions may join, so the first that fails ends it
            flagged = known & (score >= limit)
            if (flagged & ~_before(healthy, flagged)).sum() > most:
                break
            limits[side] = limit
    return limits


def limits_of(frame: pd.DataFrame, settings: Training) -> dict[str, float]:
    """``thresholds`` of raw scores on folds of the table's own workloads."""
    return thresholds(held_out(frame, fit_folds(frame, settings)), settings)


def at_thresholds(
    scored: pd.DataFrame, limits: dict[str, float], settings: Training
) -> dict[str, dict[str, float | None]]:
    """By side, what the thresholds let through and find; None where nothing is there to find.

    A region is a run of neighboring suspicious windows, whatever their step and class.
    """
    found: dict[str, dict[str, float | None]] = {}
    healthy = is_healthy(scored)
    traces = scored.loc[healthy, "trace"].nunique()
    for side in SIDES:
        known = is_known(scored, side, settings.inside)
        flagged = known & (scored[f"{side}_score"] >= limits[side]).to_numpy()
        before = _before(scored, flagged)
        truth = (scored[side] >= settings.inside).to_numpy()
        found[side] = {
            "false_alarm_regions_per_healthy_trace": int((flagged & ~before & healthy).sum())
            / traces,
            "window_recall": float(flagged[truth].mean()) if truth.any() else None,
        }
    return found


def _before(frame: pd.DataFrame, flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Each window's neighbor's flag, the one before it in its trace; False for the first."""
    same = frame["trace"].eq(frame["trace"].shift()).to_numpy()
    return np.asarray(same & np.append(False, flags[:-1]))
