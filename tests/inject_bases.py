"""Small bases for the injectors, written by hand. Times are µs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from dataset.inject.base import Base
from tests.traces import Event, annotation, call, kernel, op, python, trace_of

STEP, STEPS = 2_000.0, 3
MODELS = {
    "cuda": {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}]},
    "rocm": {"deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304}]},
}


def step_of(i: int, vendor: str, stacks: bool, behind: float) -> Iterator[Event]:
    """One step of ten ops, each with a kernel that starts ``behind`` us after its launch."""
    start, word = i * STEP, "hip" if vendor == "rocm" else "cuda"
    yield annotation(f"ProfilerStep#{i}", start, STEP - 10)
    if stacks:
        yield python("/app/train.py(90): step", start + 1, STEP - 12)
    for k in range(10):
        at, corr = start + 20 + 190 * k, 10 * i + k
        shape = {"dims": "[[64, 256], [64, 256]]", "types": '["float", "float"]'}
        yield op("aten::mul", at, 30, **shape)
        yield op("aten::empty", at + 1, 5, dims="[[], []]", types='["ScalarList", "Scalar"]')
        if vendor != "cpu":
            yield call(f"{word}LaunchKernel", at + 8, 6, corr=corr)
            yield kernel(
                "vectorized_elementwise_kernel<4, MulFunctor>", at + 14 + behind, 90.5 + k, corr
            )


@cache
def base_of(
    vendor: str = "cuda",
    *extra: Event,
    stacks: bool = False,
    behind: float = 2,
    newer: bool = True,
    marks: str = "",
) -> Base:
    """A base of three steps; ``newer`` writes times from a base, as PyTorch does since 2.3."""
    events = [e for i in range(STEPS) for e in step_of(i, vendor, stacks, behind)]
    steps = [(i * STEP, (i + 1) * STEP - 10) for i in range(STEPS)]
    trace = trace_of(*events, *extra, steps=steps, metadata=MODELS.get(vendor))
    trace = replace(trace, base_ns=1 if newer else 0)
    if marks:
        named = tuple(replace(s, name=f"{marks}{i}") for i, s in enumerate(trace.steps))
        trace = replace(trace, steps=named)
    return Base("hand.json", trace)
