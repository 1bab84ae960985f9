"""The report on a terminal: at 80 columns, without colour and through a pipe too."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from detector.render import wording
from detector.report import Finding, Report
from detector.taxonomy import BY_ID, Severity

_COLOURS: dict[Severity, str] = {
    "critical": "bold white on red",
    "warning": "bold yellow",
    "low": "cyan",
    "info": "blue",
}
_BAR = 20  # cells of a full bar


def render(report: Report, *, width: int = 100, colour: bool = False) -> str:
    """One trace: what was read, where its time went, and the findings by cost."""
    parts: list[RenderableType] = [_head(report), Text(), _budget(report)]
    if report.warnings:
        parts += [Text(), *(_hanging("!", w, "yellow") for w in report.warnings)]
    parts += [Text(), Text(wording.verdict(report), style="bold")]
    for number, finding in enumerate(wording.by_cost(report), 1):
        parts += [Text(), _finding(report, finding, number)]
    if report.not_checked:
        parts += [Text(), _not_checked(report)]
    return _print(Group(*parts), width, colour)


def summary(rows: Sequence[tuple[str, Report | str]], *, width: int, colour: bool) -> str:
    """Several traces, one line each: its worst finding, or why it could not be read."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("trace", overflow="fold", ratio=3)
    table.add_column("findings", justify="right", no_wrap=True)
    table.add_column("could come back", justify="right", no_wrap=True)
    table.add_column("dearest", overflow="fold", ratio=2)
    for name, result in rows:
        label = Text(wording.clean(name))
        if isinstance(result, str):
            table.add_row(label, "–", "–", Text(wording.clean(result), style="red"))
            continue
        share = result.summary.recoverable_us / (result.summary.judged_us or 1.0)
        dearest = wording.by_cost(result)[:1]
        worst = wording.clean(dearest[0].pattern) if dearest else "none above 1 %"
        table.add_row(label, str(len(result.findings)), wording.percent(share), Text(worst))
    return _print(Group(Text(f"{len(rows)} traces", style="bold"), table), width, colour)


def _print(what: RenderableType, width: int, colour: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, 40),
        color_system="standard" if colour else None,
        no_color=not colour,
        force_terminal=colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(what)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _head(report: Report) -> RenderableType:
    name = Text(wording.clean(report.source.path), style="bold", overflow="fold")
    lines = [wording.facts(report), wording.extent(report), *wording.coverage(report)]
    return Group(name, *(Padding(Text(line), (0, 0, 0, 2)) for line in lines))


def _budget(report: Report) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=30)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for what, share, us in wording.budget(report):
        bar = "█" * round(_BAR * min(max(share, 0.0), 1.0))
        table.add_row(what, wording.percent(share), wording.duration(us), Text(bar, style="dim"))
    heading = "Where the judged time went"
    if not wording.has_device(report):
        heading += ": this trace shows no device, so the host itself is judged"
    return Group(Text(heading, style="bold"), Padding(table, (0, 0, 0, 2)))


def _hanging(mark: str, text: str, style: str = "") -> RenderableType:
    """A marked paragraph whose later lines start under its first word."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style=style), Text(wording.clean(text, 2000), overflow="fold"))
    return grid


def _finding(report: Report, finding: Finding, number: int) -> RenderableType:
    head = Text.assemble(
        (f"{number} ", "bold"),
        (f" {wording.grade(finding).upper()} ", _COLOURS[finding.severity]),
        " ",
        (wording.title(finding), "bold"),
        "  ",
        (wording.clean(finding.pattern), "dim"),
    )
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, text in _lines(report, finding):
        grid.add_row(label, text)
    return Group(head, Padding(grid, (0, 0, 0, 2)))


def _lines(report: Report, finding: Finding) -> list[tuple[str, Text]]:
    """The labelled lines under a finding's title."""
    sure = f"   {wording.confidence(finding.confidence)}, {wording.SIDES[finding.side]}"
    rows = [
        ("gives back", Text.assemble((wording.gain(finding), "bold"), sure)),
        ("when", Text(wording.when(report, finding))),
    ]
    rows += [
        ("where" if i == 0 else "", Text(wording.place(line)))
        for i, line in enumerate(finding.fix.where[:4])
    ]
    if finding.explanation:
        rows.append(("why", Text(wording.clean(finding.explanation, 2000))))
    if finding.pattern not in BY_ID and finding.candidates:
        rows.append(("perhaps", Text(wording.candidates(finding))))
    if finding.fix.summary:
        rows.append(("change", Text(wording.clean(finding.fix.summary, 1000))))
    code = wording.clean_lines(finding.fix.code)
    rows += [("", Text(f"  {line}", style="green")) for line in code]
    shown = [_evidence(row) for row in wording.evidence(finding, most=5)]
    rows += [("evidence" if i == 0 else "", row) for i, row in enumerate(shown)]
    return rows


def _evidence(row: wording.Row) -> Text:
    beside = f"  ({row.beside})" if row.beside else ""
    return Text.assemble(f"{row.label}: ", (row.value, "bold"), (beside, "dim"))


def _not_checked(report: Report) -> RenderableType:
    groups = wording.not_checked(report.not_checked)
    head = Text(f"Not checked ({wording.plural(len(report.not_checked), 'pattern')})", style="bold")
    return Group(head, *(_hanging(" ", f"{cause}: {ids}") for cause, ids in groups))
