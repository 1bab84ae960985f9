"""The experiment of the embedded judge."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from detector.errors import ConfigError, DetectorError
from detector.experiment.record import Outcome
from detector.experiment.tables import clusters, provenance, table, written
from detector.judge.embedded import POOL, Model
from detector.metrics import Estimate, by_cluster
from detector.patterns import CLASSES
from detector.taxonomy import NONE

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class JudgeExperiment:
    """The embedded judge.

    ``held_out``: recorded workloads that ``evaluate`` never trains on; ``pool``: the weights of the
    judge's and the flagger's opinion of a region.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    held_out: tuple[str, ...] = ()
    recorded_repeats: int = 3
    seed: int = 0
    pool: dict[str, float] = field(default_factory=lambda: dict(POOL))

    def train(self, data: Path, out: Path) -> list[str]:
        """Fit on every labelled evidence; the card holds the figures of its validation pairs."""
        frame = table(data, "evidence")
        begun = time.perf_counter()
        file = out / "embedded_judge.safetensors"
        trained = self.save(frame, file, provenance(data, frame))
        fit_s = time.perf_counter() - begun
        size = file.stat().st_size
        lines = [
            f"embedded judge: {len(frame)} texts, {size / 1e6:.1f} MB -> {file}",
            f"  validation pairs: accuracy {trained.metrics['accuracy']:.3f}, "
            f"top 3 {trained.metrics['top3']:.3f}",
        ]
        card = json.loads(file.with_suffix(".json").read_text())
        return Outcome(lines, card=card, fit_s=fit_s)

    def save(self, frame: pd.DataFrame, file: Path, trained_on: dict[str, Any]) -> Any:
        """Fit on these evidence rows and write the model; ``trained_on`` goes into its card."""
        from detector.judge.training import save_model

        trained = self._fit(frame)
        file.parent.mkdir(parents=True, exist_ok=True)
        save_model(trained, file, trained_on, self.pool)
        return trained

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """Accuracy of the judge alone, on the recorded evidence of workloads not trained on, cut
        by the labels. ``experiment=strangers`` measures the whole product."""
        frame = table(data, "evidence")
        test = (frame["workload"].isin(self.held_out) & (frame["origin"] == "recorded")).to_numpy()
        if not test.any():
            raise DetectorError(f"{data}: no recorded evidence of {', '.join(self.held_out)}")
        model = self.model(frame[~frame["workload"].isin(self.held_out)])
        return written(out / "embedded_judge.json", _accuracy(model, frame[test]))

    def model(self, frame: pd.DataFrame) -> Model:
        """A judge that learnt from these evidence rows alone."""
        trained = self._fit(frame)
        sizes = {"layers": trained.settings.layers, "heads": trained.settings.heads}
        card = {**sizes, "temperature": trained.temperature, "pool": self.pool}
        return Model(trained.weights, card)

    def _fit(self, frame: pd.DataFrame) -> Any:
        from detector.judge.training import Example, Settings, train_embedded

        examples = [
            Example(row.text, np.array(row.numbers, np.float32), row.pattern, row.pair)
            for row in frame.itertuples()
            for _ in range(self.recorded_repeats if row.origin == "recorded" else 1)
        ]
        try:
            settings = Settings(**self.settings)
        except TypeError as error:
            raise ConfigError(f"experiment.settings: {error}") from error
        return train_embedded(examples, settings, self.seed)


def _accuracy(model: Model, frame: pd.DataFrame) -> dict[str, Estimate]:
    """Of the likeliest visible class and of the three likeliest, over bases and workloads."""
    from detector.judge import tokens

    ids = tokens.encode_all(list(frame["text"]), model.vocabulary)
    probability = model.probabilities(ids, np.array(frame["numbers"].tolist(), np.float32))
    seen = np.array([[c in set(row) for c in CLASSES] for row in frame["visible"]])
    order = np.argsort(-probability * seen, axis=1)
    label = np.array([CLASSES.index(p) for p in frame["pattern"]])
    cluster, faulty = clusters(frame), (frame["pattern"] != NONE).to_numpy()
    hit, near = order[:, 0] == label, (order[:, :3] == label[:, None]).any(axis=1)

    def mean(of: Any, rows: Any) -> Estimate:
        return by_cluster(lambda i: float(of[rows][i].mean()), cluster[rows])

    everything = np.ones(len(label), np.bool_)
    return {
        "judge accuracy, faulty and healthy places": mean(hit, everything),
        "judge accuracy, faulty places": mean(hit, faulty),
        'judge accuracy, healthy places (told "none")': mean(hit, ~faulty),
        "judge top 3, faulty places": mean(near, faulty),
    }
