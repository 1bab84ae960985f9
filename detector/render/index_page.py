"""index.html: several scanned traces in one table, each with a link to its own page."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from detector.render import wording
from detector.render.html_text import document, rect, svg, text
from detector.report import Report
from detector.units import duration, plural, rounded

Row = tuple[str, Report | str, str]


def render(rows: Sequence[Row]) -> str:
    """The page. Each row: what the user named, its report or why there is none, its folder."""
    folder = wording.shared_folder([label for label, _, _ in rows])
    reports = [result for _, result, _ in rows if not isinstance(result, str)]
    found = sum(bool(wording.findings(report)) for report in reports)
    body = [
        "<header>",
        f"<h1>{plural(len(rows), 'trace')}, {found:,} with findings</h1>",
        *([f'<p class="source">{text(folder)}</p>'] if folder else []),
        "</header>",
        "<main>",
        '<table class="index">',
        "<thead><tr>",
        *(f'<th scope="col">{cell}</th>' for cell in _HEAD),
        "</tr></thead>",
        "<tbody>",
        *(_row(label.removeprefix(folder), result, name) for label, result, name in rows),
        "</tbody>",
        "</table>",
        "</main>",
    ]
    return document(f"{plural(len(rows), 'trace')}: performance findings", body)


_HEAD = ("trace", "analyzed", "estimated savings", "findings", "top finding")


def _row(label: str, result: Report | str, folder: str) -> str:
    if isinstance(result, str):
        return (
            f'<tr><th scope="row">{text(label)}</th><td colspan="4">{text(result, 600)}</td></tr>'
        )
    link = f'<a href="{quote(folder)}/report.html">{text(label)}</a>'
    cells = _cells(result)
    return f'<tr><th scope="row">{link}</th>{cells}</tr>'


def _cells(report: Report) -> str:
    found, summary = wording.findings(report), report.summary
    if not report.analyzable or not found:
        return f'<td colspan="4">{text(wording.verdict(report), 700)}</td>'
    share = summary.estimated_savings_us / summary.analyzed_us if summary.analyzed_us else 0.0
    bar = svg("share", [rect(0, 1000 * min(max(share, 0.0), 1.0), "critical")])
    top = found[0]
    # ``data-label``: on a phone, where the table has no head, what a cell is
    return (
        f'<td data-label="analyzed ">{duration(summary.analyzed_us)}</td>'
        f'<td data-label="saves ">{duration(summary.estimated_savings_us)} ({rounded(share)}){bar}'
        f'</td><td data-label="findings ">{len(found):,}</td>'
        f'<td><span class="badge {top.severity}">{top.severity}</span> '
        f"{text(wording.title(top))}</td>"
    )
