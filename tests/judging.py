"""What tests of evidence and judges share: small faulty traces, and their evidence."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from detector.activity import Activity
from detector.evidence import Evidence, gather
from detector.region import Region
from detector.taxonomy import Side
from detector.trace import Trace
from detector.window import AnalyzedTime, analyzed_time
from tests.traces import (
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

STEP = 1_000.0


def readback_trace() -> Trace:
    """Four steps of a kernel, an .item() that waits for it, and a gap."""
    step = (
        python("/home/alice/project/train.py(42): train_step", 0, 1_000),
        op("aten::mm", 10, 40, dims="[[8, 16], [16, 32]]"),
        launch(20, 10, corr=1),
        kernel("ampere_sgemm_128x64_tn", 40, 400, corr=1),
        op("aten::item", 100, 380),
        op("aten::_local_scalar_dense", 110, 360),
        call("cudaMemcpyAsync", 112, 5, corr=2),
        sync(130, 330),
        memcpy("Memcpy DtoH (Device -> Pageable)", 442, 2, 4, corr=2),
    )
    return trace_of(*repeat(step, 4, STEP), steps=[(i * STEP, (i + 1) * STEP) for i in range(4)])


def loader_trace(step_us: float = STEP) -> Trace:
    """A CPU run: half of each step makes the batch on the training thread."""
    us = step_us / STEP
    step = (
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 500 * us),
        op("aten::stack", 50 * us, 100 * us),
        op("aten::linear", 520 * us, 300 * us),
        op("aten::addmm", 530 * us, 280 * us),
    )
    steps = [(i * step_us, (i + 1) * step_us) for i in range(4)]
    return trace_of(*repeat(step, 4, step_us), steps=steps)


def evidence_of(
    trace: Trace,
    start_us: float = STEP,
    end_us: float = 2 * STEP,
    side: Side = "cpu",
    candidates: tuple[tuple[str, float], ...] = (("sync-scalar-readback", 0.6), ("none", 0.3)),
) -> Evidence:
    """The evidence for a span of a trace."""
    region = Region(
        round(start_us * 1_000), round(end_us * 1_000), 0.9, side, candidates=candidates
    )
    return gather(Activity(trace), analyzed_of(trace), [region])[0]


def analyzed_of(trace: Trace) -> AnalyzedTime:
    """All of the marked steps, to the end."""
    steps = trace.steps
    if not steps:
        return analyzed_time(trace)
    return AnalyzedTime(steps[0].start, steps[-1].end, steps, "markers")


def readback(**changes: object) -> Evidence:
    """Evidence of one read-back step; ``changes`` replace its fields."""
    return replace(_readback(), **changes)  # type: ignore[arg-type]


@cache
def _readback() -> Evidence:
    return evidence_of(readback_trace())


@cache
def loader() -> Evidence:
    """Evidence of one loader step."""
    return evidence_of(loader_trace(), candidates=(("input-dataloader-sync", 0.8), ("none", 0.1)))
