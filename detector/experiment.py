"""Experiments: what is trained, what it is measured on, and what is written down.

An experiment reads the tables of ``dataset.build`` and has two verbs. ``train`` writes a model
that ships; ``evaluate`` trains anew without the workloads it then measures on. Both return the
lines to print.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector import __version__
from detector.errors import ConfigError, DetectorError
from detector.flagger import lightgbm as shipped
from detector.flagger import training
from detector.flagger.importance import importance
from detector.flagger.leak import identity, within_trace
from detector.flagger.rules import RuleFlagger
from detector.flagger.training import INSIDE, SIDES, Training, is_clear, is_known, matrix
from detector.metrics import Estimate, auc, by_trace
from detector.taxonomy import CLASSES, NONE

if TYPE_CHECKING:
    import pandas as pd

# What may be trained on, in the order of the rows; never traces labelled by hand ("natural").
PARTS: Final = ("train", "validation", "test")


def table(data: Path, name: str, parts: Sequence[str] = PARTS) -> pd.DataFrame:
    """A table of a built benchmark, with classes as words; a part without rows has no file.

    Raises DetectorError where the build did not finish, or nothing is there.
    """
    import pandas as pd

    if not (data / "manifest.json").is_file():
        raise DetectorError(f"{data}: no finished benchmark (python -m dataset.build out={data})")
    files = [data / "tables" / name / f"{part}.parquet" for part in parts]
    found = [_in_words(file) for file in files if file.is_file()]
    if not found:
        raise DetectorError(f"{data}: no {name} in {', '.join(parts)}")
    return pd.concat(found, ignore_index=True)


def _in_words(file: Path) -> pd.DataFrame:
    """A Parquet file whose ``ClassLabel`` columns, lists of them too, hold their classes' names."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    content = pq.read_table(file)
    told = (content.schema.metadata or {}).get(b"huggingface", b"{}")
    features = json.loads(told).get("info", {}).get("features", {})
    frame = content.to_pandas()
    for column, feature in features.items():
        if "names" in feature:
            frame[column] = np.array(feature["names"], object)[frame[column]]
        elif "names" in (inner := feature.get("feature", {})):
            names = np.array(inner["names"], object)
            frame[column] = [list(names[row]) for row in frame[column]]
    return frame


def provenance(data: Path, frame: pd.DataFrame) -> dict[str, Any]:
    """What a card says of its training data."""
    traces = frame.drop_duplicates("trace")
    return {
        "version": __version__,
        "data_sha256": hashlib.sha256((data / "manifest.json").read_bytes()).hexdigest(),
        "traces_by_origin": {k: int(v) for k, v in traces["origin"].value_counts().items()},
        "rows": len(frame),
    }


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
        lines = _written(out / "flagger.json", results)
        told = json.dumps(importance(frame, fitted, self.settings.seed), indent=1)
        (out / "flagger_importance.json").write_text(told + "\n")
        return lines


@dataclass(frozen=True)
class JudgeExperiment:
    """The embedded judge. ``held_out``: recorded workloads that ``evaluate`` never trains on."""

    settings: dict[str, Any] = field(default_factory=dict)
    held_out: tuple[str, ...] = ()
    recorded_repeats: int = 3
    seed: int = 0

    def train(self, data: Path, out: Path) -> list[str]:
        """Fit on every labelled evidence; the card holds the figures of its validation pairs."""
        from detector.judge.training import save_model

        frame = table(data, "evidence")
        trained = self._fit(frame)
        file = out / "embedded_judge.safetensors"
        save_model(trained, file, provenance(data, frame))
        size = file.stat().st_size
        return [
            f"embedded judge: {len(frame)} texts, {size / 1e6:.1f} MB -> {file}",
            f"  validation pairs: accuracy {trained.metrics['accuracy']:.3f}, "
            f"top 3 {trained.metrics['top3']:.3f}",
        ]

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """Accuracy on the recorded evidence of workloads that were not trained on."""
        from detector.judge.embedded import Model

        frame = table(data, "evidence")
        test = (frame["workload"].isin(self.held_out) & (frame["origin"] == "recorded")).to_numpy()
        if not test.any():
            raise DetectorError(f"{data}: no recorded evidence of {', '.join(self.held_out)}")
        trained = self._fit(frame[~frame["workload"].isin(self.held_out)])
        card = {**_sizes(trained.settings), "temperature": trained.temperature}
        model = Model(trained.weights, card)
        return _written(out / "embedded_judge.json", _accuracy(model, frame[test]))

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


def _sizes(settings: Any) -> dict[str, int]:
    return {"layers": settings.layers, "heads": settings.heads}


def _accuracy(model: Any, frame: pd.DataFrame) -> dict[str, Estimate]:
    """Of the likeliest visible class, and of the three likeliest, by bootstrap over traces."""
    from detector.judge import tokens

    ids = tokens.encode_all(list(frame["text"]), model.vocabulary)
    probability = model.probabilities(ids, np.array(frame["numbers"].tolist(), np.float32))
    seen = np.array([[c in set(row) for c in CLASSES] for row in frame["visible"]])
    order = np.argsort(-probability * seen, axis=1)
    label = np.array([CLASSES.index(p) for p in frame["pattern"]])
    trace, faulty = frame["trace"].to_numpy(), (frame["pattern"] != NONE).to_numpy()
    hit, near = order[:, 0] == label, (order[:, :3] == label[:, None]).any(axis=1)

    def mean(of: Any, rows: Any) -> Estimate:
        return by_trace(lambda i: float(of[rows][i].mean()), trace[rows])

    everything = np.ones(len(label), np.bool_)
    return {
        "judge accuracy, faulty and healthy places": mean(hit, everything),
        "judge accuracy, faulty places": mean(hit, faulty),
        'judge accuracy, healthy places (told "none")': mean(hit, ~faulty),
        "judge top 3, faulty places": mean(near, faulty),
    }


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


def _written(file: Path, results: dict[str, Estimate]) -> list[str]:
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = {
        name: {key: None if np.isnan(figure) else figure for key, figure in asdict(e).items()}
        for name, e in results.items()
    }
    file.write_text(json.dumps(plain, indent=1) + "\n")
    width = max(map(len, results))
    return [f"{name:<{width}}  {value}" for name, value in results.items()] + [f"-> {file}"]
