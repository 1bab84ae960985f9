"""The report on a terminal: at 80 columns, without color and through a pipe too."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from detector.render import job as job_text
from detector.render import ledger, measures, traffic, wording
from detector.render.clean import clean, clean_lines
from detector.render.console import printed, prose, unbroken
from detector.report import Finding, Report
from detector.report.job import Job
from detector.taxonomy import Severity
from detector.units import duration, percent, plural, rounded

_COLORS: dict[Severity, str] = {
    "critical": "bold white on red",
    "high": "bold red",
    "medium": "bold yellow",
    "low": "cyan",
    "info": "blue",
}
_BAR = 16  # cells of a full bar
_LABEL = 42  # of the ledger's longest label
_LABELS = len("assumes")  # of a finding's lines
_CODE_INDENT = " " * (2 + _LABELS + 4)


def render(report: Report, *, width: int = 100, color: bool = False) -> str:
    """One trace: what was read, the verdict, where the time went, and the findings by savings."""
    parts: list[RenderableType] = [_head(report), Text(), *_verdict(report)]
    if found := wording.findings(report):
        parts.append(_overview(found))
    if report.job is not None:
        parts += [Text(), _job(report.job)]
    if report.analyzable and report.ledger:
        parts += [Text(), _ledger(report)]
    if sent := traffic.lines(report):
        parts += [Text(), _list(traffic.HEADING, sent)]
    if report.warnings:
        parts += [Text(), *(_hanging("!", w, "yellow") for w in report.warnings)]
    for number, finding in enumerate(found, 1):
        parts += [Text(), *_finding(report, finding, number)]
    if leads := wording.leads(report):
        parts += [
            Text(),
            _list(wording.LEADS, [f"{what}: {rest}" for what, _, rest in leads]),
        ]
    if named := wording.unsized(report):
        parts += [Text(), _list(wording.UNSIZED, [f"{what}: {rest}" for what, _, rest in named])]
    if lost := wording.unexplained(report):
        parts += [Text(), _list(wording.UNEXPLAINED, lost)]
    if blind := wording.not_checked(report):
        heading = f"Not checked ({plural(len(report.not_checked), 'pattern')})"
        parts += [Text(), _list(heading, [f"{cause}: {ids}" for cause, ids in blind])]
    return printed(Group(*parts), width, color)


def summary(rows: Sequence[tuple[str, Report | str]], *, width: int, color: bool) -> str:
    """Several traces, one line each: its top finding, or why there is none. The folder that they
    share is said once."""
    shared = wording.shared_folder([name for name, _ in rows])
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("trace", overflow="fold", ratio=3)
    table.add_column("findings", justify="right", no_wrap=True)
    table.add_column("savings", justify="right", no_wrap=True)
    table.add_column("top finding", overflow="fold", ratio=4)
    for name, result in rows:
        table.add_row(Text(clean(name.removeprefix(shared))), *_summary_row(result))
    where = f" in {clean(shared)}" if shared else ""
    more = Text("One trace alone, or --out DIR, shows its findings.", style="dim")
    return printed(
        Group(Text(f"{len(rows)} traces{where}", style="bold"), table, more), width, color
    )


def _summary_row(result: Report | str) -> tuple[str, str, Text]:
    if isinstance(result, str):
        return "–", "–", Text(clean(result), style="red")
    if not result.analyzable:
        return "–", "–", Text(wording.verdict(result), style="yellow")
    s = result.summary
    share = s.estimated_savings_us / (s.analyzed_us or 1.0)
    saved = f"{duration(s.estimated_savings_us)} ({rounded(share)})" if result.findings else "–"
    top = wording.findings(result)[:1]
    named = wording.title(top[0]) if top else "none above 1 %"
    return str(len(result.findings)), saved, Text(named)


def _head(report: Report) -> RenderableType:
    name = Text(clean(report.source.path), style="bold", overflow="fold")
    lines = [wording.facts(report), wording.extent(report), *wording.coverage(report)]
    return Group(name, *(Padding(prose(line), (0, 0, 0, 2)) for line in lines))


def _verdict(report: Report) -> list[RenderableType]:
    lines = [prose(wording.verdict(report), "bold")]
    if report.job is not None:
        who, why = job_text.verdict(report.job), job_text.reason(report.job)
        lines = [prose(who, "bold"), *([prose(why)] if why else []), Text(), *lines]
    more = wording.record_instead(report) or wording.bound(report)
    return [*lines, prose(more)] if more else [*lines]


def _overview(found: Sequence[Finding]) -> RenderableType:
    """The findings, a line each: what a first look is for."""
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True, style="bold")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for number, finding in enumerate(found, 1):
        grade = Text(finding.severity, style=_COLORS[finding.severity])
        table.add_row(str(number), grade, wording.savings(finding), wording.title(finding))
    return Padding(table, (0, 0, 0, 2))


def _job(job: Job) -> RenderableType:
    """Who waits for whom: a sentence, a line for each rank, the worst collectives."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in job_text.COLUMNS:
        right = name != job_text.COLUMNS[-1]
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    listed = job_text.rows(job)
    for row in listed[: job_text.MOST]:
        table.add_row(*map(clean, row))
    more = len(listed) - job_text.MOST
    lines = [*job_text.summary(job), job_text.scope(job)]
    shown = [prose(f"  {clean(line)}") for line in job_text.worst(job)]
    return Group(
        Text(job_text.HEADING, style="bold"),
        *(prose(line) for line in lines if line),
        Padding(table, (0, 0, 0, 2)),
        *([Text(f"  and {more} more ranks")] if more > 0 else []),
        *shown,
    )


