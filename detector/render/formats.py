"""The one table of outputs: what ``--format`` and ``--out`` may name, and what makes it.

Renderers load when they are used, so that asking for JSON does not load the terminal's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from detector.report import Report, to_json


@dataclass(frozen=True)
class View:
    """What the place of output can show: columns, whether it knows colors; ``root``: the checkout
    whose files a reader can open."""

    width: int = 100
    color: bool = False
    root: Path | None = None


@dataclass(frozen=True)
class Format:
    """An output. ``many`` joins several reports into one text; without it they follow each other.

    ``machine`` texts are UTF-8 whatever the locale says.
    """

    name: str
    file: str | None  # its name under --out
    one: Callable[[Report, View], str]
    many: Callable[[Sequence[Report], View], str] | None = None
    machine: bool = True


def _terminal(report: Report, view: View) -> str:
    from detector.render import terminal

    return terminal.render(report, width=view.width, color=view.color)


def _json_list(reports: Sequence[Report], _: View) -> str:
    return "[\n" + ",\n".join(to_json(report).rstrip("\n") for report in reports) + "\n]\n"


def _markdown(report: Report, _: View) -> str:
    from detector.render import markdown

    return markdown.render(report)


def _sarif(report: Report, view: View) -> str:
    return _sarif_all([report], view)


def _sarif_all(reports: Sequence[Report], view: View) -> str:
    from detector.render import sarif
    from detector.render.source_paths import located

    return sarif.render(located(reports, view.root) if view.root else reports)


def _html(report: Report, _: View) -> str:
    from detector.render import html_page

    return html_page.render(report)


FORMATS: tuple[Format, ...] = (
    Format("terminal", None, _terminal, machine=False),
    Format("json", "report.json", lambda report, _: to_json(report), _json_list),
    Format("markdown", None, _markdown),
    Format("sarif", "report.sarif", _sarif, _sarif_all),
    Format("html", "report.html", _html),
)
BY_NAME = {f.name: f for f in FORMATS}
ANNOTATED = "annotated.json.gz"  # the overlay: written from the trace file, see render.overlay
