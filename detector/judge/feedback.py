"""Explanation and fix for a named pattern: the taxonomy's words with the region's own numbers."""

from __future__ import annotations

from typing import Final

from detector.evidence import Evidence, EvidenceRow
from detector.evidence.sheet import Item, Kind
from detector.evidence.text import number
from detector.judge import Verdict
from detector.taxonomy import BY_ID, NONE, UNCLEAR

MOST_FACTS: Final = 4

# The measures that carry each pattern, the most telling first, and the kind of name to cite.
FACTS: Final[dict[str, tuple[tuple[str, ...], Kind | None]]] = {
    "input-dataloader-sync": (("loader_sync", "idle_loader", "loader_calls"), None),
    "input-dataloader-starved": (("loader_workers", "idle_loader", "loader_calls"), None),
    "input-main-thread-preprocessing": (
        ("hostless_op", "preprocess", "idle_python", "idle_op"),
        "frame",
    ),
    "input-pageable-copy": (
        ("h2d_pageable", "pageable_time", "exposed_copy", "h2d_speed", "sync_h2d"),
        "copy",
    ),
    "input-copy-not-overlapped": (
        ("exposed_copy", "h2d_time", "h2d_in_line", "h2d_speed", "h2d"),
        "copy",
    ),
    "input-tiny-copies": (("h2d_small", "h2d", "h2d_time", "exposed_copy"), "copy"),
    "input-cpu-tensor-to-device": (("factory_ops", "to_ops", "h2d", "exposed_copy"), "op"),
    "sync-scalar-readback": (("syncs_scalar", "sync_scalar", "scalar_ops", "idle_sync"), "op"),
    "sync-tensor-readback": (("sync_d2h", "syncs_d2h", "d2h", "d2h_time"), "copy"),
    "sync-explicit": (("sync_explicit", "syncs_explicit", "idle_sync"), "call"),
    "sync-dynamic-shape": (("dynamic_ops", "sync_dynamic_shape", "syncs_dynamic_shape"), "op"),
    "sync-blocking-launch": (("blocking", "starved", "syncs", "busy"), "call"),
    "host-launch-bound": (("starved", "kernel_us", "tiny_kernels", "kernels", "busy"), "op"),
    "host-python-overhead": (("idle_python", "busy"), "frame"),
    "host-loop-indexing": (("dense_selects", "select_ops", "ops", "op_time"), "op"),
    "host-gc-pause": (("gc", "blank", "idle_python"), "frame"),
    "host-cpu-fallback": (("bounced", "hostless_op", "d2h", "idle_op"), "op"),
    "memory-alloc-churn": (("allocs", "alloc", "idle_alloc", "empty_cache"), "call"),
    "memory-zero-grad-fill": (
        ("work_zero_grad_fill", "zero_grad", "zero_ops", "kernel_fill"),
        "launched",
    ),
    "memory-redundant-copy": (
        ("work_copy_op", "copy_ops", "kernel_copy", "kernel_cat", "d2d"),
        "launched",
    ),
    "memory-layout-transform": (("kernel_layout", "conv_ops"), "kernel"),
    "memory-dtype-churn": (("work_cast", "casts_repeated", "casts", "kernel_copy"), "launched"),
    "compute-fp32-matmul": (("fp32_matrix", "tensor_core", "kernel_gemm"), "kernel"),
    "compute-misaligned-gemm": (
        ("work_misaligned", "odd_matmul", "misaligned_kernels", "kernel_gemm"),
        "launched",
    ),
    "compute-underfilled": (("unfilled", "kernel_us", "tiny_kernels"), "kernel"),
    "compute-unfused-attention": (
        ("work_bmm", "work_softmax", "work_math_attention", "softmax_ops", "bmm_ops"),
        "launched",
    ),
    "compute-unfused-elementwise": (
        ("chained", "work_chained", "work_pointwise", "pointwise_ops"),
        "kernel",
    ),
    "compute-single-tensor-optimizer": (
        ("work_optimizer", "work_single_tensor", "optimizer", "single_tensor", "kernel_us"),
        "launched",
    ),
    "compute-conv-bias-batchnorm": (
        ("biased_conv", "work_conv_bias", "work_biased", "conv_ops"),
        "launched",
    ),
    "compile-graph-break": (("compiled_regions", "ops", "idle_python", "idle_op"), "op"),
    "compile-recompile": (("compiling", "compile_events", "idle_compile"), "op"),
    "comm-exposed": (("exposed_comm", "comm", "collectives"), "collective"),
    "comm-small-collectives": (
        ("small_collectives", "collective_elements", "collectives", "comm"),
        "collective",
    ),
    "comm-straggler": (("exposed_comm", "comm", "collectives"), "collective"),
    "comm-unused-parameters": (("unused_parameters", "exposed_comm"), "op"),
    "comm-missing-no-sync": (
        ("repeated_collectives", "exposed_comm", "collectives", "optimizer_steps"),
        "collective",
    ),
    "infer-autograd": (("needless_graph", "needless_dropout", "graph_ops"), "op"),
    "infer-kv-cat": (("work_cat_append", "cat_appends", "work_cat", "cat_ops"), "launched"),
}


