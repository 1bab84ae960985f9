"""Signals: what they hold, and above all what they must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from detector.signals import SIGNALS, signals_of
from tests.random_traces import random_trace
from tests.traces import (
    Event,
    annotation,
    call,
    kernel,
    launch,
    memcpy,
    op,
    python,
    repeat,
    sync,
    trace_of,
)

COMPILE_FRAME = "torch/_dynamo/convert_frame.py(9): _compile.<locals>.compile_inner"
WRAPPER = "torch/_functorch/aot_autograd.py(9): forward"


def found(name: str, *events: Event, **rest: object) -> list[str]:
    trace = trace_of(*events, **rest)  # type: ignore[arg-type]
    return [trace.names[trace.name[row]] for row in signals_of(trace)[name]]


@pytest.mark.parametrize("seed", range(12))
def test_a_signal_is_a_set_of_rows_in_time_order(seed: int) -> None:
    trace = random_trace(seed)
    signals = signals_of(trace)
    for name in SIGNALS:
        rows = signals[name]
        assert rows.dtype == np.int64, name
        assert (np.diff(rows) > 0).all(), name
        assert not len(rows) or (rows[0] >= 0 and rows[-1] < len(trace)), name


# -- compilation ---------------------------------------------------------------------------------


def test_compiling_is_compilation() -> None:
    assert found("compilation", python(COMPILE_FRAME, 0, 5_000)) == [COMPILE_FRAME]


def test_a_wrapper_of_compiled_code_is_not() -> None:
    wrapper = (
        python(WRAPPER, 0, 5_000),
        python("torch/_functorch/aot_autograd.py(7): <genexpr>", 10, 2_000),
        launch(3_000, 5, corr=1),
        kernel("triton_poi_fused", 3_010, 50, corr=1),
    )
    assert found("compilation", *wrapper) == []


def test_a_look_into_the_cache_is_not() -> None:
    assert found("compilation", python(COMPILE_FRAME, 0, 40)) == []


def test_what_the_compiler_launches_to_choose_a_kernel_is() -> None:
    tuning = (
        python(COMPILE_FRAME, 0, 9_000),
        python("torch/_inductor/compile_fx.py(3): codegen", 10, 8_000),
        launch(3_000, 5, corr=1),
        kernel("triton_mm", 3_010, 50, corr=1),
    )
    assert COMPILE_FRAME in found("compilation", *tuning)


# -- the host's own work -------------------------------------------------------------------------


def test_an_op_full_of_views_computes_nothing() -> None:
    views = [op("aten::slice", 10 + 10 * i, 8) for i in range(40)]
    assert found("host-only-op", op("aten::unflatten", 0, 450), *views) == []
    assert found("host-only-op", op("aten::stack", 0, 450)) == ["aten::stack"]


def test_an_op_that_launches_does_not_compute_on_the_host() -> None:
    events = (op("aten::mm", 0, 450), launch(10, 5, corr=1), kernel("sgemm", 20, 5, corr=1))
    assert found("host-only-op", *events) == []


def test_image_frames_are_preprocessing_unless_they_launch() -> None:
    resize = "transformers/image_transforms.py(319): resize"
    assert found("preprocessing-frame", python(resize, 0, 100)) == [resize]
    on_device = (python(resize, 0, 100), launch(10, 5, corr=1), kernel("bicubic", 20, 5, corr=1))
    assert found("preprocessing-frame", *on_device) == []


def test_a_slow_op_that_is_always_slow_is_no_stall() -> None:
    usual = repeat([op("aten::add", 0, 10)], 30, 20)
    assert found("op-stall", *usual, op("aten::add", 1_000, 700)) == ["aten::add"]
    assert found("op-stall", *repeat([op("aten::add", 0, 700)], 30, 800)) == []


# -- pauses --------------------------------------------------------------------------------------


def steady(count: int = 100, every: float = 50) -> tuple[Event, ...]:
    step = (op("aten::mm", 0, 20), launch(5, 5, corr=1), kernel("sgemm", 12, 30, corr=1))
    return repeat(step, count, every)


def test_an_isolated_pause_is_found() -> None:
    after = [event for event in steady(200) if event.start >= 5_000]
    before = [event for event in steady(200) if event.start < 5_000]
    moved = [replace(event, start=event.start + 3_000) for event in after]
    assert found("pause", *before, *moved) == ["aten::mm"]


def test_with_frames_a_pause_calls_nothing() -> None:
    """3 ms of one frame, and the same full of calls."""
    halves = (*ops_after(0, 60), *ops_after(3_600, 60), python("train.py(1): step", 0, 4_300))
    calls = [python("<built-in method join of str object>", 620 + 30 * i, 25) for i in range(98)]
    assert found("pause", *halves) == ["aten::mm"]
    assert found("pause", *halves, *calls) == []
    assert found("python-gap", *halves, *calls) == ["aten::mm"]


def test_a_rhythm_of_pauses_is_the_program_itself() -> None:
    assert found("pause", *steady(100, every=2_000)) == []


# -- allocation ----------------------------------------------------------------------------------


def test_first_use_is_not_churn() -> None:
    first = [call("cudaMalloc", 1 + i, 0.5) for i in range(4)]
    assert found("allocation", *steady(), *first) == []
    assert len(found("first-use-allocation", *steady(), *first)) == 4


def test_allocating_in_every_iteration_is_churn() -> None:
    free = [call("cudaFree", 25 + 50 * i, 5) for i in range(100)]
    get = [call("cudaMalloc", 32 + 50 * i, 5) for i in range(100)]
    assert len(found("allocation", *steady(), *free, *get)) == 200


def test_memory_that_only_grows_is_not_churn() -> None:
    get = [call("cudaMalloc", 32 + 50 * i, 5) for i in range(100)]
    assert found("allocation", *steady(), *get) == []


# -- waits ---------------------------------------------------------------------------------------


def test_a_wait_belongs_to_the_op_that_asks_for_it() -> None:
    work = steady(10)
    item = (op("aten::item", 60, 30), sync(70, 10))
    assert found("scalar-readback-wait", *work, *item) == ["cudaStreamSynchronize"]
    assert found("explicit-wait", *work, *item) == []
    assert found("explicit-wait", *work, sync(70, 10)) == ["cudaStreamSynchronize"]


def test_a_wait_for_unrecorded_work_is_no_synchronization_of_the_program() -> None:
    wait = sync(0, 9_000, "cudaDeviceSynchronize")
    later = [e for e in steady(300) if e.start >= 9_500]
    assert found("unrecorded-wait", wait, *later) == ["cudaDeviceSynchronize"]
    assert found("explicit-wait", wait, *later) == []


def test_waiting_long_for_recorded_work_is_one() -> None:
    events = (
        launch(0, 2, corr=1),
        kernel("sgemm", 5, 9_000, corr=1),
        sync(10, 9_000),
        launch(9_100, 2, corr=2),
        kernel("sgemm", 9_110, 10, corr=2),
    )
    assert found("unrecorded-wait", *events) == []
    assert found("explicit-wait", *events) == ["cudaStreamSynchronize"]


def test_pageable_copies() -> None:
    copy = memcpy("Memcpy HtoD (Pageable -> Device)", 20, 5, 1 << 20, corr=9)
    assert found("pageable-copy", call("cudaMemcpyAsync", 10, 5, corr=9), copy) == [
        "Memcpy HtoD (Pageable -> Device)"
    ]


# -- threads -------------------------------------------------------------------------------------


def test_the_main_thread_holds_the_steps_and_not_the_most_launches() -> None:
    backward = repeat(
        [
            op("autograd::engine::evaluate_function: MulBackward0", 0, 20, thread=2),
            launch(5, 2, corr=1, thread=2),
            kernel("mul", 10, 5, corr=1),
        ],
        20,
        30,
    )
    marked = (annotation("Optimizer.step#SGD.step", 700, 20, thread=1), *backward)
    trace = trace_of(*marked)
    assert trace.tracks[signals_of(trace).main_thread].tid == "1"
    plain = trace_of(launch(0, 2, corr=99), kernel("a", 5, 5, corr=99), *backward)
    assert plain.tracks[signals_of(plain).main_thread].tid == "1"


# -- collectives ---------------------------------------------------------------------------------


def rounds(*sizes: int) -> list[Event]:
    """Reductions of these sizes, and an optimizer's step after them."""
    name, at = "ncclDevKernel_AllReduce", 10.0
    events = [annotation("Optimizer.step#SGD.step", 10 + 20 * len(sizes), 5)]
    for i, size in enumerate(sizes):
        events += [
            launch(at, 2, corr=i + 1),
            kernel(name, at + 4, 10, corr=i + 1, msg_elems=size, collective="allreduce"),
        ]
        at += 20
    return events


