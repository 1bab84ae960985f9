"""The figures of findings as text (Markdown, aligned for a terminal) and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np

from detector.lab.metrics import Bin, Estimate
from detector.lab.scoring.findings import FindingFigures
from detector.lab.scoring.paired import PairedFigures, PairedRow

NOTHING: Final = "–"  # where a figure is not defined
FINDING_HEADS: Final = (
    "findings",
    "traces",
    "clusters",
    "precision ≥ 5 %",
    "of",
    "recall ≥ 5 %",
    "with size",
    "of",
    "wrong per healthy trace",
    "of",
    "ECE",
    "precision at ≥ 0.9",
    "savings error",
    "within 2×",
    "class accuracy",
    "macro-F1",
)
PAIRED_HEADS: Final = ("faults", "n", "bases", "named", "new", "within 2×", "rise over added")
BIN_HEADS: Final = ("stated confidence", "findings", "mean stated", "right")
PATTERN_HEADS: Final = ("pattern", "problems", "named", "right", "findings", "not right")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    rule = ["-" * width for width in widths]
    lines = ([c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in (heads, *rows))
    head, *body = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))


def finding_cells(name: str, of: FindingFigures) -> list[str]:
    """A row below ``FINDING_HEADS``: of a tool, of a group of traces."""
    figure = {key: _text(value) for key, value in of.figures.items()}
    return [
        name,
        str(of.traces),
        str(of.clusters),
        figure["precision"],
        str(of.findings),
        figure["recall"],
        figure["strict_recall"],
        str(of.problems),
        figure["wrong_per_healthy"],
        str(of.healthy),
        figure["ece"],
        figure["sure_precision"],
        _quartiles(of.savings_error),
        figure["within_2x"],
        figure["class_accuracy"],
        figure["macro_f1"],
    ]


def paired_cells(name: str, of: PairedRow) -> list[str]:
    """A row below ``PAIRED_HEADS``."""
    low, middle, high = of.rise
    shares = (_text(value) for value in (of.named, of.new, of.within_2x))
    rise = f"{middle:.2f} [{low:.2f}, {high:.2f}]"
    return [name, str(of.faults), str(of.bases), *shares, rise]


def paired_part(of: PairedFigures) -> Iterator[str]:
    """The paired figures: a line of counts, and a table."""
    yield (
        f"{of.traces} traces with a fault that adds at least 3 % to their base; left out: "
        f"{of.faint} faults that add less, {of.unpaired} traces without a prediction of their base."
        f" Other patterns that rise by 3 % and more: {_text(of.alarms)} a trace."
    )
    if of.all is not None:
        groups = {"all": of.all, **of.families, **of.patterns}
        yield table(PAIRED_HEADS, [paired_cells(name, row) for name, row in groups.items()])


def reliability_table(bins: Sequence[Bin]) -> str:
    """Stated confidence beside what is right; bins without a finding are left out."""
    rows = [
        [f"{b.low:.1f} to {b.high:.1f}", f"{b.count:.0f}", f"{b.stated:.2f}", f"{b.right:.2f}"]
        for b in bins
        if b.count
    ]
    return table(BIN_HEADS, rows)


def pattern_table(of: FindingFigures) -> str:
    """Counts of each pattern."""
    rows = [
        [name, *(str(getattr(c, key.replace(" ", "_"))) for key in PATTERN_HEADS[1:])]
        for name, c in of.patterns.items()
    ]
    return table(PATTERN_HEADS, rows)


def page(
    groups: Mapping[str, Mapping[str, FindingFigures]], paired: PairedFigures | None
) -> Iterator[str]:
    """All tables of ``figures_by_origin``, the parts of a page."""
    whole = groups["all origins"]["masked"]
    yield "## Findings"
    yield (
        f"{whole.traces} traces scanned, {whole.missing} without a prediction: in no figure. 95 % "
        f"intervals from a bootstrap over clusters: {whole.clusters} bases and programs."
    )
    rows = [
        finding_cells(f"{group}, {how}", figures)
        for group, pair in groups.items()
        for how, figures in pair.items()
    ]
    yield table(FINDING_HEADS, rows)
    yield f"Findings of 5 % and more, by kind: {_counts(whole.kinds)}."
    yield "## Stated confidence, masked"
    yield reliability_table(whole.reliability)
    yield "## Patterns, masked"
    yield pattern_table(whole)
    if paired is not None:
        yield "## Injected faults beside their untouched base"
        yield from paired_part(paired)


def plain(value: Any) -> Any:
    """Figures for JSON: dataclasses as objects, undefined numbers as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return round(float(value), 5) if np.isfinite(value) else None
    return value


def _counts(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"


def _text(value: Estimate) -> str:
    return NOTHING if np.isnan(value.value) else str(value)


def _quartiles(values: tuple[float, float, float] | None) -> str:
    """Median and quartiles of shares, in per cent."""
    if values is None:
        return NOTHING
    low, middle, high = (f"{100 * value:+.1f}" for value in values)
    return f"{middle} [{low}, {high}] %"
