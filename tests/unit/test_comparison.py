"""Flaggers side by side: what is measured, and that every rival keeps the contract."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from detector.comparison import figures, page
from detector.comparison.run import ComparisonExperiment, Trees
from detector.comparison.scored import Scored
from detector.errors import DetectorError
from detector.features import COLUMNS
from detector.flagger import Scores
from detector.flagger.rivals import NAMES, rival
from detector.flagger.training import Training, matrix
from detector.metrics import auc, average_precision
from detector.taxonomy import CLASSES, NONE

pytest.importorskip("torch", reason="the rivals need the train extra")
pytest.importorskip("sklearn", reason="the rivals need the train extra")

CPU, GPU = "host-gc-pause", "memory-dtype-churn"
TINY = Training(rounds=15, class_rounds=5, parameters={"num_threads": 1})
ROWS = 24


def table(traces: int = 12, seed: int = 0, prefix: str = "t") -> pd.DataFrame:
    """Every second trace is bad on one side, in its windows 8 to 15; the first two features say it
    with some noise, and are extreme there."""
    random = np.random.default_rng(seed)
    parts = []
    for k in range(traces):
        inside = (np.arange(ROWS) >= 8) & (np.arange(ROWS) < 16) & (k % 2 == 1)
        side = k // 2 % 2
        features = random.normal(size=(ROWS, len(COLUMNS))).astype(np.float32)
        features[:, side] += 8 * inside
        features[:, 2:40] += 4 * inside[:, None]
        about = {
            "trace": f"{prefix}{k}",
            "origin": "recorded",
            "workload": f"w{k % 3}",
            "quality": "bad" if inside.any() else "good",
            "extent": "every" if k % 4 == 1 else "some",
            "start_us": 10.0 * np.arange(ROWS),
            "end_us": 10.0 * np.arange(1, ROWS + 1),
            "cpu": inside * float(side == 0),
            "gpu": inside * float(side == 1),
            "unknown_cpu": 0.0,
            "unknown_gpu": 0.0,
            "pattern": np.where(inside, (CPU, GPU)[side], NONE),
        }
        rest = pd.DataFrame(features, columns=list(COLUMNS))
        parts.append(pd.concat([pd.DataFrame(about), rest], axis=1))
    return pd.concat(parts, ignore_index=True)


def perfect(frame: pd.DataFrame) -> Scores:
    """Scores that are the labels."""
    classes = np.zeros((len(frame), len(CLASSES)), np.float32)
    classes[np.arange(len(frame)), [CLASSES.index(p) for p in frame["pattern"]]] = 1
    return Scores(frame["cpu"].to_numpy(np.float32), frame["gpu"].to_numpy(np.float32), classes)


def test_average_precision_is_that_of_the_definition() -> None:
    random = np.random.default_rng(0)
    truth, score = random.random(60) < 0.3, np.round(random.random(60), 1)
    expected = 0.0
    for limit in np.unique(score)[::-1]:
        hit = truth & (score >= limit)
        new = (truth & (score == limit)).sum()
        expected += new * hit.sum() / (score >= limit).sum()
    assert average_precision(truth, score) == pytest.approx(expected / truth.sum())


def test_a_perfect_flagger_gets_perfect_figures() -> None:
    frame = table()
    scored = Scored(frame, perfect(frame))
    limits = figures.thresholds(scored)
    found = figures.region_figures(scored, limits)
    assert found["regions"] == 6
    assert found["recall 0.5"] == found["precision 0.5"] == found["class accuracy"] == 1
    assert found["alarms per healthy trace"] == 0
    assert figures.window_figures(scored, "cpu")["AUC"].value == 1


def test_regions_end_with_the_trace_and_with_the_pattern() -> None:
    frame = table(4)
    scores = perfect(frame)
    everywhere = replace(scores, cpu=np.ones(len(frame), np.float32))
    runs = Scored(frame, everywhere).told_runs("cpu", 0.5)
    traces = {Scored(frame, everywhere).trace_of(run) for run in runs}
    assert traces == {"t0", "t1", "t2", "t3"}
    assert all(frame["trace"][r.first] == frame["trace"][r.last] for r in runs)


def test_false_alarms_are_counted_in_healthy_traces_only() -> None:
    frame = table(4)
    scores = perfect(frame)
    cpu = scores.cpu.copy()
    cpu[[3, ROWS + 2]] = 1  # one in the healthy t0, one beside the fault of t1
    found = figures.region_figures(
        Scored(frame, replace(scores, cpu=cpu)), {"cpu": 0.5, "gpu": 0.5}
    )
    assert found["alarms per healthy trace"] == 0.5
    assert found["precision 0.3"] == pytest.approx(2 / 4)


def test_what_nobody_knows_counts_for_nothing() -> None:
    frame = table(4)
    frame.loc[frame["trace"] == "t0", "unknown_cpu"] = 1.0
    scores = perfect(frame)
    cpu = scores.cpu.copy()
    cpu[:ROWS] = 1
    found = figures.region_figures(
        Scored(frame, replace(scores, cpu=cpu)), {"cpu": 0.5, "gpu": 0.5}
    )
    assert found["alarms per healthy trace"] == 0


def test_the_margin_of_a_flagger_over_itself_is_nothing() -> None:
    frame = table()
    scored = Scored(frame, perfect(frame))
    found = figures.margin(scored, scored, "cpu")
    assert found is not None
    assert (found.value, found.low, found.high) == (0, 0, 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_rival_keeps_the_contract(name: str) -> None:
    flagger = rival(name)(table(), 0)
    seen = matrix(table(seed=1))[:ROWS].copy()
    seen[3, :7] = np.nan
    scores = flagger.score(seen)
    for side in (scores.cpu, scores.gpu):
        assert side.shape == (ROWS,)
        assert np.isfinite(side).all()
        assert ((side >= 0) & (side <= 1)).all()
    assert scores.classes.shape == (ROWS, len(CLASSES))
    assert len(flagger.drivers(seen, "cpu")) == ROWS


def scores_of(name: str, train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """The cpu side's scores, trace by trace."""
    flagger, rows = rival(name)(train, 0), matrix(test)
    parts = [flagger.score(rows[i : i + ROWS]).cpu for i in range(0, len(rows), ROWS)]
    return np.concatenate(parts).astype(np.float64)


