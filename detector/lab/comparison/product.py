"""The product, trained anew for a fold by today's recipe: its models in a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from detector import __version__
from detector.flagger import lightgbm as shipped
from detector.lab import training
from detector.lab.experiments.judge import JudgeExperiment
from detector.lab.training import Training

if TYPE_CHECKING:
    import pandas as pd

FLAGGER: Final = "flagger"  # in the folder of the models
JUDGE: Final = "judge.safetensors"


@dataclass(frozen=True)
class Recipe:
    """How the product is trained. ``judge_texts``: evidence rows that a judge learns from at most,
    drawn at random: all of them take longer than everything else together."""

    flagger: Training = field(default_factory=Training)
    judge: JudgeExperiment = field(default_factory=JudgeExperiment)
    judge_texts: int = 4_000


def train(windows: pd.DataFrame, evidence: pd.DataFrame, recipe: Recipe, folder: Path) -> None:
    """Write a flagger and a judge that have seen nothing but these rows.

    Raises DetectorError where too little is there to learn from.
    """
    _flagger(windows, recipe.flagger, folder / FLAGGER)
    rows = np.random.default_rng(recipe.judge.seed).permutation(len(evidence))
    recipe.judge.save(evidence.iloc[np.sort(rows[: recipe.judge_texts])], folder / JUDGE, {})


def _flagger(windows: pd.DataFrame, settings: Training, folder: Path) -> None:
    """As ``experiment=flagger`` trains what ships."""
    heads = training.fit(windows, settings)
    raw = training.held_out(windows, training.fit_folds(windows, settings))
    curves = training.curves(raw, settings)
    limits = training.thresholds(training.calibrated(raw, curves), settings)
    card = {"version": __version__, "calibration": curves, "threshold": limits}
    shipped.save(folder, heads, card)
