"""What holds of every claim, on any trace."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detector.activity import Activity
from detector.cost import Claim, claim
from detector.intervals import Intervals
from detector.patterns import IDS
from tests.random_traces import SEEDS, TRACES, random_events
from tests.traces import trace_of

# What claims only time in which the device does nothing, and what only time in which it works.
IDLE = (
    "input-dataloader-sync",
    "input-dataloader-starved",
    "input-main-thread-preprocessing",
    "sync-scalar-readback",
    "sync-explicit",
    "sync-dynamic-shape",
    "sync-blocking-launch",
    "host-launch-bound",
    "host-python-overhead",
    "host-gc-pause",
    "compile-graph-break",
)
WORK = (
    "memory-redundant-copy",
    "memory-layout-transform",
    "memory-dtype-churn",
    "compute-fp32-matmul",
    "compute-misaligned-gemm",
    "compute-underfilled",
    "compute-unfused-attention",
    "compute-unfused-elementwise",
    "comm-exposed",
    "comm-missing-no-sync",
    "infer-kv-cat",
)


def pairs(spans: Intervals) -> list[tuple[int, int]]:
    return list(zip(spans.start.tolist(), spans.end.tolist(), strict=True))


@given(TRACES)
def test_claims_never_exceed_the_trace(trace) -> None:
    activity = Activity(trace)
    first, last = int(trace.start.min()), int(trace.end.max())
    for pattern in IDS:
        found = claim(activity, pattern)
        edges = [t for pair in pairs(found.intervals) for t in pair]
        assert edges == sorted(set(edges)), pattern  # disjoint, none empty, none touching
        assert not edges or (edges[0] >= first and edges[-1] <= last), pattern
        assert 0 <= found.weight <= 1
        assert 0 <= found.recoverable_ns <= last - first


@given(TRACES)
def test_idle_is_idle_and_work_is_work(trace) -> None:
    activity = Activity(trace)
    for pattern in IDLE:
        found = claim(activity, pattern).intervals
        if pattern == "input-main-thread-preprocessing" and not activity.has_device:
            continue  # there the array library's own time is the fault
        assert (found & activity.busy).measure == 0, pattern
    for pattern in WORK:
        found = claim(activity, pattern).intervals
        busy = activity.busy if activity.has_device else activity.busy | activity.op_time
        assert (found - busy).measure == 0, pattern


@given(TRACES)
def test_stalls_are_idle_and_nobodys(trace) -> None:
    activity = Activity(trace)
    with mock.patch("detector.activity.STALL_NS", 10_000):  # these traces last 0.3 ms
        stalled = activity.stalled
    assert (stalled & activity.busy).measure == 0
    assert all(b - a >= 10_000 for a, b in pairs(stalled))
    for pattern in IDS:
        assert (claim(activity, pattern).intervals & stalled).measure == 0, pattern


@given(SEEDS, st.integers(1, 10**6))
def test_claims_move_with_the_trace(seed: int, by: int) -> None:
    events, metadata = random_events(seed)
    later = [replace(event, start=event.start + by) for event in events]
    here = Activity(trace_of(*events, metadata=metadata))
    there = Activity(trace_of(*later, metadata=metadata))
    for pattern in IDS:
        moved = [(a + by * 1_000, b + by * 1_000) for a, b in pairs(claim(here, pattern).intervals)]
        assert pairs(claim(there, pattern).intervals) == moved, pattern
        assert claim(there, pattern).weight == claim(here, pattern).weight


@given(SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_the_file_means_nothing(seed: int, random) -> None:
    events, metadata = random_events(seed)
    distinct = list({(e.start_ns, e.dur_ns): e for e in events}.values())  # no ties to break
    shuffled = random.sample(distinct, len(distinct))
    one, other = (Activity(trace_of(*rows, metadata=metadata)) for rows in (distinct, shuffled))
    for pattern in IDS:
        assert pairs(claim(one, pattern).intervals) == pairs(claim(other, pattern).intervals)


def spans(*edges: int) -> Intervals:
    at = np.array(sorted(edges), np.int64).reshape(-1, 2)
    return Intervals.union(at[:, 0], at[:, 1])


EDGES = st.lists(st.integers(0, 40), min_size=6, max_size=6, unique=True)


@given(EDGES, EDGES, st.floats(0, 1))
def test_a_cut_claim_loses_nothing(claimed: list[int], cut: list[int], weight: float) -> None:
    whole = Claim(spans(*claimed), weight)
    inside, outside = whole.within(spans(*cut)), whole.without(spans(*cut))
    assert (inside.intervals & outside.intervals).measure == 0
    total = inside.intervals.measure + outside.intervals.measure
    assert total == whole.intervals.measure
