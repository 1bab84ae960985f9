"""What anti-patterns and findings are described by: sides, severities, needs.

The anti-patterns themselves are in ``detector.patterns``.
"""

from __future__ import annotations

from typing import Literal

Side = Literal["cpu", "gpu"]
Severity = Literal["info", "low", "medium", "high", "critical"]
# What a trace has to hold; without it the report says *not checked*, never *clean*.
Need = Literal["device", "host", "links", "shapes", "grids", "steps", "comm"]

NONE = "none"  # "not an anti-pattern", the class beside the patterns
UNCLEAR = "unclear"  # a judge that gave no valid answer

# Share of the analyzed time that a finding could save -> severity. Below the last: no finding.
SEVERITIES: tuple[tuple[float, Severity], ...] = (
    (0.20, "critical"),
    (0.10, "high"),
    (0.05, "medium"),
    (0.03, "low"),
    (0.01, "info"),
)


def severity(share: float) -> Severity | None:
    """The severity of the share of the analyzed time that a finding could save; None below 1 %."""
    return next((name for least, name in SEVERITIES if share >= least), None)
