"""Two scans side by side: on a terminal, in Markdown for a pull request, as a page, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from detector.render import wording
from detector.render.clean import clean
from detector.render.console import printed
from detector.render.html_text import document
from detector.render.ledger import place
from detector.render.markdown import escaped
from detector.report import LedgerPlace
from detector.report_diff.difference import (
    CauseChange,
    Change,
    Difference,
    FindingChange,
    Side,
    Status,
)
from detector.units import duration, plural, rounded

LEAST_US: Final = 1.0  # of a step: a smaller change of a cause is not listed
LEAST_SHARE: Final = 0.005  # ... nor one of so small a part of the step
_STYLES: Final[dict[Status, str]] = {
    "gone": "bold green",
    "better": "green",
    "new": "bold red",
    "worse": "red",
    "same": "dim",
    "unsure": "dim",
}
LEDGER: Final = "Where the time of a step went"


# -- words -----------------------------------------------------------------------------------------


def verdict(d: Difference) -> str:
    """What a step gained, in a sentence."""
    if d.step is None:
        return f"Not comparable: {'; '.join(clean(why, 400) for why in d.why_not)}."
    change, unit = d.step, "A step" if d.before.steps else "The analyzed time"
    span = f"{duration(change.before)} before, {duration(change.after)} after"
    if change.interval is not None and not change.is_sure:
        return f"{unit} takes as long as before, within what steps vary: {span}{_sure(change)}."
    way = "less" if change.by < 0 else "more"
    share = rounded(abs(change.by) / change.before) if change.before else "–"
    return f"{unit} takes {duration(abs(change.by))} ({share}) {way}: {span}{_sure(change)}."


def _sure(change: Change) -> str:
    return f"; 95 % interval {interval(change)}" if change.interval else ""


def interval(change: Change) -> str:
    """``−55.4 ms to −12.2 ms``; empty where there are too few steps."""
    if change.interval is None:
        return ""
    return f"{signed(change.interval[0])} to {signed(change.interval[1])}"


def signed(us: float) -> str:
    """A change in time with its sign."""
    return f"{'+' if us > 0 else '−' if us < 0 else ''}{duration(abs(us))}"


def summary(d: Difference) -> str:
    """How many findings went which way, and whether the savings came."""
    if not d.comparable:
        return ""
    status: tuple[Status, ...] = ("gone", "better", "worse", "new", "same", "unsure")
    counts = [(len(d.of(s)), s if s != "same" else "unchanged") for s in status]
    counted = ", ".join(f"{n} {word}" for n, word in counts if n) or "none in either"
    lines = [f"Findings: {counted}."]
    if d.predicted_us:
        lines.append(f"Predicted savings {duration(d.predicted_us)}, realized {signed_savings(d)}.")
    return " ".join(lines)


def signed_savings(d: Difference) -> str:
    """What a step got shorter by, and what part of the prediction that is."""
    part = f" ({rounded(d.realized_us / d.predicted_us)})" if d.predicted_us else ""
    return f"{'' if d.realized_us >= 0 else '−'}{duration(abs(d.realized_us))}{part}"


def side(one: Side) -> str:
    """One of the traces, on one line."""
    steps = plural(one.steps, "step") if one.steps else "no step"
    return f"{clean(one.path)} · {steps} · analyzed {duration(one.analyzed_us)}"


def amount(change: FindingChange) -> str:
    """What the finding's repair saves in a step, before and after."""
    before = duration(change.savings.before) if change.before else "–"
    return f"{before} → {duration(change.savings.after) if change.after else '–'}"


def title(change: FindingChange) -> str:
    """The finding's title and place in the code."""
    at = change.finding.fix.where[0] if change.finding.fix.where else None
    where = f" ({place(LedgerPlace(at.function, at.file, at.line))})" if at else ""
    return f"{wording.title(change.finding)}{where}"


_COLUMNS: Final = ("cause", "before", "after", "change", "95 % interval")


def _rows(d: Difference) -> list[tuple[str, ...]]:
    """The cells of ``_COLUMNS`` for the causes whose time changed by as much as matters."""
    return [
        (
            clean(row.label, 60),
            duration(row.time.before),
            duration(row.time.after),
            signed(row.time.by),
            interval(row.time),
        )
        for row in _changed(d)
    ]


def _changed(d: Difference) -> list[CauseChange]:
    least = max(LEAST_US, LEAST_SHARE * (d.step.before if d.step else 0.0))
    return [row for row in d.ledger if abs(row.time.by) >= least]


