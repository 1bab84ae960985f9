"""The evaluation on programs never seen: folds, findings, the log of looks, and the pages."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from detector.lab.comparison.product import Recipe

from detector import kineto
from detector.errors import ConfigError, DetectorError
from detector.features import COLUMNS
from detector.lab.comparison import ablations, benchmark, looks, scans
from detector.lab.comparison.contenders import OURS
from detector.lab.comparison.folds import fewer, folds, groups, known_programs
from detector.lab.comparison.run import StrangersExperiment, scan_sample
from detector.lab.comparison.scored import Scored
from detector.lab.comparison.strangers import Part, together
from detector.taxonomy import NONE
from detector.window import judge_time
from tests.windows import CPU, TINY, perfect, table
from tests.windows import ROWS as WINDOWS

ROOT = Path(__file__).resolve().parent.parent.parent
TRACE = ROOT / "dataset" / "recorded" / "cpu" / "classifier-plain-0-22fe.json.gz"

pytest.importorskip("optuna", reason="tuning needs the train extra")
pytest.importorskip("matplotlib", reason="the plots need the train extra")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A built benchmark of five parts, as far as the evaluation reads it; its traces are one."""
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copy(TRACE, folder / "trace.json.gz")
    for part, seed in (("train", 0), ("validation", 1), ("test", 2), ("natural", 3)):
        frame = table(8, seed=seed, prefix=part, programs=3)
        frame["workload"] = part + frame["workload"]
        about = ["origin", "workload", "extent", "quality", "healthy"]
        traces = frame.groupby("trace", as_index=False)[about].first()
        traces = traces.assign(split=part, base="", file="trace.json.gz", analyzed_us=240.0)
        if part == "natural":
            frame["origin"] = traces["origin"] = "natural"
        inside = frame[frame["pattern"] != NONE]
        where = inside.groupby("trace", as_index=False).agg(
            start_us=("start_us", "min"), end_us=("end_us", "max"), pattern=("pattern", "first")
        )
        where["side"] = np.where(where["pattern"] == CPU, "cpu", "gpu")
        where = where.assign(cost_us=60.0, harmless=False)
        windows = frame.drop(columns=["extent", "cluster", "healthy"])
        for name, content in {"windows": windows, "traces": traces, "regions": where}.items():
            (folder / "tables" / name).mkdir(parents=True, exist_ok=True)
            content.to_parquet(folder / "tables" / name / f"{part}.parquet")
    (folder / "manifest.json").write_text("{}")
    return folder


def experiment(**settings: object) -> StrangersExperiment:
    return StrangersExperiment(
        Recipe(TINY),
        **{  # type: ignore[arg-type]
            "rows": ("constant", "largest claim", "claims only", "isolation forest", OURS),
            "folds": 2,
            "trials": 2,
            "ablations": False,
            "with_product": False,
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
    found = together(parts, read)
    assert found.frame["trace"].tolist() == read.windows["trace"].tolist()
    assert (found.scores.cpu == read.windows["cpu"].to_numpy(np.float32)).all()
    assert (found.flagged["gpu"] == (read.windows["gpu"] > 0)).all()


def test_a_flagged_window_is_suspected_of_the_likeliest_pattern_of_its_side() -> None:
    frame = table(2)
    scores = perfect(frame)
    scored = Scored(frame, scores, {"cpu": scores.cpu > 0, "gpu": scores.gpu > 0})
    found = scans.suspicions(scored)
    assert found["t0"] == []
    (one,) = found["t1"]
    assert (one.pattern, one.confidence) == (CPU, 1)
    assert one.spans.start.tolist() == [80_000]
    assert one.spans.end.tolist() == [160_000]


def test_claims_alone_suspect_every_pattern_that_claims_anything() -> None:
    frame = table(1)
    frame[[c for c in COLUMNS if c.startswith("claim_") and "@" not in c]] = 0.0
    frame.loc[2:3, "claim_host_gc_pause"] = 0.4
    frame.loc[3, "claim_memory_dtype_churn"] = 0.005
    (one,) = scans.claims(frame)["t0"]
    assert (one.pattern, one.start.tolist()) == (CPU, [20_000, 30_000])


def test_findings_claim_disjoint_time_in_the_windows_that_pay() -> None:
    judged = judge_time(kineto.read(TRACE))
    edges = np.linspace(judged.start, judged.end, 9).astype(np.int64)
    patterns = ("host-python-overhead", "infer-autograd", "comm-exposed")
    mine = [scans.Suspicion(p, edges[:-1], edges[1:], 0.7) for p in patterns]
    found = scans.scan_one(scans.Job("t", TRACE, None, {"one": mine, "nothing": []}))
    assert found["nothing"] == []
    assert {p.pattern for p in found["one"]} <= set(patterns[:2])
    assert 0 < sum(p.savings_us for p in found["one"]) <= (judged.end - judged.start) / 1e3
    for one in found["one"]:
        assert one.confidence == 0.7
        assert all(judged.start / 1e3 <= a < b <= judged.end / 1e3 for a, b in one.spans_us)


def test_injected_traces_may_be_scanned_in_part_but_never_without_their_base(data: Path) -> None:
    read = benchmark.read(data)
    read.windows["origin"] = "injected"
    names = scan_sample(read, 0.5, 0)
    quality = read.windows.groupby("trace")["quality"].first()
    assert (quality[names] == "good").sum() == (quality == "good").sum()
    assert (quality[names] == "bad").sum() == (quality == "bad").sum() / 2


def test_one_command_measures_writes_its_pages_and_logs_its_look(
    data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    lines = experiment().evaluate(data, out)
    kept = json.loads((out / "results" / "strangers.json").read_text())
    rows = kept["windows"][benchmark.CPU]
    assert set(rows) == {"constant", "largest claim", "claims only", "isolation forest", OURS}
    for row, of in rows.items():
        for way in ("masked", "unmasked"):
            figures = of["figures"][way]
            if row == OURS:
                assert figures["cpu AUC"]["value"] > 0.95
                assert of["ours minus this"][way]["cpu AUC"]["value"] == 0
    findings = kept["findings"][benchmark.CPU]
    assert set(findings) == set(rows)
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


def test_ablations_cover_scales_themes_claims_origins_and_amounts() -> None:
    found = ablations.plans()
    assert {"everything", "without claims features", "only claims features"} <= found.keys()
    assert {ablations.INJECTED, "only recorded traces", "10% of the traces"} <= found.keys()
    seen = [
        set(found[name].columns) for name in ("without claims features", "only claims features")
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
