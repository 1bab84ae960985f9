"""The simulator: what must hold of every trace, and the footprint each fault leaves."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest

from dataset.labels import Label, check
from dataset.simulate import (
    DEVICES,
    FAULTS,
    LEFT_OUT,
    WORKLOADS,
    TooFaint,
    simulate,
    workloads_for,
)
from detector.patterns import PATTERNS

Event = dict[str, Any]
DEVICE_CATS = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}


@lru_cache(maxsize=8)
def _made(pattern: str | None, workload: str, device: str, seed: int) -> tuple[list[Event], Label]:
    trace, label = simulate(pattern, workload, device, seed)
    return trace["traceEvents"], label


def _first(pattern: str, device: str = "A100", workload: str = "") -> tuple[list[Event], Label]:
    """The first seed in which the program does not hide the fault."""
    for seed in range(12):
        try:
            return _made(pattern, workload or workloads_for(pattern)[0], device, seed)
        except TooFaint:
            continue
    raise AssertionError(f"{pattern} is too faint in twelve seeds")


def _spans(events: list[Event], *cats: str) -> list[Event]:
    return [e for e in events if e["ph"] == "X" and e["cat"].lower() in cats]


def _device(events: list[Event]) -> list[Event]:
    return _spans(events, *DEVICE_CATS)


def _calls(events: list[Event]) -> list[Event]:
    return _spans(events, "cuda_runtime", "cuda_driver", "runtime")


def _names(events: list[Event]) -> list[str]:
    return [e["name"] for e in events if e["ph"] == "X"]


def _inside(events: list[Event], label: Label, pattern: str) -> list[Event]:
    """The events that lie within the first dozen regions of this pattern."""
    spans = [(r.start_us - 1, r.end_us + 1) for r in label.regions if r.pattern == pattern][:12]
    timed = [(e["ts"], e["ts"] + e["dur"], e) for e in events if e["ph"] == "X"]
    return [e for a, b, e in timed if any(x <= a and b <= y for x, y in spans)]


# -- every pattern, every workload, every device -------------------------------------------------
ROUNDS: list[tuple[str | None, str, str]] = [
    (pattern, fault.workloads[i % len(fault.workloads)], list(DEVICES)[i % len(DEVICES)])
    for i, (pattern, fault) in enumerate(FAULTS.items())
]
HEALTHY: list[tuple[str | None, str, str]] = [
    (None, w, list(DEVICES)[i % len(DEVICES)]) for i, w in enumerate(WORKLOADS)
]


@dataclass(frozen=True)
class Made:
    """One round: what was asked for, and what came."""

    pattern: str | None
    workload: str
    device: str
    events: list[Event]
    label: Label


@pytest.fixture(scope="module", params=[*HEALTHY, *ROUNDS], ids=lambda p: "-".join(map(str, p)))
def made(request: pytest.FixtureRequest) -> Made:
    pattern, workload, device = request.param
    if pattern is None:
        return Made(None, workload, device, *_made(None, workload, device, 3))
    return Made(pattern, workload, device, *_first(pattern, device, workload))


def test_the_table_covers_the_taxonomy() -> None:
    ids = {p.id for p in PATTERNS}
    assert set(FAULTS) | set(LEFT_OUT) == ids
    assert not set(FAULTS) & set(LEFT_OUT)
    assert {w for f in FAULTS.values() for w in f.workloads} <= set(WORKLOADS)


def test_what_holds_of_every_trace(made: Made) -> None:
    check(made.label)
    assert made.label.quality == ("good" if made.pattern is None else "bad")
    assert made.pattern is None or made.pattern in made.label.patterns
    _kernels_follow_their_launches(made.events)
    _streams_run_in_order(made.events)
    _host_rows_nest(made.events)
    _regions_lie_inside(made.events, made.label)
    steps = [n for n in _names(made.events) if n.startswith("ProfilerStep#")]
    assert len(set(steps)) in (0, made.label.parameters["steps"])  # some programs mark no steps


def _kernels_follow_their_launches(events: list[Event]) -> None:
    calls = {e["args"]["correlation"]: e for e in _calls(events)}
    linked = 0
    for e in _device(events):
        call = calls.get(e["args"]["correlation"])
        if call is not None:
            linked += 1
            assert e["ts"] >= call["ts"], e["name"]
    assert linked > 0.5 * len(_device(events))


def _streams_run_in_order(events: list[Event]) -> None:
    streams = defaultdict(list)
    for e in _device(events):
        streams[e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for spans in streams.values():
        spans.sort()
        assert all(b[0] >= a[1] - 0.002 for a, b in zip(spans, spans[1:], strict=False))


def _host_rows_nest(events: list[Event]) -> None:
    threads = defaultdict(list)
    for e in events:
        if e["ph"] == "X" and e["pid"] > 0 and e["cat"] != "overhead":
            threads[e["tid"]].append((e["ts"], -e["ts"] - e["dur"]))
    for spans in threads.values():
        open_until: list[float] = []
        for start, minus_end in sorted(spans):
            while open_until and open_until[-1] <= start + 0.002:
                open_until.pop()
            assert not open_until or -minus_end <= open_until[-1] + 0.002
            open_until.append(-minus_end)


def _regions_lie_inside(events: list[Event], label: Label) -> None:
    timed = [e for e in events if e["ph"] == "X"]
    first, last = min(e["ts"] for e in timed), max(e["ts"] + e["dur"] for e in timed)
    for region in label.regions:
        assert first - 1 <= region.start_us < region.end_us <= last + 1


def test_no_name_gives_the_answer_away(made: Made) -> None:
    words = {e["name"] for e in made.events}
    words |= {v for e in made.events for v in e.get("args", {}).values() if isinstance(v, str)}
    text = json.dumps(sorted(words)).lower()
    for other in PATTERNS:
        for spelling in (other.id, other.id.replace("-", "_"), other.id.replace("-", " ")):
            assert spelling not in text
    assert not re.search(r"\b(fault|label|anomal)|inject|anti.?pattern|simulat", text)
    assert made.label.origin == "simulated"
    assert made.label.device == f"simulated:{made.device}"


def test_the_trace_itself_says_that_it_is_simulated() -> None:
    trace, _ = simulate("sync-explicit", "lm-train", "H100", 0)
    assert trace["simulated"] == 1
    assert trace["traceName"].startswith("simulated/")


def test_equal_arguments_give_equal_bytes() -> None:
    one, two = (simulate("host-gc-pause", "convnet-train", "A100", 5) for _ in range(2))
    assert json.dumps(one[0]) == json.dumps(two[0])
    assert one[1] == two[1]
    other = simulate("host-gc-pause", "convnet-train", "A100", 6)
    assert json.dumps(other[0]) != json.dumps(one[0])


def test_a_pattern_that_a_workload_cannot_show_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be simulated"):
        simulate("infer-kv-cat", "convnet-train", "A100", 0)
    assert workloads_for("comm-straggler") == ()


def test_a_fault_costs_time_over_its_twin(made: Made) -> None:
    label = made.label
    if made.pattern is None:
        assert label.parameters["added_share"] == 0
        return
    _, twin = _made(None, made.workload, made.device, label.seed)
    assert twin.pair == label.pair
    assert twin.step_us == label.parameters["healthy_step_us"]
    assert label.parameters["added_share"] >= 0.01
    fault = label.parameters["faults"][0]
    every = len(fault["steps"]) == label.parameters["steps"]
    if every and not fault["smaller_program"]:
        assert label.step_us > twin.step_us


# -- footprints ----------------------------------------------------------------------------------
FOOTPRINTS = {
    "input-dataloader-sync": r"_SingleProcessDataLoaderIter\.__next__",
    "input-dataloader-starved": r"_MultiProcessingDataLoaderIter\.__next__",
    "input-main-thread-preprocessing": r"aten::(div|to|flip|pad|mul|sub|clamp)|PIL|cv2|numpy",
    "input-pageable-copy": r"Memcpy HtoD \(Pageable -> Device\)",
    "input-copy-not-overlapped": r"Memcpy HtoD \(Pinned -> Device\)",
    "input-tiny-copies": r"Memcpy HtoD|cudaMemcpyAsync",
    "input-cpu-tensor-to-device": r"aten::(zeros|ones|arange|randn|full)$",
    "sync-scalar-readback": r"aten::_local_scalar_dense",
    "sync-tensor-readback": r"Memcpy DtoH \(Device -> Pageable\)",
    "sync-explicit": r"cuda(Device|Stream)Synchronize",
    "sync-dynamic-shape": r"aten::(nonzero|masked_select|_unique2|index)$",
    "host-launch-bound": r"cuda(LaunchKernel|GraphLaunch)",
    "host-loop-indexing": r"aten::(select|slice)",
    "host-cpu-fallback": r"Memcpy DtoH",
    "memory-alloc-churn": r"cuda(Malloc|Free)",
    "memory-zero-grad-fill": r"FillFunctor",
    "memory-redundant-copy": r"CatArray|direct_copy|Memcpy DtoD",
    "memory-layout-transform": r"nchwToNhwc|nhwcToNchw",
    "memory-dtype-churn": r"copy_kernel_cuda",
    "compute-fp32-matmul": r"sgemm|scudnn",
    "compute-misaligned-gemm": r"_align[124]\b",
    "compute-underfilled": r"gemm|scan_innermost",
    "compute-unfused-attention": r"SoftMaxForward",
    "compute-unfused-elementwise": r"elementwise_kernel",
    "compute-single-tensor-optimizer": r"elementwise_kernel",
    "compute-conv-bias-batchnorm": r"elementwise_kernel<128, 4|reduce_kernel",
    "compile-graph-break": r"aten::mean",
    "compile-recompile": r"Torch-Compiled Region: 0/[1-9]",
    "comm-exposed": r"ncclDevKernel_",
    "comm-small-collectives": r"ncclDevKernel_",
    "comm-unused-parameters": r"reducer::search_unused_parameters",
    "comm-missing-no-sync": r"ncclDevKernel_AllReduce",
    "infer-autograd": r"dropout",
    "infer-kv-cat": r"CatArrayBatchedCopy",
}


def test_a_broken_graph_has_several_regions() -> None:
    for pattern, several in (("compile-graph-break", True), ("sync-explicit", False)):
        events, _ = _first(pattern, workload="lm-train-compiled")
        assert ("Torch-Compiled Region: 1/0" in _names(events)) == several


def test_the_footprint_lies_in_the_regions(made: Made) -> None:
    named = made.device in ("V100", "RTX2080Ti", "A100")  # the table names kernels of these
    if made.pattern not in FOOTPRINTS:
        return
    events, label = (made.events, made.label) if named else _first(made.pattern)
    inside = _names(_inside(events, label, made.pattern))
    assert any(re.search(FOOTPRINTS[made.pattern], n) for n in inside)


def test_a_readback_is_an_item_a_copy_and_a_wait() -> None:
    events, label = _first("sync-scalar-readback")
    names = _names(sorted(_inside(events, label, "sync-scalar-readback"), key=lambda e: e["ts"]))
    wanted = ["aten::item", "aten::_local_scalar_dense", "cudaMemcpyAsync"]
    at = [names.index(n) for n in wanted]
    assert at == sorted(at)
    rest = names[at[-1] :]
    assert any(n.startswith("Memcpy DtoH") for n in rest)
    assert "cudaStreamSynchronize" in rest


def test_rocm_has_hip_calls_and_its_own_kernels() -> None:
    events, _ = _first("input-pageable-copy", "MI300X", "lm-train")
    calls = {e["name"] for e in _calls(events)}
    assert not any(n.startswith("cuda") for n in calls)
    assert "hipMemcpyWithStream" in calls
    kernels = _spans(events, "kernel")
    assert any(e["name"].startswith("Cijk_") for e in kernels)
    assert all(e["args"]["kind"] == "Dispatch Kernel" for e in kernels)


def test_a_blocking_launch_outlasts_its_kernel() -> None:
    events, label = _first("sync-blocking-launch")
    calls = {e["args"]["correlation"]: e for e in _calls(events)}
    inside = [e for e in _inside(events, label, "sync-blocking-launch") if e["cat"] == "kernel"]
    blocked = {id(e) for e in _calls(_inside(events, label, "sync-blocking-launch"))}
    linked = [(calls[c], e) for e in inside if (c := e["args"]["correlation"]) in calls]
    linked = [(c, e) for c, e in linked if id(c) in blocked]
    assert linked
    assert all(c["ts"] + c["dur"] >= k["ts"] + k["dur"] for c, k in linked)


def test_collectives_carry_their_arguments() -> None:
    events, _ = _first("comm-small-collectives")
    collectives = [e for e in _spans(events, "kernel") if "Collective name" in e["args"]]
    assert collectives
    small = [e for e in collectives if e["args"]["In msg nelems"] * 4 < 1 << 20]
    assert len(small) >= 8
    assert all(e["args"]["Group size"] > 1 for e in collectives)


def test_the_cache_that_grows_by_cat_grows() -> None:
    for seed in range(8):
        events, label = _made("infer-kv-cat", "lm-decode", "A100", seed)
        grown = [
            e["args"]["Input Dims"][0][0][2]
            for e in _inside(events, label, "infer-kv-cat")
            if e["name"] == "aten::cat" and "Input Dims" in e["args"]
        ]
        if len(set(grown)) > 1:
            assert grown == sorted(grown)
            return
    raise AssertionError("no seed with shapes and two tokens in its regions")
