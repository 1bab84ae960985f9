"""Explanation and fix for a named pattern: its own words with the region's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from detector.evidence import Evidence, EvidenceRow
from detector.evidence.measures import LOW_IS_BAD
from detector.evidence.sheet import Item, Unit
from detector.evidence.text import number
from detector.judge import Named, Verdict
from detector.patterns import BY_ID
from detector.taxonomy import NONE, UNCLEAR
from detector.units import duration, rounded
from detector.vocabulary import TORCH_ANNOTATION

MOST_FACTS: Final = 4
LEAST_SHARE: Final = 0.01  # of a region's time: a name with less tells nothing
# What a number must exceed to explain anything: two per cent, more than one event.
_LEAST: Final[dict[Unit, float]] = {"share": 0.02, "count": 1}
_SAME: Final = 0.8  # of the larger of two numbers: a baseline that near tells nothing
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
    claims = tuple((row.label, row.value) for row in facts)
    named = Named(pattern, confidence, explanation, advise(evidence, pattern), claims)
    return Verdict((named,), candidates)


def unclear(evidence: Evidence, because: str) -> Verdict:
    """No valid answer: the flagger's candidates stand, unnamed."""
    remark = f"No judge could name this region: {because}."
    return Verdict((Named(UNCLEAR, 0.0, remark, ""),), evidence.region.candidates)


def cited(evidence: Evidence, pattern: str) -> tuple[EvidenceRow, ...]:
    """The numbers that an explanation of this pattern rests on: the telling ones.

    A single event, a share that rounds to nothing, or less than elsewhere in the trace, is cited
    only where no other number can be.
    """
    keys = BY_ID[pattern].facts if pattern in BY_ID else ()
    present = [row for row in map(evidence.row, keys) if row.value > 0]
    telling = [row for row in present if row.value > _LEAST.get(row.unit, 0.0)]
    remarkable = [row for row in telling if not _is_usual(row)]
    return tuple(remarkable or telling or present)[:MOST_FACTS]


def _is_usual(row: EvidenceRow) -> bool:
    """Whether the rest of the trace has clearly more of it, so that it speaks against the place."""
    if row.rest is None or _alike(row.value, row.rest):
        return False
    return (row.value < row.rest) != (row.key in LOW_IS_BAD)


def explain(evidence: Evidence, pattern: str) -> str:
    """What is wrong here, with this region's numbers."""
    if pattern == UNCLEAR:
        return "The evidence does not settle on one pattern."
    if pattern == NONE:
        return "Nothing here is slower than it needs to be, as far as the trace shows."
    row = BY_ID[pattern]
    facts = "; ".join(_facts(cited(evidence, pattern)))
    name = _name(evidence, pattern)
    length = duration(evidence.place.dur_us)
    here = f"The costliest place takes {length}; there, {facts}." if facts else ""
    return " ".join(part for part in (row.what, here, name) if part)


def advise(evidence: Evidence, pattern: str) -> str:
    """What to change on this device and in this program, and where to look first."""
    if pattern not in BY_ID:
        return ""
    fix = BY_ID[pattern].advise(evidence.circumstances).text
    return " ".join(part for part in (fix, _place(evidence)) if part)


def _place(evidence: Evidence) -> str:
    """The source line and the module, else the program's own range with the most time."""
    module = f"in module {' > '.join(evidence.modules)}" if evidence.modules else ""
    if evidence.where:
        line = evidence.where[0]
        place = f"at {line.function} ({line.file}:{line.line})"
        return f"Look first {', '.join(filter(None, (place, module)))}."
    if module:
        return f"Look first {module}."
    ranges = [item for item in evidence.of("annotation") if item.user]
    ranges = [item for item in ranges if not TORCH_ANNOTATION.match(item.name)]
    top = max(ranges, key=_excess, default=None)
    if top is None or top.share < LEAST_RANGE:
        return ""
    return f'Look first in the range "{top.name}".'


def _facts(rows: Sequence[EvidenceRow]) -> Iterator[str]:
    """Each number, beside its baseline where that differs; the first says what a baseline is."""
    called = "baseline, the rest of the trace:"
    for row in rows:
        value = f"{row.label} {_shown(row.value, row)}"
        if row.rest is None or _alike(row.value, row.rest):
            yield value
        else:
            yield f"{value} ({called} {_shown(row.rest, row)})"
            called = "baseline"


def _alike(value: float, rest: float) -> bool:
    low, high = sorted((value, rest))
    return low >= _SAME * high


def _shown(value: float, row: EvidenceRow) -> str:
    return rounded(value) if row.unit == "share" else number(value, row)


def _name(evidence: Evidence, pattern: str) -> str:
    top = evidence.occurring.get(pattern)
    if top is None or top.share < LEAST_SHARE:
        return ""
    often = "once" if top.count == 1 else f"{top.count} times"
    return f"Largest part: {top.name}, {often}, {rounded(top.share)} of the time there."


def _excess(item: Item) -> float:
    return item.share - (item.rest or 0.0)
