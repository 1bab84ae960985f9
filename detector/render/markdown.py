"""The report as Markdown, for a pull request or a chat: tables, folded details."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from detector.render import job as job_text
from detector.render import ledger, measures, wording
from detector.render.clean import LONGEST_NAME, clean, clean_lines
from detector.report import Finding, Report
from detector.units import duration, percent, plural

_MARKS = re.compile(r"([\\`*_\[\]#|~])")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|www|mailto)(?=[:.])")
_ICONS = {"critical": "🔴", "high": "🟠", "medium": "🟡", "low": "🔵", "info": "⚪"}


def render(report: Report) -> str:
    """One trace: what was read, the verdict, where the time went, findings by savings, the rest."""
    lines = [f"## {escaped(report.source.path)}", "", escaped(wording.facts(report)) + "  "]
    lines += [escaped(line) + "  " for line in (wording.extent(report), *wording.coverage(report))]
    lines += ["", f"**{escaped(wording.verdict(report), 700)}**"]
    lines += ["", escaped(wording.record_instead(report), 1100)]
    lines += ["", *_job(report)]
    lines += ["", *_ledger(report)]
    lines += ["", *(f"> ⚠ {escaped(warning, 2000)}  " for warning in report.warnings), ""]
    findings = wording.findings(report)
    lines += _table(findings) if findings else []
    for number, finding in enumerate(findings, 1):
        lines += ["", *_details(report, finding, number)]
    lines += _list(f"{wording.LEADS}:", [_lead(*lead) for lead in wording.leads(report)])
    lines += _list(f"{wording.UNSIZED}:", [_lead(*one) for one in wording.unsized(report)])
    lost = [escaped(line, 400) for line in wording.unexplained(report)]
    lines += _list(f"{wording.UNEXPLAINED}:", lost)
    blind = [f"{escaped(cause)}: {escaped(ids)}" for cause, ids in wording.not_checked(report)]
    lines += _list(f"Not checked ({plural(len(report.not_checked), 'pattern')}):", blind)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _job(report: Report) -> list[str]:
    """Who waits for whom: a sentence, and a line for each rank."""
    if (job := report.job) is None:
        return []
    head = f"| {' | '.join(job_text.COLUMNS)} |"
    return [
        f"**{job_text.HEADING}.** {escaped(job_text.verdict(job), 700)}"
        f" {escaped(job_text.reason(job), 700)}",
        "",
        *(escaped(line, 600) + "  " for line in (*job_text.summary(job), job_text.scope(job))),
        "",
        head,
        "|--:|--:|--:|--:|:--|",
        *(
            "| " + " | ".join(escaped(cell) for cell in row) + " |"
            for row in job_text.rows(job)[: job_text.MOST]
        ),
    ]


def _list(heading: str, items: Sequence[str]) -> list[str]:
    return ["", heading, "", *(f"- {item}" for item in items)] if items else []


def _lead(what: str, pattern: str, rest: str) -> str:
    return f"{escaped(what)} {_code(pattern)}: {escaped(rest, 400)}"


def escaped(text: str, limit: int = LONGEST_NAME) -> str:
    """Plain text: every character with a meaning in Markdown or HTML is escaped."""
    return _tame(_MARKS.sub(r"\\\1", escape(clean(text, limit), quote=False)))


def _tame(text: str) -> str:
    """A zero-width space keeps names from being mentions, and addresses from being links."""
    return _ADDRESS.sub("\\1\u200b", text).replace("@", "@\u200b")


def _code(text: str) -> str:
    """A span of code; a backtick inside cannot end it."""
    return "`" + clean(text).replace("`", "'").replace("|", "¦") + "`"


def _ledger(report: Report) -> list[str]:
    if not (report.analyzable and report.ledger):
        return []
    rows = [f"| {wording.LEDGER.lower()} | share | time | most in |", "|---|---:|---:|---|"]
    for line in ledger.lines(report):
        label = f"&emsp;{escaped(line.label)}" if line.is_cause else f"**{escaped(line.label)}**"
        where = _code(line.place) if line.place else ""
        rows.append(f"| {label} | {percent(line.share)} | {duration(line.us)} | {where} |")
    share, us = sum(r.share for r in report.ledger), sum(r.us for r in report.ledger)
    return [*rows, f"| **analyzed time** | {percent(share)} | {duration(us)} | |"]


def _table(findings: list[Finding]) -> list[str]:
    rows = [
        "| # | severity | finding | kind | saves | confidence |",
        "|---:|---|---|---|---:|---:|",
    ]
    for number, f in enumerate(findings, 1):
        what = f"{escaped(wording.title(f))} {_code(f.pattern)}"
        severity = f"{_ICONS[f.severity]} {f.severity}"
        sure = f"{f.confidence:.2f}"
        row = (str(number), severity, what, f.kind, wording.savings(f), sure)
        rows.append(f"| {' | '.join(row)} |")
    return rows


def _details(report: Report, finding: Finding, number: int) -> list[str]:
    # inside a line of HTML only HTML's own escapes count
    plain = escape(clean(wording.title(finding)))
    title = _tame(_MARKS.sub(lambda m: m[0] if m[0] == "#" else f"&#{ord(m[0])};", plain))
    open_ = " open" if number == 1 else ""
    saved = wording.savings(finding), wording.savings_range(finding)
    lines = [
        f"<details{open_}><summary>{number}. {title}</summary>",
        "",
        f"- **saves**: {escaped('; '.join(filter(None, saved)))}",
        f"- **kind**: {escaped(wording.nature(report, finding))}",
        f"- **when**: {escaped(wording.when(report, finding), 400)}",
    ]
    lines += [f"- **where**: {_code(wording.source_line(x))}" for x in finding.fix.where[:4]]
    if finding.explanation:
        lines.append(f"- **why**: {escaped(finding.explanation, 2000)}")
    for row in measures.further(finding):
        beside = f" ({escaped(row.beside)})" if row.beside else ""
        lines.append(f"- {escaped(row.label)}: **{escaped(row.value)}**{beside}")
    if finding.fix.summary:
        lines += ["", f"**Change:** {escaped(finding.fix.summary, 1000)}"]
    if code := clean_lines(finding.fix.code):
        longest = max(map(len, re.findall(r"`+", finding.fix.code)), default=0)
        fence = "`" * max(3, longest + 1)
        lines += ["", f"{fence}python", *code, fence]
    if finding.assumes:
        lines += ["", f"The estimate assumes: {escaped(finding.assumes, 600)}"]
    return [*lines, "", "</details>"]
