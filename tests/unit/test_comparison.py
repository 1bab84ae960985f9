"""Flaggers side by side: what is measured, and that every rival keeps the contract."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from detector.comparison import figures, page, regions
from detector.comparison.ablations import plans
from detector.comparison.labelled import Labelled
from detector.comparison.run import ComparisonExperiment, Trees
from detector.comparison.scored import Scored
from detector.errors import DetectorError
from detector.features import COLUMNS
from detector.flagger import Scores
from detector.flagger.baselines import NAMES, rival
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
    limits = {"cpu": 0.5, "gpu": 0.5}
    found = regions.region_figures(scored, limits)
    assert found["regions"] == 6
    keys = ("recall 0.5", "precision 0.5", "class accuracy", "class top 3", "class macro F1")
    assert [found[key].value for key in keys] == [1, 1, 1, 1, 1]
    assert found["alarms per healthy trace"].value == 0
    assert found["healthy traces without alarm"] == found["healthy traces"] == 6
    told = {(p["true"], p["told"], p["count"]) for p in found["confusion"]}
    assert told == {(CPU, CPU, 3), (GPU, GPU, 3)}
    assert figures.window_figures(scored, "cpu")["AUC"].value == 1


def test_scores_that_only_tell_traces_apart_are_a_half_within_them() -> None:
    frame = table()
    faulty = frame.groupby("trace")["cpu"].transform("max").to_numpy(np.float32)
    found = figures.window_figures(Scored(frame, replace(perfect(frame), cpu=faulty)), "cpu")
    assert found["AUC"].value > 0.9
    assert found["within"].value == 0.5


def test_a_curve_runs_from_the_surest_window_to_all_of_them() -> None:
    frame = table()
    found = figures.curves(Scored(frame, perfect(frame)), "cpu")
    assert found is not None
    assert found.false_share.tolist() == [0, 1]
    assert found.recall.tolist() == [1, 1]
    assert found.precision.tolist() == [1, pytest.approx(24 / 288)]
    blank = frame.assign(cpu=0.0)
    assert figures.curves(Scored(blank, perfect(frame)), "cpu") is None


OTHER = "sync-explicit"  # another pattern of the cpu side


def labels(*rows: tuple[str, float, float, str]) -> Labelled:
    """Regions (trace, start_us, end_us, pattern) of the cpu side."""
    frame = pd.DataFrame(rows, columns=["trace", "start_us", "end_us", "pattern"])
    return Labelled(frame.assign(side="cpu"))


@pytest.mark.parametrize(
    ("regions_there", "accuracy", "second"),
    [
        ([("t1", 80.0, 160.0, CPU)], 0.0, 0),
        ([("t1", 80.0, 160.0, CPU), ("t1", 120.0, 400.0, OTHER)], 1.0, 1),
        ([("t1", 80.0, 160.0, CPU), ("t1", 121.0, 400.0, OTHER)], 0.0, 0),
        ([("t1", 80.0, 160.0, CPU), ("t1", 80.0, 160.0, "unknown")], 0.0, 0),
    ],
    ids=["alone", "half of it", "less than half", "unknown is no label"],
)
def test_any_label_over_half_of_the_shared_span_is_right(
    regions_there: list[tuple[str, float, float, str]], accuracy: float, second: int
) -> None:
    frame = table(2)  # t1 is faulty from 80 to 160 µs
    scores = replace(perfect(frame), classes=perfect(frame.assign(pattern=OTHER)).classes)
    scored = Scored(frame, scores, labels(*regions_there))
    found = regions.region_figures(scored, {"cpu": 0.5, "gpu": 0.5})
    assert found["class accuracy"].value == found["class top 3"].value == accuracy
    assert found["right by another label"] == second
    assert found["confusion"] == [{"true": OTHER if second else CPU, "told": OTHER, "count": 1}]


def test_a_place_whose_row_names_the_other_side_is_named_by_its_labels() -> None:
    frame = table(2).assign(pattern=GPU)
    scored = Scored(frame, perfect(table(2)), labels(("t1", 80.0, 160.0, CPU)))
    assert [CLASSES[run.pattern] for run in scored.true_runs("cpu")] == [CPU]
    bare = Scored(frame, perfect(table(2)))
    assert [run.pattern for run in bare.true_runs("cpu")] == [-1]
    assert regions.region_figures(bare, {"cpu": 0.5, "gpu": 0.5})["matched"] == 0


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
    found = regions.region_figures(
        Scored(frame, replace(scores, cpu=cpu)), {"cpu": 0.5, "gpu": 0.5}
    )
    assert found["alarms per healthy trace"].value == 0.5
    assert found["precision 0.3"].value == pytest.approx(2 / 4)


def test_what_nobody_knows_counts_for_nothing() -> None:
    frame = table(4)
    frame.loc[frame["trace"] == "t0", "unknown_cpu"] = 1.0
    scores = perfect(frame)
    cpu = scores.cpu.copy()
    cpu[:ROWS] = 1
    found = regions.region_figures(
        Scored(frame, replace(scores, cpu=cpu)), {"cpu": 0.5, "gpu": 0.5}
    )
    assert found["alarms per healthy trace"].value == 0


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
        inside = frame[frame["pattern"] != NONE]
        where = inside.groupby("trace", as_index=False).agg(
            start_us=("start_us", "min"), end_us=("end_us", "max"), pattern=("pattern", "first")
        )
        where["side"] = np.where(where["pattern"] == CPU, "cpu", "gpu")
        tables = {"windows": frame.drop(columns="extent"), "traces": traces, "regions": where}
        for name, content in tables.items():
            (tmp_path / "tables" / name).mkdir(parents=True, exist_ok=True)
            content.to_parquet(tmp_path / "tables" / name / f"{part}.parquet")
    (tmp_path / "manifest.json").write_text("{}")
    return tmp_path


def test_the_comparison_writes_a_page_with_its_plots(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    experiment = ComparisonExperiment(TINY, rivals=("rules", "k-means"), ablations=False)
    lines = experiment.evaluate(data, out)
    kept = json.loads((out / "comparison.json").read_text())
    found = kept["tests"]["in distribution"]
    assert set(found["flaggers"]) == {"LightGBM", "rules", "k-means"}
    assert found["flaggers"]["LightGBM"]["windows"]["cpu"]["AUC"]["value"] > 0.95
    assert found["flaggers"]["LightGBM"]["windows"]["cpu"]["within"]["value"] > 0.95
    text = (out / "RESULTS.md").read_text()
    assert text == page.render(kept)
    assert "in distribution" in text
    assert lines[-1].endswith("RESULTS.md")
    shown = re.findall(r"\]\((results/[^)]+\.png)\)", text)
    assert len(shown) == 3
    for name in shown:
        assert 2_000 < (out / name).stat().st_size < 60_000


def test_the_page_takes_in_what_lies_beside_it(data: Path, tmp_path: Path) -> None:
    estimate = {"value": 0.5, "low": 0.25, "high": 0.75}
    flagger = {
        "fit_s": 1.0,
        "us_per_window": 2.0,
        "windows": {s: dict.fromkeys(("AUC", "within", "AP"), estimate) for s in ("cpu", "gpu")},
        "extent": {"cpu": {}, "gpu": {}},
        "patterns": {},
        "regions": {
            **dict.fromkeys(
                ("recall 0.3", "recall 0.5", "precision 0.3", "precision 0.5")
                + ("alarms per healthy trace", "class accuracy", "class top 3", "class macro F1"),
                estimate,
            ),
            "regions": 1,
            "healthy traces": 1,
            "healthy traces without alarm": 0,
            "matched": 3,
            "right by another label": 1,
            "confusion": [{"true": CPU, "told": OTHER, "count": 2}],
        },
    }
    test = {
        "train traces": 1,
        "test traces": 1,
        "test windows": 1,
        "flaggers": {"LightGBM": flagger},
    }
    out = tmp_path / "out"
    (out / "results").mkdir(parents=True)
    results = {"windows": 1, "traces": 1, "tests": {"natural": test}}
    (out / "comparison.json").write_text(json.dumps(results))
    group = {
        "pairs": 2,
        "realised": [0.0, 0.1, 0.2],
        "claim_error": [-0.1, 0.05, 0.1],
        "claim_rank": 0.5,
        "found": 0.5,
        "product_error": None,
        "product_rank": None,
    }
    origins = {"recorded": {"how": "measured", "groups": {"all": group}}}
    pairs = {"measurable": 0.05, "trained_on": "On others.", "origins": origins}
    (out / "results" / "pairs.json").write_text(json.dumps(pairs))
    (out / "results" / "errors.md").write_text("## The ten worst errors\n\nBy hand.\n")
    lines = ComparisonExperiment(page_only=True).evaluate(data, out)
    assert "By hand." in lines
    shown = "+10.0 % [+0.0 %, +20.0 %] | +5.0 % [-10.0 %, +10.0 %] | 0.500 | 0.500 | – | – |"
    assert f"| all | 2 | {shown}" in lines
    assert f"| {CPU} | {OTHER} | 2 |" in lines


def test_a_file_that_no_script_wrote_is_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "pairs.json").write_text("{}")
    with pytest.raises(DetectorError, match=r"pairs\.json: write it anew"):
        ComparisonExperiment(TINY).evaluate(data, tmp_path)


def test_a_page_of_nothing_is_an_error(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DetectorError, match="no comparison"):
        ComparisonExperiment(page_only=True).evaluate(data, tmp_path / "none")


def test_ablations_cover_scales_themes_origins_and_amounts() -> None:
    frame = table(20)
    frame.loc[frame["trace"] == "t3", "origin"] = "injected"
    found = plans(frame, 0)
    assert {"everything", "only device features", "without injected traces"} <= found.keys()
    for kind in ("features", "values"):
        split = [
            set(c) for name, (_, c) in found.items() if name.startswith("only") and kind in name
        ]
        assert sum(map(len, split)) == len(COLUMNS)
        assert set.union(*split) == set(COLUMNS)
    assert found["10% of the traces"][0]["trace"].nunique() == 2
    assert found["only injected traces"][0]["trace"].unique().tolist() == ["t3"]


def test_there_is_nothing_to_train(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DetectorError, match=r"detector\.evaluate"):
        ComparisonExperiment(TINY).train(data, tmp_path)
