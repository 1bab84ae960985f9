"""The ledger as the rows of a table: groups that add up to the analyzed time, causes below each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final

from detector.patterns import PATTERNS
from detector.render.clean import clean
from detector.report import LedgerPlace, LedgerRow, Report

LEAST_SHARE: Final = 0.01  # of the analyzed time; smaller causes are summed

# Group -> label on a trace with a device, and without one; in the order they are shown.
_GROUPS: Final = {
    "busy": ("GPU busy: compute", "CPU busy: compute"),
    "exposed": ("Exposed copy and communication", "Exposed communication"),
    "host": ("GPU idle: the host is late", "CPU idle: outside compute ops"),
    "device": ("GPU idle: launched work not started", "CPU idle: launched work not started"),
    "unexplained": ("GPU idle: unexplained", "CPU idle: unexplained"),
}
# What a cause's label repeats of its group's.
_PREFIX: Final = re.compile(
    r"^(?:host|unexplained|exposed communication|GPU busy|CPU busy|GPU idle|CPU idle): "
)
# A kernel's name in C++: its namespaces, and behind it template arguments and parameters.
_TEMPLATE: Final = re.compile(r"^(?:void )?(?:[\w:]|\(anonymous namespace\))*?(\w+)\s*[<(]")


@dataclass(frozen=True)
class Line:
    """A row: a group, or, where ``is_cause``, a cause of the group above it."""

    label: str
    share: float
    us: float
    group: str
    is_cause: bool = False
    place: str = ""


def has_device(report: Report) -> bool:
    """Whether the trace shows any device work; without it the CPU itself is analyzed.

    A trace may name a device and still hold no record of it: then nothing that needs a device
    could be checked.
    """
    blind = {row.pattern for row in report.not_checked}
    if all(p.id in blind for p in PATTERNS if "device" in p.needed(has_device=False)):
        return False
    return bool(report.source.kernels or report.source.devices)


def color(group: str) -> str:
    """The page's style of a group; a later version's groups look like unexplained time."""
    return f"g-{group}" if group in _GROUPS else "g-unexplained"


def lines(report: Report) -> list[Line]:
    """All rows; the shares of those that are no cause add up to 1. Empty without analyzed time."""
    column = 0 if has_device(report) else 1
    groups: dict[str, list[LedgerRow]] = {group: [] for group in _GROUPS}
    for row in report.ledger:
        groups.setdefault(row.group, []).append(row)
    out: list[Line] = []
    for group, rows in groups.items():
        if rows:
            label = _GROUPS[group][column] if group in _GROUPS else clean(group, 60)
            out += _group(group, label, rows)
    return out


def _group(group: str, label: str, rows: Sequence[LedgerRow]) -> list[Line]:
    share, us = sum(row.share for row in rows), sum(row.us for row in rows)
    ranked = sorted(rows, key=lambda row: -row.us)
    if len(rows) == 1 and not ranked[0].where and label.endswith(_cause_label(ranked[0])):
        return [Line(label, share, us, group)]  # the cause would only repeat the group
    causes = [
        Line(_cause_label(row), row.share, row.us, group, True, _first_place(row))
        for row in ranked
        if row.share >= LEAST_SHARE
    ]
    rest = [row for row in ranked if row.share < LEAST_SHARE]
    if rest and causes:
        other = sum(row.share for row in rest), sum(row.us for row in rest)
        causes.append(Line("other", *other, group, True))
    return [Line(label, share, us, group), *causes]


def _cause_label(row: LedgerRow) -> str:
    return _PREFIX.sub("", clean(row.label or row.cause, 80))


def _first_place(row: LedgerRow) -> str:
    return place(row.where[0]) if row.where else ""


def place(where: LedgerPlace, limit: int = 60) -> str:
    """``train.py:41 train_step``, or the name of an op, call or kernel."""
    name = clean(where.function)
    if where.line <= 0:
        if name.startswith("enumerate("):  # the loader's range, no kernel with parameters
            return clean(name, limit)
        kernel = _TEMPLATE.match(name)
        return clean(kernel[1] if kernel else name, limit)
    name = clean(name, limit)
    return f"{clean(base_name(where.file), limit)}:{where.line} {name}".rstrip()


def base_name(file: str) -> str:
    """The last part of a path of either system."""
    return PureWindowsPath(PurePosixPath(file).name).name or file
