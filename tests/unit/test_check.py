"""The check of a benchmark: silent on a sound one, one line for each thing that is broken."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataset import labels
from dataset.check import check, oddities, summary
from dataset.labels import UNKNOWN, Label, LabelRegion
from dataset.publish import Row, publish
from dataset.splits import MAIN, Member, schemes
from detector import kineto
from detector.features import COLUMNS

ROOT = Path(__file__).resolve().parents[2]
BASE = Label(
    origin="injected",
    pair="base/one",
    workload="classifier-x",
    device="cuda:A100",
    framework="torch 2.13.0",
    seed=1,
    step_us=100.0,
    quality="good",
    base="one",
)
FAULT = LabelRegion(20.0, 30.0, "sync-explicit", "cpu", 8.0, "injection")
COSTS = {"costs": {"sync-explicit": {"total_us": 8.0, "steps": 1, "step_us": 100.0}}}
FAULTY = replace(BASE, quality="bad", regions=(FAULT,), extent="every", seed=2, parameters=COSTS)
MADE_UP = replace(
    FAULTY,
    origin="simulated",
    base="",
    pair="simulated/1",
    workload="lm-train",
    regions=(replace(FAULT, cost_from="simulation"),),
)
Event = dict[str, Any]


def op(ts: float, dur: float, name: str = "aten::mm") -> Event:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}


def launched(number: int, call: float, ts: float, dur: float, stream: int = 7) -> list[Event]:
    """A launch and its kernel."""
    args = {"correlation": number}
    host = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}
    device = {"cat": "kernel", "name": "gemm", "pid": 0, "tid": stream}
    on = {**args, "device": 0, "stream": stream}
    return [
        {"ph": "X", **host, "ts": call, "dur": 2.0, "args": args},
        {"ph": "X", **device, "ts": ts, "dur": dur, "args": on},
    ]


SOUND = [op(0, 100), *launched(1, 5, 10, 20), *launched(2, 12, 30, 20), op(100, 1)]
OVER = [*SOUND, *launched(3, 14, 45, 20)]  # begins before the second ended, as some devices do


def packed(events: list[Event]) -> bytes:
    text = json.dumps({"schemaVersion": 1, "traceEvents": events})
    return gzip.compress(text.encode(), mtime=0)


Trace = tuple[str, Label, list[Event]]
TRACES: tuple[Trace, ...] = (
    ("injected/one/000", BASE, OVER),
    ("injected/one/001", FAULTY, OVER),
    ("simulated/1", MADE_UP, SOUND),
)


Made = Callable[..., Path]


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Makes a finished benchmark of hand-written traces. Tables take longest, and have no fault in
    these tests: those of the same traces are written once."""
    known: dict[tuple[str, ...], tuple[Path, dict[str, dict[str, int]]]] = {}

    def made(folder: Path, traces: tuple[Trace, ...] = TRACES) -> Path:
        labeled = (label for _, label, _ in traces)
        parts = schemes(Member(x.origin, x.workload, x.device) for x in labeled)
        rows, listed = [], []
        for i, (name, label, events) in enumerate(traces):
            file, content = f"traces/{name}.json.gz", packed(events)
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
            labels.write(label, labels.label_path(folder / file))
            digest = hashlib.sha256(content).hexdigest()
            rows.append(Row(name, label, file, digest, "MIT", 100.0, *_rows(name, label)))
            about = {**asdict(label), "name": name, "file": file, "sha256": digest}
            about |= {"patterns": list(label.patterns), "regions": len(label.regions)}
            listed.append(about | {scheme: parts[scheme][i] for scheme in parts})
        names = tuple(name for name, _, _ in traces)
        if names not in known:
            place = tmp_path_factory.mktemp("tables")
            known[names] = place, publish(rows, parts, place)
        place, counts = known[names]
        shutil.copytree(place / "tables", folder / "tables")
        (folder / "manifest.json").write_text(json.dumps({"traces": listed, "tables": counts}))
        return folder

    return made


def _rows(name: str, label: Label) -> tuple[list[Any], Any, list[Any], list[Any]]:
    keys = ("origin", "workload", "device", "pair", "quality", "seed")
    about = {"trace": name, **{key: getattr(label, key) for key in keys}, "pattern": "none"}
    shares = {"cpu": 0, "gpu": 0, "unknown_cpu": 0, "unknown_gpu": 0}
    window = {**about, "start_us": 0, "end_us": 1, **shares}
    text = {**about, "side": "cpu", "text": "Shares:", "visible": []}
    return [window], np.zeros((1, len(COLUMNS)), np.float32), [], [text]


