"""Is injected like real: what a model can tell apart, where two distributions differ, the table."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataset import labels, realism, signature
from dataset.labels import Label
from dataset.realism import OWN, Control, Job, Likeness, distances, into_twin, jobs, separation
from detector.lab.metrics import Estimate
from detector.taxonomy import NONE

pd = pytest.importorskip("pandas", reason="the comparison needs the train extra")

SURE = Estimate(0.9, 0.8, 1.0)
NOT_KNOWN = realism.UNKNOWN


def rows(values: Any, programs: int = 4, **about: object) -> Any:
    """Windows whose first feature has these values, the others are drawn; in turn of a program."""
    random = np.random.default_rng(len(values))
    frame = pd.DataFrame(random.normal(size=(len(values), len(OWN))), columns=list(OWN))
    frame[OWN[0]] = np.asarray(values, float)
    frame["workload"] = [f"p{i % programs}" for i in range(len(values))]
    return frame.assign(**about)


# -- telling apart ---------------------------------------------------------------------------------


def test_kinds_that_differ_are_distinguished_on_other_programs() -> None:
    found = separation(rows(np.zeros(40)), rows(np.ones(60)), "workload")
    assert found.value == 1.0


def test_kinds_that_do_not_differ_are_not() -> None:
    random = np.random.default_rng(0)
    one, other = rows(random.normal(size=300), 10), rows(random.normal(size=301), 10)
    found = separation(one, other, "workload")
    assert 0.35 < found.value < 0.65
    assert found.low < 0.5 < found.high


def test_what_only_holds_within_a_program_is_not_learned() -> None:
    """The sign differs from program to program, so nothing carries over to another one."""
    sign = np.array([1, -1, 1, -1] * 10)
    found = separation(rows(-sign), rows(sign), "workload")
    assert found.value < 0.6


@pytest.mark.parametrize(("first", "second", "programs"), [(5, 100, 4), (100, 5, 4), (100, 100, 2)])
def test_too_few_windows_or_programs_say_nothing(first: int, second: int, programs: int) -> None:
    found = separation(rows(np.zeros(first), programs), rows(np.ones(second), programs), "workload")
    assert np.isnan(found.value)


def test_the_features_that_differ_most_come_first() -> None:
    one, other = rows([0.0, 1.0, 2.0, np.nan]), rows([1.5, 3.0, 4.0])
    one[list(OWN[1:])] = other[list(OWN[1:])] = 0.0
    assert distances(one, other)[:2] == ((OWN[0], pytest.approx(2 / 3)), (min(OWN[1:]), 0.0))
    one[OWN[1]], other[OWN[1]] = -1.0, 1.0
    assert [name for name, _ in distances(one, other)[:2]] == [OWN[1], OWN[0]]
    one[OWN[1]] = np.nan  # nothing known of it
    assert distances(one, other)[0][0] == OWN[0]


# -- signatures ------------------------------------------------------------------------------------


def windows(pair: str, quality: str, pattern: str, values: list[float]) -> Any:
    share = float(pattern != NONE)
    about = {"pair": pair, "quality": quality, "pattern": pattern, "cpu": share, "gpu": 0.0}
    return pd.DataFrame({"busy": values, "calls": values[::-1]}).assign(**about)


def test_a_shift_is_counted_against_the_same_program_and_has_no_scale() -> None:
    both = pd.concat(
        [
            windows("a", "good", NONE, [1.0, 2.0]),
            windows("a", "bad", "host-gc-pause", [5.0, 9.0]),
            windows("b", "good", NONE, [1e6, 2e6]),
            windows("b", "bad", "host-gc-pause", [5.0, 9.0]),
            windows("c", "bad", "host-gc-pause", [5.0, 9.0]),  # nothing to compare with
        ]
    )
    found = signature.signatures(both, ("busy", "calls"))
    assert set(found) == {"host-gc-pause"}
    assert found["host-gc-pause"].tolist() == [0.0, 0.0]  # up in a, down in b
    only = signature.signatures(both[both["pair"] == "a"], ("busy", "calls"))
    assert only["host-gc-pause"].tolist() == [1.0, 1.0]


def test_what_is_not_known_is_left_out_of_a_shift() -> None:
    reference = np.array([[1.0, np.nan], [np.nan, np.nan]])
    found = signature.shifts(reference, np.array([[0.0, 1.0]]))
    assert found[0] == -1.0
    assert np.isnan(found[1])


def test_likeness_is_a_cosine_and_the_own_pattern_takes_a_place() -> None:
    up, half = np.array([1.0, 0.0, np.nan]), np.array([1.0, 1.0, 1.0])
    assert signature.alike(up, half) == pytest.approx(1 / np.sqrt(2))
    assert np.isnan(signature.alike(up, np.zeros(3)))
    injected = {"a": half, "b": np.array([2.0, 0.0, 0.0])}
    assert signature.place(up, "b", injected) == (1, 2)
    assert signature.place(up, "a", injected) == (2, 2)
    assert signature.place(up, "c", injected) == (0, 2)


# -- the fault in the twin -------------------------------------------------------------------------

HEALTHY = Label(
    origin="recorded",
    pair="p-1",
    workload="p",
    device="cpu",
    framework="torch 2.13.0",
    seed=1,
    step_us=1000.0,
    quality="good",
)


def op(ts: float, dur: float, name: str) -> dict[str, Any]:
    thread = {"pid": 1, "tid": 1}
    kind = "user_annotation" if name.startswith("Profiler") else "cpu_op"
    return {"ph": "X", "cat": kind, "name": name, **thread, "ts": ts, "dur": dur}


@pytest.fixture
def twin(tmp_path: Path) -> Path:
    """Four steps of twenty ops on a CPU."""
    steps = [op(1000 * i, 995, f"ProfilerStep#{i}") for i in range(4)]
    ops = [op(1000 * i + 49 * k, 40, "aten::mm") for i in range(4) for k in range(20)]
    file = tmp_path / "twin.json.gz"
    events = {"schemaVersion": 1, "traceEvents": steps + ops}
    file.write_bytes(gzip.compress(json.dumps(events).encode()))
    labels.write(HEALTHY, labels.label_path(file))
    return file


def job(twin: Path, pattern: str) -> Job:
    return Job("recorded/p", pattern, twin, "p", "cpu", "every", 3)


def test_a_fault_is_put_into_the_twin_and_labeled(twin: Path) -> None:
    made = into_twin(job(twin, "host-gc-pause"))
    assert made is not None
    frame, cost = made
    assert "host-gc-pause" in set(frame["pattern"])
    assert set(frame["workload"]) == {"p"}
    assert set(OWN) <= set(frame.columns)
    assert 0.01 < cost["host-gc-pause"] < 0.9


def test_a_fault_that_needs_a_device_is_left_out_of_the_cpu_s_traces(twin: Path) -> None:
    assert into_twin(job(twin, "compute-fp32-matmul")) is None


def test_a_job_is_a_recorded_fault_beside_its_plain_healthy_twin(tmp_path: Path) -> None:
    about = {"origin": "recorded", "workload": "p", "device": "cpu", "extent": "some", "seed": 1}
    good = about | {"quality": "good", "patterns": [], "parameters": "{}"}
    bad = about | {"quality": "bad", "patterns": ["host-gc-pause"], "parameters": "{}"}
    table = pd.DataFrame(
        [
            good | {"trace": "a", "pair": "1", "file": "traces/a.json.gz"},
            good
            | {"trace": "b", "pair": "1", "file": "traces/b.json.gz"}
            | {"parameters": '{"extra": "one readback"}'},
            bad | {"trace": "c", "pair": "1", "file": "traces/c.json.gz"},
            bad | {"trace": "d", "pair": "2", "file": "traces/d.json.gz"},  # no twin
            bad
            | {"trace": "e", "pair": "1", "file": "traces/e.json.gz"}
            | {"patterns": ["host-gc-pause", "sync-explicit"]},
            bad | {"trace": "f", "pair": "1", "file": "traces/f.json.gz"} | {"origin": "injected"},
        ]
    )
    (only,) = jobs(tmp_path, table)
    assert (only.trace, only.twin) == ("c", tmp_path / "traces/a.json.gz")


# -- the table -------------------------------------------------------------------------------------


def test_the_table_says_what_is_known_and_a_dash_where_nothing_is() -> None:
    known = Likeness(
        "host-gc-pause",
        4,
        (12, 11),
        (47, 68),
        (0.161, 0.111),
        SURE,
        Estimate(0.6, 0.5, 0.7),
        NOT_KNOWN,
        0.62,
        (2, 36),
        (("busy", 0.5),),
    )
    bare = replace(known, pattern="sync-explicit", same=NOT_KNOWN, place=(0, 36), differ=())
    lines = realism.text([known, bare], Control(SURE, NOT_KNOWN)).splitlines()
    assert lines[2] == (
        "| host-gc-pause | 4 | 12 / 11 | 47 / 68 | 16.1 % / 11.1 % | 0.90 [0.80, 1.00] |"
        " 0.60 [0.50, 0.70] | – | 0.62, 2 of 36 | `busy` 0.50 |"
    )
    assert lines[3].split(" | ")[5:] == ["–", "0.60 [0.50, 0.70]", "–", "–", "– |"]
    assert "untouched bases, AUC 0.90 [0.80, 1.00]; those bases against" in lines[-1]


def test_a_folder_without_a_benchmark_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert realism.main([str(tmp_path)]) == 2
    assert "no finished benchmark" in capsys.readouterr().err
