"""Large files are read by two processes: the same to the last number, whatever happens to one."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing.process
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detector.errors import TraceError
from detector.kineto import Limits, halves, read
from detector.trace import Trace

NEVER = 1 << 60
CATEGORIES = ("cpu_op", "kernel", "cuda_runtime", "python_function", "user_annotation")
SEEN_SHORTER = (
    "import os; from detector.kineto import halves; real, size = os.pread, os.fstat(0).st_size;"
    "os.pread = lambda fd, n, at: real(fd, min(n, max(0, size - 400 - at)), at); halves.serve()"
)
DIES_LATER = (
    "import pickle; from detector.kineto import halves, columns;"
    "columns.Builder.send = lambda self, out: out.write(b'half'); halves.serve()"
)
ELSEWHERE = (
    "from detector.kineto import blocks, halves;"
    "blocks.Blocks.held = property(lambda self: self._stop - self._start + 1); halves.serve()"
)


def event(number: int, **changes: Any) -> dict[str, Any]:
    category = CATEGORIES[number % len(CATEGORIES)]
    args = {"External id": number // 9, "correlation": number // 7, "device": 0, "stream": 7}
    if category == "cpu_op":
        args |= {"Input Dims": [[number % 11, 3], []], "Input type": ["float", ""]}
    if category == "kernel":
        args |= {"Collective name": f"reduce{number % 3000}", "grid": [number % 5, 1, 1]}
    return {
        "ph": "X" if number % 13 else "i",
        "cat": category,
        "name": f"name {number % 4001} \u00fc",
        "pid": number % 3,
        "tid": number % 50,
        "ts": number * 3 - number % 5 * 4 + 0.125,
        "dur": number % 40,
        "args": args,
    } | changes


def trace_text(indent: int | None, **middle: Any) -> str:
    events = [event(i) for i in range(5500)]
    events[3000] |= middle
    whole = {"schemaVersion": 1, "traceEvents": events, "traceName": "x", "baseTimeNanoseconds": 7}
    return json.dumps(whole, indent=indent)


@dataclasses.dataclass
class Processes:
    """The second processes that were started, and how many delivered."""

    started: list[subprocess.Popen[bytes]] = dataclasses.field(default_factory=list)
    delivered: int = 0


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Processes:
    seen = Processes()
    start, columns = subprocess.Popen, halves.Second.columns

    def watched(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        seen.started.append(start(*args, **kwargs))
        return seen.started[-1]

    def counted(self: halves.Second, builder: Any) -> None:
        columns(self, builder)
        seen.delivered += 1

    monkeypatch.setattr(halves, "LARGE", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(subprocess, "Popen", watched)
    monkeypatch.setattr(halves.Second, "columns", counted)
    return seen


def alone(path: Path) -> Trace:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halves, "LARGE", NEVER)
        return read(path)


def assert_same(one: Trace, two: Trace) -> None:
    for field in dataclasses.fields(Trace):
        a, b = getattr(one, field.name), getattr(two, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b, err_msg=field.name)
        else:
            assert a == b, field.name


def compared(path: Path, text: str | bytes) -> Trace:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    trace = read(path)
    assert_same(alone(path), trace)
    return trace


@pytest.mark.parametrize("indent", [None, 1, 2])
def test_two_processes_give_what_one_gives(
    seen: Processes, tmp_path: Path, indent: int | None
) -> None:
    trace = compared(tmp_path / "trace.json", trace_text(indent))
    assert trace.source.events == 5500
    assert trace.base_ns == 7
    assert seen.delivered == 1


INTACT = trace_text(2)
LATE = INTACT.rindex('"name": "name 3')
DAMAGED = {
    "cut in an event": INTACT[:-900],
    "no closing bracket": INTACT[: INTACT.rindex("}")],
    "a quote in a name": INTACT[:LATE] + INTACT[LATE:].replace("name 3", 'na"me 3', 1),
    "NaN": INTACT[:LATE] + INTACT[LATE:].replace('"dur": ', '"dur": NaN, "was": ', 1),
    "Latin-1": INTACT.encode()[:-5000].replace(b"name 1", b"n\xe4me") + INTACT.encode()[-5000:],
    "a log line": INTACT[:LATE] + "\n[W1105 10:00:00] warning\n" + INTACT[LATE:],
    "begins and ends": INTACT.replace('"ph": "i"', '"ph": "B"'),
    "text after the end": INTACT + "and more",
    "the array ends early": INTACT[:LATE] + '"x"}], "a": [{' + INTACT[LATE:],
    "zeros at the end": INTACT[:-40000] + "\0" * 40000,
    "the array ends in the first half": INTACT.replace('"ph": "X",', '"ph": "X"}], "a": [{', 1),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damage_is_treated_the_same(seen: Processes, tmp_path: Path, what: str) -> None:
    compared(tmp_path / "trace.json", DAMAGED[what])


def test_one_event_across_the_middle(seen: Processes, tmp_path: Path) -> None:
    inner = [{"ph": "X", "cat": "kernel", "name": "no event", "ts": 1, "dur": 1}] * 15_000
    compared(tmp_path / "trace.json", trace_text(2, args={"list": inner}))
    assert len(seen.started) == 1
    assert seen.delivered == 0


@pytest.mark.parametrize(
    "code", ["raise SystemExit(3)", "print('nonsense')", SEEN_SHORTER, DIES_LATER, ELSEWHERE]
)
def test_a_second_process_that_fails_costs_only_time(
    seen: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(halves, "_CODE", code)
    compared(tmp_path / "trace.json", trace_text(2))
    assert len(seen.started) == 1
    assert seen.delivered == 0


def test_no_process_is_left_behind(seen: Processes, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(INTACT)
    read(path)
    with pytest.raises(TraceError, match="max_events"):
        read(path, limits=Limits(max_events=10))
    with pytest.raises(TraceError, match="max_events"):
        read(path, limits=Limits(max_events=5000))
    assert len(seen.started) == 3
    assert all(process.returncode is not None for process in seen.started)


def test_where_no_process_may_or_can_start(
    seen: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    for owner, name, value in (
        (os, "sched_getaffinity", lambda _: {0}),
        (multiprocessing.process, "parent_process", lambda: "a pool's"),
        (sys, "executable", str(tmp_path / "no-python")),
        (sys, "executable", ""),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            compared(path, INTACT)
    with path.open("rb") as file:
        assert_same(alone(path), read(file))
    assert not seen.started
