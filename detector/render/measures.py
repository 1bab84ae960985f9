"""The numbers behind a finding, as rows of a table: the most telling first."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from detector.patterns import BY_ID
from detector.render.clean import clean
from detector.report import Finding
from detector.units import digits, duration, percent, size

# What stands before a label in an explanation, so that no longer label ends with it: "kernels" is
# not cited by "fp32 matrix kernels 68 %".
_BEFORE: Final = r"(?:^|[^\w\s] |\b(?:there|and|with|while|has|are|is) |, )"


@dataclass(frozen=True)
class Row:
    """One line of a table: what, how much, and beside what."""

    label: str
    value: str
    beside: str = ""


@dataclass(frozen=True)
class _Measure:
    """An entry of a finding's evidence: a value beside its baseline, the rest of the trace.

    ``is_cited``: the explanation names it; ``is_own``: explanations of the pattern rest on it.
    """

    label: str
    unit: str
    value: object
    baseline: object
    is_cited: bool
    is_own: bool

    @property
    def excess(self) -> float:
        """By how much it exceeds its baseline: shares by the difference, others by a fifth of the
        ratio; what stays below it counts a tenth."""
        value, baseline = (
            x if isinstance(x, int | float) else 0.0 for x in (self.value, self.baseline)
        )
        more = value - baseline
        if self.unit != "share":
            more *= 0.2 / max(abs(value), abs(baseline), 1e-9)
        return more if more > 0 else -0.1 * more

    @property
    def is_telling(self) -> bool:
        """Whether it is cited or stands out; of a single event ``when`` tells as much."""
        is_single = self.unit == "count" and self.value == 1
        return self.is_cited or (self.stands_out and not is_single)

    @property
    def stands_out(self) -> bool:
        """Whether it is a per cent at least, and clearly above its baseline."""
        if not isinstance(self.value, int | float) or (self.unit == "share" and self.value < 0.01):
            return False
        return not isinstance(self.baseline, int | float) or self.value > 1.25 * self.baseline

    def row(self) -> Row:
        beside = f"baseline {quantity(self.unit, self.baseline)}"
        return Row(
            clean(self.label, 80),
            quantity(self.unit, self.value),
            beside if self.baseline is not None else "",
        )


def measures(finding: Finding, most: int = 5, *, everything: bool = False) -> list[Row]:
    """The numbers behind a finding: first those that its explanation names, then the pattern's
    own, then those that most exceed the rest of the trace. Where ``everything`` is not asked for,
    others than the first two only if there are none of these."""
    found = [m for m in _measures(finding) if everything or m.is_telling]
    if not everything:
        found = [m for m in found if m.is_cited or m.is_own] or found
    found.sort(key=lambda m: (not m.is_cited, not m.is_own, -m.excess))
    plain = [
        Row(_label(key), quantity(key, value))
        for key, value in finding.evidence.items()
        if isinstance(value, str | int | float)
    ]
    return [*(m.row() for m in found), *plain][:most]


def further(finding: Finding, most: int = 3) -> list[Row]:
    """The pattern's own measures that the explanation does not name; a single event is none."""
    said = finding.explanation.lower()
    found = [m for m in _measures(finding) if m.is_own and m.is_telling]
    found.sort(key=lambda m: -m.excess)
    return [m.row() for m in found if m.label.lower() not in said][:most]


def top_features(finding: Finding) -> str:
    """What spoke most for the place, in words; empty where the report does not say."""
    listed = finding.evidence.get("top_features")
    return "; ".join(clean(str(one), 120) for one in listed) if isinstance(listed, list) else ""


def _measures(finding: Finding) -> Iterator[_Measure]:
    """The entries of the evidence that are ``{"value", "unit", "rest"}``."""
    own = _own(finding)
    for key, entry in finding.evidence.items():
        if not isinstance(entry, dict) or entry.get("value") is None:
            continue
        label = str(entry.get("label") or _label(key))
        is_cited = re.search(rf"{_BEFORE}{re.escape(label)} \d", finding.explanation) is not None
        unit = str(entry.get("unit", ""))
        yield _Measure(label, unit, entry["value"], entry.get("rest"), is_cited, key in own)


def _own(finding: Finding) -> tuple[str, ...]:
    """Keys of the measures that an explanation of the pattern rests on."""
    pattern = BY_ID.get(finding.pattern)
    return pattern.facts if pattern else ()


def _label(key: str) -> str:
    return clean(re.sub(r"_(us|ns|ms|share|bytes)$", "", key).replace("_", " "), 80)


def quantity(unit: str, value: object) -> str:
    """A value in the unit that ``unit`` is or ends with (``us``, ``wait_us``, ``share``)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        known = isinstance(value, Mapping | list | tuple)
        return clean(json.dumps(value, ensure_ascii=False, default=str) if known else value, 100)
    if isinstance(value, float) and not math.isfinite(value):
        return "unknown"
    kind = unit.rsplit("_", 1)[-1]
    scale = {"us": 1.0, "µs": 1.0, "ns": 1e-3, "ms": 1e3, "s": 1e6}
    if kind in scale:
        return duration(value * scale[kind])
    if kind in ("share", "fraction", "%"):
        return percent(value / 100 if kind == "%" else value)
    if kind in ("bytes", "B", "MB"):
        return size(value * 1e6 if kind == "MB" else value)
    number = f"{value:,.0f}" if value == int(value) else digits(value)
    plain = kind in ("", "count", "1", "ratio") or "_" in unit
    return number if plain else f"{number} {clean(unit, 20)}".rstrip()
