"""What a trace cannot show is said, and every doubt about it too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from detector.activity import Activity
from detector.analysis.guards import blind, warnings
from detector.patterns import IDS, PATTERNS
from detector.taxonomy import Need
from detector.trace import Cat, Coverage, Trace
from detector.window import analyzed_time
from tests.traces import Event, annotation, kernel, launch, op, python, repeat, sync, trace_of

BODY = (
    op("aten::mm", 0, 10, dims="[[8, 8], [8, 8]]"),
    launch(2, 3, 1),
    kernel("sgemm", 6, 20, 1),
    launch(30, 3, 2),
    kernel("ncclDevKernel_AllReduce", 40, 20, 2, stream=20, msg_elems=100, collective="allreduce"),
)
STEPS = [(0, 100), (100, 200)]
A100 = {"deviceProperties": [{"id": 0, "computeMajor": 8, "computeMinor": 0, "numSms": 108}]}
FULL = trace_of(*repeat(BODY, 2, 100), steps=STEPS, metadata=A100)


def needing(*needs: Need, has_device: bool = True) -> set[str]:
    return {p.id for p in PATTERNS if set(needs) & set(p.needed(has_device=has_device))}


def blind_to(trace: Trace) -> dict[str, str]:
    return blind(Activity(trace), analyzed_time(trace))


def warnings_of(trace: Trace) -> tuple[str, ...]:
    return warnings(Activity(trace), analyzed_time(trace))


def without(*cats: Cat) -> Trace:
    kept = (e for e in repeat(BODY, 2, 100) if e.cat not in cats)
    return trace_of(*kept, steps=STEPS, metadata=A100)


def test_a_full_trace_lacks_nothing() -> None:
    assert blind_to(FULL) == {}
    assert warnings_of(FULL) == ()


@pytest.mark.parametrize(
    ("trace", "needs", "because"),
    [
        (without(Cat.KERNEL), ("device", "comm"), "no device records"),
        (without(Cat.CPU_OP), ("host", "shapes"), "no ops were recorded"),
        (without(Cat.RUNTIME), ("links",), "only 0 % of the device events link to a launch"),
        (replace(FULL, has_shapes=False), ("shapes",), "record_shapes=True"),
        (
            trace_of(*repeat(BODY[:3], 2, 100), steps=STEPS, metadata=A100),
            ("comm",),
            "no collectives",
        ),
        (replace(FULL, metadata={}), ("grids",), "how many multiprocessors"),
        (replace(FULL, blocks=np.full(len(FULL), -1)), ("grids",), "without the grids"),
    ],
)
def test_what_is_missing_blinds_the_patterns_that_need_it(
    trace: Trace, needs: tuple[Need, ...], because: str
) -> None:
    found = blind_to(trace)
    assert set(found) == needing(*needs, has_device="device" not in needs)
    assert because in next(iter(found.values()))
    assert list(found) == [name for name in IDS if name in found]


def test_half_the_links_are_enough() -> None:
    half = replace(FULL, coverage=Coverage(kernels_with_launch=0.5))
    less = replace(FULL, coverage=Coverage(kernels_with_launch=0.49))
    assert set(blind_to(half)) == set()
    assert set(blind_to(less)) == needing("links")


def test_collectives_of_a_cpu_backend_count() -> None:
    trace = trace_of(op("aten::mm", 0, 10), annotation("gloo:all_reduce", 10, 10))
    assert "comm-small-collectives" not in blind_to(trace)
    assert "comm-exposed" in blind_to(trace)  # that one needs a device


def test_an_empty_trace_can_show_nothing() -> None:
    assert set(blind_to(trace_of())) == set(IDS)


def test_device_work_outside_the_analyzed_time_shows_nothing() -> None:
    late = [(1_000, 1_100), (1_100, 1_200)]
    trace = trace_of(*BODY, *(op("aten::mm", at, 90) for at, _ in late), steps=late)
    assert blind_to(trace)["host-launch-bound"] == "no device work falls into the analyzed time"
    assert any("no device work falls into" in line for line in warnings_of(trace))


# -- warnings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trace", "word"),
    [
        (without(Cat.CPU_OP), "no ops were recorded"),
        (without(Cat.KERNEL), "device activity unavailable"),
        (without(Cat.KERNEL), "launches without device records"),
        (replace(FULL, coverage=Coverage(read_fraction=0.75)), "damaged file: 75.0 % of"),
        (replace(FULL, coverage=Coverage(read_fraction=0.9999)), "damaged file: 99.9 % of"),
        (
            replace(FULL, coverage=Coverage(0.9999, dropped={"cut off event": 1})),
            "truncated file: it ends within an event",
        ),
        (replace(FULL, coverage=Coverage(kernels_with_launch=0.9)), "10 % of the GPU's events"),
        (trace_of(*repeat(BODY, 2, 100)), "no step markers"),
        (
            trace_of(
                *repeat(BODY, 2, 100), Event(Cat.OVERHEAD, "Buffer Flush", 0, 20), steps=STEPS
            ),
            "profiler overhead is 12 %",  # 20 of the 160 analyzed
        ),
        (
            trace_of(
                *repeat(BODY, 2, 9_000),
                launch(9_050, 3, 9),
                kernel("k", 12_000, 20, 9),
                steps=[(0, 9_000), (9_000, 18_000)],
            ),
            "the GPU is idle although work was launched",
        ),
        (
            trace_of(*BODY, *(python(f"a.py({i}): f", i, 1) for i in range(21)), steps=STEPS),
            "Python stacks were recorded",
        ),
        (
            trace_of(*repeat(BODY, 2, 100), kernel("k", 5, 200, device=1), steps=STEPS),
            "2 devices in one trace: analyzed for device 1",
        ),
    ],
)
def test_each_doubt_is_said_once(trace: Trace, word: str) -> None:
    assert [word in line for line in warnings_of(trace)].count(True) == 1


@pytest.mark.parametrize(
    "trace",
    [
        trace_of(*repeat(BODY, 2, 100), Event(Cat.OVERHEAD, "Buffer Flush", 0, 5), steps=STEPS),
        trace_of(*BODY, *(python(f"a.py({i}): f", i, 1) for i in range(20)), steps=STEPS[:1] * 1),
        trace_of(*repeat(BODY, 2, 100), sync(199, 1, "cudaDeviceSynchronize"), steps=STEPS),
    ],
)
def test_little_things_are_no_doubt(trace: Trace) -> None:
    assert [line for line in warnings_of(trace) if "steps" not in line] == []


@pytest.mark.parametrize("trace", [trace_of(), trace_of(kernel("k", 0, 1))])
def test_degenerate_traces_are_doubted(trace: Trace) -> None:
    lines = warnings_of(trace)
    assert lines
    assert all("\n" not in line for line in lines)
