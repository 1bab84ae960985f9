"""The scripts that scan labelled traces: what a finding, a claim and a pair count as."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dataset import labels
from dataset.costs import healthy_steps
from dataset.labels import Label, LabelRegion
from detector.report import Finding, NotChecked, Report
from scripts import end_to_end, pair_error
from scripts.scanned import Case, cases, intervals_of, manifest_of

STARVED, GC = "input-dataloader-starved", "host-gc-pause"
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def step(start: int, wait: int) -> list[dict[str, object]]:
    """A step of 100 µs and ``wait``: the loader, then a launch and its kernel."""
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


def label_of(step_us: float, *regions: LabelRegion, **parameters: object) -> Label:
    quality = "bad" if regions else "good"
    return Label(
        "recorded", "twins", "w", "cpu", "torch 2", 0, step_us, quality, regions, parameters
    )


def region(start: float, end: float, pattern: str = STARVED) -> LabelRegion:
    return LabelRegion(start, end, pattern, "cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pair: six steps of 100 µs, and six of which the last three wait 40 µs for the loader."""
    starts = [0, 100, 200, 300, 440, 580]
    regions = [region(t, t + 40) for t in starts[3:]]
    made = {
        "good": ([e for t in range(0, 600, 100) for e in step(t, 0)], label_of(100)),
        "large": ([e for t in range(0, 600, 100) for e in step(t, 0)], label_of(300, extra="x")),
        "bad": (
            [e for t in starts for e in step(t, 40 if t >= 300 else 0)],
            label_of(120, *regions, acting_step_us=138.0),
        ),
    }
    rows = []
    for name, (events, label) in made.items():
        file = tmp_path / "traces" / f"{name}.json.gz"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"traceEvents": events}))  # told by its content
        labels.write(label, labels.label_path(file))
        about = {"name": name, "file": f"traces/{name}.json.gz", "origin": "recorded"}
        about |= {"quality": label.quality, "patterns": list(label.patterns), "windows": 8}
        rows.append(about | {"split": "test"})
    (tmp_path / "manifest.json").write_text(json.dumps({"traces": rows}))
    windows = pd.DataFrame(
        {
            "trace": ["bad", "good"],
            "start_us": [0.0, 0.0],
            "end_us": [720.0, 600.0],
            "unknown_cpu": [0.0, 0.0],
            "unknown_gpu": [0.0, 1.0],
        }
    )
    traces = pd.DataFrame({"trace": ["bad", "good"], "extent": "", "split": "test"})
    for name, content in (("windows", windows), ("traces", traces)):
        (tmp_path / "tables" / name).mkdir(parents=True)
        content.to_parquet(tmp_path / "tables" / name / "test.parquet")
    return tmp_path


class Told:
    """Stages whose scan is known beforehand."""

    def __init__(self, *findings: Finding) -> None:
        self.report = Report(findings=findings)

    def scan(self, trace: object) -> Report:
        return self.report


def finding(pattern: str, start: float, end: float, side: str = "cpu", cost: float = 0) -> Finding:
    return Finding("", pattern, side, start, end, recoverable_us=cost)  # type: ignore[arg-type]


# -- pairs -----------------------------------------------------------------------------------------


def test_a_pair_is_measured_by_the_steps_in_which_the_fault_acts(folder: Path) -> None:
    (case,) = cases(folder, lambda row: row["name"] == "bad")
    told = Told(finding(STARVED, 300, 700, cost=90), finding(GC, 0, 90, cost=500))
    pair = pair_error.pair_of(case, told, {"twins": 100.0})  # type: ignore[arg-type]
    assert pair is not None
    assert (pair.pattern, pair.step, pair.realised) == (STARVED, 138, 38)
    assert pair.product == 30
    assert pair.claim == pytest.approx(40)
    assert pair.found


def test_without_a_twin_there_is_no_pair(folder: Path) -> None:
    (case,) = cases(folder, lambda row: row["name"] == "bad")
    assert pair_error.pair_of(case, Told(), {"others": 100.0}) is None  # type: ignore[arg-type]


def test_a_hard_negative_is_nobodys_twin() -> None:
    found = [label_of(100), label_of(104), label_of(300, extra="one .item()")]
    assert healthy_steps([*found, label_of(7, region(0, 1))]) == {"twins": 102}


def test_errors_are_shares_of_the_step_and_misses_predict_nothing() -> None:
    pairs = [
        pair_error.Pair("a", GC, 100, 20, 25, 20, True),
        pair_error.Pair("b", GC, 100, 40, 35, 0, False),
        pair_error.Pair("c", GC, 200, 2, 4, 0, False),
    ]
    found = pair_error.summary(pairs)
    assert list(found) == ["all", "measurable", GC]
    assert found["measurable"]["pairs"] == 2
    assert found["all"]["claim_error"] == [-0.02, 0.01, 0.03]
    assert found["all"]["product_error"][0] == -0.205
    assert found["all"]["claim_rank"] == 1.0
    assert found["all"]["found"] == pytest.approx(1 / 3)