@pytest.mark.parametrize(
    ("sizes", "extra"),
    [
        ((300, 200, 100, 300, 200, 100), 3),  # two micro-steps
        ((300, 200, 100), 0),  # three buckets
        ((300, 300, 300, 100), 0),  # equal buckets of one backward
        ((300, 300), 0),  # nobody can tell
    ],
)
def test_a_second_round_repeats_every_size(sizes: tuple[int, ...], extra: int) -> None:
    assert len(found("extra-round", *rounds(*sizes))) == extra


@pytest.mark.parametrize(("micro_steps", "extra"), [(1, 0), (2, 3), (3, 6)])
def test_without_sizes_the_passes_tell_the_rounds(micro_steps: int, extra: int) -> None:
    """A CPU backend, two steps: after each pass of the model three reductions."""
    one = (annotation("DistributedDataParallel.forward", 0, 10),) + tuple(
        annotation("gloo:all_reduce", 20 + 10 * i, 5) for i in range(3)
    )
    step = (*repeat(one, micro_steps, 60), annotation("Optimizer.step#SGD.step", 190, 5))
    assert len(found("extra-round", *repeat(step, 2, 200))) == 2 * extra


def in_three_steps(*durations: tuple[float, ...]) -> dict[str, list[str]]:
    """Reductions without sizes, one of each step beside the next; a step takes 10 ms."""
    name, events = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", list[Event]()
    for step, row in enumerate(durations):
        at = 10_000.0 * step
        for i, dur in enumerate(row):
            corr = len(row) * step + i + 1
            events += [launch(at, 2, corr=corr), kernel(name, at + 5, dur, corr=corr)]
            at += dur + 20
    steps = [(10_000.0 * i, 10_000.0 * (i + 1)) for i in range(len(durations))]
    return {
        signal: found(signal, *events, steps=steps)
        for signal in ("small-collective", "exposed-collective", "straggler")
    }


