"""The example predictions: written in the format that ``dataset.score`` reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detector.lab.scoring import read_predictions
from detector.lab.scoring.prediction import Prediction
from scripts import example_predictions
from scripts.example_predictions import EXAMPLES, lines

ONE = Prediction("a/1", "host-gc-pause", ((10.0, 20.5), (40.0, 50.0)), 0.75, 12.5)
WHOLE = Prediction("a/2", "sync-explicit", ((1.0, 3.0),), 0.5, 0.0)


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    predictions = {"a/2": [WHOLE], "a/1": [ONE], "a/3": []}
    file = tmp_path / "some.jsonl"
    file.write_text("\n".join(lines(predictions)))
    assert read_predictions(file, predictions.keys()) == predictions
    assert [json.loads(line)["trace"] for line in lines(predictions)] == ["a/1", "a/2", "a/3"]


def test_the_examples_are_of_the_same_traces() -> None:
    rows = {
        file.stem: [json.loads(line) for line in file.read_text().splitlines()]
        for file in EXAMPLES.glob("*.jsonl")
    }
    assert set(rows) == {"product", "constant"}
    assert {r["trace"] for r in rows["product"]} == {r["trace"] for r in rows["constant"]}
    assert len({(r["pattern"], r["confidence"]) for r in rows["constant"]}) == 1


def test_a_folder_without_a_benchmark_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path), "--out", str(tmp_path / "out"), "flagger=rules", "judge=none"]
    assert example_predictions.main(words) == 2
    assert "no finished benchmark" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
