"""Building a benchmark: the same plan gives the same bytes, killed or not."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dataset.simulate
from dataset import build as module
from dataset import labels
from dataset.build import UNFINISHED, build, units
from dataset.labels import LabelError
from detector.config import compose, groups
from detector.errors import DetectorError
from detector.experiment import table
from detector.features import COLUMNS

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "dataset" / "recorded"
FEW = ("sync-scalar-readback", "input-dataloader-sync", "memory-zero-grad-fill")
TABLES = ("windows.parquet", "evidence.parquet")


@pytest.fixture(scope="module", autouse=True)
def few_patterns() -> Any:
    """Simulate three patterns instead of all."""
    with pytest.MonkeyPatch.context() as patch:
        some = {p: dataset.simulate.FAULTS[p] for p in FEW}
        patch.setattr(dataset.simulate, "FAULTS", some)
        yield


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recorded pair."""
    folder = tmp_path_factory.mktemp("recorded") / "cpu"
    folder.mkdir()
    wanted = {(), ("memory-dtype-churn",)}
    for trace, label in labels.labelled(RECORDED):
        if label.pair == "classifier-plain-1" and label.patterns in wanted:
            shutil.copy(trace, folder)
            shutil.copy(labels.label_path(trace), folder)
    assert len(list(folder.iterdir())) >= 4
    return folder.parent


@pytest.fixture(scope="module")
def plan(recorded: Path) -> dict[str, Any]:
    """The settings of conf/benchmark/*, small."""
    return {
        "recorded": [str(recorded)],
        "simulated": {"seed": 5, "per_pattern": 1, "healthy": 2},
    }


