"""The evaluation on programs never seen: folds, findings, the log of looks, and the pages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from detector.config import compose
from detector.errors import ConfigError, DetectorError
from detector.features import COLUMNS
from detector.features.candidate import COLUMNS as NUMBERS
from detector.flagger import Scores
from detector.lab.comparison import ablations, benchmark, findings, looks
from detector.lab.comparison.contenders import OURS, SHIPS
from detector.lab.comparison.findings import BOTH, CONSTANT, CORE, PRODUCT
from detector.lab.comparison.folds import fewer, folds, groups, known_programs
from detector.lab.comparison.run import StrangersExperiment
from detector.lab.comparison.scored import Scored
from detector.lab.comparison.strangers import Part, together
from detector.lab.confidence import Candidates, ConfidenceTraining
from detector.lab.scoring import Prediction, read_truths
from detector.taxonomy import NONE
from tests.windows import CPU, GPU, TINY, perfect, table
from tests.windows import ROWS as WINDOWS

pytest.importorskip("optuna", reason="tuning needs the train extra")
pytest.importorskip("matplotlib", reason="the plots need the train extra")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A built benchmark of four parts, as far as the evaluation reads it. Every trace has two
    candidates; the first of a faulty one is its fault."""
    folder = tmp_path / "data"
    for part, seed in (("train", 0), ("validation", 1), ("test", 2), ("natural", 3)):
        frame = table(8, seed=seed, prefix=part, programs=3)
        frame["workload"] = part + frame["workload"]
        about = ["origin", "workload", "extent", "quality", "healthy"]
        traces = frame.groupby("trace", as_index=False)[about].first()
        traces = traces.assign(split=part, base="", analyzed_us=240.0)
        if part == "natural":
            frame["origin"] = traces["origin"] = "natural"
        inside = frame[frame["pattern"] != NONE]
        where = inside.groupby("trace", as_index=False).agg(
            start_us=("start_us", "min"), end_us=("end_us", "max"), pattern=("pattern", "first")
        )
        where["side"] = np.where(where["pattern"] == CPU, "cpu", "gpu")
        where = where.assign(cost_us=60.0, harmless=False)
        windows = frame.drop(columns=["extent", "cluster", "healthy"])
        tables = {"windows": windows, "traces": traces, "regions": where}
        tables["candidates"] = candidate_rows(frame)
        for name, content in tables.items():
            (folder / "tables" / name).mkdir(parents=True, exist_ok=True)
            content.to_parquet(folder / "tables" / name / f"{part}.parquet")
    (folder / "manifest.json").write_text("{}")
    return folder


def candidate_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each trace one with the fault's place and size, known by its share, and a smaller one."""
    rows = []
    for trace, mine in frame.groupby("trace", sort=False):
        about = {"trace": trace, "origin": mine["origin"].iloc[0]}
        fault = (mine["gpu"] > 0).any()
        for pattern, savings in ((GPU if fault else CPU, 60.0), ("sync-explicit", 20.0)):
            numbers = np.zeros(len(NUMBERS), np.float32)
            numbers[NUMBERS.index("share")] = (mine["pattern"] == pattern).any()
            row = {"pattern": pattern, "savings_us": savings, "numbers": numbers}
            rows.append(about | row | {"starts_us": [80.0], "ends_us": [160.0]})
    return pd.DataFrame(rows)


LEARN_AT_ONCE = {"min_data_in_leaf": 2, "min_data_per_group": 1, "num_threads": 1}


def experiment(**settings: object) -> StrangersExperiment:
    return StrangersExperiment(
        TINY,
        ConfidenceTraining(parameters=LEARN_AT_ONCE),
        **{  # type: ignore[arg-type]
            "rows": ("constant", "largest saving", "isolation forest", OURS),
            "folds": 2,
            "trials": 2,
            "ablations": False,
            "workers": 1,
            **settings,
        },
    )


def test_a_program_is_scored_once_by_models_that_never_saw_it(data: Path) -> None:
    read = benchmark.read(data)
    cut = list(folds(read, 3))
    assert sum(fold.test for fold in cut).tolist() == [1] * len(read.windows)
    for fold in cut:
        programs = read.windows["workload"]
        assert not set(programs[fold.test]) & set(programs[fold.train])
        assert not set(programs[fold.inner]) & set(programs[fold.valid])
        assert not (fold.inner & ~fold.train).any()
        assert not (read.of_origin("natural") & fold.train).any()
        assert fold.valid.any()


