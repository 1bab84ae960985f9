"""A base cut down to its last steps: what belongs to them stays, nothing else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dataset.bases import Found
from dataset.trim import last_steps, trim, trim_long
from detector import kineto

Event = dict[str, Any]
STEP = 1_000.0


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> Event:
    on_device = cat in ("kernel", "gpu_user_annotation")
    where = {"pid": 0, "tid": 7} if on_device else {"pid": 1, "tid": 1}
    more = {"args": {**args, "device": 0, "stream": 7} if on_device else args}
    return {"ph": "X", "cat": cat, "name": name, **where, "ts": ts, "dur": dur, **more}


def flow(cat: str, phase: str, number: int, ts: float) -> Event:
    return {"ph": phase, "cat": cat, "name": cat, "id": number, "pid": 1, "tid": 1, "ts": ts}


def step(i: int, ops: int = 4) -> list[Event]:
    """A marked step whose last kernel runs on beyond it."""
    at, number = i * STEP, 10 * i
    events = [event("user_annotation", f"ProfilerStep#{i}", at, STEP)]
    for k in range(ops):
        ts = at + 10 + 200 * k
        events.append(event("cpu_op", "aten::mm", ts, 100))
        events.append(event("cuda_runtime", "cudaLaunchKernel", ts + 5, 5, correlation=number + k))
        runs = ts + 50 if k < ops - 1 else at + STEP + 3
        events.append(event("kernel", "gemm", runs, 5, correlation=number + k))
        events.append(flow("ac2g", "s", number + k, ts + 5))
        events.append(flow("ac2g", "f", number + k, runs))
    return events


FRAME = event("python_function", "train.py(1): main", 0.0, 4 * STEP)
METADATA = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}
EVENTS = [METADATA, FRAME, *(e for i in range(4) for e in step(i))]
DOCUMENT = {"schemaVersion": 1, "traceEvents": EVENTS, "traceName": "t.json"}


def cut(start: float, end: float, extra: list[Event] | None = None) -> list[Event]:
    document = {**DOCUMENT, "traceEvents": [*EVENTS, *(extra or [])]}
    found = trim(document, start, end)
    assert {k: v for k, v in found.items() if k != "traceEvents"} == {
        "schemaVersion": 1,
        "traceName": "t.json",
    }
    return found["traceEvents"]


def test_it_keeps_the_steps_and_what_they_issued() -> None:
    kept = cut(2 * STEP, 4 * STEP)
    assert kept[0] == METADATA
    # the kernel of step 1 that runs into step 2 was launched by what is gone, and ran all the same
    (late,) = (e for e in step(1) if e["ts"] > 2 * STEP and e["ph"] == "X")
    assert kept[2:] == [late, *step(2), *step(3)]


def test_a_device_that_lags_a_step_behind_does_not_wait() -> None:
    lagging = [{**e, "ts": e["ts"] + STEP} if e.get("cat") == "kernel" else e for e in EVENTS]
    kept = trim({**DOCUMENT, "traceEvents": lagging}, 2 * STEP, 4 * STEP)["traceEvents"]
    runs = [e["ts"] for e in kept if e.get("cat") == "kernel"]
    every = sorted(e["ts"] for e in lagging if e.get("cat") == "kernel")
    assert sorted(runs) == [ts for ts in every if ts >= 2 * STEP]


def test_outer_frames_begin_with_the_profiler() -> None:
    assert cut(2 * STEP, 4 * STEP)[1] == {**FRAME, "ts": 2 * STEP, "dur": 2 * STEP}
    whole = event("python_function", "f", 2_100, 50)
    over = {**event("python_function", "g", 1_990, 20), "ts": 1_990, "dur": 20}
    gone = event("python_function", "h", 100, 50)
    kept = cut(2 * STEP, 4 * STEP, [whole, over, gone])
    assert kept[-2:] == [whole, {**over, "ts": 2_000, "dur": 10}]
    assert type(kept[-1]["ts"]) is int  # as the file writes its times


def test_flows_stay_whole_or_go() -> None:
    across = [flow("fwdbwd", "s", 1, 1_500), flow("fwdbwd", "f", 1, 2_500)]
    inside = [flow("fwdbwd", "s", 2, 2_500), flow("fwdbwd", "f", 2, 2_600)]
    assert cut(2 * STEP, 4 * STEP, [*across, *inside])[-2:] == inside
    kept = cut(2 * STEP, 4 * STEP, [*across, *inside])
    assert not [e for e in kept if e["ph"] in "sf" and e["id"] == 1 and e["cat"] == "fwdbwd"]


def test_device_work_of_no_call_goes_by_its_own_time() -> None:
    graph = [event("kernel", "graph", 2_500, 5, correlation=-9), event("kernel", "early", 500, 5)]
    assert cut(2 * STEP, 4 * STEP, graph)[-1] == graph[0]


def found(folder: Path, events: list[Event]) -> Found:
    file = folder / "one.json.gz"
    file.write_bytes(gzip.compress(json.dumps({**DOCUMENT, "traceEvents": events}).encode()))
    return Found("one", file, "w", "d", "MIT", "0")


@pytest.mark.parametrize(
    ("most", "first"), [(1_000, None), (40, 1), (27, 2), (3, 2)], ids=["all", "three", "two", "few"]
)
def test_so_many_of_the_last_steps_as_fit_but_two_at_least(
    tmp_path: Path, most: int, first: int | None
) -> None:
    trace = kineto.read(found(tmp_path, EVENTS).file)
    span = last_steps(trace, most)
    assert span == (None if first is None else (first * 1_000_000, 4_000_000))


def test_a_short_base_and_one_without_steps_stay_as_they_are(tmp_path: Path) -> None:
    loose = [e for e in EVENTS if not e["name"].startswith("ProfilerStep")]
    for events, most in ((EVENTS, 1_000), (loose, 2)):
        base = found(tmp_path, events)
        assert trim_long([base], most, tmp_path / "short") == [base]
    assert not (tmp_path / "short").exists()


def test_the_short_one_is_a_trace_of_its_own(tmp_path: Path) -> None:
    base = found(tmp_path, EVENTS)
    (short,) = trim_long([base], 27, tmp_path / "short")
    assert (short.name, short.workload, short.sha256) == (base.name, base.workload, base.sha256)
    trace = kineto.read(short.file)
    assert [s.name for s in trace.steps] == ["ProfilerStep#2", "ProfilerStep#3"]
    assert trace.coverage.kernels_with_launch == pytest.approx(8 / 9)  # one was launched before
    once = short.file.read_bytes()
    assert trim_long([base], 27, tmp_path / "again")[0].file.read_bytes() == once