# -- terminal --------------------------------------------------------------------------------------


def render(d: Difference, *, width: int = 100, color: bool = False) -> str:
    """For a terminal."""
    parts: list[RenderableType] = [
        _hanging("before", Text(side(d.before))),
        _hanging("after ", Text(side(d.after))),
        Text(),
        Text(verdict(d), style="bold"),
    ]
    if text := summary(d):
        parts.append(Text(text))
    parts += [_hanging("!", Text(clean(note, 400))) for note in d.notes]
    if d.findings:
        parts += [Text(), Text("Findings, savings per step before → after", style="bold")]
        parts.append(Padding(_finding_table(d), (0, 0, 0, 2)))
    if d.comparable and _rows(d):
        parts += [Text(), Text(LEDGER, style="bold"), Padding(_ledger_table(d), (0, 0, 0, 2))]
    return printed(Group(*parts), width, color)


def _hanging(mark: str, text: Text) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    grid.add_row(mark, text)
    return grid


def _finding_table(d: Difference) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for change in d.findings:
        grid.add_row(
            Text(change.status, style=_STYLES[change.status]), amount(change), Text(title(change))
        )
    return grid


def _ledger_table(d: Difference) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_row("", *_COLUMNS[1:], style="dim")
    for row, (cause, before, after, by, span) in zip(_changed(d), _rows(d), strict=True):
        change = Text(by, style="bold" if row.time.is_sure else "")
        table.add_row(Text(cause), before, after, change, span)
    return table


# -- Markdown, HTML, JSON --------------------------------------------------------------------------


def markdown(d: Difference) -> str:
    """For a comment in a pull request."""
    lines = [f"**{escaped(verdict(d), 1000)}**", "", escaped(summary(d))]
    lines += ["", f"- before: {escaped(side(d.before), 400)}"]
    lines += [f"- after: {escaped(side(d.after), 400)}"]
    lines += [f"- ⚠ {escaped(note, 400)}" for note in d.notes]
    if d.findings:
        lines += ["", "| | finding | savings per step |", "|---|---|---|"]
        lines += [
            f"| {c.status} | {escaped(title(c), 400)} `{clean(c.pattern, 60)}` | {amount(c)} |"
            if "`" not in c.pattern and "|" not in c.pattern
            else f"| {c.status} | {escaped(title(c), 400)} | {amount(c)} |"
            for c in d.findings
        ]
    if d.comparable and (rows := _rows(d)):
        lines += ["", f"<details><summary>{LEDGER}</summary>", ""]
        lines += [f"| {' | '.join(_COLUMNS)} |", "|---|---:|---:|---:|---|"]
        lines += [f"| {' | '.join((escaped(cause), *rest))} |" for cause, *rest in rows]
        lines += ["", "</details>"]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def html(d: Difference) -> str:
    """One page without script."""
    body = [
        "<header><h1>Before and after</h1>",
        f'<p class="soft">before: {escape(side(d.before))}</p>',
        f'<p class="soft">after: {escape(side(d.after))}</p>',
        f'<p class="verdict">{escape(verdict(d))}</p>',
        f"<p>{escape(summary(d))}</p>",
        *(f'<p class="warn">{escape(clean(note, 400))}</p>' for note in d.notes),
        "</header><main>",
    ]
    if d.findings:
        rows = [(c.status, f"{title(c)} ({clean(c.pattern, 60)})", amount(c)) for c in d.findings]
        body += ["<h2>Findings</h2>", _table(("", "finding", "savings per step"), rows)]
    if d.comparable:
        body += [f"<h2>{LEDGER}</h2>", _table(_COLUMNS, _rows(d), "amounts")]
    return document("Before and after: performance findings", [*body, "</main>"])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], kind: str = "") -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<table class="{kind}"><tr>{top}</tr>{body}</table>'


def to_json(d: Difference) -> str:
    """The fields of ``Difference`` as they are, and whether it is comparable; findings by id."""
    plain = msgspec.to_builtins(d)
    plain = {"schema": plain.pop("schema"), "comparable": d.comparable, **plain}
    plain["findings"] = [
        {
            "status": c.status,
            "pattern": c.pattern,
            "before": c.before and c.before.id,
            "after": c.after and c.after.id,
            "savings": msgspec.to_builtins(c.savings),
        }
        for c in d.findings
    ]
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
