"""Training the LightGBM flagger: windows' features and weak labels -> three heads and thresholds.

Everything is deterministic for a table and a seed. Scores of held-out workloads come from
leave-one-workload-out folds, so no window is ever scored by a model that saw its workload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from detector.errors import DetectorError
from detector.features import COLUMNS
from detector.flagger import Float32
from detector.flagger.lightgbm import HEADS
from detector.taxonomy import CLASSES

if TYPE_CHECKING:
    import lightgbm
    import pandas as pd

SIDES: Final = ("cpu", "gpu")


@dataclass(frozen=True)
class Training:
    """Settings of a training run (``conf/experiment/flagger.yaml``).

    ``inside``: the covered share from which a window is suspicious; windows covered less, but
    not free, count little. ``false_alarms``: the share of healthy traces' windows that may be
    flagged, which sets the threshold.
    """

    seed: int = 0
    rounds: int = 200
    class_rounds: int = 50
    leaves: int = 15
    class_leaves: int = 8
    learning_rate: float = 0.06
    inside: float = 0.1
    edge_weight: float = 0.2
    false_alarms: float = 0.02
    recorded_weight: float = 3.0
    parameters: dict[str, Any] = field(default_factory=dict)


def matrix(frame: pd.DataFrame) -> Float32:
    """The feature columns, float32[windows, features]."""
    return np.asarray(frame[list(COLUMNS)], np.float32)


def target(frame: pd.DataFrame, head: str, settings: Training) -> npt.NDArray[np.int64]:
    """What a head learns: suspicious or not on its side, or the class."""
    if head == "classes":
        return np.array([CLASSES.index(p) for p in frame["pattern"]], np.int64)
    return np.asarray(frame[head] >= settings.inside, np.int64)


def weights(frame: pd.DataFrame, head: str, settings: Training) -> npt.NDArray[np.float64]:
    """Equal weight for each trace, less for windows at a region's edge, more for recorded ones."""
    covered = frame[head] if head in SIDES else frame[list(SIDES)].max(axis=1)
    at_edge = ((covered > 0) & (covered < settings.inside)).to_numpy()
    per_trace = 1 / frame.groupby("trace")["trace"].transform("size").to_numpy()
    weight = per_trace * np.where(at_edge, settings.edge_weight, 1.0)
    weight *= np.where(frame["origin"] == "recorded", settings.recorded_weight, 1.0)
    if head == "classes":  # rare patterns count as much as frequent ones, "none" a little more
        share = frame["pattern"].map(frame["pattern"].value_counts()).to_numpy()
        weight = weight / np.sqrt(share)
    return np.asarray(weight / weight.mean(), np.float64)


def fit(
    frame: pd.DataFrame, settings: Training, heads: Sequence[str] = HEADS
) -> dict[str, lightgbm.Booster]:
    """Train heads on a table of windows."""
    return {head: _fit_head(frame, head, settings) for head in heads}


def _fit_head(frame: pd.DataFrame, head: str, settings: Training) -> lightgbm.Booster:
    import lightgbm

    many = head == "classes"
    data = lightgbm.Dataset(
        matrix(frame),
        target(frame, head, settings),
        weight=weights(frame, head, settings),
        feature_name=[f"f{i}" for i in range(len(COLUMNS))],  # names live in the card
    )
    parameters = {
        "objective": "multiclass" if many else "binary",
        "num_class": len(CLASSES) if many else 1,
        "num_leaves": settings.class_leaves if many else settings.leaves,
        "learning_rate": 0.15 if many else settings.learning_rate,
        "feature_fraction": 0.15 if many else 0.4,
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
        **settings.parameters,
    }
    rounds = settings.class_rounds if many else settings.rounds
    return lightgbm.train(parameters, data, num_boost_round=rounds)


def folds(frame: pd.DataFrame) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """(workload, its rows): one fold per workload that was recorded."""
    recorded = frame["origin"] == "recorded"
    for workload in sorted(frame.loc[recorded, "workload"].unique()):
        yield workload, (recorded & (frame["workload"] == workload)).to_numpy()


def held_out(frame: pd.DataFrame, settings: Training) -> pd.DataFrame:
    """Scores of recorded windows by models that never saw their workload.

    Columns ``cpu_score`` and ``gpu_score`` beside the table's own label columns. Raises
    DetectorError where nothing was recorded.
    """
    import pandas as pd

    parts = []
    for workload, test in folds(frame):
        models = fit(frame[frame["workload"] != workload], settings, SIDES)
        about = [c for c in frame.columns if c not in set(COLUMNS)]
        part = frame.loc[test, about].copy()
        for side in SIDES:
            part[f"{side}_score"] = models[side].predict(matrix(frame[test]))
        parts.append(part)
    if not parts:
        raise DetectorError("no recorded traces: nothing to hold out")
    return pd.concat(parts)


def thresholds(scored: pd.DataFrame, settings: Training) -> dict[str, float]:
    """By side, the score that ``false_alarms`` of the healthy traces' windows reach."""
    healthy = scored[scored["quality"] == "good"]
    if healthy.empty:
        raise DetectorError("no healthy recorded traces: nothing to set the thresholds by")
    return {
        side: float(np.quantile(healthy[f"{side}_score"], 1 - settings.false_alarms))
        for side in SIDES
    }