def test_without_sizes_the_same_place_of_another_step_tells_the_transfer() -> None:
    large_and_small = in_three_steps(*[(1_500, 120)] * 3)
    assert len(large_and_small["exposed-collective"]) == 6
    one_waits = in_three_steps((1_500, 120), (1_500, 120), (1_500, 900))
    assert len(one_waits["straggler"]) == 1
    every_step_differs = in_three_steps((1_500, 120), (1_500,), (1_500, 120, 120))
    assert len(every_step_differs["straggler"]) == 3


def test_a_small_collective_that_waits_is_small() -> None:
    steps = in_three_steps((15, 15, 15, 900) * 5, *[(15,) * 20] * 3)
    assert len(steps["small-collective"]) == 80


# -- stretches of the interpreter ------------------------------------------------------------------


def array_work(start: float, back: str = "aten::lift_fresh") -> tuple[Event, ...]:
    """A tensor leaves torch as an array, and 600 us later a tensor is made."""
    return (
        op("aten::resolve_conj", start, 2),
        op("aten::resolve_neg", start + 3, 2),
        op("aten::empty", start + 605, 2),
        op(back, start + 620, 2),
    )


def ops_after(start: float, count: int = 30) -> tuple[Event, ...]:
    return tuple(op("aten::mm", start + 10 * i, 8) for i in range(count))


def test_work_on_an_array_that_becomes_a_tensor_is_preparation() -> None:
    events = (*ops_after(0), *array_work(310), *ops_after(940))
    assert found("array-gap", *events) == ["aten::empty"]
    assert found("preparation", *events) == ["aten::empty"]
    assert found("python-gap", *events) == []


def test_an_array_that_goes_to_a_log_is_not() -> None:
    events = (*ops_after(0), *array_work(310, back="aten::mul"), *ops_after(940))
    assert found("array-gap", *events) == []
    assert found("python-gap", *events) == ["aten::empty"]


def test_time_in_torchs_own_annotation_is_not_the_programs_python() -> None:
    def stretch(name: str) -> tuple[Event, ...]:
        return (*ops_after(0), annotation(name, 305, 700), *ops_after(1_000))

    assert found("python-gap", *stretch("Optimizer.step#SGD.step")) == []
    assert found("python-gap", *stretch("ProfilerStep#3")) == ["aten::mm"]
    assert found("python-gap", *stretch("write metrics")) == ["aten::mm"]
    assert found("python-gap", *stretch("DistributedDataParallel.forward")) == ["aten::mm"]


