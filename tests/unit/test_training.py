"""Training and measuring: no workload or pair on both sides, and a seed decides everything."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from detector.errors import DetectorError
from detector.features import COLUMNS, FEATURES
from detector.features.savings import SAVED
from detector.flagger.calibration import IDENTITY, apply, checked
from detector.flagger.lightgbm import SIDES, Heads, LightGBMFlagger
from detector.lab import calibration, training
from detector.lab.experiments import FlaggerExperiment
from detector.lab.importance import importance
from detector.lab.metrics import auc
from detector.lab.tables import clusters, table
from detector.lab.training import (
    Training,
    fit,
    fit_folds,
    folds,
    held_out,
    matrix,
    target,
    weights,
)
from detector.taxonomy import NONE
from tests.windows import SAVINGS

pytest.importorskip("lightgbm", reason="training needs the train extra")

TINY = Training(rounds=5, parameters={"num_threads": 1})
PATTERN = {"cpu": "host-gc-pause", "gpu": "memory-dtype-churn"}


def windows(
    workloads: Mapping[str, str], traces: int = 4, rows: int = 24, seed: int = 0
) -> pd.DataFrame:
    """A table of windows: {workload: origin}; half of the traces are good, the others half bad.

    The first feature is the CPU side's label, the second the GPU side's; the rest is noise.
    """
    random = np.random.default_rng(seed)
    parts = []
    for workload, origin in workloads.items():
        for k in range(traces):
            bad = (np.arange(rows) % 2 == 0) & (k % 2 == 1)
            side = ("cpu", "gpu")[k // 2 % 2]
            features = random.normal(size=(rows, len(COLUMNS))).astype(np.float32)
            features[:, :2] = 0
            features[:, SAVINGS] = 0  # noise there would be what a head begins with
            features[:, ("cpu", "gpu").index(side)] = bad
            about = {
                "trace": f"{workload}/{k}",
                "origin": origin,
                "workload": workload,
                "pair": f"{workload}-{k // 2}",
                "quality": "bad" if k % 2 else "good",
                "cpu": np.where(bad & (side == "cpu"), 1.0, 0.0),
                "gpu": np.where(bad & (side == "gpu"), 1.0, 0.0),
                "unknown_cpu": 0.0,
                "unknown_gpu": 0.0,
                "pattern": np.where(bad, PATTERN[side], NONE),
            }
            parts.append(pd.concat([pd.DataFrame(about), _columns(features)], axis=1))
    return pd.concat(parts, ignore_index=True)


def _columns(features: Any) -> pd.DataFrame:
    return pd.DataFrame(features, columns=list(COLUMNS))


THREE = {"a": "recorded", "b": "recorded", "far": "simulated"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return windows(THREE)


# -- what is learned -------------------------------------------------------------------------------


def test_targets_are_the_covered_share_by_side() -> None:
    rows = pd.DataFrame({"cpu": [0, 0.05, 0.1, 1], "gpu": [1, 0, 0, 0.2]})
    assert target(rows, "cpu", Training()).tolist() == [0, 0, 1, 1]
    assert target(rows, "gpu", Training()).tolist() == [1, 0, 0, 1]
    assert target(rows, "cpu", Training(inside=0.5)).tolist() == [0, 0, 0, 1]


def test_what_nobody_knows_teaches_nothing() -> None:
    rows = pd.DataFrame(
        {
            "cpu": [0, 0, 1, 0, 0.05],
            "gpu": 0.0,
            "unknown_cpu": [0, 1, 1, 0, 0.5],
            "unknown_gpu": [0, 0, 0, 1, 0],
            "pattern": [NONE, NONE, PATTERN["cpu"], NONE, NONE],
        }
    )
    assert training.is_known(rows, "cpu").tolist() == [True, False, True, True, False]
    assert training.is_known(rows, "gpu").tolist() == [True, True, True, False, True]


def test_every_trace_weighs_the_same_and_edges_little() -> None:
    rows = pd.DataFrame(
        {
            "trace": ["long"] * 4 + ["short"] * 2 + ["real"] * 2,
            "origin": ["simulated"] * 6 + ["recorded"] * 2,
            "cpu": [0.0, 1.0, 0.0, 0.05, 0, 0, 0, 0],
            "gpu": 0.0,
            "pattern": NONE,
        }
    )
    weight = weights(rows, "cpu", Training(recorded_weight=3.0, edge_weight=0.2))
    by_hand = np.array([1 / 4, 1 / 4, 1 / 4, 0.2 / 4, 1 / 2, 1 / 2, 3 / 2, 3 / 2])
    assert weight == pytest.approx(by_hand / by_hand.mean())
    # on the other side nothing is at an edge
    assert weights(rows, "gpu", Training())[3] == pytest.approx(weights(rows, "gpu", Training())[0])


def test_it_learns_the_planted_features(frame: pd.DataFrame) -> None:
    models = fit(frame, replace(TINY, rounds=30))
    fresh = windows(THREE, seed=1)
    for side in ("cpu", "gpu"):
        score = models.raw(side, models.seen(matrix(fresh)))
        assert auc((fresh[side] > 0).to_numpy(), score) > 0.95


# -- determinism -----------------------------------------------------------------------------------


def test_unknown_windows_change_no_model(frame: pd.DataFrame) -> None:
    doubtful = windows({"a": "recorded"}, seed=9)
    doubtful[["cpu", "gpu"]], doubtful["pattern"] = 0.0, NONE
    doubtful[["unknown_cpu", "unknown_gpu"]] = 1.0
    doubtful["trace"] += "?"  # a trace of its own, so that it takes no weight from another
    assert texts(pd.concat([frame, doubtful], ignore_index=True), TINY) == texts(frame, TINY)


def texts(frame: pd.DataFrame, settings: Training) -> dict[str, str]:
    fitted = fit(frame, settings).boosters
    return {head: model.model_to_string() for head, model in fitted.items()}


def test_the_same_seed_gives_the_same_model_text(frame: pd.DataFrame) -> None:
    assert texts(frame, TINY) == texts(frame.copy(), TINY)


def test_another_seed_gives_another_model(frame: pd.DataFrame) -> None:
    one, two = texts(frame, TINY), texts(frame, replace(TINY, seed=1))
    assert all(one[head] != two[head] for head in ("cpu", "gpu"))


# -- folds -----------------------------------------------------------------------------------------


def test_folds_are_the_real_workloads_recorded_and_injected_alike() -> None:
    frame = windows({"a": "recorded", "far": "simulated", "b": "injected"}, rows=4)
    found = dict(folds(frame))
    assert list(found) == [("a",), ("b",)]
    for workloads, rows in found.items():
        assert set(frame.loc[rows, "workload"]) == set(workloads)
    real = (frame["origin"] != "simulated").to_numpy()
    assert (sum(rows.astype(int) for rows in found.values()) == real).all()


def test_many_workloads_make_few_folds_of_similar_size() -> None:
    rows = {f"w{i:02}": 40 if i == 0 else 4 + i % 3 for i in range(30)}
    frame = pd.concat(
        [windows({name: "recorded"}, traces=1, rows=count) for name, count in rows.items()]
    ).sample(frac=1, random_state=0)
    found = dict(folds(frame))
    assert len(found) == training.FOLDS
    assert sorted(name for group in found for name in group) == sorted(rows)
    size = [int(mine.sum()) for mine in found.values()]
    assert sum(size) == len(frame)
    assert max(size) == 40
    others = sorted(size)[:-1]
    assert others[-1] - others[0] <= 6
    again = frame.sample(frac=1, random_state=1)  # the order of the rows decides nothing
    assert list(dict(folds(again))) == list(found)


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The workloads that each call of ``fit`` learns from."""
    seen: list[set[str]] = []
    real = training.fit

    def spy(frame: pd.DataFrame, *rest: Any) -> Any:
        seen.append(set(frame["workload"]))
        return real(frame, *rest)

    monkeypatch.setattr(training, "fit", spy)
    return seen


