"""Training and measuring: no workload or pair on both sides, and a seed decides everything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from detector.errors import ConfigError, DetectorError
from detector.experiment import FlaggerExperiment, JudgeExperiment, table
from detector.features import COLUMNS
from detector.flagger import training
from detector.flagger.lightgbm import HEADS, LightGBMFlagger
from detector.flagger.training import Training, fit, folds, held_out, matrix, target, weights
from detector.judge import dense
from detector.metrics import auc
from detector.taxonomy import CLASSES, NONE

pytest.importorskip("torch", reason="training needs the train extra")

TINY = Training(rounds=5, class_rounds=2, parameters={"num_threads": 1})
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
            features[:, ("cpu", "gpu").index(side)] = bad
            about = {
                "trace": f"{workload}/{k}",
                "origin": origin,
                "workload": workload,
                "pair": f"{workload}-{k // 2}",
                "quality": "bad" if k % 2 else "good",
                "cpu": np.where(bad & (side == "cpu"), 1.0, 0.0),
                "gpu": np.where(bad & (side == "gpu"), 1.0, 0.0),
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


# -- what is learnt --------------------------------------------------------------------------------


def test_targets_are_the_covered_share_by_side_and_the_pattern() -> None:
    rows = pd.DataFrame(
        {"cpu": [0, 0.05, 0.1, 1], "gpu": [1, 0, 0, 0.2], "pattern": [NONE, *CLASSES[:3]]}
    )
    assert target(rows, "cpu", Training()).tolist() == [0, 0, 1, 1]
    assert target(rows, "gpu", Training()).tolist() == [1, 0, 0, 1]
    assert target(rows, "cpu", Training(inside=0.5)).tolist() == [0, 0, 0, 1]
    assert [CLASSES[i] for i in target(rows, "classes", Training())] == [NONE, *CLASSES[:3]]


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
    models = fit(frame, replace(TINY, rounds=30, class_rounds=20))
    fresh = windows(THREE, seed=1)
    for side in ("cpu", "gpu"):
        score = models[side].predict(matrix(fresh))
        assert auc((fresh[side] > 0).to_numpy(), score) > 0.95
    named = models["classes"].predict(matrix(fresh))
    assert named.shape == (len(fresh), len(CLASSES))


# -- determinism -----------------------------------------------------------------------------------


def texts(frame: pd.DataFrame, settings: Training) -> dict[str, str]:
    return {head: model.model_to_string() for head, model in fit(frame, settings).items()}


def test_the_same_seed_gives_the_same_model_text(frame: pd.DataFrame) -> None:
    assert texts(frame, TINY) == texts(frame.copy(), TINY)


def test_another_seed_gives_another_model(frame: pd.DataFrame) -> None:
    one, two = texts(frame, TINY), texts(frame, replace(TINY, seed=1))
    assert all(one[head] != two[head] for head in ("cpu", "gpu"))


# -- folds -----------------------------------------------------------------------------------------


def test_folds_are_the_recorded_workloads_and_nothing_else(frame: pd.DataFrame) -> None:
    found = dict(folds(frame))
    assert list(found) == ["a", "b"]
    for workload, rows in found.items():
        assert set(frame.loc[rows, "workload"]) == {workload}
    recorded = (frame["origin"] == "recorded").to_numpy()
    assert (sum(rows.astype(int) for rows in found.values()) == recorded).all()


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
    scored = held_out(frame, TINY)
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
    scored = held_out(frame, replace(TINY, rounds=30, recorded_weight=1.0))
    odd = scored[scored["workload"] == "odd"]
    other = scored[scored["workload"] == "b"]
    assert auc((odd["cpu"] > 0).to_numpy(), odd["cpu_score"].to_numpy()) < 0.2
    assert auc((other["cpu"] > 0).to_numpy(), other["cpu_score"].to_numpy()) > 0.8


def test_thresholds_let_so_many_healthy_windows_through() -> None:
    random = np.random.default_rng(0)
    scored = pd.DataFrame({"quality": ["good"] * 1_000 + ["bad"] * 50})
    for side in ("cpu", "gpu"):
        scored[f"{side}_score"] = np.append(random.random(1_000), np.full(50, 5.0))
    limits = training.thresholds(scored, Training(false_alarms=0.02))
    for side, limit in limits.items():
        healthy = scored.loc[scored["quality"] == "good", f"{side}_score"]
        assert (healthy > limit).mean() == pytest.approx(0.02, abs=0.001)


def test_without_recorded_or_healthy_traces_it_says_so(frame: pd.DataFrame) -> None:
    with pytest.raises(DetectorError, match="no recorded traces"):
        held_out(frame[frame["origin"] == "simulated"], TINY)
    with pytest.raises(DetectorError, match="no healthy recorded traces"):
        training.thresholds(pd.DataFrame({"quality": ["bad"]}), TINY)


# -- the flagger's experiment ----------------------------------------------------------------------


def evidence(workloads: Mapping[str, str], pairs: int = 4) -> pd.DataFrame:
    """A table of evidence: a faulty and a healthy place in each of some pairs."""
    random = np.random.default_rng(0)
    rows = []
    for workload, origin in workloads.items():
        for pair in range(pairs):
            for pattern in (PATTERN["cpu"], NONE):
                rows.append(
                    {
                        "trace": f"{workload}/{pair}{pattern == NONE}",
                        "origin": origin,
                        "workload": workload,
                        "pair": f"{workload}-{pair}",
                        "pattern": pattern,
                        "text": "Shares:\n" + f"device busy: {99 if pattern == NONE else 10}%",
                        "numbers": random.normal(size=len(dense.NAMES)),
                        "visible": [PATTERN["cpu"], NONE],
                    }
                )
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def data(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    frame.to_parquet(folder / "windows.parquet")
    evidence(THREE).to_parquet(folder / "evidence.parquet")
    (folder / "manifest.json").write_text("{}")
    return folder


def test_a_trained_flagger_loads_and_scores_as_it_was_fitted(
    data: Path, frame: pd.DataFrame, tmp_path: Path
) -> None:
    lines = FlaggerExperiment(TINY).train(data, tmp_path)
    assert lines[0].startswith(f"flagger: {len(frame)} windows")
    flagger = LightGBMFlagger(str(tmp_path / "flagger"))
    rows = matrix(frame)[:7]
    scores = flagger.score(rows)
    models = fit(frame, TINY)
    assert scores.cpu == pytest.approx(models["cpu"].predict(rows), rel=1e-6)
    assert scores.classes == pytest.approx(models["classes"].predict(rows), rel=1e-5, abs=1e-7)
    assert flagger.card["traces_by_origin"] == {"recorded": 8, "simulated": 4}
    assert set(flagger.threshold) == {"cpu", "gpu"}


def test_training_twice_writes_the_same_files(data: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        FlaggerExperiment(TINY).train(data, tmp_path / name)
    for name in [*(f"{head}.txt" for head in HEADS), "card.json"]:
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


def test_a_figure_that_is_not_defined_is_null_in_the_file(tmp_path: Path) -> None:
    """JSON has no NaN."""
    frame = windows(THREE, traces=2)  # nothing on the gpu side
    frame.to_parquet(tmp_path / "windows.parquet")
    (tmp_path / "manifest.json").write_text("{}")
    FlaggerExperiment(TINY).evaluate(tmp_path, tmp_path)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    found = json.loads((tmp_path / "flagger.json").read_text(), parse_constant=refuse)
    assert found["window AUC-ROC, gpu side, LightGBM"] == dict.fromkeys(("value", "low", "high"))


@pytest.mark.parametrize("name", ["windows", "evidence"])
def test_an_unfinished_build_is_refused_in_one_line(data: Path, tmp_path: Path, name: str) -> None:
    for file in data.glob("*.parquet"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(DetectorError, match="no finished benchmark") as caught:
        table(tmp_path, name)
    assert "\n" not in str(caught.value)


# -- the judge's experiment ------------------------------------------------------------------------

JUDGE: dict[str, Any] = {
    "vocabulary": 256,
    "width": 16,
    "layers": 1,
    "heads": 2,
    "inner": 16,
    "numbers": 16,
    "epochs": 1,
    "validation": 0.25,
}


@pytest.fixture
def learnt(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The examples that the judge is trained with."""
    from detector.judge import training as judge

    seen: list[Any] = []
    real = judge.train_embedded

    def spy(examples: Any, *rest: Any) -> Any:
        seen.extend(examples)
        return real(examples, *rest)

    monkeypatch.setattr(judge, "train_embedded", spy)
    return seen


