"""The experiment of the confidence in candidates."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from detector.findings import USUAL
from detector.flagger import confidence as shipped
from detector.flagger.confidence import KINDS, ConstantConfidence, Float64
from detector.lab import confidence as training
from detector.lab.confidence import REAL, Candidates, ConfidenceTraining
from detector.lab.doubted import with_doubted
from detector.lab.experiments.record import Outcome, write_figures
from detector.lab.metrics import Estimate
from detector.lab.scoring import Prediction, finding_figures, read_truths
from detector.lab.scoring.truth import EVERYTHING
from detector.lab.tables import provenance, table

SHOWN: Final = ("precision", "recall", "strict_recall", "wrong_per_healthy", "ece")


@dataclass(frozen=True)
class ConfidenceExperiment:
    """``same``: by the beginning of a workload's name the program that it is a version of.
    ``doubted``: report.json files whose doubted candidates are learned from, too, but for those of
    traces that the benchmark labels."""

    settings: ConfidenceTraining = field(default_factory=ConfidenceTraining)
    same: dict[str, str] = field(default_factory=dict)
    doubted: tuple[str, ...] = ()

    def train(self, data: Path, out: Path) -> list[str]:
        """Fit on every labeled candidate; the curves come from programs held out."""
        rows = training.read(data, self.same)
        labeled = set(table(data, "traces", EVERYTHING, ["sha256"])["sha256"])
        known, rows = len(rows), with_doubted(rows, self.doubted, labeled)
        begun = time.perf_counter()
        raw = training.held_out(rows, self.settings)
        curves = training.curves(rows, raw, self.settings)
        text = training.fit(rows, self.settings).model_to_string()
        fit_s = time.perf_counter() - begun
        metrics = figures(data, rows, training.strangers(rows, self.settings))
        card: dict[str, Any] = {
            **provenance(data, table(data, "candidates", EVERYTHING)),
            "name": "confidence",
            **({"doubted": len(rows) - known} if self.doubted else {}),
            "calibration": dict(zip(KINDS, curves, strict=True)),
            "held_out": {name: str(value) for name, value in metrics.items()},
        }
        size = shipped.save(out / "confidence", text, card)
        lines = [f"confidence: {known} candidates, {size / 1e6:.1f} MB -> {out / 'confidence'}"]
        if self.doubted:
            lines.append(f"  besides: {len(rows) - known} candidates that a model doubted")
        lines += [f"  {name}: {value}" for name, value in metrics.items()]
        return Outcome(lines, metrics=metrics, card=card, fit_s=fit_s)

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """Findings by a confidence that never saw the trace's program, beside the same candidates
        with the constant one and with none left out; ``confidence.json`` has the figures."""
        rows = training.read(data, self.same)
        results = figures(data, rows, training.strangers(rows, self.settings))
        constant = ConstantConfidence().score(rows.matrix)
        results |= figures(data, rows, constant, "constant confidence, ")
        results |= figures(data, rows, np.ones(len(rows)), "every candidate, ")
        return write_figures(out / "confidence.json", results)


def figures(
    data: Path, rows: Candidates, confidence: Float64, prefix: str = ""
) -> dict[str, Estimate]:
    """By origin, the primary figures of the findings of the usual confidence and more."""
    truths, found = read_truths(data), dict[str, Estimate]()
    for origin in REAL:
        mine = {name: truth for name, truth in truths.items() if truth.origin == origin}
        if not mine:
            continue
        predictions = findings(rows, confidence, mine)
        measured = finding_figures(mine, predictions, rounds=200).figures
        found |= {f"{prefix}{origin}, {name}": measured[name] for name in SHOWN}
    return found


def findings(
    rows: Candidates, confidence: Float64, traces: Any, lead: float = USUAL.lead
) -> dict[str, list[Prediction]]:
    """What a scan would report of these traces, all of which have a row."""
    found: dict[str, list[Prediction]] = {name: [] for name in traces}
    for one, sure in zip(rows.finding, confidence.tolist(), strict=True):
        if one.trace in found and sure >= lead:
            found[one.trace].append(
                Prediction(one.trace, one.pattern, one.spans_us, sure, one.savings_us)
            )
    return found
