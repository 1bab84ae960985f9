"""``python -m dataset.score``: what it reads, prints and refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dataset import score
from detector.report import Finding, Report, to_json

GC = "host-gc-pause"
GOOD = {
    "trace": "recorded/bad",
    "pattern": GC,
    "start_us": 1100,
    "end_us": 1200,
    "confidence": 0.9,
    "savings_us": 110,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A benchmark's manifest and tables, nothing else."""
    about = {"workload": "w", "split": "test"}
    traces = [
        about | {"trace": "recorded/bad", "origin": "recorded", "base": "", "healthy": False},
        about | {"trace": "recorded/good", "origin": "recorded", "base": "", "healthy": True},
        about | {"trace": "injected/b/000", "origin": "injected", "base": "b", "healthy": False},
        about | {"trace": "injected/b/001", "origin": "injected", "base": "b", "healthy": False},
        about
        | {"trace": "learned", "origin": "recorded", "base": "", "healthy": True}
        | {"split": "train"},
    ]
    lasts = {"trace": [t["trace"] for t in traces], "start_us": 1000.0, "end_us": 2000.0}
    regions = [
        ("recorded/bad", 1100, 1150, GC, 60, False),
        ("recorded/bad", 1150, 1200, GC, 40, False),
        ("injected/b/000", 1000, 2000, "unknown", None, False),
        ("injected/b/001", 1100, 1200, GC, 100, False),
        ("injected/b/001", 1200, 2000, "unknown", None, False),
    ]
    heads = ["trace", "start_us", "end_us", "pattern", "cost_us", "harmless"]
    content = {
        "traces": pd.DataFrame(traces).assign(analyzed_us=1000.0),
        "regions": pd.DataFrame(regions, columns=heads).assign(side="cpu"),
        "windows": pd.DataFrame(lasts),
    }
    data = tmp_path / "benchmark"
    for name, frame in content.items():
        write(data, name, frame)
    (data / "manifest.json").write_text("{}")
    return data


def write(data: Path, name: str, frame: pd.DataFrame) -> None:
    (data / "tables" / name).mkdir(parents=True, exist_ok=True)
    frame.to_parquet(data / "tables" / name / "test.parquet")


def lines(folder: Path, *rows: Mapping[str, Any]) -> Path:
    file = folder.parent / "predictions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert score.main([str(word) for word in words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def figures(out: Path, group: str = "all origins", how: str = "masked") -> Any:
    return json.loads(out.read_text())["groups"][group][how]


def test_lines_of_any_tool_are_scored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = GOOD | {"trace": "recorded/good", "pattern": "sync-explicit", "confidence": 0.3}
    out = folder.parent / "out" / "scores.json"
    words = [lines(folder, GOOD, wrong, {"trace": "learned"}), folder, "--json", out]
    assert score.main([str(word) for word in words]) == 0
    found = figures(out)
    assert (found["traces"], found["missing"], found["healthy"]) == (2, 2, 1)
    assert found["kinds"] == {"right": 1, "wrong": 1}
    assert found["figures"]["precision"]["value"] == 0.5
    assert found["figures"]["recall"]["value"] == 1.0
    assert found["figures"]["wrong_per_healthy"]["value"] == 1.0
    said = capsys.readouterr().out
    assert "2 traces scanned, 2 without a prediction" in said
    assert "1 predicted traces lie outside test, natural" in said
    assert "| recorded, unmasked" in said


