"""The quirks of Kineto's format, each from a line or two of trace."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detector.kineto import read
from detector.trace import Cat, Trace
from tests.reader_paths import PATHS, reading

Events = list[dict[str, Any]]


@pytest.fixture(params=PATHS, autouse=True, scope="module")
def _path(request: pytest.FixtureRequest) -> Iterator[None]:
    with reading(compiled=request.param):
        yield


def x(cat: str, name: str, ts: Any, dur: Any, **more: Any) -> dict[str, Any]:
    args = more.pop("args", {})
    event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}
    return event | more | {"args": args}


def kernel(ts: Any, corr: int, dur: Any = 5, **args: Any) -> dict[str, Any]:
    values = {"device": 0, "stream": 7, "correlation": corr} | args
    return x("kernel", f"kernel{corr}", ts, dur, pid=0, tid=7, args=values)


def launch(ts: Any, corr: int, dur: Any = 2, cat: str = "cuda_runtime", **args: Any) -> Any:
    return x(cat, "cudaLaunchKernel", ts, dur, args={"correlation": corr} | args)


def load(events: Events, indent: int | None = None, **around: Any) -> Trace:
    text = json.dumps({"schemaVersion": 1, "traceEvents": events} | around, indent=indent)
    return read(io.BytesIO(text.encode()))


def row(trace: Trace, name: str) -> int:
    return [trace.names[i] for i in trace.name.tolist()].index(name)


def test_rows_are_sorted_and_a_parent_precedes_its_children() -> None:
    trace = load(
        [
            x("cpu_op", "child", 10, 5),
            x("cpu_op", "late", 40, 1),
            x("cpu_op", "parent", 10, 20),
            x("python_function", "frame", 10, 20),
            x("cuda_runtime", "call", 12, 1),
        ]
    )
    names = [trace.names[i] for i in trace.name.tolist()]
    assert names == ["frame", "parent", "child", "call", "late"]
    assert trace.parent.tolist() == [-1, 0, 1, 2, -1]


@pytest.mark.parametrize(
    ("word", "cat"),
    [
        ("Operator", Cat.CPU_OP),
        ("Runtime", Cat.RUNTIME),
        ("Kernel", Cat.KERNEL),
        ("Memcpy", Cat.GPU_MEMCPY),
        ("Memset", Cat.GPU_MEMSET),
        ("Python", Cat.PYTHON_FUNCTION),
        ("cuda_driver", Cat.DRIVER),
        ("xpu_runtime", Cat.RUNTIME),
        ("mtia_runtime", Cat.RUNTIME),
        ("mtia_ccp_events", Cat.MTIA),
        ("gpu_user_annotation", Cat.GPU_USER_ANNOTATION),
        ("cuda_sync", Cat.CUDA_SYNC),
        ("overhead", Cat.OVERHEAD),
        ("something_of_2027", Cat.OTHER),
    ],
)
def test_every_spelling_of_a_category(word: str, cat: Cat) -> None:
    trace = load([x(word, "a", 1, 1), x("cpu_op", "b", 3, 1)])
    assert trace.cat.tolist() == [cat, Cat.CPU_OP]
    assert bool(trace.coverage.other) == (cat == Cat.OTHER)


def test_in_2021_steps_were_operators() -> None:
    trace = load([x("Operator", "ProfilerStep#3", 0, 9), x("Operator", "aten::mm", 1, 2)])
    assert trace.cat.tolist() == [Cat.USER_ANNOTATION, Cat.CPU_OP]
    assert [step.name for step in trace.steps] == ["ProfilerStep#3"]


def test_what_is_no_row_is_counted() -> None:
    trace = load(
        [
            {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 1, "args": {"name": "x"}},
            x("Trace", "PyTorch Profiler (0)", 0, 99, pid="Spans", tid="PyTorch Profiler"),
            {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9e12},
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "pid": 1,
                "tid": 1,
                "ts": 3,
            },
            {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": 2},
            {"ph": "f", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": 2},
            {"ph": "C", "name": "GPU 0", "pid": "GPU 0 Counters", "ts": 4, "args": {"": 1}},
            x("cpu_op", "a", 1, 1),
        ]
    )
    assert len(trace) == 1
    assert trace.source.events == 8
    assert trace.coverage.other == {
        "metadata": 1, "trace span": 1, "instant": 2, "flow": 2, "counter": 1
    }  # fmt: skip


def test_begin_and_end_pairs_become_rows() -> None:
    outer, inner = x("cpu_op", "outer", 1, 0, ph="B"), x("cpu_op", "inner", 2, 0, ph="B")
    ends = [{"ph": "E", "pid": 1, "tid": 1, "ts": ts} for ts in (3.25, 9)]
    trace = load([inner, ends[1], outer, ends[0], x("cpu_op", "whole", 20, 1)])
    assert [trace.names[i] for i in trace.name.tolist()] == ["outer", "inner", "whole"]
    assert trace.start.tolist() == [1000, 2000, 20000]
    assert trace.dur.tolist() == [8000, 1250, 1000]


@pytest.mark.parametrize(
    ("ts", "ns"),
    [
        (5, 5_000),
        (5.001, 5_001),
        (7_776_000_000_000.123, 7_776_000_000_000_123),
        (1669783687464181, 1669783687464181_000),
        ("1669783687464181.007", 1669783687464181_007),
        (-3.5, -3_500),
    ],
)
def test_times_are_exact_nanoseconds(ts: Any, ns: int) -> None:
    assert load([x("cpu_op", "a", ts, 1.002)]).start.tolist() == [ns]
    assert load([x("cpu_op", "a", ts, 1.002)]).dur.tolist() == [1_002]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("5888649824148.9795", 5888649824148_980),  # its float64 lies below the half
        ("5888649824283.2705", 5888649824283_270),
        ("0.0005", 0),
        ("0.0015", 2),
        ("0.0285", 28),
        ("0.08949963562495424", 89),
        ("1234567890.12450001", 1234567890_125),
    ],
)
def test_halves_of_a_nanosecond_round_as_the_decimal_digits(text: str, ns: int) -> None:
    line = f'{{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": {text}, '
    assert read(io.BytesIO(f'[{line}"dur": 0.5}}]'.encode())).start.tolist() == [ns]
    if len(text) < 17:  # durations are float64: sixteen digits at most
        assert read(io.BytesIO(f'[{line}"dur": {text}}}]'.encode())).dur.tolist() == [ns]


def test_absolute_times_with_a_fraction_keep_every_digit() -> None:
    lines = [
        '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, '
        f'"ts": 1712000000000000.{i:03}, "dur": 0.5}}'
        for i in range(1000)
    ]
    lines.append('{"ph": "M", "name": "x", "pid": 1, "tid": 1, "ts": 1712000000000000}')
    trace = read(io.BytesIO(("[" + ",\n".join(lines) + "]").encode()))
    assert trace.start.tolist() == [1712000000000000_000 + i for i in range(1000)]


def test_ids_are_numbers_words_or_missing() -> None:
    trace = load(
        [
            x(
                "kernel",
                "k",
                1,
                1,
                pid=0,
                tid="stream 7",
                args={"external id": 4, "correlation": 5},
            ),
            x("gpu_memcpy", "copy", 9, 1, tid=7, args={"correlation": "6", "stream": "8"}),
            x("gpu_memset", "set", 20, 1, pid=3, tid=9, args={"bytes": "12", "stream": 4294967295}),
        ]
    )
    assert trace.correlation.tolist() == [5, 6, -1]
    assert trace.external_id.tolist() == [4, -1, -1]
    assert trace.stream.tolist() == [7, 8, 9]
    assert trace.device.tolist() == [0, 1, 3]
    assert trace.bytes.tolist() == [-1, -1, 12]
    assert [(t.pid, t.tid, t.is_device) for t in trace.tracks] == [
        ("0", "stream 7", True), ("1", "7", True), ("3", "9", True)
    ]  # fmt: skip


def test_grid_block_and_collective_of_a_kernel() -> None:
    args = {
        "grid": [2, 3, 4], "block": [32, 2, 1], "Collective name": "allreduce",
        "Process Group Name": "default_pg", "In msg nelems": 1024,
    }  # fmt: skip
    trace = load([kernel(1, 5, **args), kernel(10, 6)])
    assert trace.blocks.tolist() == [24, -1]
    assert trace.threads.tolist() == [64, -1]
    assert trace.names[trace.collective[0]] == "allreduce"
    assert trace.names[trace.group[0]] == "default_pg"
    assert trace.msg_elems.tolist() == [1024, -1]
    assert trace.collective[1] == trace.group[1] == -1


@pytest.mark.parametrize("indent", [None, 2])
def test_shapes_are_text_on_one_line(indent: int | None) -> None:
    args = {"Input Dims": [[8, 3], []], "Input type": ["float", ""], "Sequence number": 4}
    trace = load([x("cpu_op", "a", 1, 1, args=args), x("cpu_op", "b", 3, 1)], indent)
    assert trace.names[trace.dims[0]] == "[[8, 3], []]"
    assert trace.names[trace.types[0]] == '["float", ""]'
    assert trace.dims[1] == trace.types[1] == -1
    assert trace.sequence.tolist() == [4, -1]
    assert trace.has_shapes


def test_a_launch_is_the_call_with_the_same_correlation() -> None:
    trace = load(
        [launch(1, 5), launch(4, 6, cat="cuda_driver"), kernel(10, 5), kernel(20, 6), kernel(30, 9)]
    )
    launches = [row(trace, "cudaLaunchKernel"), row(trace, "cudaLaunchKernel") + 1, -1]
    assert trace.launch[trace.rows(Cat.KERNEL)].tolist() == launches
    assert trace.coverage.kernels_with_launch == pytest.approx(2 / 3)


def test_kernels_of_a_graph_share_their_launch() -> None:
    trace = load([launch(1, 5), *[kernel(10 + i, 5, dur=1) for i in range(20)]])
    assert set(trace.launch[trace.rows(Cat.KERNEL)].tolist()) == {0}


def test_a_correlation_used_again_means_the_latest_call_before() -> None:
    trace = load([launch(1, 5), kernel(10, 5), launch(100, 5), kernel(110, 5)])
    kernels = trace.rows(Cat.KERNEL)
    assert trace.start[trace.launch[kernels]].tolist() == [1_000, 100_000]


def test_external_id_names_the_op_in_newer_files() -> None:
    ops = [x("cpu_op", "a", 0, 10, args={"External id": 1})]
    ops.append(x("cpu_op", "b", 0, 10, tid=2, args={"External id": 2}))
    call, work = launch(3, 77, **{"External id": 2}), kernel(20, 77, **{"External id": 2})
    trace = load([*ops, call, work])
    assert trace.names[trace.name[trace.op[row(trace, "kernel77")]]] == "b"
    assert trace.names[trace.name[trace.op[row(trace, "cudaLaunchKernel")]]] == "b"


def test_without_correlations_an_external_id_joins_call_and_kernel() -> None:
    """ROCm up to 6.x: ids of their own, that name no op."""
    events = [
        x("cpu_op", "aten::mm", 0, 14, args={"External id": 1025}),
        x("cuda_runtime", "hipGetDeviceProperties", 3, 1, args={"External id": 57}),
        x("cuda_runtime", "hipExtModuleLaunchKernel", 9, 4, args={"External id": 58}),
        x("kernel", "Cijk", 20, 9, pid=2, tid=0, args={"External id": 58}),
    ]
    trace = load(events)
    work = row(trace, "Cijk")
    assert trace.names[trace.name[trace.launch[work]]] == "hipExtModuleLaunchKernel"
    assert trace.names[trace.name[trace.op[work]]] == "aten::mm"
    assert trace.coverage.kernels_with_launch == 1


def test_up_to_2023_it_repeats_the_correlation_and_time_tells_the_op() -> None:
    ops = [
        x("cpu_op", "outer", 0, 10, args={"External id": 77}),
        x("cpu_op", "inner", 2, 5, args={"External id": 3}),
        x("python_function", "f.py(3): f", 2.5, 4),
    ]
    call, work = launch(3, 77, **{"External id": 77}), kernel(20, 77, **{"External id": 77})
    trace = load([*ops, call, work])
    assert trace.names[trace.name[trace.op[row(trace, "kernel77")]]] == "inner"


def test_nesting_allows_a_child_to_end_a_little_later() -> None:
    trace = load([x("cpu_op", "parent", 0, 10), x("cpu_op", "child", 4, 6.5)])
    assert trace.parent.tolist() == [-1, 0]
    trace = load([x("cpu_op", "parent", 0, 10), x("cpu_op", "other", 8, 20)])
    assert trace.parent.tolist() == [-1, -1]


def test_stacks_of_any_depth() -> None:
    depth = 3000
    events = [x("python_function", f"f{i}", i, 2 * (depth - i)) for i in range(depth)]
    events += [x("cpu_op", "after", 3 * depth, 1)]
    trace = load(events)
    assert trace.parent.tolist() == [*range(-1, depth - 1), -1]
    assert trace.has_stacks


def test_steps_by_marker() -> None:
    step = [x("user_annotation", f"ProfilerStep#{i}", i * 100, 90) for i in range(3)]
    copy = x("gpu_user_annotation", "ProfilerStep#1", 150, 90, pid=0, tid=7)
    trace = load([*step, copy, step[1] | {"tid": 4}])
    assert [(s.name, s.start, s.end) for s in trace.steps] == [
        (f"ProfilerStep#{i}", i * 100_000, i * 100_000 + 90_000) for i in range(3)
    ]
    assert not any(s.warmup for s in trace.steps)


@pytest.mark.parametrize(
    "name", ["execute_context_1(888)_generation_0(0)", "execute_64_context_1", "step[DECODE bs=64]"]
)
def test_steps_of_serving_engines(name: str) -> None:
    trace = load([x("user_annotation", name, 0, 9), x("user_annotation", name, 20, 9)])
    assert [s.start for s in trace.steps] == [0, 20_000]


def test_no_marker_no_steps() -> None:
    assert load([x("user_annotation", "my range", 0, 9)]).steps == ()


def test_a_long_first_step_that_allocates_is_warmup() -> None:
    spans = [(0, 900), (1000, 100), (1200, 110), (1400, 90), (1600, 100)]
    marks = [x("user_annotation", f"ProfilerStep#{i}", *span) for i, span in enumerate(spans)]
    allocation = x("cuda_runtime", "cudaMalloc", 50, 3)
    assert [s.warmup for s in load([*marks, allocation]).steps] == [True] + [False] * 4
    assert not any(s.warmup for s in load(marks).steps)


def test_metadata_before_and_after_the_events() -> None:
    around = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}],
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "baseTimeNanoseconds": 1735689600000000000,
        "notes": "x" * 300_000,
    }
    events = [x("cpu_op", "a", 1, 1)]
    for text in (
        json.dumps({"schemaVersion": 1, **around, "traceEvents": events}),
        json.dumps({"schemaVersion": 1, "traceEvents": events, **around}, indent=2),
    ):
        trace = read(io.BytesIO(text.encode()))
        assert trace.rank == 3
        assert trace.base_ns == 1735689600000000000
        assert trace.metadata["deviceProperties"] == around["deviceProperties"]
        assert "notes" not in trace.metadata
        assert trace.coverage.repaired == {}


@pytest.mark.parametrize("rank", [-7, 10**30, True, "3", None])
def test_a_number_that_no_rank_has_is_none(rank: object) -> None:
    document = {"distributedInfo": {"rank": rank}, "traceEvents": [x("cpu_op", "a", 1, 1)]}
    assert read(io.BytesIO(json.dumps(document).encode())).rank is None


def test_the_rank_may_stand_in_the_file_name(tmp_path: Path) -> None:
    for name, rank in (("run_rank-5.json", 5), ("rank12.pt.trace.json", 12), ("crank7.json", None)):
        path = tmp_path / name
        path.write_text(json.dumps({"traceEvents": [x("cpu_op", "a", 1, 1)]}))
        assert read(path).rank == rank


def test_source_and_progress(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    data = gzip.compress(json.dumps([x("cpu_op", "a", 1, 1)]).encode(), mtime=0)
    path.write_bytes(data)
    shares: list[float] = []
    trace = read(path, progress=shares.append)
    assert trace.source.path == str(path)
    assert trace.source.bytes == len(data)
    assert len(trace.source.sha256) == 64
    assert shares[-1] == 1.0


@pytest.mark.parametrize("indent", [None, 1, 2, 4])
def test_every_layout_reads_alike(indent: int | None) -> None:
    events = [x("cpu_op", f"op{i % 7}", i * 3, 2, args={"nested": [{"ph": 1}, {"ph": 2}]})
              for i in range(12_000)]  # fmt: skip
    events[0] = {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "x"}}
    trace = load(events, indent)
    assert trace.source.events == 12_000
    np.testing.assert_array_equal(trace.start, np.arange(1, 12_000) * 3_000)
    assert trace.coverage.read_fraction == 1.0
    assert trace.coverage.repaired == trace.coverage.dropped == {}
