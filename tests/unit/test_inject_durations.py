"""How long injected work takes: by the trace's own kernels, and by nothing of the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from dataset.inject import Unfit, injectors
from dataset.inject import durations as module
from dataset.inject.base import Base
from dataset.inject.durations import REACH, SHORTEST, matrix_peak, matrix_reach, moving_rate
from dataset.inject.edits import Edit
from dataset.inject.products import Product, product_ns
from dataset.simulate import kernels
from dataset.simulate.devices import DEVICES
from detector.activity import Activity
from tests.inject_bases import MODELS, STEP, STEPS, base_of
from tests.traces import Event, annotation, call, kernel, op, trace_of

A100 = DEVICES["A100"]
PEAK = A100.bandwidth / 1_000  # bytes/ns
NAME = "vectorized_elementwise_kernel<4, MulFunctor>"


def activity(*kernels_us: tuple[float, int]) -> Activity:
    """Pointwise kernels of so many µs and blocks of 128 threads, one after the other."""
    events: list[Event] = []
    at = 0.0
    for i, (us, blocks) in enumerate(kernels_us):
        events += [op("aten::mul", at, 30), call("cudaLaunchKernel", at + 8, 6, corr=i)]
        events += [kernel(NAME, at + 20, us, i, blocks=blocks, threads=128)]
        at += us + 60
    return Activity(trace_of(*events, metadata=MODELS["cuda"]))


def test_the_rate_is_that_of_the_trace_s_own_large_kernels() -> None:
    """2048 blocks of 128 threads move 2^20 values in two tensors of 4 bytes: 8.4 MB."""
    moved = 2048 * 128 * 4 * 4 * 2
    found = moving_rate(activity((2.0, 1), (2.0, 1), (22.0, 2048)), A100, 4)
    assert found == pytest.approx(moved / 20_000, rel=0.02)
    assert found < PEAK


def test_a_rate_above_the_peak_or_without_any_large_kernel_is_not_believed() -> None:
    assert moving_rate(activity((2.0, 1), (2.0, 1), (2.1, 4096)), A100, 4) == PEAK
    assert moving_rate(activity((2.0, 1), (9.0, 8)), A100, 4) == PEAK * REACH
    assert moving_rate(activity(), A100, 4) == PEAK * REACH


def test_the_reach_of_matrix_kernels_is_that_of_all_known_ones_together() -> None:
    flop = np.array([100.0, 900.0, 0.0])
    dur = np.array([10, 40, 10], np.int64)
    assert matrix_reach(flop, dur, 40.0) == pytest.approx(0.5)
    assert matrix_reach(np.zeros(2), dur[:2], 40.0) == REACH


def test_fp32_without_matrix_units_has_the_lower_peak() -> None:
    assert matrix_peak(A100, module.FULL) == A100.fp32 / 1_000
    assert matrix_peak(A100, "float") == A100.tf32 / 1_000
    assert matrix_peak(A100, "c10::Half") == A100.half / 1_000


def with_products(us: float) -> Base:
    """A base whose products of 1024 cubed take so many µs."""
    shapes = {"dims": "[[1024, 1024], [1024, 1024]]", "types": '["float", "float"]'}
    events: list[Event] = []
    for i in range(STEPS):
        start = i * STEP
        events += [annotation(f"ProfilerStep#{i}", start, STEP - 10)]
        events += [op("aten::mm", start + 20, 30, **shapes)]
        events += [call("cudaLaunchKernel", start + 28, 6, corr=i)]
        events += [kernel("ampere_sgemm_128x64_tn", start + 50, us, i)]
    steps = [(i * STEP, (i + 1) * STEP - 10) for i in range(STEPS)]
    return Base("hand.json", trace_of(*events, steps=steps, metadata=MODELS["cuda"]))


def test_a_product_takes_as_long_as_the_trace_s_own_of_its_size() -> None:
    """Beside a shortest kernel, which here is the product itself."""
    of = Product(1024, 1024, 1024)
    slow, slower = (product_ns(with_products(us), of, "float") for us in (100.0, 200.0))
    assert slow == pytest.approx(2 * 100_000, rel=0.01)
    assert slower == pytest.approx(2 * 200_000, rel=0.01)
    assert product_ns(base_of("cuda"), Product(1, 1, 1), "float") >= SHORTEST


@pytest.mark.parametrize("vendor", ["cuda", "rocm"])
def test_no_duration_is_the_simulator_s(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the simulator's durations gone the same edits come out, of all that this base takes."""
    wanted = {pattern: edits_of(vendor, pattern) for pattern in injectors()}
    gone = property(lambda _: float("nan"), lambda _, us: None)
    monkeypatch.setattr(kernels.Kernel, "us", gone, raising=False)
    assert {pattern: edits_of(vendor, pattern) for pattern in injectors()} == wanted
    assert sum(map(bool, wanted.values())) > 20


def edits_of(vendor: str, pattern: str) -> list[Edit]:
    """What the injector changes in the small base; nothing where it cannot."""
    base = base_of(vendor)
    try:
        return injectors()[pattern](base, base.spans, 0.3, np.random.default_rng(3))
    except Unfit:
        return []
