"""Building a benchmark: the same plan gives the same bytes, killed or not."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dataset.simulate
from dataset import build as module
from dataset import labels, units
from dataset.build import UNFINISHED, build, plan_units
from dataset.labels import LabelError
from dataset.units import Recorded, Simulated
from detector.config import compose, groups
from detector.errors import DetectorError
from detector.features import COLUMNS
from detector.lab.tables import table

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "dataset" / "recorded"
FEW = ("sync-scalar-readback", "input-dataloader-sync")


@pytest.fixture(scope="module", autouse=True)
def few_patterns() -> Any:
    """Simulate two patterns instead of all."""
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
    for trace, label in labels.labeled(RECORDED):
        is_plain = label.pair == "classifier-plain-1" and "extra" not in label.parameters
        if is_plain and label.patterns in wanted:
            shutil.copy(trace, folder)
            shutil.copy(labels.label_path(trace), folder)
    assert len(list(folder.iterdir())) == 4
    return folder.parent


@pytest.fixture(scope="module")
def plan(recorded: Path) -> dict[str, Any]:
    """The settings of conf/benchmark/*, small."""
    return {
        "recorded": [str(recorded)],
        "every": 1,
        "simulated": {"seed": 5, "per_pattern": 1, "healthy": 1},
        "injected": None,
        "natural": False,
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


def manifest_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "manifest.json").read_text())


# -- the plan --------------------------------------------------------------------------------------


def test_the_units_are_the_recorded_traces_and_so_many_of_each_pattern(
    plan: dict[str, Any], recorded: Path, tmp_path: Path
) -> None:
    work = plan_units(plan, tmp_path, None)
    found = [u.name for u in work if isinstance(u, Recorded)]
    here = sorted(p.name[: -len(labels.TRACE_SUFFIX)] for p in recorded.rglob("*.json.gz"))
    assert found == [f"recorded/cpu/{name}" for name in here]
    drawn = Counter(u.pattern for u in work if isinstance(u, Simulated))
    assert drawn == dict.fromkeys(FEW, 1) | {None: 1}
    assert len({u.name for u in work}) == len(work)
    assert work == plan_units(plan, tmp_path, None)


@pytest.mark.parametrize("option", groups()["benchmark"])
def test_every_benchmark_of_conf_is_one(option: str, tmp_path: Path) -> None:
    plan = compose("build", [f"benchmark={option}", "out=here"]).values["benchmark"]
    ours = {**plan, "injected": None, "natural": False}  # the rest needs traces of others
    drawn = Counter(
        u.pattern if isinstance(u, Simulated) else u.group for u in plan_units(ours, tmp_path, None)
    )
    assert drawn.pop("recorded") == -(-len(list(labels.labeled(RECORDED))) // plan["every"])
    assert drawn.pop(None) == plan["simulated"]["healthy"]
    assert drawn == dict.fromkeys(FEW, plan["simulated"]["per_pattern"])


def test_another_seed_draws_other_programs(plan: dict[str, Any]) -> None:
    other = {**plan, "simulated": {**plan["simulated"], "seed": 6}}
    one, two = (list(units.simulated(p["simulated"])) for p in (plan, other))
    assert [u.pattern for u in one] == [u.pattern for u in two]
    assert [u.seed for u in one] != [u.seed for u in two]


def test_a_folder_that_is_not_there_is_named(plan: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        build({**plan, "recorded": [str(tmp_path / "gone")]}, tmp_path / "out", 1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["traces", "tables", "README.md", "croissant.json"])
def test_what_no_build_made_is_never_written_over(
    plan: dict[str, Any], tmp_path: Path, name: str
) -> None:
    mine = tmp_path / name if "." in name else tmp_path / name / "mine.txt"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(LabelError, match=f"holds {name} that no build made"):
        build(plan, tmp_path, 1)
    assert mine.read_text() == "mine"


def test_traces_of_one_name_are_refused(plan: dict[str, Any], recorded: Path, tmp_path: Path):
    twice = tmp_path / "twice"
    shutil.copytree(recorded, twice)
    with pytest.raises(LabelError, match="several traces are called recorded/cpu/"):
        build({**plan, "recorded": [str(recorded), str(twice)]}, tmp_path / "out", 1)


def test_a_benchmark_without_traces_is_refused(tmp_path: Path) -> None:
    empty = {"recorded": [], "every": 1, "simulated": {"seed": 0, "per_pattern": 0, "healthy": 0}}
    with pytest.raises(LabelError, match="without traces"):
        build(empty, tmp_path, 1)


# -- what comes out --------------------------------------------------------------------------------


def test_the_folder_holds_traces_labels_tables_card_and_manifest(fresh: Path) -> None:
    manifest = manifest_of(fresh)
    names = [about["name"] for about in manifest["traces"]]
    made = len(FEW) + 1 + sum("recorded" in n for n in names)
    assert len(names) + len(manifest["left_out"]) == made
    there = {str(p.relative_to(fresh)) for p in fresh.rglob("*") if p.is_file()}
    wanted = {"manifest.json", "README.md", "croissant.json"}
    for about in manifest["traces"]:
        wanted |= {about["file"], str(labels.label_path(about["file"]))}
        content = (fresh / about["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == about["sha256"]
    for name, parts in manifest["tables"].items():
        wanted |= {f"tables/{name}/{part}.parquet" for part in parts}
    assert there == wanted


def test_nothing_but_the_label_columns_says_what_is_wrong(fresh: Path) -> None:
    """Beside what names the trace and the label there are only the features, as numbers."""
    windows, evidence = table(fresh, "windows"), table(fresh, "evidence")
    about = {"trace", "origin", "workload", "device", "pair", "quality", "seed"}
    truth = {"cpu", "gpu", "unknown_cpu", "unknown_gpu", "pattern"}
    assert set(windows.columns) == {*about, "start_us", "end_us", *truth, *COLUMNS}
    assert {str(windows[c].dtype) for c in COLUMNS} == {"float32"}
    learned = {"text", "visible"}
    assert set(evidence.columns) == {*about, *learned, "pattern", "side"}
    injectors = set(FEW) | {"memory-dtype-churn", "@@", "simulat", "inject"}
    for text in evidence["text"]:
        assert not [word for word in injectors if word in text.lower()]
    for name in windows["trace"]:
        assert not [word for word in injectors - {"simulat"} if word in name]


def test_the_labels_in_the_tables_are_those_of_the_label_files(fresh: Path) -> None:
    windows = table(fresh, "windows")
    for about in manifest_of(fresh)["traces"]:
        label = labels.read(labels.label_path(fresh / about["file"]))
        mine = windows[windows["trace"] == about["name"]]
        assert list(label.patterns) == about["patterns"]
        assert set(mine["pattern"]) <= {*label.patterns, "none"}
        assert (mine[["cpu", "gpu"]].to_numpy().max(initial=0) > 0) == bool(label.patterns)
        assert set(mine["quality"]) <= {label.quality}


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
        patch.setattr(module, "publish", dies)
        with pytest.raises(KeyboardInterrupt):
            build(plan, tmp_path, 1)
    half = traces(tmp_path)[-1]
    half.write_bytes(half.read_bytes()[:100])
    labels.label_path(half).unlink()
    rows = f"simulated__{half.name.split('.')[0]}.npz"
    (tmp_path / UNFINISHED / "rows" / rows).unlink()  # which comes after its trace and label
    return tmp_path


def traces(out: Path) -> list[Path]:
    """The simulated ones."""
    return sorted((out / "traces" / "simulated").glob("*.json.gz"))


def written(out: Path) -> dict[str, int]:
    """When each trace was written."""
    return {p.name: p.stat().st_mtime_ns for p in traces(out)}


def test_a_killed_build_is_no_data_goes_on_and_ends_as_a_fresh_one(
    plan: dict[str, Any], fresh: Path, killed: Path
) -> None:
    with pytest.raises(DetectorError, match="no finished benchmark"):
        table(killed, "windows")
    before = written(killed)
    build(plan, killed, 1)
    after = written(killed)
    changed = [name for name in before if after[name] != before[name]]
    assert changed == [max(before)]  # the half-written one, and no other
    assert contents(killed) == contents(fresh)


def test_another_plan_takes_no_trace_of_the_killed_build(
    plan: dict[str, Any], killed: Path
) -> None:
    other = {**plan, "simulated": {**plan["simulated"], "seed": 6}}
    manifest = build(other, killed, 1)
    seeds = {u.seed + k for u in units.simulated(other["simulated"]) for k in range(units.TRIES)}
    made = [t for t in manifest["traces"] if t["origin"] == "simulated"]
    assert {t["seed"] for t in made} <= seeds
    assert {p.name for p in traces(killed)} == {Path(t["file"]).name for t in made}


def test_other_code_takes_no_trace_of_the_killed_build(
    plan: dict[str, Any], fresh: Path, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = written(killed)
    monkeypatch.setattr(module, "_code", lambda: "of tomorrow")
    build(plan, killed, 1)
    assert all(when != before.get(name) for name, when in written(killed).items())
    assert contents(killed) == contents(fresh)


def test_a_finished_build_is_made_anew(plan: dict[str, Any], fresh: Path, tmp_path: Path) -> None:
    """Its traces may come from an older simulator."""
    shutil.copytree(fresh, tmp_path / "old")
    for trace in traces(tmp_path / "old"):
        trace.write_bytes(b"of another time")
    build(plan, tmp_path / "old", 1)
    assert contents(tmp_path / "old") == contents(fresh)
