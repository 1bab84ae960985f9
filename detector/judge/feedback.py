"""Explanation and fix for a named pattern: its own words with the region's numbers."""

from __future__ import annotations

from typing import Final

from detector.evidence import Evidence, EvidenceRow
from detector.evidence.sheet import Item
from detector.evidence.text import number
from detector.judge import Verdict
from detector.patterns import BY_ID
from detector.taxonomy import NONE, UNCLEAR
from detector.vocabulary import TORCH_ANNOTATION

MOST_FACTS: Final = 4
LEAST_RANGE: Final = 0.2  # of a region's time: an annotated range with less leads nowhere


def verdict(
    evidence: Evidence,
    pattern: str,
    confidence: float,
    candidates: tuple[tuple[str, float], ...],
    remark: str = "",
) -> Verdict:
    """A verdict in the pattern's words; ``remark`` ends the explanation."""
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
    keys = BY_ID[pattern].facts if pattern in BY_ID else ()
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
    """What to change on this device and in this program, and where to look first."""
    if pattern not in BY_ID:
        return ""
    fix = BY_ID[pattern].advise(evidence.circumstances).text
    return " ".join(part for part in (fix, _place(evidence)) if part)


def _place(evidence: Evidence) -> str:
    """The source line, else the module, else the program's own range with the most time."""
    if evidence.where:
        line = evidence.where[0]
        return f"Look first at {line.function} ({line.file}:{line.line})."
    if evidence.modules:
        return f"Look first in module {' > '.join(evidence.modules)}."
    ranges = [item for item in evidence.of("annotation") if item.user]
    ranges = [item for item in ranges if not TORCH_ANNOTATION.match(item.name)]
    top = max(ranges, key=_excess, default=None)
    if top is None or top.share < LEAST_RANGE:
        return ""
    return f'Look first in the range "{top.name}".'


def _fact(row: EvidenceRow) -> str:
    value = f"{row.label} {number(row.value, row)}"
    return value if row.rest is None else f"{value} (baseline {number(row.rest, row)})"


def _name(evidence: Evidence, pattern: str) -> str:
    top = evidence.occurring.get(pattern)
    if top is None:
        return ""
    often = "once" if top.count == 1 else f"{top.count} times"
    return f"Largest part: {top.name}, {often}, {top.share:.1%} of the region."


def _excess(item: Item) -> float:
    return item.share - (item.rest or 0.0)
