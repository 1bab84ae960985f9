"""The whole benchmark in small: built by its command, and checked by its command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

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


def test_left_out_is_told_with_its_reason(smoke: Path) -> None:
    manifest = json.loads((smoke / "manifest.json").read_text())
    assert all(manifest["left_out"].values())
    assert not set(manifest["left_out"]) & {t["name"] for t in manifest["traces"]}


TINY = (
    *("rows=[constant,largest claim,claims only,rules,LightGBM]", "folds=2", "trials=2"),
    *("trial_windows=500", "train_windows=1200", "ablations=false", "workers=1"),
    *("recipe.flagger.columns=30", "recipe.flagger.rounds=10", "recipe.flagger.class_rounds=2"),
    *("recipe.judge_texts=120", "recipe.judge.settings.epochs=1"),
)


def test_strangers_are_measured_by_one_command(smoke: Path) -> None:
    place = smoke.parent
    settings = [f"experiment.{word}" for word in TINY]
    run = python(
        "detector.evaluate", "experiment=strangers", f"data={smoke}", "out=out", *settings,
        folder=place,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    results = json.loads((place / "out" / "strangers.json").read_text())
    assert "today's product" in results["findings"]["recorded CPU workloads"]
    for group, rows in results["windows"].items():
        for way, figures in rows["constant"]["figures"].items():
            for key in ("recall 0.3", "precision 0.3"):
                assert (figures[key]["value"] or 0.0) <= 0.2, (group, way, key)
    assert (place / "out" / "results" / "looks.md").is_file()