def test_recorded_evidence_is_repeated_and_stays_in_its_pair(
    data: Path, tmp_path: Path, learnt: list[Any]
) -> None:
    JudgeExperiment(JUDGE, recorded_repeats=3).train(data, tmp_path)
    rows = pd.read_parquet(data / "evidence.parquet")
    wanted = {
        pair: len(mine) * (3 if mine["origin"].iloc[0] == "recorded" else 1)
        for pair, mine in rows.groupby("pair")
    }
    assert pd.Series([e.group for e in learnt]).value_counts().to_dict() == wanted


def test_pairs_never_stand_on_both_sides_of_the_validation_split() -> None:
    from detector.judge import training as judge

    groups = [f"pair-{i % 9}" for i in range(60)]
    examples = [
        judge.Example("Shares:", np.full(len(dense.NAMES), int(g[5:]), np.float32), NONE, g)
        for g in groups
    ]
    for seed in range(10):
        train, held = judge._split(examples, judge.Settings(validation=0.3), seed)
        left, right = (set(part.numbers[:, 0].tolist()) for part in (train, held))
        assert len(right) == 3
        assert left | right == set(range(9))
        assert not left & right


@pytest.mark.parametrize(
    ("out", "kept"), [(("a",), {"b", "far"}), (("a", "far"), {"b"})], ids=["recorded", "simulated"]
)
def test_the_judge_never_learns_what_it_is_measured_on(
    data: Path, tmp_path: Path, learnt: list[Any], out: tuple[str, ...], kept: set[str]
) -> None:
    lines = JudgeExperiment(JUDGE, held_out=out).evaluate(data, tmp_path)
    assert {e.group.split("-")[0] for e in learnt} == kept
    found = json.loads((tmp_path / "embedded_judge.json").read_text())
    assert len(lines) == len(found) + 1
    for name, figure in found.items():
        assert 0 <= figure["low"] <= figure["value"] <= figure["high"] <= 1, name


def test_a_workload_that_nobody_recorded_cannot_be_measured(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DetectorError, match="no recorded evidence of far"):
        JudgeExperiment(JUDGE, held_out=("far",)).evaluate(data, tmp_path)


def test_an_unknown_setting_of_the_judge_is_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^experiment\.settings: .*'widht'"):
        JudgeExperiment({**JUDGE, "widht": 3}).train(data, tmp_path)


def test_the_judge_s_training_is_deterministic(data: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        JudgeExperiment(JUDGE, seed=2).train(data, tmp_path / name)
    for name in ("embedded_judge.safetensors", "embedded_judge.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