def test_equal_values_share_their_rank() -> None:
    assert pair_error.rank_correlation([0, 0, 1, 2], [5, 5, 6, 9]) == 1.0
    assert pair_error.rank_correlation([0, 0, 0], [1, 2, 3]) is None


def test_pairs_of_a_folder_are_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "pairs.json"
    pair_error.main([str(folder), "flagger=rules", "judge=none", "--workers=1", f"--out={out}"])
    told = json.loads(out.read_text())["origins"]["recorded"]
    assert told["groups"]["all"]["pairs"] == 1
    assert told["groups"]["all"]["realised"] == [pytest.approx(38 / 138, abs=1e-4)] * 3
    assert STARVED in capsys.readouterr().out


# -- findings --------------------------------------------------------------------------------------

BAD = label_of(1, region(0, 100), region(200, 300, GC))


def held(*findings: Finding, label: Label = BAD, **unknown: object) -> end_to_end.Outcome:
    return end_to_end.held("t", label, Report(findings=findings), unknown)  # type: ignore[arg-type]


def test_a_finding_is_right_where_it_lies_on_its_label() -> None:
    found = held(finding(STARVED, 90, 150), finding(GC, 0, 150))
    assert (found.labelled, found.found, found.wrong) == ((STARVED, GC), (STARVED,), (GC,))


def test_every_place_of_a_finding_counts() -> None:
    several = replace(
        finding(GC, 0, 290), evidence={"occurrences": [{"start_us": 280, "end_us": 290}]}
    )
    beside = replace(several, evidence={"occurrences": [{"start_us": 0, "end_us": 90}]})
    assert held(several).found == (GC,)
    assert held(beside).wrong == (GC,)


@pytest.mark.parametrize(("end", "wrong"), [(151, 0), (149, 1)])
def test_where_nobody_knows_a_finding_is_not_wrong(end: float, wrong: int) -> None:
    found = held(finding("sync-explicit", 100, 200), cpu=intervals_of([(100, end)]))
    assert len(found.wrong) == wrong
    assert found.unknown == 1 - wrong


def test_what_was_not_checked_is_not_missed() -> None:
    report = Report(findings=(finding("unclear", 0, 9),), not_checked=(NotChecked(GC, "why"),))
    found = end_to_end.held("t", BAD, report, {})
    assert (found.labelled, found.not_checked) == ((STARVED,), (GC,))
    assert (found.unclear, found.wrong) == (1, ())


def test_figures_are_over_traces_and_over_healthy_ones() -> None:
    good = label_of(1)
    found = [
        held(finding(GC, 0, 9), label=good),
        held(label=good),
        held(finding(GC, 250, 260), finding("sync-explicit", 0, 1)),
    ]
    told = end_to_end.figures(found)
    values = {k: v["value"] for k, v in told.items() if isinstance(v, dict)}
    assert values["recall"] == 0.5
    assert values["precision"] == pytest.approx(1 / 3, abs=1e-4)
    assert values["findings_per_healthy_trace"] == 0.5
    assert end_to_end.by_pattern(found)[GC] == {"labelled": 1, "found": 1, "wrong": 1}


def test_a_folder_is_scanned_and_written(folder: Path) -> None:
    out = folder / "product.json"
    words = [str(folder), "flagger=rules", "judge=none", "--workers=1", f"--out={out}"]
    end_to_end.main(words)
    told = json.loads(out.read_text())
    assert told["groups"]["recorded"]["traces"] == 3
    assert told["groups"]["recorded"]["labelled"] == told["groups"]["recorded"]["costly"] == 1
    assert set(end_to_end.unknown_places(folder)) == {"good"}


def test_the_cards_say_whether_the_traces_were_trained_on(folder: Path) -> None:
    from hashlib import sha256

    from scripts.scanned import history

    mine = sha256((folder / "manifest.json").read_bytes()).hexdigest()
    card = {"traces_by_origin": {"recorded": 3}, "data_sha256": mine}
    assert history(folder, "judge", card).endswith(
        "the parts train, validation, test of this build."
    )
    assert "another build" in history(folder, "judge", card | {"data_sha256": "0"})
    assert "names no training data" in history(folder, "judge", {})


def test_a_folder_that_is_no_benchmark_is_named(tmp_path: Path) -> None:
    from detector.errors import DetectorError

    with pytest.raises(DetectorError, match="no finished benchmark"):
        manifest_of(tmp_path)
    assert Case("a", tmp_path / "a.json").name == "a"
