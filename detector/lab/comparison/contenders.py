"""All that scores windows in the comparison, by name, each trained in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from detector.features import COLUMNS
from detector.flagger import Flagger, Float32, Scores, calibration
from detector.lab import training
from detector.lab.baselines import NAMES, Range, Space, baseline, space
from detector.lab.training import SIDES, Training, fit, fit_folds, held_out, matrix

if TYPE_CHECKING:
    import pandas as pd

OURS: Final = "LightGBM"
SHIPS: Final = "LightGBM, as it ships"
ROWS: Final = (*NAMES, OURS)
# What is tuned of our own: fields of Training, the rest LightGBM's parameters.
SPACE: Final[Space] = {
    "rounds": Range(20, 150, log=True),
    "leaves": Range(4, 31),
    "learning_rate": Range(0.03, 0.3, log=True),
    "recorded_weight": Range(0.5, 6.0),
    "unknown_weight": (0.0, 0.03, 0.1, 0.3, 1.0),
    "monotone": (True, False),
    "feature_fraction": Range(0.1, 0.8),
    "min_data_in_leaf": Range(5, 200, log=True),
    "lambda_l2": Range(0.1, 30.0, log=True),
}
BY_TRACE: Final = ("convolution",)  # looks at more than the window
Settings = Mapping[str, Any]


class Trees:
    """LightGBM's heads, as trained here, behind the flagger's contract.

    ``columns``: the features that it may see.
    """

    name = OURS

    def __init__(
        self, frame: pd.DataFrame, settings: Training, columns: Sequence[str] = COLUMNS
    ) -> None:
        self.threshold = dict.fromkeys(SIDES, 0.5)
        self._heads = fit(frame, settings, SIDES, columns)

    def score(self, matrix: Any) -> Scores:
        """See ``Flagger``."""
        seen = self._heads.seen(matrix)
        cpu, gpu = (self._heads.raw(side, seen).astype(np.float32) for side in SIDES)
        return Scores(cpu, gpu)

    def top_features(self, matrix: Any, side: str) -> list[tuple[str, ...]]:
        """Not asked for here."""
        return [()] * len(matrix)


class Shipped(Trees):
    """The same, calibrated and with thresholds by programs held out, as what ships is trained."""

    name = SHIPS

    def __init__(self, frame: pd.DataFrame, settings: Training) -> None:
        super().__init__(frame, settings)
        raw = held_out(frame, fit_folds(frame, settings))
        self._curves = training.curves(raw, settings)
        self.threshold = training.thresholds(training.calibrate(raw, self._curves), settings)

    def score(self, matrix: Any) -> Scores:
        """See ``Flagger``."""
        raw = super().score(matrix)
        cpu, gpu = (
            calibration.apply(self._curves[side], values).astype(np.float32)
            for side, values in (("cpu", raw.cpu), ("gpu", raw.gpu))
        )
        return Scores(cpu, gpu)


@dataclass(frozen=True)
class Contenders:
    """``training``: our own settings where nothing is tuned; ``chosen``: by name, what was."""

    training: Training = field(default_factory=Training)
    chosen: Mapping[str, Settings] = field(default_factory=dict)

    def fit(self, name: str, frame: pd.DataFrame) -> Flagger:
        """Train one of ``ROWS`` as chosen, or ``SHIPS``."""
        return self.fit_with(name, frame, self.chosen.get(name, {}))

    def fit_with(self, name: str, frame: pd.DataFrame, settings: Settings) -> Flagger:
        """Train with settings of a space. Raises KeyError for a name that is none of ``ROWS``."""
        if name == SHIPS:
            return Shipped(frame, self.training)
        if name == OURS:
            return Trees(frame, training_of(settings, self.training))
        return baseline(name)(frame, self.training.seed, **settings)


def space_of(name: str) -> Space:
    """What may be tuned; nothing where nothing is learned."""
    return SPACE if name == OURS else space(name)


def training_of(settings: Settings, usual: Training) -> Training:
    """``Training`` with these settings; what no field of it is goes to LightGBM."""
    mine = {f.name for f in fields(Training)} - {"parameters"}
    own = {key: value for key, value in settings.items() if key in mine}
    rest = {key: value for key, value in settings.items() if key not in mine}
    return replace(usual, **own, parameters={**usual.parameters, **rest})


def scores_of(flagger: Flagger, frame: pd.DataFrame) -> Scores:
    """Each trace on its own, as a scan would; at once where that makes no difference."""
    if flagger.name not in BY_TRACE:
        return flagger.score(matrix(frame))
    breaks = np.flatnonzero((frame["trace"] != frame["trace"].shift()).to_numpy())[1:]
    return join_scores([flagger.score(part) for part in np.split(matrix(frame), breaks)])


def join_scores(parts: Sequence[Scores]) -> Scores:
    """Scores of several traces as one."""

    def all_of(of: Callable[[Scores], Float32]) -> npt.NDArray[np.float32]:
        return np.concatenate([of(p) for p in parts])

    return Scores(all_of(lambda p: p.cpu), all_of(lambda p: p.gpu))