@pytest.mark.parametrize("also", [{}, {"a ": "simulated"}], ids=["apart", "shared"])
def test_no_window_is_scored_by_a_model_that_saw_its_workload(
    also: dict[str, str], fitted: list[set[str]]
) -> None:
    frame = windows({**THREE, **also})
    # a simulated program of the same name is the same workload
    frame["workload"] = frame["workload"].str.strip()
    scored = held_out(frame, fit_folds(frame, TINY))
    assert fitted == [{"b", "far"}, {"a", "far"}]
    assert set(scored["workload"]) == {"a", "b"}
    assert set(scored["origin"]) == {"recorded"}
    assert scored.index.is_unique
    assert not set(COLUMNS) & set(scored.columns)


def test_what_holds_in_one_workload_alone_is_not_known_when_it_is_held_out() -> None:
    """A leak would show: in this workload the telling feature says the opposite."""
    others = dict.fromkeys("cdef", "simulated")
    frame = windows({"odd": "recorded", "b": "recorded", **others})
    mine = frame["workload"] == "odd"
    frame.loc[mine, COLUMNS[0]] = 1 - frame.loc[mine, COLUMNS[0]]
    scored = held_out(frame, fit_folds(frame, replace(TINY, rounds=200, recorded_weight=1.0)))
    odd = scored[scored["workload"] == "odd"]
    other = scored[scored["workload"] == "b"]
    assert auc((odd["cpu"] > 0).to_numpy(), odd["cpu_score"].to_numpy()) < 0.2
    assert auc((other["cpu"] > 0).to_numpy(), other["cpu_score"].to_numpy()) > 0.8


