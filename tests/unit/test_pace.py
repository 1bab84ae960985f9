"""The machine's pace in two recordings of one program, and what a fault costs at one pace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dataset import labels
from dataset.labels import Label, LabelRegion
from dataset.pace import own_times, pace
from dataset.units import Recorded, recorded

FAULT = "host-gc-pause"


def record(file: Path, slower: float, *, pause: float = 0.0) -> None:
    """Five steps of a large op and three small ones; every other step begins with a pause."""
    events, at = [], 0.0
    for i in range(5):
        begin = at
        at += pause
        for name, took in (("aten::mm", 1_000), ("aten::add", 50), ("aten::mul", 40)):
            events.append({"cat": "cpu_op", "name": name, "ts": at, "dur": took * slower})
            at += took * slower
        events.append(
            {"cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": begin, "dur": at - begin}
        )
    file.write_text(
        json.dumps({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1} | e for e in events]})
    )
    step = 1_090 * slower + pause
    regions = (LabelRegion(0.0, 100.0, FAULT, "cpu"),) if pause else ()
    acting = {"acting_step_us": step, "acting_steps": [True] * 5} if pause else {}
    label = Label(
        "recorded", "pair", "w", "cpu", "torch", 0, step, "bad" if pause else "good", regions
    )
    labels.write(Label(**{**vars(label), "parameters": acting}), labels.label_path(file))


def test_the_pace_is_that_of_the_ops_that_both_have(tmp_path: Path) -> None:
    one, other = tmp_path / "a.json", tmp_path / "b.json"
    record(one, 1.3, pause=500)
    record(other, 1.0)
    assert own_times(str(one)).keys() == {"aten::mm", "aten::add", "aten::mul"}
    assert pace(own_times(str(one)), own_times(str(other))) == pytest.approx(1.3, rel=0.01)
    assert pace(own_times(str(one)), {}) == 1.0


def test_a_slower_machine_is_not_what_the_fault_costs(tmp_path: Path) -> None:
    record(tmp_path / "healthy.json.gz", 1.0)
    record(tmp_path / "faulty.json.gz", 1.3, pause=500)
    units = {unit.name: unit for unit in recorded([str(tmp_path)])}
    faulty = units["recorded/faulty"]
    assert isinstance(faulty, Recorded)
    _, label = faulty.make()
    assert sum(r.cost_us or 0.0 for r in label.regions) == pytest.approx(5 * 500, rel=0.01)
    assert label.healthy_step_us == pytest.approx(1.3 * 1_090, rel=0.01)