@pytest.fixture(scope="module")
def fresh(plan: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished build."""
    out = tmp_path_factory.mktemp("fresh")
    build(plan, out, 1)
    return out


def contents(out: Path) -> dict[str, bytes]:
    """Every file of a build."""
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


# -- the plan --------------------------------------------------------------------------------------


def test_the_units_are_the_recorded_traces_and_so_many_of_each_pattern(
    plan: dict[str, Any], recorded: Path, tmp_path: Path
) -> None:
    work = list(units(plan, tmp_path))
    found = [u.name for u in work if u.recipe is None]
    here = sorted(p.name[: -len(labels.TRACE_SUFFIX)] for p in recorded.rglob("*.json.gz"))
    assert found == [f"recorded/cpu/{name}" for name in here]
    drawn = Counter(u.recipe[0] for u in work if u.recipe)
    assert drawn == dict.fromkeys(FEW, 1) | {None: 2}
    assert len({u.name for u in work}) == len(work)
    assert work == list(units(plan, tmp_path))


@pytest.mark.parametrize("option", groups()["benchmark"])
def test_every_benchmark_of_conf_is_one(option: str, tmp_path: Path) -> None:
    plan = compose("build", [f"benchmark={option}", "out=here"]).values["benchmark"]
    work = list(units(plan, tmp_path))
    drawn = Counter(u.recipe[0] if u.recipe else "recorded" for u in work)
    assert drawn.pop("recorded") == len(list(labels.labelled(RECORDED)))
    assert drawn.pop(None) == plan["simulated"]["healthy"]
    assert drawn == dict.fromkeys(FEW, plan["simulated"]["per_pattern"])


def test_another_seed_draws_other_programs(plan: dict[str, Any], tmp_path: Path) -> None:
    other = {**plan, "simulated": {**plan["simulated"], "seed": 6}}
    one, two = ([u.recipe for u in units(p, tmp_path) if u.recipe] for p in (plan, other))
    assert [r[0] for r in one] == [r[0] for r in two]
    assert [r[3] for r in one] != [r[3] for r in two]


def test_a_folder_that_is_not_there_is_named(plan: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        build({**plan, "recorded": [str(tmp_path / "gone")]}, tmp_path / "out", 1)
    assert not (tmp_path / "out").exists()


def test_traces_of_one_name_are_refused(plan: dict[str, Any], recorded: Path, tmp_path: Path):
    twice = tmp_path / "twice"
    shutil.copytree(recorded, twice)
    with pytest.raises(LabelError, match="2 recorded traces are called recorded/cpu/"):
        build({**plan, "recorded": [str(recorded), str(twice)]}, tmp_path / "out", 1)


def test_a_benchmark_without_traces_is_refused(tmp_path: Path) -> None:
    empty = {"recorded": [], "simulated": {"seed": 0, "per_pattern": 0, "healthy": 0}}
    with pytest.raises(LabelError, match="without traces"):
        build(empty, tmp_path, 1)


# -- what comes out --------------------------------------------------------------------------------


def test_the_folder_holds_the_tables_the_traces_and_the_manifest(fresh: Path) -> None:
    manifest = json.loads((fresh / "manifest.json").read_text())
    windows, evidence = (pd.read_parquet(fresh / name) for name in TABLES)
    names = [about["name"] for about in manifest["traces"]]
    assert set(windows["trace"]) <= set(names)
    assert set(evidence["trace"]) <= set(names)
    assert len(names) + manifest["too_faint"] == len(FEW) + 2 + sum("recorded" in n for n in names)
    traces = [p.name for p in (fresh / "traces").glob("*.json.gz")]
    assert len(traces) == sum(n.startswith("simulated/") for n in names)
    assert not (fresh / UNFINISHED).exists()
    assert not list((fresh / "traces").glob("*.draft"))


def test_nothing_but_the_label_columns_says_what_is_wrong(fresh: Path) -> None:
    """Beside what names the trace and the label there are only the features, as numbers."""
    windows, evidence = (pd.read_parquet(fresh / name) for name in TABLES)
    about = {"trace", "origin", "workload", "device", "pair", "quality", "seed"}
    where = {"start_us", "end_us"}
    assert set(windows.columns) == {*about, *where, "cpu", "gpu", "pattern", *COLUMNS}
    assert {str(windows[c].dtype) for c in COLUMNS} == {"float32"}
    learnt = {"text", "numbers", "visible"}
    assert set(evidence.columns) == {*about, *learnt, "pattern", "side"}
    injectors = set(FEW) | {"memory-dtype-churn", "@@", "simulat", "inject"}
    for text in evidence["text"]:
        assert not [word for word in injectors if word in text.lower()]
    for name in windows["trace"]:
        assert not [word for word in injectors - {"simulat"} if word in name]


def test_the_labels_in_the_tables_are_those_of_the_label_files(fresh: Path) -> None:
    manifest = json.loads((fresh / "manifest.json").read_text())
    windows = pd.read_parquet(fresh / "windows.parquet")
    for about in manifest["traces"]:
        mine = windows[windows["trace"] == about["name"]]
        patterns = {r["pattern"] for r in about["regions"]}
        assert set(mine["pattern"]) <= patterns | {"none"}
        assert (mine[["cpu", "gpu"]].to_numpy().max(initial=0) > 0) == bool(patterns)
        assert set(mine["quality"]) <= {"bad" if patterns else "good"}


def test_the_same_seed_gives_the_same_bytes(
    plan: dict[str, Any], fresh: Path, tmp_path: Path
) -> None:
    build(plan, tmp_path, 2)  # with other company of processes too
    assert contents(tmp_path) == contents(fresh)


# -- killed builds ---------------------------------------------------------------------------------


@pytest.fixture
def killed(plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build that died before its tables, with one trace half written."""

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write_tables", dies)
        with pytest.raises(KeyboardInterrupt):
            build(plan, tmp_path, 1)
    half = sorted((tmp_path / "traces").glob("*.json.gz"))[-1]
    half.write_bytes(half.read_bytes()[:100])
    labels.label_path(half).unlink()
    return tmp_path


def written(out: Path) -> dict[str, int]:
    """When each trace was written."""
    return {p.name: p.stat().st_mtime_ns for p in (out / "traces").glob("*.json.gz")}


def test_an_unfinished_build_is_no_data(killed: Path) -> None:
    with pytest.raises(DetectorError, match="no finished benchmark"):
        table(killed, "windows")


def test_a_killed_build_goes_on_and_ends_as_a_fresh_one(
    plan: dict[str, Any], fresh: Path, killed: Path
) -> None:
    before = written(killed)
    build(plan, killed, 1)
    after = written(killed)
    changed = [name for name in before if after[name] != before[name]]
    assert changed == [max(before)]  # the half-written one, and no other
    assert contents(killed) == contents(fresh)


def test_another_plan_takes_no_trace_of_the_killed_build(
    plan: dict[str, Any], fresh: Path, killed: Path
) -> None:
    before = written(killed)
    other = {**plan, "simulated": {**plan["simulated"], "seed": 6}}
    manifest = build(other, killed, 1)
    seeds = {u.recipe[3] for u in units(other, killed) if u.recipe}
    made = [t for t in manifest["traces"] if t["origin"] == "simulated"]
    assert {t["seed"] for t in made} <= seeds
    after = written(killed)
    assert all(after[Path(t["name"]).name + ".json.gz"] not in before.values() for t in made)


def test_a_finished_build_is_made_anew(plan: dict[str, Any], fresh: Path, tmp_path: Path) -> None:
    """Its traces may come from an older simulator."""
    shutil.copytree(fresh, tmp_path / "old")
    for trace in (tmp_path / "old" / "traces").glob("*.json.gz"):
        trace.write_bytes(b"of another time")
    build(plan, tmp_path / "old", 1)
    assert contents(tmp_path / "old") == contents(fresh)
