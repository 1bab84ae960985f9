"""Scanning a built benchmark: the reports that ``dataset.score`` then reads."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest

from dataset import score
from detector.errors import DetectorError
from detector.report import from_json
from scripts import scan_benchmark
from scripts.scanned import history, manifest_of

STARVED = "input-dataloader-starved"
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
FAST = ("flagger=rules", "judge=none", "--workers=1")


def step(start: int, wait: int) -> list[dict[str, object]]:
    """A step of 1 ms and ``wait``: the loader, then a launch and its kernel; times in 10 µs."""
    host = {"ph": "X", "pid": 1, "tid": 1}
    link = {"correlation": start}
    at = start + wait
    return [
        host
        | {"cat": "user_annotation", "name": f"ProfilerStep#{start}", "ts": start}
        | {"dur": 100 + wait},
        host | {"cat": "user_annotation", "name": LOADER, "ts": start, "dur": wait},
        host | {"cat": "cpu_op", "name": "aten::mm", "ts": at, "dur": 10},
        host
        | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 1, "dur": 5, "args": link},
        {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": at + 6, "dur": 94}
        | {"args": {**link, "device": 0, "stream": 7}},
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six steps of 1 ms, and six of which the last three wait 400 µs for the loader."""
    starts = [0, 100, 200, 300, 440, 580]
    made = {
        "twins/good": [e for t in range(0, 600, 100) for e in step(t, 0)],
        "twins/bad": [e for t in starts for e in step(t, 40 if t >= 300 else 0)],
    }
    data = tmp_path / "benchmark"
    rows = []
    for name, events in made.items():
        file = data / "traces" / f"{name}.json.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        whole = [e | {k: 10 * int(str(e[k])) for k in ("ts", "dur")} for e in events]
        file.write_text(json.dumps({"traceEvents": whole}))  # gzip or not: its content says
        about = {"name": name, "file": f"traces/{name}.json.gz", "origin": "recorded"}
        rows.append(about | {"split": "test", "windows": 8})
    (data / "manifest.json").write_text(json.dumps({"traces": rows}))
    return data


def publish(data: Path) -> None:
    """The tables that a score needs."""
    traces = [("twins/good", 6_000.0, True), ("twins/bad", 7_200.0, False)]
    regions = [("twins/bad", t, t + 400, STARVED, 400.0) for t in (3_000.0, 4_400.0, 5_800.0)]
    about = {"origin": "recorded", "workload": "w", "base": "", "split": "test"}
    for name, frame in {
        "traces": pd.DataFrame(traces, columns=["trace", "analyzed_us", "healthy"]).assign(**about),
        "regions": pd.DataFrame(
            regions, columns=["trace", "start_us", "end_us", "pattern", "cost_us"]
        ).assign(side="cpu", harmless=False),
    }.items():
        (data / "tables" / name).mkdir(parents=True)
        frame.to_parquet(data / "tables" / name / "test.parquet")


def test_reports_are_written_and_scored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, scores = folder.parent / "reports", folder.parent / "scores.json"
    assert scan_benchmark.main([str(folder), str(out), *FAST]) == 0
    said = capsys.readouterr().out
    assert f"2 reports -> {out}" in said
    assert "names no training data" in said
    reports = [from_json((out / "twins" / f"{n}.json").read_text()) for n in ("good", "bad")]
    costly = [f for report in reports for f in report.findings if f.share >= 0.05]
    assert reports[1].findings
    publish(folder)
    assert score.main([str(out), str(folder), "--json", str(scores)]) == 0
    found = json.loads(scores.read_text())["groups"]["all origins"]["masked"]
    assert (found["traces"], found["missing"], found["problems"]) == (2, 0, 1)
    assert sum(found["kinds"].values()) == len(costly)


def test_a_trace_that_cannot_be_read_is_named_and_has_no_report(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "traces" / "twins" / "bad.json.gz").write_text("{}")
    out = folder.parent / "reports"
    assert scan_benchmark.main([str(folder), str(out), *FAST]) == 0
    said = capsys.readouterr()
    assert "twins/bad: not scanned: " in said.err
    assert f"1 reports -> {out}" in said.out
    assert not (out / "twins" / "bad.json").exists()


def test_what_lies_in_the_folder_already_is_not_mixed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scan_benchmark.main([str(folder), str(folder), *FAST]) == 2
    assert "not empty" in capsys.readouterr().err
    words = [str(folder), str(folder.parent / "reports"), *FAST, "--parts", "natural"]
    assert scan_benchmark.main(words) == 2
    assert "no traces of these parts" in capsys.readouterr().err


def test_the_cards_say_whether_the_traces_were_trained_on(folder: Path) -> None:
    mine = sha256((folder / "manifest.json").read_bytes()).hexdigest()
    card = {"traces_by_origin": {"recorded": 2}, "data_sha256": mine}
    assert history(folder, "judge", card).endswith(
        "the parts train, validation, test of this build."
    )
    assert "another build" in history(folder, "judge", card | {"data_sha256": "0"})
    assert "names no training data" in history(folder, "judge", {})


def test_a_folder_that_is_no_benchmark_is_named(tmp_path: Path) -> None:
    with pytest.raises(DetectorError, match="no finished benchmark"):
        manifest_of(tmp_path)