@pytest.mark.parametrize("name", ["k-means", "isolation forest", "autoencoder"])
def test_without_labels_what_was_never_seen_is_strange(name: str) -> None:
    train, test = table(24), table(8, seed=5, prefix="u")
    score = scores_of(name, train[train["quality"] == "good"], test)
    assert auc((test["cpu"] + test["gpu"] > 0).to_numpy(), score) > 0.8


@pytest.mark.parametrize("name", ["multiple instances", "convolution"])
def test_from_labels_the_side_is_learnt(name: str) -> None:
    test = table(8, seed=5, prefix="u")
    assert auc((test["cpu"] > 0).to_numpy(), scores_of(name, table(24), test)) > 0.8


def test_trees_can_be_blinded() -> None:
    frame = table()
    blind = Trees(frame, TINY, columns=[c for c in COLUMNS if c not in COLUMNS[:40]])
    seeing = Trees(frame, TINY)
    truth = (frame["cpu"] > 0).to_numpy()
    score = [f.score(matrix(table(seed=3))).cpu.astype(np.float64) for f in (blind, seeing)]
    assert auc(truth, score[1]) > 0.95 > 0.7 > auc(truth, score[0])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A built benchmark of three parts, as far as the comparison reads it."""
    for part, seed in (("train", 0), ("validation", 1), ("test", 2)):
        frame = table(seed=seed, prefix=part)
        traces = frame.groupby("trace", as_index=False)[["origin", "workload", "extent"]].first()
        traces["split"] = part
        for name, content in (("windows", frame.drop(columns="extent")), ("traces", traces)):
            (tmp_path / "tables" / name).mkdir(parents=True, exist_ok=True)
            content.to_parquet(tmp_path / "tables" / name / f"{part}.parquet")
    (tmp_path / "manifest.json").write_text("{}")
    return tmp_path


def test_the_comparison_writes_a_page(data: Path, tmp_path: Path) -> None:
    experiment = ComparisonExperiment(TINY, rivals=("rules", "k-means"), ablations=False)
    lines = experiment.evaluate(data, tmp_path / "out")
    kept = json.loads((tmp_path / "out" / "comparison.json").read_text())
    found = kept["tests"]["in distribution"]
    assert set(found["flaggers"]) == {"LightGBM", "rules", "k-means"}
    assert found["flaggers"]["LightGBM"]["windows"]["cpu"]["AUC"]["value"] > 0.95
    text = (tmp_path / "out" / "RESULTS.md").read_text()
    assert text == page.render(kept)
    assert "in distribution" in text
    assert lines[-1].endswith("RESULTS.md")


def test_there_is_nothing_to_train(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DetectorError, match=r"detector\.evaluate"):
        ComparisonExperiment(TINY).train(data, tmp_path)
