"""Evidence as text under a token budget: the less telling lines leave first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from detector.evidence import words
from detector.evidence.sheet import Evidence, EvidenceRow, Item, Kind, Place

_TITLES: Final[dict[Kind, str]] = {
    "kernel": "Kernels by device time",
    "launched": "Ops by the device time they launched (outermost op > op)",
    "op": "Ops by own host time (outermost op > op)",
    "copy": "Copies and memsets",
    "collective": "Collectives",
    "call": "Runtime calls by host time",
    "annotation": "Annotations",
    "frame": "Python frames by own time",
}
# How soon a section's lines leave, per line, when the budget is short: lower stays longer.
_WEIGHT: Final[dict[Kind, float]] = {
    "kernel": 1.0,
    "launched": 1.2,
    "op": 1.0,
    "copy": 1.2,
    "collective": 1.2,
    "call": 1.6,
    "annotation": 1.6,
    "frame": 1.3,
}


_LEFT_OUT: Final = 14  # tokens of the line that says so


@dataclass(frozen=True)
class _Line:
    section: int
    leaves: float  # the highest leaves first; a title goes with the last line of its section
    text: str

    @property
    def title(self) -> bool:
        return self.leaves == 0


def as_text(
    evidence: Evidence,
    budget_tokens: int = 1500,
    *,
    user_names: bool = True,
    count: Callable[[str], int] | None = None,
) -> str:
    """The evidence as text of at most ``budget_tokens``, by ``count`` (a model's tokenizer) or by
    the rule of ``words.tokens``, which is on the safe side of common tokenizers.

    Without ``user_names`` nothing that the profiled program named itself is in it: the text that a
    model learns from, so that it cannot learn the names of its training programs.
    """
    tokens, budget = count or words.tokens, budget_tokens
    lines = list(_lines(evidence, user_names))
    sections = Counter(line.section for line in lines if not line.title)
    lines = [line for line in lines if sections[line.section]]  # no title without its lines
    cost = {id(line): tokens(line.text + "\n") for line in lines}
    total = sum(cost.values())
    if user_names and total > budget:
        budget -= _LEFT_OUT
    gone: set[int] = set()
    titles = {line.section: line for line in lines if line.title}
    for i in sorted(range(len(lines)), key=lambda i: -lines[i].leaves):
        if total <= budget or lines[i].title:
            break
        gone.add(i)
        total -= cost[id(lines[i])]
        sections[lines[i].section] -= 1
        if not sections[lines[i].section] and lines[i].section in titles:
            total -= cost[id(titles[lines[i].section])]
    kept = [line for i, line in enumerate(lines) if i not in gone and sections[line.section]]
    if user_names and gone:
        kept.append(_Line(100, 0.0, f"{len(gone)} less telling lines are left out."))
    return "\n".join(line.text for line in kept)


def _lines(evidence: Evidence, user_names: bool) -> Iterator[_Line]:
    yield _Line(0, 0.001, _header(evidence))
    if user_names:
        yield from _context_lines(evidence)
    table = [row for row in evidence.table() if not user_names or _says_something(row)]
    for section, (title, unit) in enumerate((("Shares", True), ("Counts and means", False)), 1):
        rows = [row for row in table if (row.unit == "share") is unit]
        ranked = sorted(rows, key=lambda row: -_telling(row))
        yield _Line(section, 0.0, f"{title} (in brackets the rest of the analyzed time):")
        for row in rows:
            absent = 2.0 if row.value == 0 else 0.0  # what is not here tells less
            yield _Line(section, 0.2 + absent + 0.2 * ranked.index(row), number_line(row))
    for section, (kind, title) in enumerate(_TITLES.items(), 3):
        yield _Line(section, 0.0, f"{title}:")
        for rank, item in enumerate(_shown(evidence.of(kind), user_names), 1):
            yield _Line(section, rank * _WEIGHT[kind], item_line(item))
    if user_names and evidence.where:
        yield _Line(99, 0.0, "Lines of the program:")
        for line in evidence.where:
            place = words.quoted(f"{line.file}:{line.line} {line.function}")
            yield _Line(99, 1.0, place)


def _context_lines(evidence: Evidence) -> Iterator[_Line]:
    """Device, program, shapes; the time by cause and what repairs save."""
    for rank, note in enumerate(evidence.context.notes, 1):
        yield _Line(0, 0.3 * rank, note)
    if evidence.modules:
        path = words.quoted(" > ".join(evidence.modules))
        yield _Line(0, 1.0, f"Module with most of the time: {path}")
    causes = [row for row in evidence.context.rows if row.key.startswith("time_")]
    savings = [row for row in evidence.context.rows if row.key.startswith("saves_")]
    shares = {row.key: row for row in evidence.context.rows if row.key.startswith("saved_")}
    yield _Line(97, 0.0, "Time by cause (in brackets the rest of the analyzed time):")
    for rank, row in enumerate(filter(_says_something, causes), 1):
        yield _Line(97, 0.4 * rank, number_line(row))
    yield _Line(98, 0.0, "What repairs of the whole trace save, by replaying it without:")
    for rank, row in enumerate(filter(_says_something, savings), 1):
        share = shares[row.key.replace("saves_", "saved_")]
        part = f", {number(share.value, share)} of the analyzed time"
        yield _Line(98, 0.4 * rank, number_line(row) + part)


def _says_something(row: EvidenceRow) -> bool:
    """Whether a number does not read zero."""
    return any(digit in "123456789" for digit in number(row.value, row))


def _shown(items: tuple[Item, ...], user_names: bool) -> list[Item]:
    if not user_names:
        return [item for item in items if not item.user]
    return [item for item in items if f"{100 * item.share:.1f}" != "0.0"]


def _telling(row: EvidenceRow) -> float:
    """How much a number differs from the rest, whatever its unit."""
    rest = row.rest or 0.0
    if row.unit == "share":
        return abs(row.value - rest) + 0.5 * row.value
    return abs(row.value - rest) / max(row.value, rest, 1e-9) + 0.1 * (row.value > 0)


def _header(evidence: Evidence) -> str:
    place = evidence.place
    side = "host" if evidence.region.side == "cpu" else "device"
    parts = [f"Region: {side} side, {_us(place.dur_us)}"]
    if place.steps:
        parts.append(_steps(place))
    part = place.dur_us / max(place.analyzed_us, 1e-9)
    parts.append(f"{part:.1%} of the analyzed time")
    device = "no device (CPU run)" if evidence.vendor == "cpu" else evidence.vendor
    return "; ".join([*parts, device])


def _steps(place: Place) -> str:
    length = place.dur_us / max(place.step_us, 1e-9)
    which = f"{place.first_step + 1}"
    if place.last_step > place.first_step:
        which += f"-{place.last_step + 1}"
    offset = f" from {place.offset:.0%}" if place.offset < 1 else ""
    return f"{length:.2f} steps long, step {which} of {place.steps}{offset}"


def number_line(row: EvidenceRow) -> str:
    """A measure as a line: value, and the rest in brackets."""
    rest = "" if row.rest is None else f" [{number(row.rest, row)}]"
    return f"{row.label}: {number(row.value, row)}{rest}"


def number(value: float, row: EvidenceRow) -> str:
    """A value in its unit, rounded for reading."""
    if row.unit == "share":
        return f"{100 * value:.1f}%"
    if row.unit == "count":
        return f"{value:.0f}" if value == round(value) or value >= 100 else f"{value:.1f}"
    if row.unit == "us":
        return _us(value)
    if row.unit == "elements":
        return f"{value:,.0f} elements"
    return f"{value:.3g} {row.unit}"


def _us(value: float) -> str:
    return f"{value:.0f} µs" if value >= 100 else f"{value:.1f} µs"


def item_line(item: Item) -> str:
    """Named events as a line: count, share, mean, the rest in brackets."""
    rest = "" if item.rest is None else f" [{100 * item.rest:.1f}%]"
    moved = ""
    if item.mb and item.kind == "copy":
        # Bytes per time in the copy: MB/µs is TB/s.
        speed = 1e3 * item.mb / max(item.total_us, 1e-9)
        moved = f", {item.mb:.3g} MB, {speed:.3g} GB/s"
    each = f", each {_us(item.mean_us)}" if item.count > 1 else ""
    times = f"x{item.count}" if item.count else "running"
    return f"{words.quoted(item.name)} {times} {100 * item.share:.1f}%{rest}{each}{moved}"
