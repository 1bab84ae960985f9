"""The whole benchmark in small: built by its command, and checked by its command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.entry_points import called

pytest.importorskip("datasets", reason="the benchmark needs the train extra")

ROOT = Path(__file__).resolve().parent.parent


def python(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """``python -m …`` in a folder of its own, with this checkout's code."""
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    run = python("dataset.build", "benchmark=smoke", "out=smoke", folder=place)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert {p.name for p in place.iterdir()} == {"smoke"}
    return place / "smoke"


def test_it_passes_its_own_check(smoke: Path) -> None:
    run = python("dataset.check", smoke, folder=smoke)
    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    assert ": no fault" in run.stdout.splitlines()[0]


def test_it_holds_every_origin_that_needs_nothing_of_others(smoke: Path) -> None:
    traces = json.loads((smoke / "manifest.json").read_text())["traces"]
    faulty = Counter(t["origin"] for t in traces if t["patterns"])
    healthy = Counter(t["origin"] for t in traces if not t["patterns"])
    assert set(faulty) == set(healthy) == {"recorded", "injected", "simulated"}
    assert len({p for t in traces for p in t["patterns"]}) > 30
    assert {t["split"] for t in traces} == {"train", "validation", "test"}


def test_what_is_left_out_is_listed_with_its_reason(smoke: Path) -> None:
    manifest = json.loads((smoke / "manifest.json").read_text())
    assert all(manifest["left_out"].values())
    assert not set(manifest["left_out"]) & {t["name"] for t in manifest["traces"]}


TINY = (
    *("rows=[constant,largest saving,rules,LightGBM]", "folds=2", "trials=2"),
    *("trial_windows=500", "ablations=false", "workers=1"),
    *("flagger.columns=1000", "flagger.rounds=4"),
)


def test_strangers_are_measured_by_one_command(
    smoke: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = smoke.parent
    settings = [f"experiment.{word}" for word in TINY]
    monkeypatch.setattr("detector.lab.comparison.findings.ROUNDS", 20)  # of the bootstrap
    run = called(
        "detector.evaluate", "experiment=strangers", f"data={smoke}", "out=out", *settings,
        folder=place,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    results = json.loads((place / "out" / "results" / "strangers.json").read_text())
    rows = results["findings"]["recorded CPU workloads"]
    assert {"constant answer", "core alone", "confidence", "largest saving"} <= rows.keys()
    for group, rows in results["windows"].items():
        for way, figures in (rows["constant"]["figures"] if rows else {}).items():
            for key in ("recall 0.3", "precision 0.3"):
                assert (figures[key]["value"] or 0.0) <= 0.2, (group, way, key)
    assert (place / "out" / "results" / "looks.md").is_file()


# -- in the hands of others ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def elsewhere(smoke: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The benchmark's tables in another place, and the code without its models."""
    place = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(smoke / "tables", place / "data" / "tables")
    for name in ("README.md", "croissant.json", "manifest.json"):
        shutil.copy(smoke / name, place / "data")
    ignored = shutil.ignore_patterns("__pycache__", "models", "recorded", "pictures")
    for name in ("detector", "dataset"):
        shutil.copytree(ROOT / name, place / "code" / name, ignore=ignored)
    (place / "work").mkdir()
    return place


def run_elsewhere(elsewhere: Path, *words: object) -> str:
    """What a command prints, run beside the data with the copied code alone."""
    run = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=elsewhere / "work",
        env={
            **os.environ,
            "PYTHONPATH": str(elsewhere / "code"),
            "HF_HOME": str(elsewhere / "cache"),
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


LOAD = """
import json, sys, datasets
datasets.disable_progress_bars()
for name in ("traces", "windows", "windows-unseen_workload"):
    parts = datasets.load_dataset("../data", name)
    rows = {part: sorted(set(rows["trace"])) for part, rows in parts.items()}
    print(json.dumps({"name": name, "rows": rows, "ours": "detector" in sys.modules}))
"""


def test_anybody_can_load_it(elsewhere: Path) -> None:
    """With ``datasets`` and nothing of this project."""
    found = [json.loads(line) for line in run_elsewhere(elsewhere, "-c", LOAD).splitlines()]
    assert not any(one["ours"] for one in found)
    traces = json.loads((elsewhere / "data" / "manifest.json").read_text())["traces"]
    for one, scheme in zip(found, ("split", "split", "unseen_workload"), strict=True):
        wanted: dict[str, list[str]] = {}
        for trace in traces:
            if scheme == "split" or trace[scheme] != "excluded":
                wanted.setdefault(trace[scheme], []).append(trace["name"])
        assert one["rows"] == {part: sorted(names) for part, names in wanted.items()}


@pytest.mark.parametrize("name", ["product", "constant"])
def test_anybody_can_score_predictions(elsewhere: Path, name: str) -> None:
    """The examples, without a model of this checkout, its configuration or the traces."""
    where = run_elsewhere(elsewhere, "-c", "import detector; print(detector.__file__)")
    assert Path(where.strip()).is_relative_to(elsewhere)
    assert not (elsewhere / "code" / "detector" / "models").exists()
    predictions = elsewhere / "code" / "dataset" / "examples" / f"{name}.jsonl"
    words = ("-m", "dataset.score", predictions, elsewhere / "data", "--json", "scores.json")
    lines = [json.loads(line) for line in predictions.read_text().splitlines()]
    manifest = json.loads((elsewhere / "data" / "manifest.json").read_text())
    wanted = {
        trace["name"]
        for trace in manifest["traces"]
        if trace["origin"] == "recorded" and trace["split"] == "test"
    }
    assert {line["trace"] for line in lines} == wanted
    said = f"{len(wanted)} traces scanned, 0 without a prediction"
    assert said in run_elsewhere(elsewhere, *words)
    scores = json.loads((elsewhere / "work" / "scores.json").read_text())
    figures = scores["groups"]["recorded"]["masked"]
    assert (figures["traces"], figures["healthy"], figures["problems"]) == (7, 1, 3)
    found = sum("pattern" in line for line in lines)
    assert 0 < figures["findings"] <= found
    if name == "constant":  # it names a pattern that none of these traces has
        assert figures["figures"]["precision"]["value"] == 0
        assert figures["figures"]["wrong_per_healthy"]["value"] == 1