def test_simulated_programs_are_never_left_out() -> None:
    frame = table(6, programs=3)
    frame.loc[frame["workload"] == "w0", "origin"] = "simulated"
    assert sorted(groups(frame, 5)) == [("w1",), ("w2",)]
    with pytest.raises(DetectorError, match="leaving one out"):
        groups(frame[frame["workload"] != "w2"], 5)


def test_fewer_windows_are_those_of_whole_traces() -> None:
    frame = table(6)
    kept = fewer(frame, np.ones(len(frame), np.bool_), 60, 0)
    assert kept.sum() == 2 * WINDOWS
    assert frame["trace"][kept].nunique() == 2
    assert fewer(frame, kept, 60, 0) is kept


def test_known_programs_are_trained_on_but_not_their_tested_traces(data: Path) -> None:
    read = benchmark.read(data)
    fold = known_programs(read, 0.5, 0)
    names, programs = read.windows["trace"], read.windows["workload"]
    assert not set(names[fold.test]) & set(names[fold.train])
    assert set(programs[fold.test]) == set(programs[fold.train])


def test_folds_are_put_together_by_trace_and_time(data: Path) -> None:
    read = benchmark.read(data)
    parts = []
    for fold in folds(read, 2):
        frame = read.windows[fold.test]
        scores = perfect(frame)
        parts.append(Part(frame, scores, {"cpu": scores.cpu > 0, "gpu": scores.gpu > 0}))
    found = together(parts)
    assert found.frame["trace"].tolist() == read.windows["trace"].tolist()
    assert (found.scores.cpu == read.windows["cpu"].to_numpy(np.float32)).all()
    assert (found.flagged["gpu"] == (read.windows["gpu"] > 0)).all()


def candidates_of(*found: Prediction, device: bool = True) -> Candidates:
    """Candidates of a recorded program, of which nothing else is known."""
    n = len(found)
    matrix = np.zeros((n, len(NUMBERS)), np.float32)
    matrix[:, NUMBERS.index("device")] = device
    words = [np.full(n, word) for word in ("recorded", "w", "wrong")]
    traces = np.array([one.trace for one in found], np.str_)
    return Candidates(matrix, traces, *words, np.full(n, 0.1), found)


def candidate(start: float, end: float, pattern: str = CPU, trace: str = "t1") -> Prediction:
    return Prediction(trace, pattern, ((start, end),), 1.0, 30.0)


def test_a_candidate_is_kept_where_a_window_of_its_side_is_flagged_in_its_places() -> None:
    frame = table(2)  # windows of 10 us; t1 is faulty on the cpu side
    score = np.zeros(len(frame), np.float32)
    score[[WINDOWS + 4, WINDOWS + 5, 2]] = 0.6, 0.7, 0.9
    is_high = score > 0
    scored = Scored(frame, Scores(score, score), {"cpu": is_high, "gpu": np.zeros_like(is_high)})
    found = findings.flagged(
        candidates_of(
            candidate(49, 120),
            candidate(40, 50),
            candidate(60, 240),
            candidate(40, 60, GPU),
            candidate(0, 240, trace="unheard of"),
        ),
        scored,
    )
    assert found == pytest.approx([0.7, 0.6, np.nan, np.nan, np.nan], nan_ok=True)


def test_every_row_chooses_among_the_same_candidates(data: Path) -> None:
    read = benchmark.read(data)
    cut = list(folds(read, 2))
    names = sorted(read.windows["trace"].unique())
    rows = candidates_of(*(candidate(80, 160, trace=name) for name in names))
    confidence = np.where(np.arange(len(names)) % 2, 0.5, 0.49)
    scores = perfect(read.windows)
    flags = {"cpu": scores.cpu > 0, "gpu": scores.gpu > 0}
    scored = {row: Scored(read.windows, scores, flags) for row in ("constant", "rules", SHIPS)}
    found = findings.rows_of(read_truths(data), read, cut, rows, confidence, scored)
    assert list(found) == [CONSTANT, CORE, "rules", SHIPS, PRODUCT, BOTH]
    assert all(set(of) == set(names) for of in found.values())
    faulty = {name for name, mine in read.windows.groupby("trace") if mine["cpu"].any()}
    kept = {row: {name for name, of in found[row].items() if of} for row in found}
    assert kept[CORE] == set(names)
    assert kept["rules"] == faulty
    assert kept[PRODUCT] == set(names[1::2])
    assert kept[BOTH] == faulty & set(names[1::2])
    assert {one.confidence for of in found[CORE].values() for one in of} == {0.5}
    assert {one.confidence for of in found[PRODUCT].values() for one in of} == {0.5}
    assert {one.confidence for of in found["rules"].values() for one in of} == {1.0}
    (one,) = found[PRODUCT][names[1]]
    assert (one.pattern, one.spans_us, one.savings_us) == (CPU, ((80, 160),), 30)