def test_the_constant_answer_has_a_row_where_training_traces_have_problems(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = lines(folder, GOOD, {"trace": "recorded/good"}), folder.parent / "scores.json"
    score.main([str(file), str(folder)])
    assert "No row of a constant answer: no costly problem in 1 training" in capsys.readouterr().out
    regions = pd.read_parquet(folder / "tables" / "regions")
    learned = regions[regions["trace"] == "recorded/bad"].assign(trace="learned")
    write(folder, "regions", pd.concat([regions, learned], ignore_index=True))
    score.main([str(file), str(folder), "--json", str(out)])
    assert f"The constant answer: {GC} saves 10% of every trace" in capsys.readouterr().out
    found = figures(out, "constant answer")
    assert found["traces"] == 2
    assert found["figures"]["recall"]["value"] == 1.0  # it covers the label
    assert found["figures"]["precision"]["value"] == 0.5
    assert found["figures"]["wrong_per_healthy"]["value"] == 1.0


def test_a_folder_of_reports_and_lists_is_scored(folder: Path) -> None:
    reports, out = folder.parent / "reports", folder.parent / "scores.json"
    reported = Finding("", GC, "cpu", 1100, 1200, confidence=0.8, estimated_savings_us=100)
    bare = {k: v for k, v in GOOD.items() if k != "trace"}
    for name, text in {
        "recorded/bad": to_json(Report(findings=(reported,))),
        "recorded/good": to_json(Report()),
        "injected/b/000": "[]",
        "injected/b/001": json.dumps([bare | {"occurrences": [[1100, 1150], [1170, 1200]]}]),
    }.items():
        file = reports / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    score.main([str(reports), str(folder), "--json", str(out)])
    assert figures(out)["kinds"] == {"right": 2}
    assert figures(out)["missing"] == 0
    paired = json.loads(out.read_text())["paired"]
    assert paired["traces"] == 1
    assert paired["all"]["within_2x"]["value"] == 1.0


def test_the_module_runs_as_a_program(folder: Path, checkout: Path) -> None:
    import subprocess

    command = [sys.executable, "-m", "dataset.score", lines(folder, GOOD), folder]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    assert "## Findings" in done.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trace": "recorded/other"}, "no trace of the benchmark is called 'recorded/other'"),
        ({"trace": None}, "trace is missing"),
        ({"pattern": "host-nap"}, "no pattern is called 'host-nap'"),
        ({"pattern": 3}, "pattern is no text"),
        ({"savings_us": float("nan")}, "savings_us must be a finite number, not nan"),
        ({"start_us": float("-inf")}, "start_us must be a finite number, not -inf"),
        ({"end_us": 10**400}, "end_us must be a finite number"),
        ({"confidence": True}, "confidence must be a finite number, not True"),
        ({"confidence": 1.1}, "confidence 1.1 is not in [0, 1]"),
        ({"savings_us": -1}, "savings_us -1.0 is below 0"),
        ({"end_us": 1000}, "ends at 1000.0, before it starts at 1100.0"),
        ({"occurrences": []}, "occurrences must be a list of [start_us, end_us] pairs"),
        ({"occurrences": [[1]]}, "occurrences must be a list of [start_us, end_us] pairs"),
        ({"savings": 1}, "no field is called 'savings'"),
    ],
)
def test_a_field_that_does_not_fit_is_named_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], said: str
) -> None:
    file = lines(folder, GOOD, GOOD | change)
    assert f"{file}:2: {said}" in refused(capsys, file, folder)


def test_a_missing_field_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = lines(folder, {"trace": "recorded/bad", "pattern": GC, "end_us": 5})
    assert f"{file}:1: start_us, confidence, savings_us missing" in refused(capsys, file, folder)


def test_nothing_to_score_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no predictions" in refused(capsys, lines(folder), folder)
    empty = folder.parent / "empty"
    empty.mkdir()
    assert f"{empty}: no predictions" in refused(capsys, empty, folder)
    assert "no such file or folder" in refused(capsys, empty / "x", folder)
    learned = lines(folder, {"trace": "learned"})
    assert "no prediction of a trace in test, natural" in refused(capsys, learned, folder)
    assert "no scheme 'nap'" in refused(capsys, learned, folder, "--scheme", "nap")
    assert "no traces in tset of split" in refused(capsys, learned, folder, "--parts", "tset")


def test_files_that_are_no_predictions_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = folder.parent / "reports"
    reports.mkdir()
    file = reports / "learned.json"
    for text, said in {
        "{": "no JSON",
        '{"findings": 3}': "not a report of schema 2",
        "[3]": "[0]: no prediction, which is a JSON object",
        json.dumps([GOOD]): "its trace is 'recorded/bad', its file says 'learned'",
    }.items():
        file.write_text(text)
        assert said in refused(capsys, reports, folder)
    other = file.rename(reports / "other.json")
    assert f"{other}: no trace of the benchmark is called 'other'" in refused(
        capsys, reports, folder
    )
    file = lines(folder)
    file.write_bytes(b"\xff")
    assert f"{file}: " in refused(capsys, file, folder)
    file.write_text('"text"\n')
    assert f"{file}:1: no prediction, which is a JSON object" in refused(capsys, file, folder)


def test_a_benchmark_without_costs_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = lines(folder, GOOD)
    regions = pd.read_parquet(folder / "tables" / "regions")
    write(folder, "regions", regions.assign(cost_us=float("nan")))
    assert f"recorded/bad: a labeled region of {GC} has no cost_us" in refused(capsys, file, folder)
    write(folder, "regions", regions.drop(columns="cost_us"))
    assert "its regions have no cost_us: build it anew" in refused(capsys, file, folder)
    (folder / "manifest.json").unlink()
    assert "no finished benchmark" in refused(capsys, file, folder)
