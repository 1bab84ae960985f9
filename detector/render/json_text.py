"""report.json: the report itself; several traces make a JSON list."""

from __future__ import annotations

from collections.abc import Sequence

from detector.report import Report, to_json


def render(report: Report) -> str:
    """One report, indented."""
    return to_json(report)


def render_all(reports: Sequence[Report]) -> str:
    """A list of reports."""
    return "[\n" + ",\n".join(to_json(report).rstrip("\n") for report in reports) + "\n]\n"