def test_without_frames_a_short_stretch_is_no_more_python_than_torch() -> None:
    def stretch(length: float, *frames: Event) -> tuple[Event, ...]:
        return (*ops_after(0), *ops_after(300 + length), *frames)

    own = python("train.py(7): log", 250, 400)
    assert found("python-gap", *stretch(300)) == []
    assert found("python-gap", *stretch(500)) == ["aten::mm"]
    assert found("python-gap", *stretch(300, own)) == ["aten::mm"]


def test_the_standard_library_s_time_is_its_caller_s() -> None:
    def stretch(caller: str, called: str) -> list[str]:
        frames = (python(caller, 290, 610), python(called, 310, 580))
        return found("python-gap", *ops_after(0), *frames, *ops_after(900))

    assert stretch("train.py(7): log", "json/encoder.py(205): iterencode") == ["aten::mm"]
    assert stretch("train.py(7): log", "/usr/lib/python3.11/copy.py(1): copy") == ["aten::mm"]
    assert stretch("torch/optim/sgd.py(9): step", "contextlib.py(1): inner") == []
    assert stretch("train.py(7): log", "torch/optim/sgd.py(9): step") == []


def steps_apart(*between: float) -> tuple[Event, ...]:
    """A CPU run's steps of 60 ops, with so much nothing between one and the next."""
    events: list[Event] = []
    at = 0.0
    for i, gap in enumerate((*between, 0)):
        events += [annotation(f"ProfilerStep#{i}", at, 600), *ops_after(at + 1, 59)]
        at += 600 + gap
    return tuple(events)


def in_steps(name: str, *events: Event) -> int:
    marks = [e for e in events if e.name.startswith("ProfilerStep")]
    steps = [(mark.start, mark.start + mark.dur) for mark in marks]
    return len(found(name, *events, steps=steps))


def test_a_pause_between_two_steps_is_one_where_the_others_follow_at_once() -> None:
    assert in_steps("pause", *steps_apart(100, 3_000, 100, 100, 100)) == 1
    assert in_steps("pause", *steps_apart(*[3_000] * 5)) == 0  # what the program does each time
    assert in_steps("pause", *steps_apart(100, 3_000)) == 0  # too few to tell


def test_on_a_cpu_python_without_frames_comes_back() -> None:
    assert in_steps("python-gap", *steps_apart(600, 0, 600, 0, 0)) == 2
    assert in_steps("python-gap", *steps_apart(600, 0, 0, 0, 0)) == 0
    device = launch(5, 5, corr=1), kernel("sgemm", 12, 30, corr=1)
    assert in_steps("python-gap", *steps_apart(600, 0, 0, 0, 0), *device) == 1


def test_a_wait_for_other_ranks_is_neither_pause_nor_python() -> None:
    calm = (*ops_after(0, 60), *ops_after(4_000, 60))
    run = annotation("gloo:all_reduce", 500, 3_400, thread=2)
    assert found("pause", *calm) == ["aten::mm"]
    assert found("pause", *calm, run) == []
    assert found("python-gap", *calm, run) == []


# -- loops -----------------------------------------------------------------------------------------


def one_round(start: float) -> tuple[Event, ...]:
    """Three rows are used in three ways."""
    names = "select mul select add select copy_ mul"
    return tuple(op(f"aten::{name}", start + 3 * i, 2) for i, name in enumerate(names.split()))


def test_a_round_of_a_loop_may_use_several_rows() -> None:
    rounds = [event for i in range(12) for event in one_round(25 * i)]
    assert len(found("row-loop", *rounds)) == 36