def changed(
    name: str, label: Callable[[Label], Label] = lambda x: x, events: list[Event] | None = None
) -> tuple[Trace, ...]:
    """The traces with another label or other events for one of them."""
    return tuple(
        (n, label(own), events or there) if n == name else (n, own, there)
        for n, own, there in TRACES
    )


def test_a_sound_benchmark_has_no_fault(benchmark: Made, tmp_path: Path) -> None:
    assert check(benchmark(tmp_path)) == []
    head, *counts = summary(tmp_path)
    assert head == "3 traces, 2 regions: no fault"
    assert "by pattern: none 1, sync-explicit 2" in counts
    assert "by device: cuda:A100 3" in counts


def test_no_finished_build_is_one_line(tmp_path: Path) -> None:
    (line,) = check(tmp_path)
    assert "no finished benchmark" in line


def region(*values: Any) -> Callable[[Label], Label]:
    """The same fault in another place."""

    def moved(label: Label) -> Label:
        place = dict(zip(("start_us", "end_us", "pattern", "side"), values, strict=True))
        return replace(label, regions=(replace(label.regions[0], **place),))

    return moved


def priced(**values: Any) -> Callable[[Label], Label]:
    """The same fault with another cost."""
    return lambda label: replace(label, regions=(replace(label.regions[0], **values),))


@pytest.mark.parametrize(
    ("traces", "line"),
    [
        (
            changed("simulated/1", region(-3.0, 5.0, "sync-explicit", "cpu")),
            "simulated/1: region sync-explicit at -3.000 lies outside the trace",
        ),
        (
            changed("simulated/1", region(90.0, 103.0, "sync-explicit", "cpu")),
            "simulated/1: region sync-explicit at 90.000 lies outside the trace",
        ),
        (
            changed("injected/one/001", region(5.0, 9.0, "sync-explicit", "gpu")),
            "injected/one/001: region sync-explicit at 5.000: on the gpu side",
        ),
        (
            changed("injected/one/001", priced(cost_us=None, cost_from="")),
            "injected/one/001: sync-explicit: a region without a cost from 'injection'",
        ),
        (
            changed("simulated/1", priced(cost_from="hand")),
            "simulated/1: sync-explicit: a region without a cost from 'simulation'",
        ),
        (
            changed("simulated/1", priced(cost_us=7.0)),
            "simulated/1: sync-explicit: its regions cost 7.000 us, its figures say 8.000",
        ),
        (
            changed("simulated/1", priced(harmless=True)),
            "simulated/1: sync-explicit: harmless is True, against its cost and steps",
        ),
        (
            changed("simulated/1", lambda label: replace(label, parameters={})),
            "simulated/1: sync-explicit: no figures behind its cost",
        ),
        (
            changed("simulated/1", events=[*SOUND, op(60, 1, "@@mark")]),
            "simulated/1: '\"@@' in the trace",
        ),
        (
            changed("injected/one/001", events=[*OVER, op(60, 1, "sync_explicit")]),
            "injected/one/001: 'sync_explicit' in the trace",
        ),
        (
            changed("injected/one/001", events=[*OVER, *launched(9, 80, 60, 5)]),
            "injected/one/001: 1 new overlaps on a stream",
        ),
        (
            changed("simulated/1", events=[*SOUND, *launched(9, 80, 60, 5)]),
            "simulated/1: 1 new device work before its launch",
        ),
        (
            changed("simulated/1", events=[*SOUND, op(60, -1)]),
            "simulated/1: 1 new negative durations",
        ),
        (TRACES[1:], "injected/one/001: its base one is not there to compare with"),
        (
            changed("injected/one/000", events=[*OVER, op(60, 1, "sync_explicit")]),
            "injected/one/000: ",
        ),
    ],
    ids=lambda value: value.split(": ", 1)[-1] if isinstance(value, str) else "",
)
def test_each_fault_is_one_line(
    benchmark: Made, tmp_path: Path, traces: tuple[Trace, ...], line: str
) -> None:
    found = check(benchmark(tmp_path, traces))
    if line == "injected/one/000: ":  # a word of the base's own gives nothing away
        assert found == []
    elif "before its launch" in line or "new overlaps" in line:
        assert line in found
    else:
        assert found == [line]


