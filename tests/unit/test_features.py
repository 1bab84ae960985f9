"""Features on traces small enough to check by eye."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from detector.activity import Activity
from detector.features import COLUMNS, FEATURES, VARIANTS, extract, in_words
from detector.patterns import PATTERNS
from detector.signals.event_sets import misaligned_matmuls
from detector.trace import NS_PER_MS, Step, Trace
from detector.window import AnalyzedTime, by_step, by_time
from tests.analyses import analysis_of
from tests.traces import (
    Event,
    annotation,
    call,
    kernel,
    launch,
    memcpy,
    op,
    repeat,
    sync,
    trace_of,
)


def value(name: str, *events: Event, until: float = 100, **rest: object) -> float:
    """A feature of the one window [0, until) us."""
    trace = trace_of(*events, **rest)  # type: ignore[arg-type]
    analyzed = AnalyzedTime(0, round(until * 1_000), (), "whole")
    return float(
        extract(analysis_of(trace, analyzed), by_time(analyzed, 1))[0, COLUMNS.index(name)]
    )


def columns(trace: Trace, analyzed: AnalyzedTime, parts: int) -> dict[str, list[float]]:
    matrix = extract(analysis_of(trace, analyzed), by_step(analyzed, parts))
    return {name: matrix[:, i].round(6).tolist() for i, name in enumerate(COLUMNS)}


# -- the table -----------------------------------------------------------------------------------


def test_the_table_says_what_each_feature_is() -> None:
    for feature in FEATURES:
        assert re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", feature.name)
        assert feature.unit
        assert len(feature.meaning) > 5


def test_columns_are_the_features_in_each_context() -> None:
    assert VARIANTS == ("", "@outer", "@rel", "@place")
    assert len(COLUMNS) == len(VARIANTS) * len(FEATURES)
    assert "busy@outer" in COLUMNS


def test_each_column_has_words_of_its_own() -> None:
    shown = [in_words(column) for column in COLUMNS]
    assert len(set(shown)) == len(COLUMNS)
    assert in_words("busy") == "the device does anything"
    assert in_words("busy@rel") == "the device does anything, against the rest of the trace"


def test_busy_is_the_union_of_streams() -> None:
    assert value("busy", kernel("a", 0, 40), kernel("b", 20, 40, stream=20)) == pytest.approx(0.6)


def test_a_launch_after_the_last_kernel_ended_is_starved() -> None:
    late = (launch(50, 2, 2), kernel("b", 55, 10, 2))
    queued = (launch(12, 2, 3), kernel("c", 70, 10, 3))
    first = (launch(0, 2, 1), kernel("a", 10, 10, 1))
    assert value("starved", *first, *late) == 1.0
    assert value("starved", *first, *late, *queued) == pytest.approx(2 / 3)


def test_launch_delay_is_in_launch_costs() -> None:
    assert value("launch_delay", launch(0, 2, 1), kernel("a", 16, 10, 1)) == 3.0  # log2(16 / 2)


def test_queue_depth_counts_launches_still_waiting() -> None:
    events = [e for i in range(4) for e in (launch(i, 1, i), kernel("a", 50 + 10 * i, 10, i))]
    assert value("queue_depth", *events) == pytest.approx((0 + 1 + math.log2(3) + 2) / 4)


def test_a_launch_that_waits_for_its_kernel_blocks() -> None:
    assert value("blocking", launch(0, 30, 1), kernel("a", 5, 20, 1)) == 1.0
    assert value("blocking", launch(0, 3, 1), kernel("a", 5, 20, 1)) == 0.0


def test_kernels_too_small_for_the_device() -> None:
    device = {"deviceProperties": [{"id": 0, "numSms": 100}]}
    small = kernel("sgemm", 0, 10, blocks=25)
    large = kernel("sgemm", 20, 30, blocks=400)
    assert value("unfilled", small, large, metadata=device) == pytest.approx(0.25)
    assert math.isnan(value("unfilled", small, large))  # the trace does not say its size


def test_fp32_and_tensor_cores_are_shares_of_matrix_time() -> None:
    events = (kernel("volta_sgemm", 0, 30), kernel("s16816gemm_bf16", 40, 10), kernel("x", 60, 40))
    assert value("matrix_fp32", *events) == pytest.approx(0.75)
    assert value("matrix_tensor_core", *events) == pytest.approx(0.25)


# -- copies and waits ----------------------------------------------------------------------------


def test_pageable_copies_in_line_with_compute() -> None:
    events = (
        kernel("a", 0, 50),
        memcpy("Memcpy HtoD (Pageable -> Device)", 50, 20, 1 << 20),
        memcpy("Memcpy HtoD (Pinned -> Device)", 70, 10, 1 << 10, stream=20),
    )
    assert value("h2d_small", *events) == 0.5
    assert value("copy_exposed", *events) == pytest.approx(0.3)


def test_a_scalar_readback_is_a_wait_of_its_own() -> None:
    events = (
        op("aten::item", 0, 60),
        op("aten::_local_scalar_dense", 1, 58),
        call("cudaMemcpyAsync", 2, 3, corr=1),
        memcpy("Memcpy DtoH (Device -> Pageable)", 40, 2, 4, corr=1),
        sync(6, 50),
    )
    assert value("sync_scalar", *events) == pytest.approx(0.5)
    assert value("d2h_tiny_rate", *events) == 1.0
    assert value("idle_sync", *events) == pytest.approx(0.48)


# -- the host ------------------------------------------------------------------------------------


def test_the_loader_is_recognized_by_its_workers() -> None:
    name = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"
    single = annotation(name.format("SingleProcess"), 0, 20)
    workers = annotation(name.format("MultiProcessing"), 50, 10)
    assert value("loader", single, workers) == pytest.approx(0.3)
    assert value("loader_workers", single, workers) == pytest.approx(0.1)


def test_the_longest_blank_is_the_longest_gap_on_all_threads() -> None:
    events = (op("aten::a", 0, 30), op("aten::b", 20, 30, thread=2), op("aten::c", 90, 10))
    assert value("blank_longest", *events) == pytest.approx(0.4)


def test_a_loop_over_rows_repeats_its_ops() -> None:
    body = (op("aten::select", 0, 2), op("aten::add", 3, 2))
    assert value("loop", *repeat(body, 10, 10)) == pytest.approx(0.5)  # from the sixth round on
    assert value("selects_dense", *repeat(body, 10, 10)) == pytest.approx(9 / 20)
    assert value("loop", *repeat(body, 3, 10)) == 0.0


def test_a_graph_that_no_backward_reads_is_needless() -> None:
    events = (op("aten::mm", 0, 5, sequence=1), op("aten::add", 10, 5))
    backward = op("autograd::engine::evaluate_function: MmBackward0", 50, 5)
    assert value("needless_graph", *events) == 0.5
    assert value("needless_graph", *events, backward) == 0.0


def test_the_optimizer_walks_parameters_one_by_one() -> None:
    step = annotation("Optimizer.step#SGD.step", 0, 50)
    single = [op("aten::add_", 5 * i + 1, 2) for i in range(4)]
    assert value("optimizer_single", step, *single) == 1.0
    assert value("optimizer_single", step, op("aten::_foreach_add_", 5, 10)) == 0.0


# -- shapes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dims", "misaligned"),
    [
        ("[[64, 128], [128, 256]]", 0),
        ("[[64, 129], [129, 256]]", 1),
        ("[[], [64, 128], [128, 50257]]", 1),
        ("[[1, 128], [128, 10]]", 0),  # small sides are no matter of alignment
        ("[[3], [64, 128], [128, 256]]", 0),
        ("[[64, 128], [128", 0),  # a text that was cut
    ],
)
def test_sides_of_matrix_products(dims: str, misaligned: int) -> None:
    trace = trace_of(op("aten::mm", 0, 5, dims=dims))
    assert len(misaligned_matmuls(Activity(trace))) == misaligned


@pytest.mark.parametrize(
    ("dims", "appends"),
    [
        ("[[[1, 8, 64, 4], [1, 8, 1, 4]], []]", 1.0),
        ("[[[1, 8, 64, 4], [1, 8, 64, 4]], []]", 0.0),
        ("[[[1, 8, 64, 4], [1, 8, 32, 4]], []]", 0.0),
        ("[[[8, 64], [1, 1]], []]", 0.0),
        ("[[], []]", 0.0),
        ("{}", 0.0),
    ],
)
def test_a_cache_that_grows_by_cat(dims: str, appends: float) -> None:
    assert value("cat_appends", op("aten::cat", 0, 5, dims=dims)) == appends


def test_a_bias_before_a_batch_norm() -> None:
    biased = op("aten::conv2d", 0, 5, dims="[[2, 3, 8, 8], [4, 3, 3, 3], [4], []]")
    plain = op("aten::conv2d", 20, 5, dims="[[2, 3, 8, 8], [4, 3, 3, 3], [], []]")
    norms = (op("aten::batch_norm", 10, 5), op("aten::batch_norm", 30, 5))
    assert value("norm_after_bias", biased, plain, *norms) == 0.5


def test_a_cast_is_no_move() -> None:
    cast = op("aten::_to_copy", 0, 5, types='["float", ""]', dims="[[4, 4]]")
    move = (
        op("aten::_to_copy", 20, 20, types='["float", ""]', dims="[[4, 4]]"),
        op("aten::copy_", 21, 18),
        call("cudaMemcpyAsync", 22, 3, corr=1),
        memcpy("Memcpy HtoD (Pinned -> Device)", 30, 5, 64, corr=1),
    )
    assert value("casts", cast, *move) == pytest.approx(1 / 3)


def test_work_is_counted_where_the_device_does_it() -> None:
    """The op is in the first half, its kernel in the second."""
    trace = trace_of(
        op("aten::linear", 0, 20),
        op("aten::addmm", 2, 15),
        launch(5, 2, 1),
        kernel("my_kernel", 60, 30, 1),
        kernel("other", 90, 10),
    )
    analyzed = AnalyzedTime(0, 100_000, (), "whole")
    matrix = extract(analysis_of(trace, analyzed), by_time(analyzed, 2))
    assert np.isnan(matrix[0, COLUMNS.index("work_matmul")])
    assert matrix[1, COLUMNS.index("work_matmul")] == pytest.approx(0.75)
    assert matrix[1, COLUMNS.index("work_unlinked")] == pytest.approx(0.25)


def test_on_a_cpu_run_the_ops_are_the_work() -> None:
    events = (op("aten::linear", 0, 20), op("aten::addmm", 0, 15), op("aten::add", 30, 10))
    assert value("work_matmul", *events) == pytest.approx(0.5)
    assert math.isnan(value("starved", *events))
    assert value("compute", *events) == pytest.approx(0.3)


# -- savings -------------------------------------------------------------------------------------


def test_each_pattern_that_one_trace_can_show_has_its_savings() -> None:
    saved = [f.name for f in FEATURES if f.name.startswith("saved_")]
    shown = [pattern.id for pattern in PATTERNS if pattern.id != "comm-straggler"]
    assert saved == ["saved_" + pattern.replace("-", "_") for pattern in shown]
    meaning = {feature.name: feature.meaning for feature in FEATURES}
    assert meaning["saved_input_dataloader_sync"] == (
        'what repairing "Data loading blocks training (num_workers=0)" saves here'
    )


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def waits(*marks: Event) -> tuple[Trace, AnalyzedTime]:
    """A CPU run of 200 ms that waits for the loader from 50 to 150 ms."""
    ms = 1_000
    events = (
        op("aten::mm", 0, 50 * ms),
        annotation(LOADER, 50 * ms, 100 * ms),
        op("aten::mm", 150 * ms, 50 * ms),
    )
    return trace_of(*events, *marks), AnalyzedTime(0, 200 * NS_PER_MS, (), "whole")


def test_savings_lie_where_the_occurrences_do() -> None:
    trace, analyzed = waits()
    analysis = analysis_of(trace, analyzed)
    (found,) = (c for c in analysis.candidates.found if c.pattern.id == "input-dataloader-sync")
    matrix = extract(analysis, by_time(analyzed, 4))
    saved = matrix[:, COLUMNS.index("saved_input_dataloader_sync")]
    assert saved.sum() * 50 * NS_PER_MS == pytest.approx(found.best_ns)
    assert saved == pytest.approx([0, *[found.best_ns / (100 * NS_PER_MS)] * 2, 0])
    assert 0.5 < saved[1] <= 1


def test_the_ledger_of_a_window_is_that_of_its_time() -> None:
    trace, analyzed = waits()
    matrix = extract(analysis_of(trace, analyzed), by_time(analyzed, 4))
    ledger = [name for name in COLUMNS if name.startswith("ledger_") and "@" not in name]
    rows = matrix[:, [COLUMNS.index(name) for name in ledger]]
    assert rows.sum(axis=1) == pytest.approx(np.ones(4))
    assert rows[1].max() == 1  # nothing but the wait
    assert rows[:, rows[1].argmax()].tolist() == [0, 1, 1, 0]


def test_a_mark_that_names_a_pattern_changes_no_saving() -> None:
    def saved(*marks: Event) -> list[float]:
        trace, analyzed = waits(*marks)
        row = extract(analysis_of(trace, analyzed), by_time(analyzed, 1))[0]
        return [row[i] for i, name in enumerate(COLUMNS) if name.startswith("saved_")]

    marks = [annotation(f"@@{pattern.id}", 151_000 + i, 10) for i, pattern in enumerate(PATTERNS)]
    np.testing.assert_array_equal(saved(*marks), saved())


# -- context -------------------------------------------------------------------------------------


def three_steps() -> tuple[Trace, AnalyzedTime]:
    """Steps of 100 us, idle in their second half; the second step computes half as long."""
    trace = trace_of(kernel("a", 0, 40), kernel("a", 100, 20), kernel("a", 200, 40))
    steps = tuple(Step(str(i), i * 100_000, (i + 1) * 100_000) for i in range(3))
    return trace, AnalyzedTime(0, 300_000, steps, "markers")


def test_each_feature_comes_in_four_contexts() -> None:
    found = columns(*three_steps(), parts=2)
    assert found["busy"] == pytest.approx([0.8, 0, 0.4, 0, 0.8, 0])
    assert found["busy@outer"] == pytest.approx([0.4, 0.4, 0.2, 0.2, 0.4, 0.4])
    assert found["busy@rel"] == pytest.approx([0.6, -0.2, 0.2, -0.2, 0.6, -0.2])
    assert found["busy@place"] == pytest.approx([0, 0, -0.4, 0, 0, 0])


def test_without_steps_there_is_no_same_place() -> None:
    trace, analyzed = three_steps()
    whole = AnalyzedTime(analyzed.start, analyzed.end, (), "whole")
    matrix = extract(analysis_of(trace, whole), by_time(whole, 6))
    assert np.isnan(matrix[:, COLUMNS.index("busy@place")]).all()


def test_no_windows_give_an_empty_matrix() -> None:
    trace, analyzed = three_steps()
    matrix = extract(analysis_of(trace, analyzed), ())
    assert (matrix.shape, matrix.dtype) == ((0, len(COLUMNS)), np.float32)


def test_a_window_without_events_is_defined_where_it_can_be() -> None:
    trace = trace_of(kernel("a", 0, 10), op("aten::mm", 0, 10))
    analyzed = AnalyzedTime(0, 100_000, (), "whole")
    last = extract(analysis_of(trace, analyzed), by_time(analyzed, 4))[-1]
    assert last[COLUMNS.index("busy")] == 0
    assert np.isnan(last[COLUMNS.index("starved")])
    assert not np.isinf(last).any()
