"""Every feature equals its slow, obvious twin, on generated traces."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector import vocabulary
from detector.activity import IDLE_CAUSES, SYNC_CAUSES
from detector.features import COLUMNS, extract, savings
from detector.features import FEATURES as ALL
from detector.features.cuts import Cuts, Sheet
from detector.features.device import IDLE_MEANING, KERNEL_KINDS
from detector.features.measure import (
    Feature,
    count_share,
    covered_share,
    needing,
    per,
    time_share,
)
from detector.trace import Cat, Step, Trace
from detector.window import AnalyzedTime, Window, by_step, by_time
from tests.analyses import analysis_of
from tests.random_traces import SEEDS, TRACES, random_events, random_trace
from tests.slow import FUSABLE, NAN, Look, Row, log, log1p, over, ticks
from tests.slow import Slow as SlowTrace
from tests.traces import trace_of

KB = 1024
Twin = Callable[[Look], float]

# -- the twins -----------------------------------------------------------------------------------


def ops_of(kind: str) -> Twin:
    return lambda w: over(w.count(w.slow.ops(kind)), w.count(w.slow.op))


def op_time_of(kind: str) -> Twin:
    return lambda w: over(w.covered(w.slow.ops(kind)), w.covered(w.slow.op))


def kernels_of(kind: str) -> Twin:
    return lambda w: over(w.spent(w.slow.kernels(kind)), w.spent(w.slow.kernel))


def shorter(rows: list[Row], us: int) -> list[Row]:
    return [r for r in rows if r.end - r.start < us]


def per_ms(count: int, w: Look) -> float:
    return log1p(count / (w.length / 1_000))


def delay(w: Look) -> float:
    rows = w.slow.rows
    wait = w.mean(w.slow.launched, lambda r: max(r.start - rows[r.launch].start, 0))
    return log(over(wait, w.slow.launch_cost))


def of_matrix(pattern: str) -> Twin:
    def twin(w: Look) -> float:
        rows = w.slow.matrix()
        found = [r for r in rows if getattr(vocabulary, pattern).search(r.name)]
        return over(w.spent(found), w.spent(rows))

    return twin


def unfilled(w: Look) -> float:
    rows = w.slow.sized_kernels()
    return over(w.spent([r for r in rows if r.blocks < w.slow.sms]), w.spent(rows))


def chained(w: Look) -> float:
    rows = w.slow.kernel
    chain = w.slow.third_in_a_row(rows, lambda r: w.slow.kind(r) in FUSABLE)
    return over(w.spent(chain), w.spent(rows))


def per_work(rows: Callable[[SlowTrace], list[Row]]) -> Twin:
    return lambda w: log1p(over(w.count(rows(w.slow)), w.count(w.slow.work)))


def small(rows: list[Row], below: int) -> list[Row]:
    return [r for r in rows if 0 <= r.bytes < below]


def copy_bytes(way: str) -> Twin:
    return lambda w: w.mean(
        [r for r in w.slow.copies(way) if r.bytes >= 0], lambda r: math.log2(max(r.bytes, 1))
    )


def loop(key: Callable[[Row], object]) -> Twin:
    def twin(w: Look) -> float:
        best = max(w.count(w.slow.looped(period, key)) for period in range(1, 9))
        return over(best, w.count(w.slow.top))

    return twin


def in_optimizer(slow: SlowTrace) -> list[Row]:
    return slow.inside(slow.top, slow.host("optimizer_step"))


def single(slow: SlowTrace) -> list[Row]:
    each = slow.ops("single_tensor") + slow.ops("pointwise")
    return [r for r in in_optimizer(slow) if r in each]


def chain_of_ops(slow: SlowTrace) -> list[Row]:
    pointwise = slow.ops("pointwise")
    return slow.third_in_a_row(slow.top, lambda r: r in pointwise)


def issued(ops: Callable[[SlowTrace], list[Row]]) -> Twin:
    return lambda w: over(w.covered(w.slow.issued_under(ops(w.slow))), w.covered(w.slow.run))


def launched_in(kind: str) -> Twin:
    return lambda w: over(
        w.covered(w.slow.launched_during(w.slow.host(kind))), w.covered(w.slow.run)
    )


def of_sized(rows: Callable[[SlowTrace], list[Row]]) -> Twin:
    return lambda w: over(w.count(rows(w.slow)), w.count(w.slow.sized_collectives()))


DEVICE: dict[str, Twin] = {
    "busy": lambda w: w.share(w.slow.busy),
    "compute": lambda w: w.share(w.slow.compute),
    **{f"idle_{c}": (lambda w, c=c: w.share(w.slow.idle_while(c))) for c in IDLE_CAUSES},
    "idle_longest": lambda w: w.longest(w.slow.idle) / w.length,
    "idle_per_launch": lambda w: log(
        over(over(w.covered(w.slow.idle), w.count(w.slow.launch)), w.slow.launch_cost)
    ),
    "launch_share": lambda w: w.share(w.slow.launch),
    "launch_per_kernel": lambda w: log(over(w.spent(w.slow.launch), w.spent(w.slow.kernel))),
    "launch_delay": delay,
    "starved": lambda w: over(w.count(w.slow.starved()), w.count(w.slow.launched)),
    "queue_depth": lambda w: w.mean(w.slow.launch, w.slow.depth),
    "blocking": lambda w: over(w.count(w.slow.blocking()), w.count(w.slow.kernel)),
    **{
        f"kernels_under_{us}us": (
            lambda w, us=us: over(w.count(shorter(w.slow.kernel, us)), w.count(w.slow.kernel))
        )
        for us in (5, 10)
    },
    **{
        f"kernel_time_under_{us}us": (
            lambda w, us=us: over(w.spent(shorter(w.slow.kernel, us)), w.spent(w.slow.kernel))
        )
        for us in (10, 100)
    },
    **{f"kernel_{kind}": kernels_of(kind) for kind in KERNEL_KINDS},
    "matrix_fp32": of_matrix("FP32_MATRIX"),
    "matrix_tensor_core": of_matrix("TENSOR_CORE"),
    "matrix_misaligned": of_matrix("MISALIGNED"),
    "unfilled": unfilled,
    "chained": chained,
    "copy_exposed": lambda w: w.share(
        ticks(w.slow.copy) - w.slow.compute - ticks(w.slow.collective)
    ),
    "d2h_time": lambda w: w.share(w.slow.copies("d2h")),
    "d2d_bytes": copy_bytes("d2d"),
    "h2d_small": lambda w: over(
        w.count(small(w.slow.copies("h2d"), 64 * KB)), w.count(w.slow.copies("h2d"))
    ),
    "d2h_tiny_rate": per_work(lambda s: small(s.copies("d2h"), 65)),
    "bounced_rate": per_work(lambda s: s.bounced()),
    "sync_rate": lambda w: log1p(over(w.count(w.slow.sync), w.count(w.slow.launch))),
    "ops_per_launch": lambda w: log1p(over(w.count(w.slow.op), w.count(w.slow.launch))),
    "silent_ops": lambda w: w.share(w.slow.silent()),
}
WORK: dict[str, Twin] = {
    **{
        f"work_{kind}": issued(lambda s, kind=kind: s.ops(kind))
        for kind in "matmul bmm fused_attention batch_norm pointwise copy_op cat".split()
    },
    "work_chained_ops": issued(chain_of_ops),
    "work_backward": issued(lambda s: s.host("backward")),
    "work_optimizer": launched_in("optimizer_step"),
    "work_unlinked": lambda w: over(
        w.covered([r for r in w.slow.work if r.op < 0]), w.covered(w.slow.run)
    ),
}
DEVICE["work_unlinked"] = WORK["work_unlinked"]
EVERYWHERE = ("busy", "compute", "idle_longest", *(f"idle_{cause}" for cause in IDLE_CAUSES))

HOST: dict[str, Twin] = {
    "main_ops": lambda w: w.share(w.slow.main(w.slow.op) - w.slow.loader),
    "blank": lambda w: w.share(w.slow.blank),
    "blank_longest": lambda w: w.longest(w.slow.blank) / w.length,
    "blank_per_op": lambda w: log(over(w.covered(w.slow.blank), w.count(w.slow.op))),
    "op_rate": lambda w: per_ms(w.count(w.slow.op), w),
    "call_rate": lambda w: per_ms(w.count(w.slow.call), w),
    "op_overlap": lambda w: log(over(w.spent(w.slow.op), w.covered(w.slow.op))),
    **{
        f"ops_{kind}": ops_of(kind)
        for kind in (
            "matmul conv bmm pointwise dropout copy_op factory to zero scalar foreach "
            "fused_attention"
        ).split()
    },
    **{
        f"op_time_{kind}": op_time_of(kind)
        for kind in "matmul softmax pointwise copy_op to".split()
    },
    "loop": loop(lambda r: r.name),
    "novel": lambda w: over(w.count(w.slow.novel()), w.count(w.slow.top)),
    "selects_dense": lambda w: over(w.count(w.slow.dense_selects()), w.count(w.slow.top)),
    "chained_ops": lambda w: over(w.count(chain_of_ops(w.slow)), w.count(w.slow.top)),
    "needless_graph": lambda w: over(
        w.count(w.slow.unless_backward([r for r in w.slow.op if r.sequence >= 0])),
        w.count(w.slow.op),
    ),
    "needless_dropout": lambda w: log1p(
        over(w.count(w.slow.unless_backward(w.slow.ops("train_dropout"))), w.count(w.slow.op))
    ),
    "optimizer_ops": lambda w: over(
        w.count(w.slow.inside(w.slow.top, w.slow.host("optimizer_step"))), w.count(w.slow.top)
    ),
    "optimizer_single": lambda w: over(w.count(single(w.slow)), w.count(in_optimizer(w.slow))),
    "zero_grad_fills": lambda w: over(
        w.count(w.slow.inside(w.slow.ops("zero"), w.slow.host("zero_grad"))), w.count(w.slow.op)
    ),
    "casts": lambda w: over(w.count(w.slow.casts()), w.count(w.slow.op)),
    "norm_after_bias": lambda w: over(
        w.count([norm for _, norm in w.slow.biased_pairs()]), w.count(w.slow.ops("batch_norm_call"))
    ),
}

ALWAYS: dict[str, Twin] = {
    "stretch": lambda w: math.log2(w.length / float(np.median(w.lengths))),
    "sync_share": lambda w: w.share(w.slow.sync),
    **{f"sync_{c}": (lambda w, c=c: w.share(w.slow.syncs(c))) for c in SYNC_CAUSES},
    "loader": lambda w: w.share(w.slow.loader),
    "loader_workers": lambda w: w.share(
        [r for r in w.slow.loader_rows if r in w.slow.host("loader_workers")]
    ),
    "alloc_share": lambda w: w.share(w.slow.calls("alloc")),
    "compiled": lambda w: w.share(w.slow.host("compiled_region")),
    "compiled_rate": lambda w: per_ms(w.count(w.slow.host("compiled_region")), w),
    "optimizer": lambda w: w.share(w.slow.host("optimizer_step")),
    "zero_grad": lambda w: w.share(w.slow.host("zero_grad")),
    "backward": lambda w: w.share(w.slow.host("backward")),
    "comm": lambda w: w.share(w.slow.collective),
    "comm_exposed": lambda w: w.share(ticks(w.slow.collective) - w.slow.compute),
    "comm_small": of_sized(lambda s: [r for r in s.sized_collectives() if s.message(r) < KB * KB]),
    "comm_repeated": of_sized(lambda s: s.repeated_collectives()),
}
STACKS: dict[str, Twin] = {
    "frame_rate": lambda w: per_ms(w.count(w.slow.frame), w),
    "frames_per_op": lambda w: log1p(over(w.count(w.slow.frame), w.count(w.slow.op))),
}
SHAPES: dict[str, Twin] = {
    "loop_shape": loop(lambda r: (r.name, r.dims)),
    "cat_appends": lambda w: over(w.count(w.slow.appends()), w.count(w.slow.op)),
    "casts_down": lambda w: log1p(over(w.count(w.slow.casts("float")), w.count(w.slow.top))),
}
WORK |= {
    "work_bias_before_norm": issued(lambda s: [conv for conv, _ in s.biased_pairs()]),
    "work_norm_after_bias": issued(lambda s: [norm for _, norm in s.biased_pairs()]),
    "work_conv_bias": lambda w: over(w.covered(w.slow.conv_bias()), w.covered(w.slow.run)),
}
SHAPES |= {
    "work_matmul_misaligned": issued(lambda s: s.misaligned()),
    "work_cat_appends": issued(lambda s: s.appends()),
    "work_casts_repeated": issued(lambda s: s.repeated_casts()),
}
# Sets that the evidence alone shows.
OF_EVIDENCE = (
    *(
        Feature(f"idle_{cause}", "idle", time_share(f"idle:{cause}"))
        for cause in IDLE_CAUSES
        if cause not in IDLE_MEANING
    ),
    *(
        Feature(f"sync_{cause}", "waits", time_share(f"sync:{cause}"))
        for cause in ("dynamic_shape", "d2h", "explicit")
    ),
    *needing("device", Feature("bounced_rate", "bounced", per("bounced", "device work"))),
    *needing("host", Feature("needless_dropout", "dropout", per("needless dropout", "op"))),
    Feature("comm_small", "small", count_share("small collective", "sized collective")),
    Feature("work_conv_bias", "biases", covered_share("conv bias", "work")),
    Feature("work_optimizer", "launched", covered_share("during:host:optimizer_step", "work")),
)
LEARNED = tuple(feature for feature in ALL if feature not in savings.FEATURES)
FEATURES = (*LEARNED, *OF_EVIDENCE)
TWINS: dict[str, Twin] = {**WORK, **DEVICE, **HOST, **ALWAYS, **STACKS, **SHAPES}


def has(slow: SlowTrace, name: str) -> bool:
    """Whether the trace holds what the feature needs: without it, the feature is not defined."""
    if name in DEVICE and name not in EVERYWHERE:
        return slow.has_device
    if name in HOST:
        return bool(slow.call or any(r.cat == Cat.CPU_OP for r in slow.rows))
    if name in STACKS:
        return bool(slow.frame)
    return any(r.dims for r in slow.rows) if name in SHAPES else True


WINDOWS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 120)).map(lambda w: (w[0], w[0] + w[1])),
    min_size=1,
    max_size=3,
)

# -- the properties ------------------------------------------------------------------------------


def test_every_feature_has_a_twin() -> None:
    assert {feature.name for feature in FEATURES} == set(TWINS)


def test_names_are_unique() -> None:
    assert len(set(COLUMNS)) == len(COLUMNS) == 4 * len(ALL)


@settings(max_examples=max(settings().max_examples, 50))
@given(TRACES, WINDOWS)
def test_every_feature_equals_its_twin(trace: Trace, windows: list[tuple[int, int]]) -> None:
    edges = np.array(windows, np.int64) * 1_000
    cuts = Cuts(Sheet(analysis_of(trace), edges.ravel()), edges[:, 0], edges[:, 1])
    slow = SlowTrace(trace)
    lengths = tuple(end - start for start, end in windows)
    looks = [Look(slow, start, end, lengths) for start, end in windows]
    for feature in FEATURES:
        twin = TWINS[feature.name]
        defined = has(slow, feature.name)
        expected = [twin(look) if defined else NAN for look in looks]
        actual = feature.compute(cuts)
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-6, err_msg=feature.name)


def test_the_generated_traces_move_every_feature() -> None:
    """An oracle proves nothing on a desert."""
    edges = np.array([(0, 60), (60, 120), (120, 240), (240, 350)], np.int64) * 1_000
    still = {feature.name for feature in FEATURES}
    for seed in range(150):
        sheet = Sheet(analysis_of(random_trace(seed)), edges.ravel())
        cuts = Cuts(sheet, edges[:, 0], edges[:, 1])
        for feature in FEATURES:
            values = feature.compute(cuts)
            if len(set(values[~np.isnan(values)])) > 1:
                still.discard(feature.name)
        if not still:
            return
    pytest.fail(f"never moved: {sorted(still)}")


@settings(max_examples=25)
@given(SEEDS)
def test_savings_and_ledger_of_the_windows_add_up_to_those_of_the_trace(seed: int) -> None:
    """Savings: as far as the occurrences lie in the analyzed time."""
    analyzed = AnalyzedTime(0, 350_000, (), "whole")
    analysis = analysis_of(random_trace(seed), analyzed)
    columns = dict(zip(COLUMNS, extract(analysis, by_time(analyzed, 7)).T, strict=True))
    found = {
        one.pattern.id: one.share * spans.clip(0, 350_000).measure / spans.measure
        for one in analysis.candidates.found
        if (spans := one.occurrences.spans).measure
    }
    for name, pattern in savings.SAVED.items():
        assert columns[name].mean() == pytest.approx(found.get(pattern, 0.0), abs=1e-5), pattern
    whole = sum(columns[f.name] for f in savings.FEATURES if f.name.startswith("ledger_"))
    assert whole == pytest.approx(np.ones(7), abs=1e-4)


def some_steps(seed: int) -> AnalyzedTime:
    r = Random(seed)
    edges = sorted(r.sample(range(300), r.randint(2, 5)))
    steps = [Step(str(i), a * 1_000, b * 1_000) for i, (a, b) in enumerate(pairwise(edges))]
    return AnalyzedTime(steps[0].start, steps[-1].end, tuple(steps), "markers")


def matrix_of(
    trace: Trace, analyzed: AnalyzedTime, windows: tuple[Window, ...]
) -> dict[str, np.ndarray]:
    matrix = extract(analysis_of(trace, analyzed), windows)
    assert matrix.shape == (len(windows), len(COLUMNS))
    assert matrix.dtype == np.float32
    assert not np.isinf(matrix).any()
    return dict(zip(COLUMNS, matrix.T, strict=True))


@settings(max_examples=25)
@given(SEEDS)
def test_context_is_the_wide_window_the_trace_and_the_same_place(seed: int) -> None:
    trace, analyzed = random_trace(seed), some_steps(seed)
    windows = by_step(analyzed, 4)
    columns = matrix_of(trace, analyzed, windows)
    outer = sorted({(w.outer_start, w.outer_end) for w in windows})
    wide_edges = np.array(outer, np.int64)
    edges = np.array([(w.start, w.end) for w in windows], np.int64)
    sheet = Sheet(analysis_of(trace, analyzed), np.append(wide_edges, edges))
    wide_cuts = Cuts(sheet, wide_edges[:, 0], wide_edges[:, 1])
    narrow_cuts = Cuts(sheet, edges[:, 0], edges[:, 1])
    for feature in LEARNED:
        narrow = feature.compute(narrow_cuts)
        wide = dict(zip(outer, feature.compute(wide_cuts), strict=True))
        name = feature.name
        close(columns[name], narrow)
        close(columns[f"{name}@outer"], [wide[w.outer_start, w.outer_end] for w in windows])
        close(columns[f"{name}@rel"], [v - median(narrow) for v in narrow])
        if len(analyzed.steps) > 1:
            expected = [v - median(narrow[i % 4 :: 4]) for i, v in enumerate(narrow)]
            close(columns[f"{name}@place"], expected)
        else:
            assert np.isnan(columns[f"{name}@place"]).all()


def median(values: np.ndarray) -> float:
    known = [v for v in values if not math.isnan(v)]
    return statistics.median(known) if known else NAN


def close(actual: np.ndarray, expected: object) -> None:
    np.testing.assert_allclose(actual, np.asarray(expected, np.float32), rtol=1e-5, atol=1e-5)


@settings(max_examples=20)
@given(SEEDS, st.integers(-2 * 10**18, 2 * 10**18))
def test_the_time_of_day_does_not_matter(seed: int, shift: int) -> None:
    trace, analyzed = random_trace(seed), AnalyzedTime(0, 350_000, (), "whole")
    moved = replace(trace, start=trace.start + shift)
    later = AnalyzedTime(shift, 350_000 + shift, (), "whole")
    one = extract(analysis_of(trace, analyzed), by_time(analyzed, 6))
    two = extract(analysis_of(moved, later), by_time(later, 6))
    np.testing.assert_array_equal(one, two)


@settings(max_examples=20)
@given(SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_events_in_the_file_does_not_matter(seed: int, random: Random) -> None:
    events, metadata = random_events(seed)
    distinct = {(e.start_ns, e.end_ns, e.place): e for e in events}.values()
    apart = [replace(e, start=3 * e.start + n / 1_000) for n, e in enumerate(distinct)]
    shuffled = random.sample(apart, len(apart))
    analyzed = AnalyzedTime(0, 900_000, (), "whole")
    one, two = (
        extract(analysis_of(trace_of(*these, metadata=metadata), analyzed), by_time(analyzed, 6))
        for these in (apart, shuffled)
    )
    np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6)
