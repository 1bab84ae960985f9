"""The experiment of the LightGBM flagger."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from detector.flagger import lightgbm as shipped
from detector.flagger.rules import RuleFlagger
from detector.lab import training
from detector.lab.experiments.record import Outcome, write_figures
from detector.lab.experiments.record import curves as points
from detector.lab.importance import importance
from detector.lab.leak import identity, within_trace
from detector.lab.metrics import Estimate, auc, average_precision, by_cluster
from detector.lab.tables import clusters, provenance, table
from detector.lab.training import INSIDE, SIDES, Training, is_clear, is_known, matrix
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
        begun = time.perf_counter()
        heads = training.fit(frame, self.settings)
        fit_s = time.perf_counter() - begun
        raw = training.held_out(frame, training.fit_folds(frame, self.settings))
        curves = training.curves(raw, self.settings)
        scored = training.calibrate(raw, curves)
        limits = training.thresholds(scored, self.settings)
        metrics = _window_scores(scored)
        figures = {name: str(value) for name, value in metrics.items()}
        card = {
            **provenance(data, frame),
            "name": "flagger",
            "calibration": curves,
            "threshold": limits,
            "threshold_rule": f"at most {self.settings.false_alarms} regions of a side in a "
            "healthy real trace, on average, scored by models that never saw its workload",
            "at_threshold": training.at_thresholds(scored, limits, self.settings),
            "held_out": figures,
        }
        size = shipped.save(out / "flagger", heads, card)
        lines = [f"flagger: {len(frame)} windows, {size / 1e6:.1f} MB -> {out / 'flagger'}"]
        lines += [f"  {name}: {value}" for name, value in figures.items()]
        return Outcome(lines, metrics=metrics, card=card, fit_s=fit_s, **seen(scored))

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """Window AUC-ROC on real workloads never trained on, beside the rules' and that of a model
        that sees nothing but what stays the same through a trace.

        ``flagger.json`` has the figures, ``flagger_importance.json`` the features' importance.
        """
        frame = table(data, "windows")
        begun = time.perf_counter()
        fitted = training.fit_folds(frame, self.settings)
        fit_s = time.perf_counter() - begun
        scored = training.held_out(frame, fitted)
        rules = RuleFlagger().score(matrix(frame.loc[scored.index]))
        scored["cpu_rules"], scored["gpu_rules"] = rules.cpu, rules.gpu
        results = _window_scores(scored) | _window_scores(scored, "rules", "rules")
        results |= _leak(scored, identity(frame), self.settings)
        results |= _by_pattern(scored)
        lines = write_figures(out / "flagger.json", results)
        text = json.dumps(importance(frame, fitted, self.settings.seed), indent=1)
        (out / "flagger_importance.json").write_text(text + "\n")
        return Outcome(lines, metrics=results, fit_s=fit_s, **seen(scored))


def seen(scored: pd.DataFrame) -> dict[str, Any]:
    """What a record keeps of held-out scores, by side: AUC-ROC, average precision, both curves."""
    headline: dict[str, Estimate] = {}
    curves: dict[str, Any] = {}
    for side in SIDES:
        clear = scored[is_clear(scored, side)]
        truth = (clear[side] >= INSIDE).to_numpy()
        score = clear[f"{side}_score"].to_numpy(np.float64)
        cluster = clusters(clear)
        headline[f"AUC {side}"] = by_cluster(_auc_of(truth, score), cluster)
        headline[f"AP {side}"] = by_cluster(_ap_of(truth, score), cluster)
        curves |= {f"{kind} {side}": at for kind, at in points(truth, score).items()}
    return {"headline": headline, "curves": curves}


def _window_scores(
    scored: pd.DataFrame, suffix: str = "score", named: str = "LightGBM"
) -> dict[str, Estimate]:
    """AUC-ROC by side, of windows clearly inside or clearly outside a labeled region."""
    found = {}
    for side in SIDES:
        clear = scored[is_clear(scored, side)]
        truth, score = (clear[side] >= INSIDE).to_numpy(), clear[f"{side}_{suffix}"].to_numpy()
        found[f"window AUC-ROC, {side} side, {named}"] = by_cluster(
            _auc_of(truth, score), clusters(clear)
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
                truth, score, clear["trace"].to_numpy(), clusters(clear)
            )
    return found


def _auc_of(truth: Any, score: Any) -> Callable[[Any], float]:
    return lambda rows: auc(truth[rows], score[rows].astype(np.float64))


def _ap_of(truth: Any, score: Any) -> Callable[[Any], float]:
    return lambda rows: average_precision(truth[rows], score[rows])


def _by_pattern(scored: pd.DataFrame) -> dict[str, Estimate]:
    """AUC-ROC of one pattern's windows against the unlabeled ones, with its side's score."""
    clean = scored[(scored["cpu"] == 0) & (scored["gpu"] == 0)]
    clean = clean[is_known(clean, "cpu") & is_known(clean, "gpu")]
    found = {}
    for pattern, mine in scored[scored["pattern"] != NONE].groupby("pattern"):
        side = "cpu" if mine["cpu"].sum() >= mine["gpu"].sum() else "gpu"
        score = np.concatenate([mine[f"{side}_score"], clean[f"{side}_score"]])
        truth = np.arange(len(score)) < len(mine)
        cluster = np.concatenate([clusters(mine), clusters(clean)])
        found[f"window AUC-ROC, {pattern} ({side})"] = by_cluster(
            _auc_of(truth, score), cluster, rounds=200
        )
    return found
