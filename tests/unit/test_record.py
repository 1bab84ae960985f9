"""The recorder: marks become regions and leave no trace; the committed traces are as labeled."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

from dataset import faults, labels, marks
from dataset.faults import FAULT_BY_ID, Case, acting_steps, cases, skipped
from dataset.record import forbidden_words, record_case
from dataset.workloads.setting import draw
from detector.patterns import BY_ID

RECORDED = Path(__file__).resolve().parents[2] / "dataset" / "recorded"
ALL = list(labels.labeled(RECORDED)) if RECORDED.is_dir() else []


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 1, "args": args}


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    return event("user_annotation", f"ProfilerStep#{number}", ts, dur)


def op(name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return event("cpu_op", name, ts, dur, **args)


def frame(name: str, number: int, parent: int | None, ts: float = 0.0) -> dict[str, Any]:
    args = {"Python id": number, "Python parent id": parent, "Ev Idx": number + 100}
    return event("python_function", name, ts, 9.0, **args)


def flow(phase: str, number: int, ts: float) -> dict[str, Any]:
    return {"ph": phase, "cat": "fwdbwd", "name": "fwdbwd", "id": number, "ts": ts, "tid": 1}


def events_of(path: Path) -> list[dict[str, Any]]:
    return msgspec.json.decode(gzip.decompress(path.read_bytes()))["traceEvents"]


def spans(found: list[labels.LabelRegion]) -> list[tuple[float, float, str]]:
    return [(r.start_us, r.end_us, r.pattern) for r in found]


def test_a_mark_becomes_a_region_on_the_taxonomys_side() -> None:
    found = marks.regions([step(1, 0, 1000), op("@@memory-zero-grad-fill", 100, 50)])
    assert found == [labels.LabelRegion(100, 150, "memory-zero-grad-fill", "gpu")]


def test_close_marks_are_one_occurrence_and_distant_ones_two() -> None:
    events = [step(1, 0, 1000)] + [op("@@host-gc-pause", t, 10) for t in (100, 120, 500)]
    assert spans(marks.regions(events)) == [
        (100, 130, "host-gc-pause"),
        (500, 510, "host-gc-pause"),
    ]


def test_an_occurrence_does_not_cross_a_step() -> None:
    events = [step(1, 0, 100), step(2, 100, 100)]
    events += [op("@@host-gc-pause", 90, 10), op("@@host-gc-pause", 101, 10)]
    assert len(marks.regions(events)) == 2


def test_dense_occurrences_join_over_a_tenth_of_a_step() -> None:
    events = [step(1, 0, 1000)]
    events += [op("@@memory-dtype-churn", 80.0 * i, 5) for i in range(8)]
    assert spans(marks.regions(events)) == [(0, 565, "memory-dtype-churn")]


def test_backward_nodes_of_marked_ops_are_regions_too() -> None:
    node = "autograd::engine::evaluate_function: MulBackward0"
    events = [
        step(1, 0, 1000),
        op("@@memory-redundant-copy", 100, 50),
        op("aten::clone", 110, 5),
        flow("s", 1, 110),
        op("aten::mul", 200, 5),
        flow("s", 2, 200),
        op(node, 600, 20),
        flow("f", 2, 601),
        op(node, 800, 30),
        flow("f", 1, 801),
    ]
    found = spans(marks.regions(events))
    assert found == [
        (100, 150, "memory-redundant-copy"),
        (800, 830, "memory-redundant-copy"),
    ]


def test_a_narrowed_mark_spans_its_events_only() -> None:
    events = [
        step(1, 0, 1000),
        op("@@comm-small-collectives", 100, 500),
        op("gloo:all_reduce", 50, 10),
        op("gloo:all_reduce", 300, 20),
        op("gloo:all_reduce", 580, 90),
    ]
    assert spans(marks.regions(events)) == [(300, 600, "comm-small-collectives")]


def test_waits_that_were_none_are_no_region() -> None:
    events = [step(i, 1000 * i, 1000) for i in range(3)]
    events += [op("@@input-dataloader-starved", 1000 * i, d) for i, d in enumerate((400, 5, 300))]
    assert [r.start_us for r in marks.regions(events)] == [0, 2000]


def test_cleaning_leaves_no_mark_no_place_and_no_gap() -> None:
    raw = {
        "host_name": "somewhere",
        "traceName": "/tmp/x/raw.json",
        "distributedInfo": {"backend": "gloo", "rank": 0, "hostname": "somewhere"},
        "traceEvents": [
            frame("hydra/main.py(94): decorated_main", 1, None),
            frame("dataset/workloads/running.py(10): main", 2, 1),
            frame("/root/p/dataset/workloads/training.py(20): step", 3, 2),
            frame("/root/.venv/lib/python3.11/site-packages/torch/nn/f.py(3): relu", 4, 3),
            op("@@host-gc-pause", 1, 2, **{"External id": 5, "Ev Idx": 0}),
            op("aten::add", 4, 2, **{"External id": 6, "Ev Idx": 1}),
        ],
    }
    cleaned = marks.clean(json.loads(json.dumps(raw)), seed=1)
    text = json.dumps(cleaned)
    assert not marks.leaks(text, ["@@", "somewhere", "/tmp", "/root", "dataset/", "hydra"])
    first, second, third, last = cleaned["traceEvents"]
    assert first["name"].endswith(": main")
    assert first["args"]["Python parent id"] is None
    assert re.fullmatch(r".*train\.py\(\d+\): step", second["name"])
    assert second["args"]["Python parent id"] == first["args"]["Python id"] == 1
    assert third["name"] == "torch/nn/f.py(3): relu"
    assert last["args"] == {"External id": 5}


def test_twins_share_everything_but_the_fault() -> None:
    todo = cases("cpu")
    twins = {c.pair: c for c in todo if not c.patterns and not c.extra}
    assert len({c.name for c in todo}) == len(todo)
    for case in todo:
        if case.patterns:
            twin = twins[case.pair]
            assert (case.workload, case.variant, case.seed) == (
                *(twin.workload, twin.variant, twin.seed),
            )
            assert case.with_stack == twin.with_stack
            assert draw(case.workload, case.variant, "cpu", case.seed) == draw(
                twin.workload, twin.variant, "cpu", twin.seed
            )


def test_names_tell_nothing() -> None:
    for case in cases("cpu") + cases("cuda"):
        assert not marks.leaks(case.name, BY_ID)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_pattern_is_recorded_or_skipped_with_a_reason(device: str) -> None:
    recorded = {p for case in cases(device) for p in case.patterns}
    reasons = dict(skipped(device))
    assert recorded | set(reasons) == set(BY_ID)
    assert not recorded & set(reasons)
    assert all(reasons.values())


def test_a_fault_acts_in_the_same_steps_whenever_it_is_asked() -> None:
    case = Case("language", "plain", 0, ("host-gc-pause",))
    assert acting_steps(case, 6) == acting_steps(case, 6)
    assert all(any(acting_steps(c, 5)) for c in cases("cpu") if c.patterns)


def test_about_half_of_the_faulty_traces_carry_the_fault_everywhere() -> None:
    bad = [case for case in cases("cpu") if case.patterns]
    everywhere = sum(all(acting_steps(case, 6)) for case in bad)
    assert 0.35 <= everywhere / len(bad) <= 0.65


def test_a_program_is_recorded_end_to_end(tmp_path: Path) -> None:
    case = Case("language", "decode", 4, ("infer-kv-cat",), with_stack=True)
    path = tmp_path / f"{case.name}.json.gz"
    label = record_case(case, "cpu", path)
    assert list(labels.labeled(tmp_path)) == [(path, label)]
    text = gzip.decompress(path.read_bytes()).decode()
    events = json.loads(text)["traceEvents"]
    assert label.patterns == ("infer-kv-cat",)
    assert all(inside(events, region, "cpu_op", "aten::cat") for region in label.regions)
    assert not marks.leaks(text, forbidden_words())
    frames = [e["name"] for e in events if e.get("cat") == "python_function"]
    assert any(name.endswith(": main") for name in frames)
    assert not [name for name in frames if "pytest" in name or "running.py" in name]
    assert record_case(case, "cpu", path, takes=1).pair == label.pair


def test_there_are_committed_traces() -> None:
    patterns = {p for _, label in ALL for p in label.patterns}
    assert len({label.workload for _, label in ALL if label.regions}) >= 5
    assert len(patterns) >= 12
    assert sum(path.stat().st_size for path, _ in ALL) < 60_000_000


@pytest.mark.parametrize(
    ("path", "label"), ALL, ids=lambda x: x.name if isinstance(x, Path) else ""
)
def test_a_committed_trace_gives_nothing_away(path: Path, label: labels.Label) -> None:
    text = gzip.decompress(path.read_bytes()).decode()
    assert not marks.leaks(text, forbidden_words())
    for region in label.regions:
        assert region.pattern in FAULT_BY_ID
        assert region.side == BY_ID[region.pattern].side


@pytest.mark.parametrize(
    ("path", "label"), ALL[::7], ids=lambda x: x.name if isinstance(x, Path) else ""
)
def test_regions_lie_in_the_steps_of_their_trace(path: Path, label: labels.Label) -> None:
    events = events_of(path)
    times = marks.step_times(events)
    assert len(times) == label.parameters["steps"]
    first = min(e["ts"] for e in events if e.get("ph") == "X")
    last = max(e["ts"] + e["dur"] for e in events if e.get("ph") == "X")
    assert all(first <= r.start_us < r.end_us <= last + 1 for r in label.regions)
    if label.regions:
        assert marks.acting(events, label.regions) == label.parameters["acting_steps"]


# What must lie inside the regions of a pattern: (category or None, name, how often at least).
FOOTPRINT: dict[str, tuple[str, str, int]] = {
    "input-dataloader-sync": ("user_annotation", r"_SingleProcessDataLoaderIter", 1),
    "input-dataloader-starved": ("user_annotation", r"_MultiProcessingDataLoaderIter", 1),
    "input-main-thread-preprocessing": ("cpu_op", r"aten::(stack|cat)", 1),
    "host-loop-indexing": ("cpu_op", r"aten::(select|slice)", 10),
    "memory-zero-grad-fill": ("cpu_op", r"aten::zero_", 10),
    "memory-redundant-copy": ("cpu_op", r"aten::(clone|cat|contiguous)", 2),
    "memory-layout-transform": ("cpu_op", r"aten::(clone|_to_copy|contiguous)", 2),
    "memory-dtype-churn": ("cpu_op", r"aten::_to_copy", 4),
    "compute-unfused-attention": ("cpu_op", r"aten::(bmm|softmax)", 3),
    "compute-unfused-elementwise": ("cpu_op", r"aten::(mul|add|tanh|exp|mean|reciprocal)", 3),
    "compute-single-tensor-optimizer": ("user_annotation", r"Optimizer.step#", 1),
    "compute-conv-bias-batchnorm": ("cpu_op", r"aten::conv2d", 2),
    "compile-graph-break": ("cpu_op", r"Torch-Compiled Region", 2),
    "compile-recompile": ("cpu_op", r"_compile", 1),
    "comm-missing-no-sync": ("cpu_op", r"all_?reduce", 1),
    "comm-small-collectives": ("cpu_op", r"all_?reduce", 3),
    "infer-autograd": ("cpu_op", r"aten::(conv2d|linear)", 3),
    "infer-kv-cat": ("cpu_op", r"aten::cat", 2),
}


@pytest.mark.parametrize("pattern", sorted({p for _, label in ALL for p in label.patterns}))
def test_the_fault_itself_lies_in_its_regions(pattern: str) -> None:
    path, label = next((path, x) for path, x in ALL if x.patterns == (pattern,))
    events = events_of(path)
    if pattern in ("host-gc-pause", "host-python-overhead"):  # no operator runs: that is the fault
        assert all(not inside(events, region, "cpu_op", "aten::") for region in label.regions)
        return
    category, name, least = FOOTPRINT[pattern]
    found = sum(len(inside(events, region, category, name)) for region in label.regions)
    assert found >= least * sum(label.parameters["acting_steps"])


def inside(
    events: list[dict[str, Any]], region: labels.LabelRegion, category: str, name: str
) -> list[dict[str, Any]]:
    """The events of a category and a name that start inside a region."""
    return [
        e
        for e in events
        if e.get("cat") == category
        and region.start_us <= e["ts"] < region.end_us
        and re.search(name, e["name"])
    ]


def test_every_bad_trace_has_its_healthy_twin() -> None:
    good = {label.pair for _, label in ALL if label.quality == "good"}
    assert not [path.name for path, label in ALL if label.regions and label.pair not in good]


def test_the_extras_and_the_hard_cases_name_known_programs() -> None:
    known = [(workload, variant) for workload, variant, _ in faults.EXTRAS]
    known += [(workload, variant) for workload, variant, *_ in faults.HARD]
    for workload, variant in known:
        assert draw(workload, variant, "cpu", 0).steps >= 5


def test_all_hard_cases_are_committed() -> None:
    hard = {case.name for case in cases("cpu") if case.workload in faults.HARD_WORKLOADS}
    recorded = {path.name.removesuffix(labels.TRACE_SUFFIX) for path, _ in ALL}
    assert hard <= recorded


def test_a_service_answers_requests_as_its_fault_says(tmp_path: Path) -> None:
    case = Case("encoder", "service", 3, ("host-python-overhead",), with_stack=True)
    path = tmp_path / f"{case.name}.json.gz"
    label = record_case(case, "cpu", path)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert label.patterns == ("host-python-overhead",)
    assert not any(inside(events, region, "cpu_op", "aten::linear") for region in label.regions)
    frames = [e["name"] for e in events if e.get("cat") == "python_function"]
    assert any(re.search(r"serve\.py\(\d+\): reply", name) for name in frames)