def _ledger(report: Report) -> RenderableType:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=_LABEL)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for line in ledger.lines(report):
        label = Text(f"  {line.label}" if line.is_cause else line.label)
        cells = 0 if line.is_cause else round(_BAR * min(max(line.share, 0.0), 1.0))
        beside = Text(line.place or "█" * cells, style="dim")
        table.add_row(label, percent(line.share), duration(line.us), beside)
    total = sum(row.share for row in report.ledger), sum(row.us for row in report.ledger)
    table.add_row("analyzed time", percent(total[0]), duration(total[1]), style="bold")
    return Group(Text(wording.LEDGER, style="bold"), Padding(table, (0, 0, 0, 2)))


def _hanging(mark: str, text: str, style: str = "") -> RenderableType:
    """A marked paragraph whose later lines start under its first word."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style=style), prose(clean(text, 2000)))
    return grid


def _finding(report: Report, finding: Finding, number: int) -> list[RenderableType]:
    """Its lines; the code is no part of a table, which would wrap it."""
    head = Text.assemble(
        (f"{number} ", "bold"),
        (f" {finding.severity.upper()} ", _COLORS[finding.severity]),
        " ",
        (wording.title(finding), "bold"),
        "  ",
        (clean(finding.pattern), "dim"),
    )
    code = [
        Text(f"{_CODE_INDENT}{line}", style="green", no_wrap=True, overflow="ignore")
        for line in clean_lines(finding.fix.code)
    ]
    before, after = _lines(report, finding), _lines_after(finding)
    return [head, _grid(before), *code, *([_grid(after)] if after else [])]


def _grid(rows: Sequence[tuple[str, Text]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim", min_width=_LABELS)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(label, text)
    return Padding(grid, (0, 0, 0, 2))


def _lines(report: Report, finding: Finding) -> list[tuple[str, Text]]:
    """The labeled lines under a finding's title, up to the code."""
    saved = Text.assemble((wording.savings(finding), "bold"))
    if span := wording.savings_range(finding):
        saved.append(prose(f"; {span}"))
    rows = [
        ("saves", saved),
        ("kind", prose(wording.nature(report, finding))),
        ("when", prose(wording.when(report, finding))),
    ]
    rows += _labeled("where", [Text(wording.source_line(x)) for x in finding.fix.where[:4]])
    if finding.explanation:
        rows.append(("why", prose(clean(finding.explanation, 2000))))
    if finding.fix.summary:
        rows.append(("change", prose(clean(finding.fix.summary, 1000))))
    return rows


def _lines_after(finding: Finding) -> list[tuple[str, Text]]:
    """The labeled lines below the code; numbers of the explanation are not repeated."""
    rows = [("assumes", prose(clean(finding.assumes, 600)))] if finding.assumes else []
    return rows + _labeled("also", [_evidence(row) for row in measures.further(finding)])


def _labeled(label: str, texts: Sequence[Text]) -> list[tuple[str, Text]]:
    """The label stands before the first line only."""
    return [(label if i == 0 else "", text) for i, text in enumerate(texts)]


def _evidence(row: measures.Row) -> Text:
    beside = f"  ({unbroken(row.beside)})" if row.beside else ""
    return Text.assemble(f"{row.label}: ", (unbroken(row.value), "bold"), (beside, "dim"))


def _list(heading: str, lines: Sequence[str]) -> RenderableType:
    return Group(Text(heading, style="bold"), *(_hanging(" ", line) for line in lines))