def test_thresholds_let_so_many_healthy_regions_through() -> None:
    rows = scored_rows()  # runs of 0.9 0.9, of 0.6 and of 0.8 in two healthy traces
    for most, wanted in ((0.0, 1.0), (0.5, 0.9), (1.0, 0.8)):
        limits = training.thresholds(rows, Training(false_alarms=most))
        assert limits["cpu"] == wanted
        found = training.at_thresholds(rows, limits, Training())["cpu"]
        assert found["false_alarm_regions_per_healthy_trace"] <= most
    rows.loc[7, "unknown_cpu"] = 1.0  # "fine" alone is known to be healthy
    assert training.thresholds(rows, Training(false_alarms=1.0))["cpu"] == 0.1


def test_without_recorded_or_healthy_traces_it_says_so(frame: pd.DataFrame) -> None:
    with pytest.raises(DetectorError, match="no recorded traces"):
        fit_folds(frame[frame["origin"] == "simulated"], TINY)
    with pytest.raises(DetectorError, match="no workload beside a"):
        fit_folds(frame[frame["workload"] == "a"], TINY)
    with pytest.raises(DetectorError, match="no healthy recorded traces"):
        training.thresholds(frame[frame["quality"] == "bad"], TINY)


def scored_rows() -> pd.DataFrame:
    """A healthy trace with three suspicious runs, another without, and a faulty one."""
    rows = pd.DataFrame(
        {
            "trace": ["good"] * 8 + ["fine"] * 2 + ["bad"] * 4,
            "quality": ["good"] * 10 + ["bad"] * 4,
            "cpu_score": [0.9, 0.9, 0.1, 0.6, 0.1, 0.1, 0.1, 0.8, 0.2, 0.1, 0.9, 0.7, 0.3, 0.9],
            "gpu_score": 0.1,
            "cpu": [0.0] * 10 + [1.0, 1.0, 1.0, 0.0],
            "gpu": 0.0,
            "unknown_cpu": 0.0,
            "unknown_gpu": 0.0,
        }
    )
    return rows


def test_alarms_are_runs_of_suspicious_windows_in_healthy_traces() -> None:
    found = training.at_thresholds(scored_rows(), {"cpu": 0.6, "gpu": 0.6}, Training())
    # 3 runs in 2 traces; the last window of a trace and the first of the next do not join
    assert found["cpu"]["false_alarm_regions_per_healthy_trace"] == pytest.approx(1.5)
    assert found["cpu"]["window_recall"] == pytest.approx(2 / 3)
    assert found["gpu"] == {"false_alarm_regions_per_healthy_trace": 0.0, "window_recall": None}


def test_a_trace_that_nobody_knows_all_of_is_no_healthy_one() -> None:
    rows = scored_rows()
    rows.loc[7, "unknown_cpu"] = 1.0
    found = training.at_thresholds(rows, {"cpu": 0.6, "gpu": 0.6}, Training())
    assert found["cpu"]["false_alarm_regions_per_healthy_trace"] == 0  # of "fine" alone