def test_an_unknown_pattern_is_reported(benchmark: Made, tmp_path: Path) -> None:
    benchmark(tmp_path)
    file = tmp_path / "traces/simulated/1.label.json"
    file.write_text(file.read_text().replace("sync-explicit", "host-moon-phase"))
    assert "simulated/1: region host-moon-phase at 20.000: no such pattern" in check(tmp_path)


def test_unknown_regions_have_no_side_of_their_own(benchmark: Made, tmp_path: Path) -> None:
    spans = [LabelRegion(0.0, 100.0, UNKNOWN, side) for side in ("cpu", "gpu")]  # type: ignore[arg-type]
    label = replace(FAULTY, regions=(*FAULTY.regions, *spans))
    assert check(benchmark(tmp_path, changed("injected/one/001", lambda _: label))) == []


# -- the folder ------------------------------------------------------------------------------------


def test_missing_changed_and_foreign_files_are_reported(benchmark: Made, tmp_path: Path) -> None:
    benchmark(tmp_path)
    (tmp_path / "traces/injected/one/001.json.gz").unlink()
    (tmp_path / "traces/simulated/1.json.gz").write_bytes(packed([*SOUND, op(3, 1)]))
    (tmp_path / "traces/notes.txt").write_text("mine")
    found = check(tmp_path)
    assert len(found) == 3
    assert "injected/one/001: " in found[0]
    assert found[1] == "simulated/1: another file than was built"
    assert found[2].endswith("notes.txt: not in the manifest")


def test_labels_that_differ_are_reported(benchmark: Made, tmp_path: Path) -> None:
    benchmark(tmp_path)
    labels.write(replace(MADE_UP, seed=99), tmp_path / "traces/simulated/1.label.json")
    assert check(tmp_path) == ["simulated/1: seed 99 in the label, 2 in the manifest"]


def test_a_program_on_two_sides_of_a_split_is_reported(benchmark: Made, tmp_path: Path) -> None:
    benchmark(tmp_path)
    file = tmp_path / "manifest.json"
    manifest = json.loads(file.read_text())
    first, second = (t for t in manifest["traces"] if t["origin"] == "injected")
    first[MAIN], second[MAIN] = "train", "natural"
    file.write_text(json.dumps(manifest))
    found = check(tmp_path)
    assert "split: base one is in test and train" in found
    assert "split: workload classifier-x is in test and train" in found


def test_tables_that_do_not_fit_the_manifest_are_reported(benchmark: Made, tmp_path: Path) -> None:
    benchmark(tmp_path)
    parts = json.loads((tmp_path / "manifest.json").read_text())["tables"]["windows"]
    other = {part: f"tables/windows/{part}.parquet" for part in parts}
    (tmp_path / other.popitem()[1]).unlink()
    (line,) = check(tmp_path)
    assert line.endswith(".parquet: missing")


# -- times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "counts"),
    [
        (SOUND, (0, 0, 0)),
        (OVER, (0, 0, 1)),
        ([*SOUND, *launched(3, 60, 60, 5, stream=8)], (0, 0, 0)),
        ([*SOUND, *launched(3, 60, 59, 5)], (0, 1, 0)),
        ([*SOUND, *launched(3, 29, 30, 0)], (0, 0, 0)),  # nothing that lasts no time overlaps
        ([*SOUND, op(5, -2), op(6, -2)], (2, 0, 0)),
    ],
    ids=["sound", "overlap", "other stream", "early", "empty", "negative"],
)
def test_what_cannot_be_is_counted(
    tmp_path: Path, events: list[Event], counts: tuple[int, ...]
) -> None:
    file = tmp_path / "trace.json.gz"
    file.write_bytes(packed(events))
    assert tuple(oddities(kineto.read(file)).values()) == counts


def test_the_command_ends_with_1_and_a_line_for_each_fault(benchmark: Made, tmp_path: Path) -> None:
    benchmark(tmp_path)

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dataset.check", str(tmp_path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)

    sound = run()
    assert (sound.returncode, sound.stderr) == (0, "")
    assert sound.stdout.startswith("3 traces, ")
    (tmp_path / "traces/simulated/1.json.gz").unlink()
    broken = run()
    assert broken.returncode == 1
    assert len(broken.stdout.splitlines()) == 1