def verdict(
    evidence: Evidence,
    pattern: str,
    confidence: float,
    candidates: tuple[tuple[str, float], ...],
    remark: str = "",
) -> Verdict:
    """A verdict in the taxonomy's words; ``remark`` ends the explanation."""
    facts = cited(evidence, pattern)
    explanation = " ".join(part for part in (explain(evidence, pattern), remark) if part)
    return Verdict(
        pattern,
        confidence,
        explanation,
        advise(evidence, pattern),
        tuple((row.label, row.value) for row in facts),
        candidates,
    )


def unclear(evidence: Evidence, because: str) -> Verdict:
    """No valid answer: the flagger's candidates stand, unnamed."""
    remark = f"No judge could name this region: {because}."
    return Verdict(UNCLEAR, 0.0, remark, "", (), evidence.region.candidates)


def cited(evidence: Evidence, pattern: str) -> tuple[EvidenceRow, ...]:
    """The numbers that an explanation of this pattern rests on: those the region does have."""
    keys = FACTS.get(pattern, ((), None))[0]
    present = (row for row in map(evidence.row, keys) if row.value > 0)
    return tuple(present)[:MOST_FACTS]


def explain(evidence: Evidence, pattern: str) -> str:
    """What is wrong here, with this region's numbers."""
    if pattern == UNCLEAR:
        return "The evidence does not settle on one pattern."
    if pattern == NONE:
        return "Nothing here is slower than it needs to be, as far as the trace shows."
    row = BY_ID[pattern]
    facts = "; ".join(_fact(fact) for fact in cited(evidence, pattern))
    name = _name(evidence, pattern)
    here = f"Here: {facts}." if facts else ""
    return " ".join(part for part in (row.what, here, name) if part)


def advise(evidence: Evidence, pattern: str) -> str:
    """What to change, and where to look first."""
    if pattern not in BY_ID:
        return ""
    fix = BY_ID[pattern].fix
    if not evidence.where:
        return fix
    line = evidence.where[0]
    return f"{fix} Look first at {line.function} ({line.file}:{line.line})."


def _fact(row: EvidenceRow) -> str:
    value = f"{row.label} {number(row.value, row)}"
    return value if row.rest is None else f"{value} (baseline {number(row.rest, row)})"


def _name(evidence: Evidence, pattern: str) -> str:
    kind = FACTS.get(pattern, ((), None))[1]
    items = evidence.of(kind) if kind else ()
    if not items:
        return ""
    top = max(items, key=_excess)
    return f"Most of it is in {top.name}, {max(top.count, 1)} times, {top.share:.1%} of the region."


def _excess(item: Item) -> float:
    return item.share - (item.rest or 0.0)
