"""The experiment of the LightGBM flagger."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from detector.experiment.tables import provenance, table, written
from detector.flagger import lightgbm as shipped
from detector.flagger import training
from detector.flagger.importance import importance
from detector.flagger.leak import identity, within_trace
from detector.flagger.rules import RuleFlagger
from detector.flagger.training import INSIDE, SIDES, Training, is_clear, is_known, matrix
from detector.metrics import Estimate, auc, by_trace
from detector.taxonomy import NONE

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class FlaggerExperiment:
    """The LightGBM flagger beside the rule baseline."""

    settings: Training = field(default_factory=Training)

    def train(self, data: Path, out: Path) -> list[str]:
        """Fit on everything; probabilities and thresholds from scores of workloads held out."""
        frame = table(data, "windows")
        models = training.fit(frame, self.settings)
        raw = training.held_out(frame, training.fit_folds(frame, self.settings))
        curves = training.curves(raw, self.settings)
        scored = training.calibrated(raw, curves)
        limits = training.thresholds(scored, self.settings)
        figures = {name: str(value) for name, value in _window_scores(scored).items()}
        card = {
            **provenance(data, frame),
            "name": "flagger",
            "calibration": curves,
            "threshold": limits,
            "threshold_rule": f"{self.settings.false_alarms:.0%} of the windows of healthy "
            "traces, scored by models that never saw their workload",
            "at_threshold": training.at_thresholds(scored, limits, self.settings),
            "held_out": figures,
        }
        texts = {head: model.model_to_string() for head, model in models.items()}
        shipped.save(out / "flagger", texts, card)
        size = sum(len(t) for t in texts.values())
        return [f"flagger: {len(frame)} windows, {size / 1e6:.1f} MB -> {out / 'flagger'}"] + [
            f"  {name}: {value}" for name, value in figures.items()
        ]

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """Window AUC-ROC on real workloads never trained on, beside the rules' and that of a model
        that sees nothing but what stays the same through a trace.

        ``flagger.json`` has the figures, ``flagger_importance.json`` the features' importance.
        """
        frame = table(data, "windows")
        fitted = training.fit_folds(frame, self.settings)
        scored = training.held_out(frame, fitted)
        rules = RuleFlagger().score(matrix(frame.loc[scored.index]))
        scored["cpu_rules"], scored["gpu_rules"] = rules.cpu, rules.gpu
        results = _window_scores(scored) | _window_scores(scored, "rules", "rules")
        results |= _leak(scored, identity(frame), self.settings)
        results |= _by_pattern(scored)
        lines = written(out / "flagger.json", results)
        told = json.dumps(importance(frame, fitted, self.settings.seed), indent=1)
        (out / "flagger_importance.json").write_text(told + "\n")
        return lines


def _window_scores(
    scored: pd.DataFrame, suffix: str = "score", named: str = "LightGBM"
) -> dict[str, Estimate]:
    """AUC-ROC by side, of windows clearly inside or clearly outside a labelled region."""
    found = {}
    for side in SIDES:
        clear = scored[is_clear(scored, side)]
        truth, score = (clear[side] >= INSIDE).to_numpy(), clear[f"{side}_{suffix}"].to_numpy()
        found[f"window AUC-ROC, {side} side, {named}"] = by_trace(
            _auc_of(truth, score), clear["trace"].to_numpy()
        )
    return found


def _leak(scored: pd.DataFrame, constant: pd.DataFrame, settings: Training) -> dict[str, Estimate]:
    """AUC-ROC within a trace, and what a model makes of the traces' medians alone: pooled it tells
    how far the traces give themselves away, within a trace it must be a half."""
    alone = training.held_out(constant, training.fit_folds(constant, settings))
    found = _window_scores(alone, "score", "trace medians alone")
    for side in SIDES:
        for named, of in (("LightGBM", scored), ("trace medians alone", alone)):
            clear = of[is_clear(of, side)]
            truth, score = (clear[side] >= INSIDE).to_numpy(), clear[f"{side}_score"].to_numpy()
            found[f"window AUC-ROC within a trace, {side} side, {named}"] = within_trace(
                truth, score, clear["trace"].to_numpy()
            )
    return found


def _auc_of(truth: Any, score: Any) -> Callable[[Any], float]:
    return lambda rows: auc(truth[rows], score[rows].astype(np.float64))


def _by_pattern(scored: pd.DataFrame) -> dict[str, Estimate]:
    """AUC-ROC of one pattern's windows against the unlabelled ones, with its side's score."""
    clean = scored[(scored["cpu"] == 0) & (scored["gpu"] == 0)]
    clean = clean[is_known(clean, "cpu") & is_known(clean, "gpu")]
    found = {}
    for pattern, mine in scored[scored["pattern"] != NONE].groupby("pattern"):
        side = "cpu" if mine["cpu"].sum() >= mine["gpu"].sum() else "gpu"
        score = np.concatenate([mine[f"{side}_score"], clean[f"{side}_score"]])
        truth = np.arange(len(score)) < len(mine)
        trace = np.concatenate([mine["trace"], clean["trace"]])
        found[f"window AUC-ROC, {pattern} ({side})"] = by_trace(
            _auc_of(truth, score), trace, rounds=200
        )
    return found