def test_rows_that_are_used_differently_each_time_are_no_loop() -> None:
    events: list[Event] = []
    for i in range(40):
        events += [op("aten::select", 40 * i, 2)]
        events += [op("aten::mul", 40 * i + 3 + 3 * k, 2) for k in range(1 + (i * i + i // 3) % 7)]
    assert found("row-loop", *events) == []


def test_the_layers_of_a_network_are_no_loop() -> None:
    """Each takes one part of what its first product made."""

    def layers(*names: str) -> list[Event]:
        body = ("linear", "select", *names, "add")
        return [
            op(f"aten::{name}", 30 * i + 3 * k, 2) for i in range(24) for k, name in enumerate(body)
        ]

    assert found("row-loop", *layers("scaled_dot_product_attention", "linear", "layer_norm")) == []
    assert len(found("row-loop", *layers("mul"))) == 24


def driver(*names: str) -> tuple[Event, ...]:
    """These driver calls in a trace without marked steps, in which each kernel runs once."""
    calls = [call(name, 100 * i, 50) for i, name in enumerate(names)]
    work = [
        event
        for i in range(10)
        for event in (
            launch(5_000 + 60 * i, 5, corr=i + 1),
            kernel(f"gemm{i}", 5_010 + 60 * i, 50, corr=i + 1),
        )
    ]
    return (*calls, *work)


def test_memory_that_comes_and_goes_is_churn_where_no_step_is_marked() -> None:
    assert len(found("allocation", *driver(*["cudaFree", "cudaMalloc"] * 4))) == 8
    assert found("allocation", *driver("cudaFree", *["cudaMalloc"] * 9)) == []  # first use


def test_a_steady_step_that_gives_memory_back_does_not_keep_it() -> None:
    step = (annotation("ProfilerStep#7", 0, 10_000), *driver(*["cudaFree"] * 5))
    few = (annotation("ProfilerStep#7", 0, 10_000), *driver("cudaFree"))
    assert len(found("allocation", *step, steps=[(0, 10_000)])) == 5
    assert found("allocation", *few, steps=[(0, 10_000)]) == []


# -- copies ----------------------------------------------------------------------------------------


def made_and_moved(size: int, took: float) -> tuple[Event, ...]:
    """A factory op, then a copy to the device of so many bytes."""
    return (
        op("aten::ones", 0, took),
        op("aten::to", took + 10, 40),
        call("cudaMemcpyAsync", took + 15, 5, corr=1),
        memcpy("Memcpy HtoD (Pageable -> Device)", took + 25, 20, size, corr=1),
    )


def test_a_tensor_that_a_factory_made_is_moved() -> None:
    assert len(found("factory-copy", *made_and_moved(1_000_000, 100))) == 1


def test_no_factory_writes_that_much_so_fast() -> None:
    events = made_and_moved(40_000_000, 5)
    assert found("factory-copy", *events) == []
    assert len(found("pageable-copy", *events)) == 1


# -- what an op does for itself --------------------------------------------------------------------


def copies_in(name: str) -> list[str]:
    around = (op(name, 0, 40), op("aten::contiguous", 5, 30), op("aten::clone", 6, 28))
    return found("copy-op", *around, op("aten::copy_", 7, 20))


def test_a_copy_that_the_program_asks_for_is_one() -> None:
    assert copies_in("Model Forward Pass") == ["aten::contiguous"]
    assert copies_in("CompiledFunctionBackward") == ["aten::contiguous"]
    assert copies_in("mylib::rotate") == ["aten::contiguous"]


@pytest.mark.parametrize("name", ["aten::_convolution", "UnbindBackward0", "torch::autograd::X"])
def test_what_an_op_of_torch_copies_for_itself_is_none(name: str) -> None:
    assert copies_in(name) == []


@pytest.mark.parametrize(("added", "copies"), [(1, []), (64, ["aten::cat"])])
def test_what_appends_to_a_growing_tensor_is_none(added: int, copies: list[str]) -> None:
    """A cache of 64 tokens and one more; two halves are joined."""
    dims = f"[[[1, 8, 64, 4], [1, 8, {added}, 4]], []]"
    assert found("copy-op", op("aten::slice", 0, 5), op("aten::cat", 10, 40, dims=dims)) == copies


def test_what_an_optimizer_does_by_parameter_is_no_chain() -> None:
    adds = [op("aten::add_", 10 + 10 * i, 5) for i in range(12)]
    assert len(found("pointwise-chain", *adds)) == 12
    step = annotation("Optimizer.step#AdamW.step", 0, 140)
    assert found("pointwise-chain", step, *adds) == []


def test_to_fetch_a_batch_that_is_there_is_no_wait_without_a_device() -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    short, long = annotation(name, 0, 1_300), annotation(name, 9_000, 4_000)
    assert found("loader-workers", short, op("aten::mm", 2_000, 500)) == []
    assert found("loader-workers", short, long) == [name]
    device = (launch(2_000, 5, corr=1), kernel("gemm", 2_010, 50, corr=1))
    assert found("loader-workers", short, *device) == [name]


def test_each_tensor_of_a_batch_takes_its_time_to_fetch() -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    wait, product = annotation(name, 0, 3_200), op("aten::mm", 4_000, 500)
    received = [op("aten::set_", 300 + 200 * i, 5) for i in range(12)]
    assert found("loader-workers", wait, *received[:2], product) == [name]
    assert found("loader-workers", wait, *received, product) == []


def test_with_frames_a_wait_for_a_batch_rests() -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    waits = annotation(name, 0, 9_000), annotation(name, 10_000, 9_000)
    poll = python("<built-in method poll of select.poll object at 0x7f>", 10_100, 8_000)
    trace = trace_of(*waits, poll, op("aten::mm", 20_000, 500))
    assert trace.start[signals_of(trace)["loader-workers"]].tolist() == [10_000_000]


IMAGE = "[[8, 20, 36, 36], [8, 20, 36, 36], []]"


def conversion(types: str, dims: str = IMAGE) -> tuple[Event, ...]:
    """``to``, a convolution and ``contiguous`` on a CPU run."""
    return (
        op("aten::to", 0, 60),
        op("aten::_to_copy", 2, 56),
        op("aten::copy_", 10, 40, types=types, dims=dims),
        op("aten::conv2d", 70, 200),
        op("aten::contiguous", 280, 60),
        op("aten::clone", 282, 56),
        op("aten::copy_", 290, 40, types='["float", "float", "Scalar"]', dims=dims),
    )


def test_a_copy_of_images_that_changes_no_type_changes_their_layout() -> None:
    same, cast = '["float", "float", "Scalar"]', '["float", "c10::BFloat16", "Scalar"]'
    assert found("layout-kernel", *conversion(same)) == ["aten::to", "aten::contiguous"]
    assert found("cast-op", *conversion(same)) == []
    assert found("copy-op", *conversion(same)) == []
    assert found("layout-kernel", *conversion(cast)) == []
    assert found("cast-op", *conversion(cast)) == ["aten::to"]
    assert found("layout-kernel", *conversion(same, "[[8, 20], [8, 20], []]")) == []


def test_on_a_cpu_what_makes_one_tensor_of_several_others_is_no_copy() -> None:
    def copies_after(before: str, dims: str) -> list[str]:
        join = op("aten::cat", 60, 40, dims=dims)
        return found("copy-op", op("aten::mm", 0, 20), op(before, 30, 20), join)

    several, one = "[[[576, 64], [576, 36]], []]", "[[[576, 64]], []]"
    assert copies_after("aten::embedding", several) == []
    assert copies_after("aten::slice", several) == ["aten::cat"]  # of parts of one tensor
    assert copies_after("aten::embedding", one) == ["aten::cat"]
    device = launch(70, 5, corr=1), kernel("CatArrayBatchedCopy", 80, 5, corr=1)
    assert found("copy-op", op("aten::cat", 60, 40, dims=several), *device) == ["aten::cat"]


def test_an_op_of_arithmetic_casts_the_number_it_is_called_with_for_itself() -> None:
    def casts_of(dims: str) -> list[str]:
        inner = op("aten::to", 2, 30, dims=dims), op("aten::_to_copy", 4, 26)
        return found("cast-op", op("aten::mul", 0, 40), *inner)

    assert casts_of("[[], [], []]") == []
    assert casts_of("") == []
    assert casts_of("[[64, 64], [], []]") == ["aten::to"]
    linear = op("aten::linear", 0, 40), op("aten::to", 2, 30), op("aten::_to_copy", 4, 26)
    assert found("cast-op", *linear) == ["aten::to"]  # autocast


@pytest.mark.parametrize(("name", "dur", "few"), [("scan", 30, 1), ("scan", 8, 0), ("gemm", 8, 1)])
def test_a_scan_of_a_few_rows_does_not_fill_the_device(name: str, dur: float, few: int) -> None:
    device = {"deviceProperties": [{"id": 0, "numSms": 80}]}
    work = (launch(0, 5, corr=1), kernel(name, 10, dur, corr=1, blocks=4))
    assert len(found("underfilled-kernel", *work, metadata=device)) == few


def test_an_annotation_across_frames_is_open_where_they_have_ended() -> None:
    """A context manager opens it inside ``__enter__``: neither holds the other."""
    trace = trace_of(
        python("train.py(1): forward", 0, 1_000),
        python("torch/autograd/profiler.py(610): __enter__", 10, 10),
        annotation("MLP", 15, 500),
        op("aten::mm", 900, 50),
    )
    line = signals_of(trace).timeline(int(trace.track[0]))
    _, _, _, (segment,) = line.during(np.array([100_000]), np.array([101_000]))
    assert trace.names[trace.name[line.row[segment]]] == "MLP"
