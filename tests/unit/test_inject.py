"""Faults put into hand-written bases: what the new file says, and what it must not give away."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataset import labels
from dataset.costs import cost_faults
from dataset.inject import injection
from dataset.inject.apply import apply
from dataset.inject.axis import Axis
from dataset.inject.base import Base, Span
from dataset.inject.document import write
from dataset.inject.edits import Alter, Call, Edit, Insert, Unfit
from dataset.inject.injection import TooFaint, inject, inject_many, untouched
from dataset.inject.numbering import Numbering, stride_of
from dataset.inject.outcome import Fresh, Outcome, Placed
from dataset.inject.raw import encode
from dataset.inject.regions import fault_regions, unknown_regions
from dataset.labels import UNKNOWN, LabelRegion
from dataset.marks import leaks
from detector import kineto
from detector.intervals import Intervals
from detector.trace import Cat, Trace

Event = dict[str, Any]
STYLES = ("2021", "2023", "2024", "2025")  # of files: see ``Writer``
STEP, STEPS, LAYERS = 1_000, 4, 4
ORIGIN = {"2021": 1_623_212_388_000_000, "2023": 1_690_000_000_000_000}
WORDS_2021 = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
}


class Writer:
    """A small training program as Kineto of that year wrote it.

    2021: whole us, old words, op ids on calls, no flow for calls that launch nothing. 2023: whole
    us, External ids that repeat the correlation. 2024: absolute times with three decimals. 2025:
    relative times, op ids, stacks.
    """

    def __init__(self, style: str) -> None:
        self.style, self.events = style, list[Event]()
        self.op, self.call, self.frame = 0, 100, 0
        for step in range(STEPS):
            self.step(step, step * STEP)
        last = STEPS * STEP
        self.add(
            "Trace",
            "PyTorch Profiler (0)",
            -5,
            last + 20,
            "Spans",
            "PyTorch Profiler",
            {"Op count": 0},
        )
        self.events.append(
            {
                "name": "process_name",
                "ph": "M",
                "ts": self.at(-5),
                "pid": 9,
                "tid": 0,
                "args": {"name": "python"},
            }
        )

    def at(self, us: float) -> Any:
        if self.style in ORIGIN:
            return ORIGIN[self.style] + int(us)
        origin = 1_712_195_495_000_000 if self.style == "2024" else 4_458_676_000_000
        return us + origin + 0.125

    def add(
        self, cat: str, name: str, start: float, dur: float, pid: Any, tid: Any, args: Event
    ) -> None:
        word = WORDS_2021.get(cat, cat) if self.style == "2021" else cat
        length = int(dur) if self.style in ORIGIN else dur + 0.25
        event = {"ph": "X", "cat": word, "name": name, "pid": pid, "tid": tid}
        self.events.append({**event, "ts": self.at(start), "dur": length, "args": args})

    def host(self, cat: str, name: str, start: float, dur: float, args: Event) -> None:
        self.add(cat, name, start, dur, 9, "9" if self.style == "2021" else 9, args)

    def step(self, index: int, start: float) -> None:
        self.op += 1
        self.host(
            "user_annotation", f"ProfilerStep#{index}", start, STEP - 20, {"External id": self.op}
        )
        if self.style == "2025":
            self.frame += 1
            args = {"Python parent id": None, "Python id": self.frame}
            self.host("python_function", "train.py(12): step", start + 1, STEP - 22, args)
        for layer in range(LAYERS):
            self.layer(start + 20 + layer * 220)

    def layer(self, start: float) -> None:
        self.op += 1
        args: Event = {"External id": self.op}
        if self.style != "2023":
            args |= {"Input Dims": [[64, 256], []], "Input type": ["float", ""]}
        self.host("cpu_op", "aten::mul", start, 40, args)
        self.instant(start + 3)
        self.launch(start + 10, 8, start + 25, 150, self.op)
        self.host_call("cudaEventQuery", start + 30, 4, self.op)

    def launch(self, start: float, dur: float, begins: float, lasts: float, op: int) -> None:
        correlation = self.host_call("cudaLaunchKernel", start, dur, op)
        place: tuple[Any, Any] = ("0", "stream 7") if self.style == "2021" else (0, 7)
        args: Event = {
            "queued": 0,
            "device": 0,
            "context": 1,
            "stream": 7,
            "correlation": correlation,
        }
        args |= self.linked(op, correlation)
        args |= {"registers per thread": 16, "blocks per SM": 1.25, "warps per SM": 5.0}
        args |= {"grid": [135, 1, 1], "block": [128, 1, 1]}
        name = (
            "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)"
        )
        self.add("kernel", name, begins, lasts, place[0], place[1], args)
        self.flow("f", correlation, begins, place[0], place[1])

    def host_call(self, name: str, start: float, dur: float, op: int) -> int:
        self.call += 3
        args = {"cbid": 211 if "Launch" in name else 136, "correlation": self.call}
        self.host("cuda_runtime", name, start, dur, {**args, **self.linked(op, self.call)})
        if "Launch" in name:
            self.flow("s", self.call, start, 9, 9)
        elif self.style != "2021":
            self.flow("f", self.call, start, 9, 9)
        return self.call

    def linked(self, op: int, correlation: int) -> Event:
        if self.style == "2021":
            return {"external id": op}
        return {"External id": correlation if self.style == "2023" else op}

    def flow(self, phase: str, number: int, at: float, pid: Any, tid: Any) -> None:
        cat, name = ("async", "launch") if self.style == "2021" else ("ac2g", "ac2g")
        flow = {"ph": phase, "id": number, "pid": pid, "tid": tid, "ts": self.at(at), "cat": cat}
        self.events.append({**flow, "name": name, **({"bp": "e"} if phase == "f" else {})})

    def instant(self, at: float) -> None:
        event = {"ph": "i", "s": "t", "name": "[memory]", "pid": 9, "tid": 9, "ts": self.at(at)}
        self.events.append({**event, "args": {"Bytes": 64, "Device Type": 1}})

    def document(self) -> Event:
        device = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}
        head = {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": self.events}
        return {**head, "traceName": "run.json"}


def base_of(tmp_path: Path, style: str = "2025") -> Base:
    path = tmp_path / f"run{style}.json"
    path.write_text(json.dumps(Writer(style).document()))
    return Base.open(path)


def read(document: Event) -> Trace:
    return kineto.read(io.BytesIO(encode(document)))


def columns(trace: Trace) -> Event:
    """Everything that a reader takes from a file; names by their text."""
    arrays = {f.name: getattr(trace, f.name) for f in fields(trace)}
    plain = {k: v.tolist() for k, v in arrays.items() if isinstance(v, np.ndarray)}
    for key in ("name", "dims", "types", "collective", "group"):
        plain[key] = [trace.names[i] if i >= 0 else "" for i in plain[key]]
    plain["track"] = [trace.tracks[i] for i in plain["track"]]
    return {**plain, "steps": trace.steps}


def unchanged(base: Base) -> Outcome:
    t = base.trace
    return Outcome(t.start, t.end, np.ones(len(t), np.bool_))


def late(base: Base, at: int, by: int, *fresh: Placed) -> Outcome:
    """Everything from ``at`` on happens ``by`` ns later; what holds that instant is longer."""
    t = base.trace
    start, end = (
        np.where(t.start >= at, t.start + by, t.start),
        np.where(t.end > at, t.end + by, t.end),
    )
    return Outcome(start, end, np.ones(len(t), np.bool_), fresh)


def slices(document: Event, name: str) -> list[Event]:
    return [e for e in document["traceEvents"] if e.get("ph") == "X" and e["name"] == name]


# -- the document ----------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_an_untouched_base_reads_the_same_and_keeps_its_values(tmp_path: Path, style: str) -> None:
    base = base_of(tmp_path, style)
    document = write(base, unchanged(base))
    assert columns(read(document)) == columns(base.trace)
    before = json.loads(base.path.read_text())
    after = json.loads(encode(document))
    assert after == before
    assert [list(e) for e in after["traceEvents"]] == [list(e) for e in before["traceEvents"]]


@pytest.mark.parametrize("style", STYLES)
def test_moved_rows_are_read_where_the_replay_put_them(tmp_path: Path, style: str) -> None:
    base = base_of(tmp_path, style)
    at, by = base.spans[1].start + 300_000, 123_000
    outcome = late(base, at, by)
    again = read(write(base, outcome))
    order = np.lexsort((-(outcome.end - outcome.start), outcome.start))
    assert sorted(again.start.tolist()) == sorted(outcome.start.tolist())
    assert again.end[np.argsort(again.start, kind="stable")].max() == outcome.end.max()
    assert again.dur.tolist() == (outcome.end - outcome.start)[order].tolist()


@pytest.mark.parametrize("style", STYLES)
def test_flows_sit_on_their_slices_and_instants_in_their_ops(tmp_path: Path, style: str) -> None:
    base = base_of(tmp_path, style)
    document = write(base, late(base, base.spans[2].start + 5_000, 77_000))
    events = document["traceEvents"]
    starts = {(e["args"].get("correlation"), e["ts"]) for e in events if e["ph"] == "X"}
    flows = [e for e in events if e["ph"] in "sf"]
    assert flows
    assert all((e["id"], e["ts"]) in starts for e in flows)
    ops = [e for e in events if e.get("name") == "aten::mul"]
    inside = [
        any(op["ts"] <= e["ts"] < op["ts"] + op["dur"] for op in ops)
        for e in events
        if e["ph"] == "i"
    ]
    assert inside
    assert all(inside)
    [whole] = [e for e in events if e.get("cat") == "Trace"]
    assert all(e["ts"] + e["dur"] <= whole["ts"] + whole["dur"] for e in events if e["ph"] == "X")


def test_whole_microseconds_stay_whole_and_nested(tmp_path: Path) -> None:
    base = base_of(tmp_path, "2023")
    outcome = late(base, base.spans[1].start + 30_000, 1_499)  # between two microseconds
    document = write(base, outcome)
    times = [v for e in document["traceEvents"] for v in (e["ts"], e.get("dur", 0))]
    assert all(type(v) is int and v >= 0 for v in times)
    again = read(document)
    assert again.parent.tolist() == base.trace.parent.tolist()


# -- fresh events ----------------------------------------------------------------------------------


def synced_mul(base: Base, at: int) -> Outcome:
    """A multiplication and a wait for it, put in at ``at``: 60 us in all."""
    t, track, stream = base.trace, base.main, base.stream
    work = Fresh(
        "kernel",
        "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)",
        stream,
        at + 12_000,
        at + 30_000,
        {"grid": (54, 1, 1), "block": (256, 1, 1)},
    )
    dims = {"Input Dims": [[8, 4, 2]], "Input type": ["float"]} if base.has_shapes else {}
    holder = next(
        int(i) for i in np.flatnonzero((t.start < at) & (t.end > at))[::-1] if t.track[i] == track
    )

    def on_host(cat: str, name: str, start: int, end: int, issued: Fresh | None = None) -> Fresh:
        args = dims if cat == "cpu_op" else {}
        return Fresh(cat, name, track, at + start * 1_000, at + end * 1_000, args, issued)

    placed = [
        Placed(on_host("cpu_op", "aten::mul", 0, 25), -1, holder),
        Placed(on_host("cpu_op", "aten::sum", 1, 24), 0, holder),
        Placed(on_host("cuda_runtime", "cudaLaunchKernel", 4, 9, work), 1, holder),
        Placed(work, call=2),
        Placed(on_host("cuda_runtime", "cudaStreamSynchronize", 28, 58), -1, holder),
    ]
    return late(base, at, 60_000, *placed)


def a_gap(base: Base, step: int = 1) -> int:
    return base.gaps(base.spans[step], np.random.default_rng(3), 1)[0]


@pytest.mark.parametrize("style", STYLES)
def test_fresh_events_are_read_with_their_links(tmp_path: Path, style: str) -> None:
    base = base_of(tmp_path, style)
    again = read(write(base, synced_mul(base, a_gap(base))))
    assert len(again) == len(base.trace) + 5
    names = [again.names[i] for i in again.name]
    inner = names.index("aten::sum")
    [row] = [i for i in np.flatnonzero(again.op == inner) if again.cat[i] == Cat.KERNEL]
    call = int(again.launch[row])
    assert names[call] == "cudaLaunchKernel"
    assert again.op[call] == inner
    assert names[again.parent[inner]] == "aten::mul"
    assert again.blocks[row] == 54
    assert again.coverage.kernels_with_launch == again.coverage.kernels_with_op == 1.0


@pytest.mark.parametrize("style", STYLES)
def test_fresh_events_are_spelled_like_those_of_the_file(tmp_path: Path, style: str) -> None:
    base = base_of(tmp_path, style)
    document = write(base, synced_mul(base, a_gap(base)))
    for name in ("aten::mul", "cudaLaunchKernel"):
        shapes = {
            (e["cat"], *e, *e["args"], type(e["ts"]), type(e["tid"]))
            for e in slices(document, name)
        }
        assert len(shapes) == 1
    [inner], [wait] = slices(document, "aten::sum"), slices(document, "cudaStreamSynchronize")
    assert [*inner["args"]] == [*slices(document, "aten::mul")[0]["args"]]
    assert wait["args"]["cbid"] == 131
    phases = {
        e["ph"] for e in document["traceEvents"] if e.get("id") == wait["args"]["correlation"]
    }
    assert phases == (set() if style == "2021" else {"f"})
    kernels = [e for e in document["traceEvents"] if "vectorized" in e["name"]]
    assert len({tuple(e["args"]) for e in kernels}) == 1
    [fresh] = [e for e in kernels if e["args"]["grid"] == [54, 1, 1]]
    assert fresh["args"]["blocks per SM"] == 0.5
    assert fresh["args"]["warps per SM"] == 4.0


@pytest.mark.parametrize("style", STYLES)
def test_ids_run_on_in_program_order_and_are_unique(tmp_path: Path, style: str) -> None:
    base = base_of(tmp_path, style)
    document = write(base, synced_mul(base, a_gap(base)))
    again = read(document)
    for cats, ids in (
        ((Cat.CPU_OP, Cat.USER_ANNOTATION), again.external_id),
        ((Cat.RUNTIME,), again.correlation),
    ):
        mine = ids[again.rows(*cats)]
        assert (np.diff(mine) > 0).all()
    calls = again.correlation[again.rows(Cat.RUNTIME)]
    assert set(np.diff(calls).tolist()) == {3}  # as the file counts
    repeats = again.external_id == again.correlation
    assert repeats[again.rows(Cat.KERNEL)].all() == (style == "2023")


def test_a_fresh_frame_has_its_parent_and_pushes_later_ones(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    at = a_gap(base)
    frame = Fresh("python_function", "train.py(31): log", base.main, at, at + 9_000, {})
    t = base.trace
    holder = int(np.flatnonzero((t.start < at) & (t.end > at) & (t.cat == Cat.PYTHON_FUNCTION))[0])
    document = write(base, late(base, at, 9_000, Placed(frame, holder=holder)))
    outer = slices(document, "train.py(12): step")
    [inner] = slices(document, "train.py(31): log")
    assert inner["args"] == {"Python parent id": 2, "Python id": 3}
    assert [e["args"]["Python id"] for e in outer] == [1, 2, 4, 5]


def test_removed_events_go_with_their_flows_and_leave_no_hole(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    t = base.trace
    row = int(base.ops("aten::mul")[5])
    inside = (t.start >= t.start[row]) & (t.end <= t.end[row]) & (t.track == base.main)
    keep = ~(inside | np.isin(np.arange(len(t)), base.works(row)))
    document = write(base, Outcome(t.start, t.end, keep))
    again = read(document)
    assert len(again) == len(t) - 4
    flows = {e["id"] for e in document["traceEvents"] if e["ph"] in "sf"}
    assert flows == set(again.correlation[again.correlation >= 0].tolist())
    ids = again.external_id[again.rows(Cat.CPU_OP, Cat.USER_ANNOTATION)]
    assert ids.tolist() == [*range(1, len(ids) + 1)]
    instants = [e for e in document["traceEvents"] if e["ph"] == "i"]
    assert len(instants) == STEPS * LAYERS - 1


def test_an_altered_kernel_keeps_its_place_and_its_other_args(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    t = base.trace
    row = int(t.rows(Cat.KERNEL)[3])
    end = t.end.copy()
    end[row] += 50_000
    alter = Alter(
        row, name="volta_sgemm_128x64_nn", args={"grid": (27, 1, 1), "block": (128, 1, 1)}
    )
    keep = np.ones(len(t), np.bool_)
    document = write(base, Outcome(t.start, end, keep, altered={row: alter}))
    [event] = slices(document, "volta_sgemm_128x64_nn")
    assert event["dur"] == pytest.approx(200.25)
    assert event["args"]["grid"] == [27, 1, 1]
    assert event["args"]["blocks per SM"] == 0.25
    assert event["args"]["registers per thread"] == 16


# -- the parts -------------------------------------------------------------------------------------


def test_fresh_numbers_follow_their_anchor_and_push_the_rest() -> None:
    numbering = Numbering([10, 20, 10], np.array([15]), stride=2)
    assert numbering.fresh.tolist() == [12, 25, 14]
    assert [numbering.moved(i) for i in (10, 11, 20, 21)] == [10, 15, 23, 26]
    assert numbering.moved(None) is None
    assert numbering.moved(0) == 0
    assert stride_of(np.array([1, 4, 7, 30])) == 3


def test_an_axis_keeps_the_distance_to_the_nearer_event() -> None:
    axis = Axis(np.array([0, 100]), np.array([10, 110]), np.array([0, 500]), np.array([10, 510]))
    times = np.array([-5, 5, 12, 98, 100, 105, 120])
    assert axis.at(times).tolist() == [-5, 5, 12, 498, 500, 505, 520]
    shrunk = Axis(np.array([0, 100]), np.array([10, 110]), np.array([0, 28]), np.array([10, 38]))
    moved = shrunk.at(np.arange(-3, 120))
    assert (np.diff(moved) >= 0).all()


def test_a_file_that_needs_repair_is_no_base(tmp_path: Path) -> None:
    path = tmp_path / "torn.json"
    path.write_text(json.dumps(Writer("2025").document())[:-200])
    with pytest.raises(Unfit, match="repair"):
        _ = Base.open(path).raw


@pytest.mark.parametrize("style", STYLES)
def test_the_palette_is_drawn_from_the_trace(tmp_path: Path, style: str) -> None:
    base, draw = base_of(tmp_path, style), np.random.default_rng(1)
    assert base.vendor == "cuda"
    assert base.call("launch") == "cudaLaunchKernel"
    assert len(base.spans) == STEPS
    work = base.kernel("elementwise", 1 << 20, "float", draw)
    assert "MulFunctor<float>" in work.name
    assert work.track == base.stream
    copy = base.copy("htod_pageable", 1 << 20, draw)
    assert copy.name == "Memcpy HtoD (Pageable -> Device)"
    assert copy.args == {"bytes": 1 << 20}
    assert base.launch(copy, draw).wait == "work"
    op: Call = base.op("aten::add", dims=[[4]], types=["float"], draw=draw)
    assert ("Input Dims" in op.args) == (style != "2023")


def test_gaps_are_never_inside_an_op_or_a_call(tmp_path: Path) -> None:
    base, draw = base_of(tmp_path), np.random.default_rng(2)
    t = base.trace
    host_rows = t.rows(Cat.CPU_OP, Cat.RUNTIME)
    for where in ("main", "forward", "between_steps"):
        times = base.gaps(base.spans[2], draw, 50, where)
        assert times
        for at in times:
            assert base.spans[2].start < at < base.spans[2].end
            assert not ((t.start[host_rows] < at) & (t.end[host_rows] > at)).any()
    assert base.gaps(base.spans[2], draw, 5, "backward") == []


def test_regions_join_what_is_close_within_a_step() -> None:
    edges = np.array([0, 1_000, 2_000])
    spans = [(100, 110), (150, 160), (400, 410), (980, 990), (1_010, 1_020)]
    found = fault_regions(spans, "sync-explicit", "cpu", edges)
    assert [(r.start_us, r.end_us) for r in found] == [
        (0.1, 0.16),
        (0.4, 0.41),
        (0.98, 0.99),
        (1.01, 1.02),
    ]


def test_a_single_step_joins_no_more_than_others() -> None:
    spans = [(100, 110), (150, 160), (400, 410)]
    found = fault_regions(spans, "sync-explicit", "cpu", np.array([0, 1_000]))
    assert [(r.start_us, r.end_us) for r in found] == [(0.1, 0.16), (0.4, 0.41)]


def test_all_is_unknown_but_the_fault_and_what_is_known_to_be_healthy() -> None:
    healthy = {"cpu": Intervals.span(6_000, 20_000), "gpu": Intervals.span(-5, 1_000)}
    fault = LabelRegion(2.0, 4.0, "sync-explicit", "cpu")
    found = unknown_regions(healthy, Intervals.span(0, 10_000), [fault])  # type: ignore[arg-type]
    assert [(r.start_us, r.end_us, r.side) for r in found] == [
        (0.0, 2.0, "cpu"),
        (4.0, 6.0, "cpu"),
        (1.0, 10.0, "gpu"),
    ]
    assert {r.pattern for r in found} == {UNKNOWN}


def test_no_unknown_region_is_too_short_for_its_date() -> None:
    start = 1_712_195_495_000_000_000
    healthy = {"cpu": Intervals.span(start + 50, start + 9_000), "gpu": Intervals.span(0, 0)}
    whole = Intervals.span(start, start + 10_000)
    found = unknown_regions(healthy, whole, [])  # type: ignore[arg-type]
    assert [(r.side, r.end_us - r.start_us) for r in found] == [("cpu", 1.0), ("gpu", 10.0)]


# -- from a fault to a file and its label ----------------------------------------------------------


def explicit_syncs(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """A device synchronize after some of the ops: the fault that these tests inject."""
    count = 1 + round(20 * strength)
    return [
        Insert(base.main, at, (base.sync("device_sync", draw),))
        for span in spans
        for at in base.gaps(span, draw, count)
    ]


def slow_kernels(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """The first kernel of each span takes much longer."""
    t, kernels = base.trace, base.activity.kernels
    rows = [kernels[t.start[kernels] >= span.start][0] for span in spans]
    return [Alter(int(row), dur=int(t.dur[row]) + 400_000) for row in rows]


def nothing_much(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """Code that takes a nanosecond."""
    return [Insert(base.main, base.gaps(span, draw, 1)[0], (), gap=1) for span in spans]


TABLE: dict[str, injection.Injector] = {
    "sync-explicit": explicit_syncs,
    "compute-fp32-matmul": slow_kernels,
    "host-gc-pause": nothing_much,
}


@pytest.fixture
def own_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "injectors", lambda: TABLE)


def faulty_regions(label: labels.Label, pattern: str = "sync-explicit") -> list[LabelRegion]:
    return [r for r in label.regions if r.pattern == pattern]


def check_consistent(trace: Trace) -> None:
    """What holds in every file that a profiler writes."""
    assert (trace.dur >= 0).all()
    work = np.flatnonzero(trace.is_device_work & (trace.launch >= 0))
    assert (trace.start[work] >= trace.start[trace.launch[work]]).all()
    for track in np.unique(trace.track[work]):
        mine = work[trace.track[work] == track]
        assert (trace.start[mine][1:] >= trace.end[mine][:-1]).all()
    inner = np.flatnonzero(trace.parent >= 0)
    outer = trace.parent[inner]
    assert (trace.start[outer] <= trace.start[inner]).all()
    assert (trace.end[outer] >= trace.end[inner]).all()


@pytest.mark.usefixtures("own_faults")
@pytest.mark.parametrize("style", STYLES)
def test_an_injected_file_is_consistent_and_labeled(tmp_path: Path, style: str) -> None:
    base = base_of(tmp_path, style)
    document, label = inject(base, "sync-explicit", seed=5, extent="every")
    trace = read(document)
    check_consistent(trace)
    assert (label.origin, label.quality, label.extent) == ("injected", "bad", "every")
    assert label.patterns == ("sync-explicit",)
    assert label.base == base.name
    assert label.healthy_step_us is not None
    assert label.step_us > 1.01 * label.healthy_step_us
    names = np.array(trace.names)[trace.name]
    waits = np.flatnonzero(names == "cudaDeviceSynchronize")
    assert len(waits) >= STEPS
    for row in waits:
        start, end = trace.start[row] / 1_000, trace.end[row] / 1_000
        assert any(r.start_us - 1 <= start and end <= r.end_us + 1 for r in faulty_regions(label))
    assert {r.side for r in faulty_regions(label)} == {"cpu"}


@pytest.mark.usefixtures("own_faults")
def test_the_file_shows_the_times_of_the_replay(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    edits = explicit_syncs(base, base.spans, 0.5, np.random.default_rng(1))
    document, result = apply(base, edits)
    trace = read(document)
    expected = [*result.outcome.start.tolist(), *(p.event.start for p in result.outcome.fresh)]
    assert sorted(trace.start.tolist()) == sorted(expected)
    expected = [*result.outcome.end.tolist(), *(p.event.end for p in result.outcome.fresh)]
    assert sorted(trace.end.tolist()) == sorted(expected)


@pytest.mark.usefixtures("own_faults")
def test_equal_arguments_give_equal_files(tmp_path: Path) -> None:
    base, again = base_of(tmp_path), base_of(tmp_path)
    one, label = inject(base, "sync-explicit", seed=5)
    two, same = inject(again, "sync-explicit", seed=5)
    assert encode(one) == encode(two)
    assert label == same
    assert encode(inject(base, "sync-explicit", seed=6)[0]) != encode(one)


@pytest.mark.usefixtures("own_faults")
def test_a_fault_acts_where_its_extent_says(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    for extent, least, most in (("every", STEPS, STEPS), ("some", 1, STEPS - 1), ("once", 1, 1)):
        document, label = inject(base, "sync-explicit", seed=3, extent=extent)  # type: ignore[arg-type]
        steps = read(document).steps
        hit = {
            i
            for i, step in enumerate(steps)
            for r in faulty_regions(label)
            if step.start / 1_000 <= r.start_us < step.end / 1_000
        }
        assert least <= len(hit) <= most


@pytest.mark.usefixtures("own_faults")
def test_the_twin_is_the_base_itself(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    _, faulty = inject(base, "sync-explicit", seed=7, extent="every")
    document, twin = untouched(base, seed=7)
    assert columns(read(document)) == columns(base.trace)
    assert twin.pair == faulty.pair
    assert (twin.quality, twin.patterns, twin.extent) == ("good", (), "")
    assert twin.step_us == twin.healthy_step_us == faulty.healthy_step_us


@pytest.mark.usefixtures("own_faults")
def test_a_base_nobody_looked_at_is_unknown_all_over(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    document, twin = untouched(base)
    trace = read(document)
    whole = (trace.start.min() / 1_000, trace.end.max() / 1_000)
    assert {(r.side, r.start_us, r.end_us, r.pattern) for r in twin.regions} == {
        (side, *whole, UNKNOWN) for side in ("cpu", "gpu")
    }
    _, label = inject(base, "sync-explicit", seed=2, extent="every")
    ordered = sorted((r.start_us, r.end_us) for r in label.regions if r.side == "cpu")
    assert all(a[1] == b[0] for a, b in pairwise(ordered))


@pytest.mark.usefixtures("own_faults")
def test_what_is_known_to_be_healthy_moves_with_the_base(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    last = base.spans[-1]
    healthy = {"cpu": Intervals.span(last.start, last.end), "gpu": Intervals.span(0, 0)}
    _, twin = untouched(base, healthy=healthy)  # type: ignore[arg-type]
    document, label = inject(base, "sync-explicit", 2, "every", healthy)  # type: ignore[arg-type]
    step = read(document).steps[-1]
    known = [
        sum(r.end_us - r.start_us for r in one.regions if r.side == "cpu" and r.pattern == UNKNOWN)
        for one in (twin, label)
    ]
    assert known[0] > 0
    assert not [
        r
        for r in label.regions
        if r.side == "cpu" and r.pattern == UNKNOWN and r.start_us > step.start / 1_000 + 1
        if r.end_us < step.end / 1_000 - 1
    ]


@pytest.mark.usefixtures("own_faults")
def test_a_fault_costs_what_its_replay_added(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    _, label = inject(base, "sync-explicit", seed=5, extent="every")
    mine = faulty_regions(label)
    assert {(r.cost_from, r.harmless) for r in mine} == {("injection", False)}
    assert label.healthy_step_us is not None
    added = (label.step_us - label.healthy_step_us) * STEPS
    costs = sum(r.cost_us or 0 for r in mine)
    assert 0.9 * added <= costs <= added  # less what only puts off the end of the recording
    assert list(cost_faults(label)) == []
    _, both = inject_many(base, ["sync-explicit", "compute-fp32-matmul"], 4, "every")
    assert set(both.parameters["costs"]) == {"sync-explicit", "compute-fp32-matmul"}
    for pattern, figures in both.parameters["costs"].items():  # of each alone, with the same seed
        _, alone = inject(base, pattern, 4, "every")
        (own,) = alone.parameters["costs"].values()
        assert own["total_us"] == pytest.approx(figures["total_us"], rel=0.1)
    assert list(cost_faults(both)) == []


@pytest.mark.usefixtures("own_faults")
def test_what_a_repaired_program_calls_too_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_needed(base: Base, spans: Sequence[Span], *_: object) -> list[Edit]:
        wait = Call("aten::wait", "cpu_op", 200_000)
        return [
            Insert(base.main, base.gaps(s, draw, 1)[0], (wait, wait), instead=(wait,))
            for s in spans
        ]

    draw = np.random.default_rng(0)
    monkeypatch.setitem(TABLE, "host-cpu-fallback", half_needed)
    _, label = inject(base_of(tmp_path), "host-cpu-fallback", seed=5, extent="every")
    assert label.healthy_step_us is not None
    added = (label.step_us - label.healthy_step_us) * STEPS
    costs = label.parameters["costs"]["host-cpu-fallback"]["total_us"]
    assert costs == pytest.approx(added / 2, rel=0.1)


def test_what_puts_off_the_begin_alone_costs_no_analyzed_time(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    document, _ = untouched(base)
    with pytest.raises(TooFaint, match="outside of the analyzed time"):
        injection._analyzed_share(base, document, 1_000_000)


@pytest.mark.usefixtures("own_faults")
def test_a_fault_that_costs_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TooFaint, match=r"host-gc-pause costs 0\.0%"):
        inject(base_of(tmp_path), "host-gc-pause", seed=1)
    with pytest.raises(Unfit, match="no injector"):
        inject(base_of(tmp_path), "comm-straggler", seed=1)


@pytest.mark.usefixtures("own_faults")
def test_two_faults_in_one_file_have_their_own_regions(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    document, label = inject_many(base, ["sync-explicit", "compute-fp32-matmul"], 4, "every")
    check_consistent(read(document))
    assert set(label.patterns) == {"sync-explicit", "compute-fp32-matmul"}
    assert {r.side for r in faulty_regions(label, "compute-fp32-matmul")} == {"gpu"}
    assert [f["pattern"] for f in label.parameters["faults"]] == [
        "sync-explicit",
        "compute-fp32-matmul",
    ]


@pytest.mark.usefixtures("own_faults")
def test_nothing_in_the_file_names_the_fault(tmp_path: Path) -> None:
    base = base_of(tmp_path)
    text = encode(inject(base, "sync-explicit", seed=5)[0]).decode().lower()
    assert not leaks(text, ["inject", "fault", "explicit", "dataset", str(tmp_path).lower()])


SHARED = Path(__file__).parents[3] / "shared" / "traces"


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the folder of public traces")
@pytest.mark.usefixtures("own_faults")
@pytest.mark.parametrize("name", ["h100_qwen_infer", "v100_dlrm_rank0"])
def test_a_public_trace_takes_the_fault(name: str) -> None:
    base = Base.open(SHARED / f"{name}.json.gz")
    plain = read(untouched(base)[0])
    assert columns(plain) == columns(base.trace)
    document, label = inject(base, "sync-explicit", seed=1, extent="every")
    trace = read(document)
    assert len(trace) > len(base.trace)
    assert faulty_regions(label)
    assert trace.coverage.repaired == base.trace.coverage.repaired
    assert (trace.dur >= 0).all()
    calls = trace.rows(Cat.RUNTIME, Cat.DRIVER)
    assert len(np.unique(trace.correlation[calls])) == len(calls)
