"""Compute: kernels that are slower, smaller or more than they need be."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector.patterns import capability
from detector.patterns.pattern import Pattern
from detector.patterns.repairs import dropped, quicker_host, shortened, spared
from detector.replay.repair import Repair
from detector.rows import multiprocessors
from detector.rowset import difference
from detector.signals import Signals
from detector.signals.device import SHORT_NS, issued
from detector.trace import Int64

ALIGNED_SHARE: Final = 0.7  # of an unaligned product's time, typical
FUSED_STEP: Final = 0.3  # of an optimizer's device time that a fused one takes
FOREACH_HOST: Final = 0.1  # ... and of its host time
NEAR_NS: Final = 50_000  # kernels further apart on a stream belong to different chains


def _on_tensor_cores(s: Signals, rows: Int64) -> Repair:
    most = np.maximum(s.trace.dur[rows] / capability.matrix_ratio(s), SHORT_NS)
    return shortened(s, rows, most.astype(np.int64))


def _aligned(s: Signals, rows: Int64) -> Repair:
    return shortened(s, rows, (s.trace.dur[rows] * ALIGNED_SHARE).astype(np.int64))


def _filled(s: Signals, rows: Int64) -> Repair:
    """The same work on all multiprocessors."""
    fill = s.trace.blocks[rows] / max(1, multiprocessors(s.activity))
    most = np.maximum(s.trace.dur[rows] * fill, SHORT_NS)
    return shortened(s, rows, most.astype(np.int64))


def _fused_chains(s: Signals, rows: Int64) -> Repair:
    """Of each chain the longest kernel stays: it reads and writes as much as the fused one."""
    trace = s.trace
    order = rows[np.lexsort((trace.start[rows], trace.track[rows]))]
    gap = trace.start[order[1:]] - trace.end[order[:-1]]
    far = (gap > NEAR_NS) | (trace.track[order[1:]] != trace.track[order[:-1]])
    far |= _between(s, order)
    chain = np.concatenate([[0], np.cumsum(far)])[: len(order)]
    ranked = np.lexsort((-trace.dur[order], chain))
    first = np.append(True, chain[ranked][1:] != chain[ranked][:-1])[: len(order)]
    return spared(s, np.sort(order[ranked[~first]]))


def _between(s: Signals, order: Int64) -> np.ndarray:
    """Between which two neighbours of one stream other work than pointwise ran."""
    a, trace = s.activity, s.trace
    other = a.compute_rows if a.has_device else s.activity.top_ops
    keep = [a.kernels_of(kind) for kind in ("copy", "cat", "reduce")] if a.has_device else []
    other = difference(other, np.concatenate([order, *keep]))
    at = np.sort(trace.start[other])
    first, second = trace.start[order[:-1]], trace.start[order[1:]]
    return np.asarray(np.searchsorted(at, second) > np.searchsorted(at, first))


def _fused_step(s: Signals, rows: Int64) -> Repair:
    """The host makes a tenth of the calls, the device a fused pass."""
    inside = s.inside(rows)
    work = issued(s, rows) if s.activity.has_device else rows[:0]
    most = (s.trace.dur[work] * FUSED_STEP).astype(np.int64)
    return quicker_host(s, inside, FOREACH_HOST, 1_000_000) | Repair(work=(work, most))


def _has_matrix_units(s: Signals) -> bool:
    return s.activity.has_device and capability.matrix_ratio(s) > 1


PATTERNS: Final = (
    Pattern(
        "compute-fp32-matmul",
        "compute",
        "opportunity",
        "fp32-matrix",
        _on_tensor_cores,
        "the model bears TF32 or half precision; products are three times as fast then "
        "(twice on ROCm)",
        ("compute",),
        _has_matrix_units,
    ),
    Pattern(
        "compute-misaligned-gemm",
        "compute",
        "opportunity",
        "misaligned-gemm",
        _aligned,
        "aligned kernels of the same size take 0.7 of the time",
        ("compute",),
    ),
    Pattern(
        "compute-underfilled",
        "compute",
        "opportunity",
        "underfilled-kernel",
        _filled,
        "the same work can be spread over all multiprocessors",
        ("compute",),
    ),
    Pattern(
        "compute-unfused-attention",
        "compute",
        "opportunity",
        "attention-between",
        spared,
        "a fused kernel takes as long as the two products",
        ("compute", "cpu-compute"),
    ),
    Pattern(
        "compute-unfused-elementwise",
        "compute",
        "opportunity",
        "pointwise-chain",
        _fused_chains,
        "a fused kernel takes as long as the longest of its chain",
        ("compute", "cpu-compute"),
    ),
    Pattern(
        "compute-single-tensor-optimizer",
        "compute",
        "opportunity",
        "optimizer-walk",
        _fused_step,
        "a fused optimizer takes a tenth of the host's and 0.3 of the device's time",
        ("dispatch", "framework", "compute", "cpu-compute", "latency", "between"),
    ),
    Pattern(
        "compute-conv-bias-batchnorm",
        "compute",
        "fault",
        "bias-add",
        dropped,
        "the norm that follows subtracts the bias again",
        ("compute",),
    ),
)