# -- probabilities ---------------------------------------------------------------------------------


def test_a_curve_recovers_the_probability_behind_a_score() -> None:
    random = np.random.default_rng(0)
    score = random.random(20_000)
    truth = random.random(20_000) < score**2
    curve = calibration.fit(score, truth, np.ones(20_000))
    at = np.linspace(0.05, 0.95, 19)
    assert apply(curve, at) == pytest.approx(at**2, abs=0.05)
    assert len(curve) <= 40


def test_a_curve_keeps_the_order_of_windows() -> None:
    """Else ranks, and with them AUC-ROC, would suffer from ties."""
    random = np.random.default_rng(1)
    score = np.unique(random.random(500))
    truth = random.random(len(score)) < 0.3  # nothing to learn: one pool
    for labels in (truth, score > 0.5):
        calibrated = apply(calibration.fit(score, labels, np.ones(len(score))), score)
        assert (np.diff(calibrated) > 0).all()
        assert (np.diff(calibrated.astype(np.float32)) >= 0).all()
        assert 0 <= calibrated.min() < calibrated.max() <= 1


def test_neighbors_that_fall_are_pooled_by_weight() -> None:
    score = np.array([0.2, 0.4, 0.6, 0.8])
    truth = np.array([True, False, False, True])
    curve = calibration.fit(score, truth, np.array([1.0, 1.0, 2.0, 4.0]))
    # 0.2 (1 of 1), 0.4 and 0.6 (0 of 3) are one pool: 1 of 4, its center at 0.45
    assert apply(curve, 0.45) == pytest.approx(0.99 * 0.25 + 0.01 * 0.45)
    assert apply(curve, 0.8) == pytest.approx(0.99 + 0.01 * 0.8)
    assert apply(curve, 0.0) == pytest.approx(0.99 * 0.25)
    assert checked(json.loads(json.dumps(curve))) == curve


@pytest.mark.parametrize("truth", [True, False])
def test_without_both_kinds_a_score_stays_what_it_is(truth: bool) -> None:
    score = np.array([0.1, 0.7])
    assert calibration.fit(score, np.full(2, truth), np.ones(2)) == IDENTITY
    assert apply(IDENTITY, score) == pytest.approx(score)


@pytest.mark.parametrize("score", [[0.0, 0.0, 1.0, 1.0], [0.5] * 4, [0.0, 0.5, 0.5, 1.0]])
def test_few_and_equal_scores_make_a_curve_too(score: list[float]) -> None:
    curve = calibration.fit(score, np.array([False, False, True, True]), np.ones(4))
    assert checked(curve) == curve
    calibrated = apply(curve, score)
    assert calibrated[-1] >= 0.5
    assert calibrated[0] <= 0.5 + calibration.MIX


def test_each_trace_counts_the_same_in_a_curve(frame: pd.DataFrame) -> None:
    rows = pd.DataFrame(
        {
            "trace": ["long"] * 90 + ["short"] * 10,
            "cpu": [0.0] * 90 + [1.0] * 10,
            "gpu": 0.0,
            "unknown_cpu": 0.0,
            "unknown_gpu": 0.0,
            "cpu_score": 0.4,
            "gpu_score": 0.4,
            "fold": np.arange(100) % 2,
        }
    )
    curves = training.curves(rows, Training())
    assert apply(curves["cpu"], 0.4) == pytest.approx(0.5, abs=0.01)
    assert curves["gpu"] == IDENTITY
    calibrated = training.calibrate(rows, curves)
    assert calibrated["cpu_score"].to_numpy() == pytest.approx(0.5, abs=0.01)
    assert rows["cpu_score"].eq(0.4).all()


def test_a_curve_that_helps_no_fold_it_never_saw_is_left_out() -> None:
    score = np.tile(np.linspace(0.02, 0.98, 49), 2)
    rows = pd.DataFrame(
        {
            "trace": np.arange(98),
            "cpu": np.where(np.arange(98) < 49, score > 0.5, score > 0.9).astype(float),
            "gpu": 0.0,
            "unknown_cpu": 0.0,
            "unknown_gpu": 0.0,
            "cpu_score": score,
            "gpu_score": 0.4,
            "fold": np.arange(98) // 49,  # each says something else
        }
    )
    assert training.curves(rows, Training())["cpu"] == IDENTITY


