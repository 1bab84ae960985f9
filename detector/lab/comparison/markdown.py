"""Figures as text: tables, numbers, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def interval(value: Any) -> str:
    """A figure with its bounds; a dash where it is not defined."""
    if not value or value["value"] is None:
        return "–"
    low, high = (number(value[k]) for k in ("low", "high"))
    return f"{number(value['value'])} [{low}, {high}]"


def number(value: Any) -> str:
    """Three digits; a dash for nothing."""
    return "–" if value is None else f"{value:.3f}"


def percent(value: Any) -> str:
    """A share with its sign; a dash for nothing."""
    return "–" if value is None else f"{100 * value:+.1f} %"


def quartiles(values: Any) -> str:
    """Median and quartiles of shares, given as [lower, median, upper]."""
    low, middle, high = values or (None, None, None)
    return "–" if middle is None else f"{percent(middle)} [{percent(low)}, {percent(high)}]"
