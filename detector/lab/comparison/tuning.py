"""The same budget for everything that can be tuned: trials of Optuna on the validation part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.flagger import Flagger
from detector.lab.baselines import Choice, Range
from detector.lab.comparison.contenders import Contenders, Settings, scores_of, space_of
from detector.lab.comparison.figures import WAYS
from detector.lab.comparison.scored import Scored
from detector.lab.metrics import average_precision
from detector.lab.training import SIDES

if TYPE_CHECKING:
    import optuna
    import pandas as pd

OBJECTIVE: Final = "mean of both sides' average precision, masked and unmasked"


@dataclass(frozen=True)
class Tuned:
    """What was chosen for one contender, its value on the validation part, that of the settings
    without tuning, and how many settings were tried, these among them."""

    settings: Mapping[str, Any]
    value: float
    untuned: float
    trials: int


def tune(
    name: str, contenders: Contenders, train: pd.DataFrame, valid: pd.DataFrame, trials: int
) -> Tuned:
    """``trials`` settings: those without tuning, then what a seeded TPE sampler proposes (Bergstra
    et al. 2011). The best by ``OBJECTIVE`` are chosen; nothing but ``valid`` is read for that."""

    def value_of(settings: Settings) -> float:
        return objective(contenders.fit_with(name, train, settings), valid)

    untuned = value_of({})
    space = space_of(name)
    if not space or trials < 2:
        return Tuned({}, untuned, untuned, 1)
    study = _study(contenders.training.seed)
    study.optimize(
        lambda trial: value_of({key: _suggest(trial, key, c) for key, c in space.items()}),
        n_trials=trials - 1,
    )
    if study.best_value <= untuned:
        return Tuned({}, untuned, untuned, trials)
    return Tuned(dict(study.best_params), float(study.best_value), untuned, trials)


def objective(flagger: Flagger, valid: pd.DataFrame) -> float:
    """How well a flagger ranks the windows of the validation part; 0 where it cannot tell."""
    scored = Scored(valid, scores_of(flagger, valid), {})
    values = []
    for side in SIDES:
        for masked in WAYS.values():
            rows = scored.clear(side, masked)
            truth = scored.truth(side)[rows]
            if truth.any() and not truth.all():
                values.append(average_precision(truth, scored.side(side)[rows].astype(np.float64)))
    return float(np.mean(values)) if values else 0.0


def _study(seed: int) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=6)
    return optuna.create_study(direction="maximize", sampler=sampler)


def _suggest(trial: optuna.Trial, key: str, choice: Choice) -> Any:
    if not isinstance(choice, Range):
        return trial.suggest_categorical(key, choice)
    if isinstance(choice.low, int) and isinstance(choice.high, int):
        return trial.suggest_int(key, choice.low, choice.high, log=choice.log)
    return trial.suggest_float(key, choice.low, choice.high, log=choice.log)
