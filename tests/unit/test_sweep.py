"""Records and sweeps: curves by a slow definition, and a test part that nobody opens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from detector.errors import ConfigError
from detector.features import COLUMNS, FEATURES
from detector.lab.experiments import SweepExperiment
from detector.lab.experiments.record import MOST_POINTS, Outcome, curves, data_of, write
from detector.lab.experiments.sweep import GROUPS, settings_of
from detector.lab.metrics import Estimate, auc
from detector.lab.training import Training

TINY = Training(rounds=3, parameters={"num_threads": 1})


def windows(workloads: str, seed: int = 0, rows: int = 24) -> pd.DataFrame:
    """Four traces of each workload; the first two features tell the sides' labels in bad ones."""
    random = np.random.default_rng(seed)
    parts = []
    for workload in workloads:
        for k in range(4):
            bad = (np.arange(rows) % 2 == 0) & (k % 2 == 1)
            features = random.normal(size=(rows, len(COLUMNS))).astype(np.float32)
            features[:, 0], features[:, 1] = bad & (k < 2), bad & (k >= 2)
            about = {"trace": f"{workload}/{k}", "origin": "injected", "workload": workload}
            about["pair"] = f"base/{workload}"
            about |= {"quality": "bad" if k % 2 else "good", "pattern": "none"}
            about |= {"unknown_cpu": 0.0, "unknown_gpu": 0.0}
            sides = {"cpu": features[:, 0].astype(float), "gpu": features[:, 1].astype(float)}
            frame = pd.DataFrame({**about, **sides}, index=range(rows))
            parts.append(pd.concat([frame, pd.DataFrame(features, columns=list(COLUMNS))], axis=1))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark whose test part cannot be read."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "tables" / "windows").mkdir(parents=True)
    for part, workloads in (("train", "ab"), ("validation", "c")):
        windows(workloads).to_parquet(folder / "tables" / "windows" / f"{part}.parquet")
    (folder / "tables" / "windows" / "test.parquet").write_bytes(b"never opened")
    (folder / "manifest.json").write_text("{}")
    return folder


def test_a_sweep_ranks_its_trials_without_the_test_part(data: Path, tmp_path: Path) -> None:
    space = {"leaves": [3, 4], "features": ["all", "savings"]}
    lines = SweepExperiment(TINY, space, trials=0).evaluate(data, tmp_path)
    found = json.loads((tmp_path / "sweep.json").read_text())
    assert len(found) == 5  # as it is, and every combination
    assert len(lines) == len(found) + 2
    means = [row["mean"] for row in found]
    assert means == sorted(means, reverse=True)
    # the features that tell the labels are no savings
    worst = [row["plan"].get("features") for row in found[-2:]]
    assert worst == ["savings", "savings"]
    assert found[0]["validation"]["cpu"]["value"] > 0.9
    for row in found:
        sides = [row["folds"][side]["value"] for side in ("cpu", "gpu")]
        assert row["mean"] == pytest.approx(np.mean(sides))


def test_the_same_seed_draws_the_same_trials_and_no_more_than_asked() -> None:
    space = {"leaves": [3, 4, 5], "max_depth": [2, 3, 4]}
    draws = [list(SweepExperiment(space=space, trials=4, seed=s)._plans()) for s in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert draws[0][0] == {}
    assert len({json.dumps(plan) for plan in draws[0]}) == 5


def test_each_value_alone_is_tried_once() -> None:
    space = {"leaves": [3, 4], "features": ["own"]}
    plans = list(SweepExperiment(space=space, singly=True)._plans())
    assert plans == [{}, {"leaves": 3}, {"leaves": 4}, {"features": "own"}]


def test_a_trial_s_settings_reach_training_and_the_rest_lightgbm() -> None:
    plan = {"leaves": 5, "max_depth": 3, "features": "own", "scale": "x", "monotone": False}
    settings = settings_of(plan, TINY)
    assert (settings.leaves, settings.rounds, settings.monotone) == (5, 3, False)
    assert settings.parameters == {"num_threads": 1, "max_depth": 3}


def test_groups_of_features_leave_out_what_they_say() -> None:
    assert all(GROUPS.values())
    assert set(GROUPS["savings"]) | set(GROUPS["no savings"]) == set(COLUMNS)
    assert not any(c.endswith("@rel") for c in GROUPS["no rel"])
    assert len(GROUPS["own"]) == len(FEATURES)
    sizes = [f.name for f in FEATURES if f.unit != "share"]
    kept = set(GROUPS["no magnitudes"])
    assert not kept & {f"{name}{variant}" for name in sizes for variant in ("", "@outer")}
    assert kept >= {f"{name}{variant}" for name in sizes for variant in ("@rel", "@place")}


@pytest.mark.parametrize(("key", "value"), [("features", "nose"), ("scale", "coarse")])
def test_an_unknown_group_or_scale_is_reported_before_any_training(
    key: str, value: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"space.{key}: no '{value}'"):
        SweepExperiment(TINY, {key: [value]}).evaluate(data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_curves_hold_the_area_in_few_points() -> None:
    random = np.random.default_rng(0)
    truth = random.random(5_000) < 0.3
    score = np.round(truth + random.normal(size=len(truth)), 2)
    found = curves(truth, score)
    false, true = (np.array(found["roc"][k]) for k in ("false_positive", "true_positive"))
    assert len(false) == len(true) <= MOST_POINTS
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    area = float((np.diff(false) * (true[1:] + true[:-1]) / 2).sum())
    assert area == pytest.approx(auc(truth, score), abs=2e-3)
    assert found["pr"]["precision"][-1] == pytest.approx(truth.mean(), abs=1e-4)


def test_curves_by_hand_with_equal_scores_as_one_point() -> None:
    found = curves(np.array([True, False, True, False]), np.array([0.9, 0.5, 0.5, 0.1]))
    assert found["roc"] == {"false_positive": [0, 0, 0.5, 1], "true_positive": [0, 0.5, 1, 1]}
    assert found["pr"] == {"recall": [0.5, 1, 1], "precision": [1, 0.66667, 0.5]}


def test_one_kind_of_window_has_no_curve() -> None:
    assert curves(np.ones(3, np.bool_), np.arange(3.0)) == {}


def test_a_record_is_json_with_undefined_figures_as_null(tmp_path: Path) -> None:
    nan = float("nan")
    outcome = Outcome(["line"], headline={"AUC cpu": Estimate(nan, nan, nan)}, fit_s=1.5)
    file = write(tmp_path / "deep", "train-some", outcome, {"verb": "train"})
    assert file.name == "train-some.run.json"
    found = json.loads(file.read_text())
    assert found["headline"] == {"AUC cpu": dict.fromkeys(("value", "low", "high"))}
    assert (found["verb"], found["fit_s"], found["card"]) == ("train", 1.5, {})
    assert len(found["code"]["sha256"]) == 64


def test_another_table_is_other_data_though_the_manifest_is_the_same(data: Path) -> None:
    before = data_of(data)
    file = data / "tables" / "windows" / "test.parquet"
    content = file.read_bytes()
    file.write_bytes(b"other")
    after = data_of(data)
    file.write_bytes(content)
    assert before["manifest_sha256"] == after["manifest_sha256"]
    changed = {k for k, v in before["tables_sha256"].items() if after["tables_sha256"][k] != v}
    assert changed == {"windows/test.parquet"}
