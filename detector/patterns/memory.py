"""Memory: allocations, and data that is moved, filled or cast for nothing."""

from __future__ import annotations

from typing import Final

from detector.patterns.pattern import Pattern
from detector.patterns.repairs import dropped, removed

PATTERNS: Final = (
    Pattern(
        "memory-alloc-churn",
        "memory",
        "fault",
        "allocation",
        removed,
        "the caching allocator serves steady state without a driver call",
        ("allocation", "nothing", "restart"),
    ),
    Pattern(
        "memory-zero-grad-fill",
        "memory",
        "fault",
        "zero-grad",
        removed,
        "gradients set to None cost nothing",
        ("dispatch", "framework", "compute", "cpu-compute"),
    ),
    Pattern(
        "memory-redundant-copy",
        "memory",
        "opportunity",
        "copy-op",
        removed,
        "every such copy can be spared by a view, a layout or a preallocated tensor",
        ("compute", "copy", "cpu-compute"),
    ),
    Pattern(
        "memory-layout-transform",
        "memory",
        "opportunity",
        "layout-kernel",
        dropped,
        "model and input stay in the layout of the kernels",
        ("compute",),
    ),
    Pattern(
        "memory-dtype-churn",
        "memory",
        "opportunity",
        "cast-op",
        removed,
        "tensors are cast once, or never",
        ("compute", "cpu-compute"),
    ),
)