# -- importance ------------------------------------------------------------------------------------


def test_the_planted_features_are_the_important_ones(frame: pd.DataFrame) -> None:
    settings = replace(TINY, rounds=20)
    fitted = fit_folds(frame, settings)
    before = frame.copy()
    found = importance(frame, fitted)
    assert frame.equals(before)
    for side, planted in (("cpu", 0), ("gpu", 1)):
        rows = found[side]
        assert {row["feature"] for row in rows} == {feature.name for feature in FEATURES}
        assert rows[0]["feature"] == COLUMNS[planted]
        assert rows[0]["auc_lost"] > 0.2
        assert rows[0]["mean_abs_shap"] == max(row["mean_abs_shap"] for row in rows)
        assert all(abs(row["auc_lost"]) < 0.2 for row in rows[1:])
    assert importance(frame, fitted) == found


def test_variants_of_a_feature_are_shuffled_together() -> None:
    """Each alone would hardly be missed: the others say the same."""
    frame = windows(THREE)
    variants = [c for c in COLUMNS if c.split("@")[0] == COLUMNS[0]]
    for column in variants:
        frame[column] = frame[COLUMNS[0]]
    (first, *_) = importance(frame, fit_folds(frame, replace(TINY, rounds=20)))["cpu"]
    assert len(variants) == 4
    assert first["feature"] == COLUMNS[0]
    assert first["auc_lost"] > 0.2


# -- the flagger's experiment ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    written(folder, "windows", frame)
    (folder / "manifest.json").write_text("{}")
    return folder


def written(folder: Path, name: str, frame: pd.DataFrame, part: str = "train") -> None:
    """A table where a finished benchmark has it."""
    (folder / "tables" / name).mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "tables" / name / f"{part}.parquet")


def test_a_trained_flagger_loads_and_scores_as_it_was_fitted(
    data: Path, frame: pd.DataFrame, tmp_path: Path
) -> None:
    lines = FlaggerExperiment(TINY).train(data, tmp_path)
    assert lines[0].startswith(f"flagger: {len(frame)} windows")
    flagger = LightGBMFlagger(str(tmp_path / "flagger"))
    rows = matrix(frame)[:7]
    scores = flagger.score(rows)
    heads = fit(frame, TINY)
    seen = heads.seen(rows)
    assert flagger.card["columns"] == list(heads.columns)
    assert set(SAVED) <= set(heads.columns)
    assert TINY.columns <= len(heads.columns) <= TINY.columns + len(SAVED)
    curve = checked(flagger.card["calibration"]["cpu"])
    calibrated = apply(curve, heads.raw("cpu", seen))
    assert scores.cpu == pytest.approx(calibrated, rel=1e-6)
    assert flagger.card["traces_by_origin"] == {"recorded": 8, "simulated": 4}
    assert set(flagger.threshold) == {"cpu", "gpu"}
    for side in ("cpu", "gpu"):
        assert len(flagger.card["calibration"][side]) <= 40
        rates = flagger.card["at_threshold"][side]
        assert rates["false_alarm_regions_per_healthy_trace"] >= 0
        assert 0 <= rates["window_recall"] <= 1