def test_one_command_measures_writes_its_pages_and_logs_its_look(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detector.lab.comparison.findings.ROUNDS", 50)  # of the bootstrap
    out = tmp_path / "out"
    lines = experiment().evaluate(data, out)
    kept = json.loads((out / "results" / "strangers.json").read_text())
    rows = kept["windows"][benchmark.CPU]
    assert set(rows) == {"constant", "largest saving", "isolation forest", OURS, SHIPS}
    for way in ("masked", "unmasked"):
        assert rows[SHIPS]["figures"][way]["cpu AUC"]["value"] > 0.95
        assert rows[SHIPS]["flagger minus this"][way]["cpu AUC"]["value"] == 0
        assert rows["largest saving"]["flagger minus this"][way]["cpu AUC"]["low"] > 0
    found = kept["findings"][benchmark.CPU]
    assert set(found) == {CONSTANT, CORE, PRODUCT, BOTH, *rows} - {"constant"}
    assert found[PRODUCT]["masked"]["figures"]["precision"]["value"] == 1
    assert found[PRODUCT]["masked"]["figures"]["recall"]["value"] == 1
    assert found[CORE]["masked"]["figures"]["precision"]["value"] == 0.25
    assert found[CORE]["product minus this"]["masked"]["precision"]["low"] > 0
    assert kept["tuning"]["isolation forest"]["trials"] == 2
    text = (out / "RESULTS.md").read_text()
    assert lines[-1].endswith("RESULTS.md")
    for name in re.findall(r"\]\((results/[^)#]+)\)", text):
        assert (out / name).is_file()
    assert looks.count(out / "results" / "looks.md") == 1
    experiment(page_only=True).evaluate(data, out)
    assert looks.count(out / "results" / "looks.md") == 1
    assert (out / "RESULTS.md").read_text() == text


def test_a_page_of_nothing_is_an_error(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DetectorError, match="nothing measured"):
        experiment(page_only=True).evaluate(data, tmp_path / "none")
    with pytest.raises(ConfigError, match="no k-means"):
        experiment(rows=("k-means",)).evaluate(data, tmp_path / "none")
    with pytest.raises(DetectorError, match=r"detector\.evaluate"):
        experiment().train(data, tmp_path)


def test_a_look_is_one_line_and_decisions_stay(tmp_path: Path) -> None:
    file = tmp_path / "looks.md"
    assert looks.add(file, "2026-11-22", "abc", "command a|b", ["test"]) == 1
    text = file.read_text().replace("| test |  |", "| test | nothing |")
    file.write_text(text)
    assert looks.add(file, "2026-11-23", "def", "command", ["test", "natural"]) == 2
    lines = file.read_text().splitlines()
    assert lines[-2].endswith("| test | nothing |")
    assert lines[-1] == "| 2026-11-23 | def | `command` | test, natural |  |"


def test_ablations_cover_scales_themes_savings_origins_and_amounts() -> None:
    found = ablations.plans()
    assert {"everything", "without savings features", "only savings features"} <= found.keys()
    assert {ablations.INJECTED, "only recorded traces", "10% of the traces"} <= found.keys()
    seen = [
        set(found[name].columns) for name in ("without savings features", "only savings features")
    ]
    assert set.union(*seen) == set(COLUMNS)
    assert not set.intersection(*seen)
    frame = table(20)
    frame.loc[frame["trace"] == "t3", "origin"] = "injected"
    everything = np.ones(len(frame), np.bool_)
    assert frame["trace"][~found[ablations.INJECTED].kept(frame, everything, 0)].unique() == ["t3"]
    assert found["10% of the traces"].kept(frame, everything, 0).sum() == 2 * WINDOWS


def test_an_ablation_is_measured_on_known_and_on_unseen_programs(data: Path) -> None:
    read = benchmark.read(data)
    plan = ablations.Ablation(COLUMNS[:40])
    cut = list(folds(read, 2))
    assert ablations.measure(plan, TINY, read, cut, 10_000)[benchmark.CPU].value > 0.9
    assert ablations.measure(ablations.Ablation(only="injected"), TINY, read, cut, 10_000) == {}


def test_what_is_measured_is_trained_as_what_ships() -> None:
    measured = compose("evaluate", ["experiment=strangers", "data=x"]).build("experiment")
    for name in ("flagger", "confidence"):
        ships = compose("train", [f"experiment={name}", "data=x"]).build("experiment")
        mine = getattr(measured, name)
        assert replace(mine, parameters={}) == replace(ships.settings, parameters={})
    assert ships.same == measured.same
