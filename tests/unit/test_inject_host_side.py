"""Injectors of input, waits and host code: what they put into a base that was written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dataset.inject import host, pieces, sync
from dataset.inject import input as feed
from dataset.inject.base import Base
from dataset.inject.edits import Alter, Call, Edit, Insert, Remove, Replace, Unfit, Work
from detector.patterns import BY_ID, IDS
from tests.inject_bases import MODELS, STEP, STEPS, base_of, step_of
from tests.traces import annotation, call, kernel, memcpy, op, trace_of

INJECTORS = {**feed.INJECTORS, **sync.INJECTORS, **host.INJECTORS}
DEVICE = tuple(
    p
    for p in INJECTORS
    if p.startswith(("input-p", "input-c", "input-t", "sync", "memory"))
    or p in ("host-launch-bound", "host-cpu-fallback")
)
SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
PINNED = "Memcpy HtoD (Pinned -> Device)"


def inject(base: Base, pattern: str, seed: int = 0, strength: float = 0.2) -> list[Edit]:
    return INJECTORS[pattern](base, base.spans, strength, np.random.default_rng(seed))


def walk(calls: Sequence[Call]) -> Iterator[Call]:
    for c in calls:
        yield c
        yield from walk(c.inside)


def calls_of(edits: Sequence[Edit]) -> list[Call]:
    return [c for e in edits if isinstance(e, Insert | Replace) for c in walk(e.calls)]


def works_of(edits: Sequence[Edit]) -> list[Work]:
    return [c.work for c in calls_of(edits) if c.work]


def names(calls: Sequence[Call]) -> list[str]:
    return [c.name for c in calls]


# -- every injector --------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", INJECTORS)
def test_every_pattern_is_one_of_the_taxonomy(pattern: str) -> None:
    assert pattern in IDS


@pytest.mark.parametrize("pattern", INJECTORS)
@pytest.mark.parametrize("vendor", ["cuda", "rocm"])
def test_each_span_gets_faulty_code_of_its_vendor(pattern: str, vendor: str) -> None:
    base = base_of(vendor, stacks=vendor == "rocm")
    edits = inject(base, pattern)
    faulty = [e for e in edits if not isinstance(e, Remove) and e.faulty]
    at = [base.trace.start[e.row] if isinstance(e, Alter | Replace) else e.at for e in faulty]
    assert all(any(s.start <= t < s.end for t in at) for s in base.spans)
    runtime = {c.name for c in calls_of(edits) if c.cat == "cuda_runtime"}
    assert all(name.startswith("hip" if vendor == "rocm" else "cuda") for name in runtime)


@pytest.mark.parametrize("pattern", INJECTORS)
def test_the_same_seed_gives_the_same_edits(pattern: str) -> None:
    first, second = (inject(base_of(stacks=True), pattern, 7) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("pattern", INJECTORS)
def test_durations_are_positive_and_sizes_plain(pattern: str) -> None:
    for seed in range(6):
        edits = inject(base_of(stacks=seed % 2 == 0), pattern, seed)
        assert all(c.own > 0 for c in calls_of(edits))
        assert all(w.dur > 0 and w.args.get("bytes", 1) > 0 for w in works_of(edits))
        assert all(e.gap >= 0 for e in edits if isinstance(e, Insert))


@pytest.mark.parametrize("pattern", INJECTORS)
def test_no_name_tells_the_fault(pattern: str) -> None:
    words = {pattern, pattern.replace("-", "_"), "fault", "inject", "anti"}
    for seed in range(6):
        for c in calls_of(inject(base_of(stacks=True), pattern, seed)):
            assert not any(word in c.name.lower() for word in words), c.name


@pytest.mark.parametrize("pattern", DEVICE)
def test_a_run_on_the_cpu_cannot_show_device_patterns(pattern: str) -> None:
    with pytest.raises(Unfit, match="no device work"):
        inject(base_of("cpu"), pattern)


@pytest.mark.parametrize("pattern", sorted(set(INJECTORS) - set(DEVICE)))
def test_a_run_on_the_cpu_shows_host_patterns_without_device_work(pattern: str) -> None:
    edits = inject(base_of("cpu"), pattern)
    assert edits
    assert not works_of(edits)


@pytest.mark.parametrize("pattern", ["input-dataloader-sync", "input-dataloader-starved"])
def test_a_server_loads_no_batches(pattern: str) -> None:
    with pytest.raises(Unfit, match="loads no batches"):
        inject(base_of(marks="execute_context_"), pattern)


@pytest.mark.parametrize("pattern", INJECTORS)
def test_frames_stand_only_in_traces_with_stacks(pattern: str) -> None:
    for seed in range(4):
        calls = calls_of(inject(base_of(stacks=False), pattern, seed))
        assert all(c.cat != "python_function" for c in calls)


@pytest.mark.parametrize("pattern", ["input-dataloader-sync", "input-main-thread-preprocessing"])
def test_a_stronger_fault_stops_the_host_longer(pattern: str) -> None:
    def stopped(strength: float) -> int:
        edits = inject(base_of(), pattern, 3, strength)
        inside = sum(pieces.length(c) for e in edits if isinstance(e, Insert) for c in e.calls)
        return inside + sum(e.gap for e in edits if isinstance(e, Insert))

    assert stopped(0.5) > 2 * stopped(0.1)


# -- input -----------------------------------------------------------------------------------------


def test_batches_are_made_inside_the_loaders_mark() -> None:
    edits = inject(base_of(), "input-dataloader-sync")
    marks = [c for c in calls_of(edits) if c.cat == "user_annotation"]
    assert {c.name for c in marks} == {SINGLE}
    assert all("aten::stack" in names(c.inside) for c in marks)


def test_the_bases_own_loader_gives_way() -> None:
    own = [annotation(WORKERS, i * STEP + 5, 10) for i in range(STEPS)]
    base = base_of("cuda", *own)
    edits = inject(base, "input-dataloader-sync")
    assert len(edits) == STEPS
    assert all(isinstance(e, Replace) for e in edits)
    rows = [e.row for e in edits if isinstance(e, Replace)]
    assert {base.trace.names[base.trace.name[row]] for row in rows} == {WORKERS}


def test_a_base_whose_loader_holds_it_up_is_unfit() -> None:
    slow = annotation(WORKERS, 5, 400)
    with pytest.raises(Unfit, match="own loader"):
        inject(base_of("cuda", slow), "input-dataloader-starved")


def test_the_batch_is_copied_in_place_of_the_bases_own() -> None:
    own = (
        op("aten::to", 210, 0.5),
        op("aten::copy_", 211, 60),
        call("cudaMemcpyAsync", 212, 9, corr=901),
        memcpy(PINNED, 215, 40, 1 << 20, corr=901),
    )
    base = base_of("cuda", *own)
    edits = inject(base, "input-pageable-copy")
    (replaced,) = (e for e in edits if isinstance(e, Replace))
    assert base.trace.names[base.trace.name[replaced.row]] == "aten::copy_"
    assert len([e for e in edits if isinstance(e, Insert)]) == STEPS - 1


def test_pageable_copies_wait_and_pinned_ones_do_not() -> None:
    pageable = calls_of(inject(base_of(), "input-pageable-copy"))
    assert any(c.name == "cudaStreamSynchronize" for c in pageable)
    pinned = inject(base_of(), "input-copy-not-overlapped")
    assert {c.wait for c in calls_of(pinned)} == {""}
    assert {w.name for w in works_of(pinned)} == {PINNED}
    assert {w.track for w in works_of(pinned)} == {base_of().stream}


def test_a_repaired_copy_is_pinned_or_hidden() -> None:
    def repaired(pattern: str) -> list[Call]:
        edits = inject(base_of(), pattern)
        return calls_of([replace(e, calls=e.instead) for e in edits])

    pinned, hidden = repaired("input-pageable-copy"), repaired("input-copy-not-overlapped")
    assert {c.wait for c in (*pinned, *hidden)} == {""}
    assert {c.work.name for c in pinned if c.work} == {PINNED}
    assert {c.work.dur for c in hidden if c.work} == {1}
    called = calls_of(inject(base_of(), "input-copy-not-overlapped"))
    assert [c.name for c in hidden] == [c.name for c in called]


def test_a_copy_is_as_long_as_the_strength_asks() -> None:
    base = base_of()
    for strength in (0.1, 0.4):
        works = works_of(inject(base, "input-copy-not-overlapped", 1, strength))
        wanted = sum(pieces.budget(span, strength) for span in base.spans)
        assert sum(w.dur for w in works) == pytest.approx(wanted, rel=0.35)


def test_tiny_copies_are_many_and_tiny() -> None:
    works = works_of(inject(base_of(), "input-tiny-copies"))
    assert len(works) >= 12 * STEPS
    assert all(w.args["bytes"] < 16_384 and "HtoD" in w.name for w in works)


def test_a_tensor_is_made_on_the_cpu_then_moved() -> None:
    edits = inject(base_of(), "input-cpu-tensor-to-device")
    first = edits[0]
    assert isinstance(first, Insert)
    made, moved = first.calls
    assert made.name in feed_factories()
    assert moved.name == "aten::to"
    assert not [c for c in walk((made,)) if c.work]


def feed_factories() -> set[str]:
    return {f"aten::{n}" for n in ("zeros", "ones", "full", "arange", "randn", "rand")}


# -- waits -----------------------------------------------------------------------------------------


def test_every_way_to_read_a_value_ends_in_one() -> None:
    roots = set()
    for seed in range(20):
        calls = calls_of(inject(base_of(), "sync-scalar-readback", seed))
        assert any(c.name == "aten::_local_scalar_dense" for c in calls)
        roots |= {c.name for c in calls if c.name.startswith("aten::")}
    assert {"aten::is_nonzero", "aten::argmax", "aten::detach"} <= roots


def test_waits_go_where_they_cost_most() -> None:
    """In the second step alone the host runs ahead: there its waits cost something."""
    events = [e for i in range(STEPS) for e in step_of(i, "cuda", False, 900 if i == 1 else 0)]
    steps = [(i * STEP, (i + 1) * STEP - 10) for i in range(STEPS)]
    base = Base("hand.json", trace_of(*events, steps=steps, metadata=MODELS["cuda"]))
    edits = inject(base, "sync-explicit", 0, 0.3)
    per_step = [
        sum(s.start <= e.at < s.end for e in edits if isinstance(e, Insert)) for s in base.spans
    ]
    assert per_step[1] < per_step[0]


def test_a_whole_tensor_goes_to_pageable_memory() -> None:
    works = works_of(inject(base_of(), "sync-tensor-readback"))
    assert {w.name for w in works} == {"Memcpy DtoH (Device -> Pageable)"}
    assert min(w.args["bytes"] for w in works) >= 4_096


def test_shapes_are_read_between_counting_and_writing() -> None:
    for seed in range(20):
        calls = calls_of(inject(base_of(), "sync-dynamic-shape", seed))
        found = [c for c in calls if c.name == "aten::nonzero"]
        if found:
            inner = names(found[0].inside)
            wait = inner.index("cudaStreamSynchronize")
            assert inner[wait - 1] == "cudaMemcpyAsync"
            assert "cudaLaunchKernel" in inner[: wait - 1]
            assert "cudaLaunchKernel" in inner[wait:]
            return
    pytest.fail("no draw gave a mask")


def test_every_launch_of_the_spans_waits_and_no_other() -> None:
    base = base_of()
    draw = np.random.default_rng(0)
    edits = sync.blocking_launch(base, base.spans[1:2], 0.2, draw)
    rows = [e.row for e in edits if isinstance(e, Alter)]
    assert len(rows) == len(edits) == 10
    assert all(e.wait == "work" for e in edits if isinstance(e, Alter))
    assert all(base.spans[1].start <= base.trace.start[row] < base.spans[1].end for row in rows)


def test_graphs_do_not_block_launch_by_launch() -> None:
    own = call("cudaGraphLaunch", 6_100, 9, corr=900), kernel("k", 6_120, 9, 900)
    with pytest.raises(Unfit, match="graphs"):
        inject(base_of("cuda", *own), "sync-blocking-launch")


# -- host ------------------------------------------------------------------------------------------


def test_a_loop_takes_rows_ten_times_or_more() -> None:
    for seed in range(6):
        edits = inject(base_of(), "host-loop-indexing", seed)
        for edit in edits:
            assert isinstance(edit, Insert)
            views = [c for c in edit.calls if c.name in ("aten::select", "aten::slice")]
            assert len(views) >= 10
            assert names(views[0].inside) == ["aten::as_strided"]


def test_small_kernels_come_one_a_launch() -> None:
    base = base_of(behind=2)
    for seed in range(8):
        edits = inject(base, "host-launch-bound", seed)
        if isinstance(edits[0], Insert):
            works = works_of(edits)
            assert len(works) >= 40
            assert max(w.dur for w in works) < 200_000
            return
    pytest.fail("no draw unrolled a loop")


def test_a_slow_host_slows_each_op() -> None:
    small = [
        replace(e, dur=3) if e.cat.name == "KERNEL" else e
        for i in range(STEPS)
        for e in step_of(i, "cuda", False, 2)
    ]
    steps = [(i * STEP, (i + 1) * STEP - 10) for i in range(STEPS)]
    base = Base("hand.json", trace_of(*small, steps=steps, metadata=MODELS["cuda"]))
    for seed in range(8):
        edits = inject(base, "host-launch-bound", seed)
        if isinstance(edits[0], Alter):
            assert all(e.dur > base.own[e.row] for e in edits if isinstance(e, Alter) and e.dur)
            return
    pytest.fail("no draw slowed the host")


def test_the_collector_leaves_a_gap_without_events() -> None:
    edits = inject(base_of(), "host-gc-pause")
    assert all(isinstance(e, Insert) and not e.calls and e.gap >= 1_000_000 for e in edits)


def test_the_collector_is_not_back_at_once_in_a_single_step() -> None:
    events = [e for i in range(STEPS) for e in step_of(i, "cuda", False, 2)]
    base = Base("alone.json", trace_of(*events, steps=[(0, STEPS * STEP)]))
    assert len(base.spans) == 1 < len(base.parts)
    for seed in range(8):
        draw = np.random.default_rng(seed)
        assert len(INJECTORS["host-gc-pause"](base, base.parts, 0.2, draw)) <= 2


def test_the_collector_s_full_rounds_lie_far_apart() -> None:
    base = base_of()
    for seed in range(12):
        draw = np.random.default_rng(seed)
        at = [e.at for e in INJECTORS["host-gc-pause"](base, base.spans[:1], 0.2, draw)]
        assert all(b - a >= base.spans[0].length / 4 for a, b in pairwise(at))


def test_hooks_pause_often_and_shortly() -> None:
    edits = inject(base_of(), "host-python-overhead")
    gaps = [e.gap for e in edits if isinstance(e, Insert)]
    assert len(gaps) > 3 * STEPS
    assert max(gaps) < 1_000_000


def test_interpreter_work_shows_as_frames_of_the_programs_own_files() -> None:
    calls = calls_of(inject(base_of(stacks=True), "host-python-overhead"))
    assert calls
    assert all(c.cat == "python_function" for c in calls)
    assert any(c.name.startswith("/app/train.py(") for c in calls)


def test_a_fallback_goes_down_computes_and_comes_back() -> None:
    edits = inject(base_of(), "host-cpu-fallback")
    first = edits[0]
    assert isinstance(first, Insert)
    down, ran, up = first.calls
    assert "DtoH" in works_of([replace(first, calls=(down,))])[0].name
    assert "HtoD" in works_of([replace(first, calls=(up,))])[0].name
    assert not ran.inside
    assert ran.own >= 30_000


def test_the_driver_allocates_inside_ops_that_allocate() -> None:
    base = base_of(behind=2)
    edits = inject(base, "memory-alloc-churn", 1, 0.4)
    assert any(c.name == "cudaFree" and c.wait == "device" for c in calls_of(edits))
    under = [e for e in edits if isinstance(e, Insert) and names(e.calls) == ["cudaMalloc"]]
    assert under
    empties = base.ops("^aten::empty$")
    start, end = base.trace.start[empties], base.trace.end[empties]
    assert all(((start < e.at) & (e.at < end)).any() for e in under)


def test_sides_of_the_patterns_are_the_taxonomys() -> None:
    """A gpu pattern has faulty device work, a cpu pattern faulty host code or pauses."""
    for pattern in INJECTORS:
        edits = inject(base_of(), pattern)
        if BY_ID[pattern].side == "gpu":
            assert works_of(edits)
        else:
            assert calls_of(edits) or any(isinstance(e, Alter | Insert) for e in edits)


def test_a_strong_fault_does_not_repeat_without_end() -> None:
    blocks = [c for c in calls_of(inject(base_of(), "sync-explicit", 0, 0.6)) if c.wait]
    assert len(blocks) <= 300 * STEPS