def test_training_twice_writes_the_same_files(data: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        FlaggerExperiment(TINY).train(data, tmp_path / name)
    for name in [*(f"{head}.txt" for head in SIDES), "card.json"]:
        one, two = (tmp_path / n / "flagger" / name for n in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_evaluating_gives_figures_with_intervals_beside_the_rules(
    data: Path, tmp_path: Path
) -> None:
    lines = FlaggerExperiment(TINY).evaluate(data, tmp_path / "deep")
    found = json.loads((tmp_path / "deep" / "flagger.json").read_text())
    wanted = {
        f"window AUC-ROC, {s} side, {n}" for s in ("cpu", "gpu") for n in ("LightGBM", "rules")
    }
    assert wanted <= set(found)
    assert {f"window AUC-ROC, {p} ({side})" for side, p in PATTERN.items()} <= set(found)
    for name, figure in found.items():
        assert 0 <= figure["low"] <= figure["value"] <= figure["high"] <= 1, name
    assert len(lines) == len(found) + 1
    for side in ("cpu", "gpu"):
        alone = found[f"window AUC-ROC within a trace, {side} side, trace medians alone"]
        assert alone == dict.fromkeys(("value", "low", "high"), 0.5)
    importance = json.loads((tmp_path / "deep" / "flagger_importance.json").read_text())
    assert {side: len(rows) for side, rows in importance.items()} == dict.fromkeys(
        ("cpu", "gpu"), len(FEATURES)
    )


def test_a_figure_that_is_not_defined_is_null_in_the_file(tmp_path: Path) -> None:
    """JSON has no NaN."""
    frame = windows(THREE, traces=2)  # nothing on the gpu side
    written(tmp_path, "windows", frame)
    (tmp_path / "manifest.json").write_text("{}")
    FlaggerExperiment(TINY).evaluate(tmp_path, tmp_path)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    found = json.loads((tmp_path / "flagger.json").read_text(), parse_constant=refuse)
    assert found["window AUC-ROC, gpu side, LightGBM"] == dict.fromkeys(("value", "low", "high"))
    importance = json.loads(
        (tmp_path / "flagger_importance.json").read_text(), parse_constant=refuse
    )
    assert {row["auc_lost"] for row in importance["gpu"]} == {None}


def test_an_unfinished_build_is_refused_in_one_line(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "tables", tmp_path / "tables")
    with pytest.raises(DetectorError, match="no finished benchmark") as caught:
        table(tmp_path, "windows")
    assert "\n" not in str(caught.value)


def test_what_was_labeled_by_hand_is_in_no_table_to_train_on(
    data: Path, frame: pd.DataFrame, tmp_path: Path
) -> None:
    shutil.copytree(data, tmp_path / "data")
    written(tmp_path / "data", "windows", windows({"mine": "natural"}), "natural")
    written(tmp_path / "data", "windows", windows({"late": "injected"}), "test")
    assert set(table(tmp_path / "data", "windows")["workload"]) == {*THREE, "late"}
    assert set(table(tmp_path / "data", "windows", ["natural"])["workload"]) == {"mine"}
    with pytest.raises(DetectorError, match="no windows in validation"):
        table(tmp_path / "data", "windows", ["validation"])


# -- what belongs together ------------------------------------------------------------------------


def test_what_is_made_of_one_base_is_drawn_as_one() -> None:
    frame = pd.DataFrame(
        {
            "pair": ["base/a", "base/a", "classifier-plain-1", "other"],
            "workload": ["language", "language", "classifier", "classifier"],
        }
    )
    assert clusters(frame).tolist() == ["base/a", "base/a", "classifier", "classifier"]


class Silent:
    """Trees that add nothing."""

    def predict(self, seen: np.ndarray, pred_contrib: bool = False, **_: object) -> np.ndarray:
        return np.zeros((len(seen), 3)) if pred_contrib else np.full(len(seen), 0.5)


def test_a_head_begins_with_the_largest_saving_of_its_side() -> None:
    columns = ("saved_host_gc_pause", "saved_compute_fp32_matmul")  # host's, device's
    heads = Heads(columns, {"cpu": Silent(), "gpu": Silent()})
    seen = np.array([[0.3, 0.8], [0.0, np.nan], [1.0, 0.0]], np.float32)
    assert heads.raw("cpu", seen).tolist() == pytest.approx([0.3, 0.01, 0.99])
    assert heads.raw("gpu", seen).tolist() == pytest.approx([0.8, 0.01, 0.01])
    assert heads.raw("cpu", seen[:0]).tolist() == []
    parts = heads.contributions("gpu", seen)
    assert parts[0].tolist() == pytest.approx([0.0, math.log(0.8 / 0.2) - math.log(0.01 / 0.99)])
    assert not parts[1:].any()


def test_without_savings_a_head_begins_the_same_everywhere() -> None:
    heads = Heads(("busy",), {"cpu": Silent(), "gpu": Silent()})
    assert len(set(heads.raw("cpu", np.ones((3, 1), np.float32)).tolist())) == 1
