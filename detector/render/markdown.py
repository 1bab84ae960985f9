"""The report as Markdown, for a pull request or a chat: tables, folded details."""

from __future__ import annotations

import re
from html import escape

from detector.render import wording
from detector.report import Finding, Report
from detector.taxonomy import BY_ID

_MARKS = re.compile(r"([\\`*_\[\]#|~])")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|www|mailto)(?=[:.])")
_ICONS = {"critical": "🔴", "warning": "🟠", "low": "🔵", "info": "⚪"}


def render(report: Report) -> str:
    """One trace: heading, where the time went, warnings, findings by cost, what was not checked."""
    lines = [f"## {_text(report.source.path)}", "", _text(wording.facts(report)) + "  "]
    lines += [_text(line) + "  " for line in (wording.extent(report), *wording.coverage(report))]
    lines += ["", *_budget(report)]
    lines += ["", *(f"> ⚠ {_text(warning, 2000)}  " for warning in report.warnings)]
    lines += ["", f"**{_text(wording.verdict(report))}**", ""]
    findings = wording.by_cost(report)
    if findings:
        lines += _table(findings)
    for number, finding in enumerate(findings, 1):
        lines += ["", *_details(report, finding, number)]
    if report.not_checked:
        lines += ["", f"Not checked ({wording.plural(len(report.not_checked), 'pattern')}):", ""]
        groups = wording.not_checked(report.not_checked)
        lines += [f"- {_text(cause)}: {_text(ids)}" for cause, ids in groups]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _text(text: str, limit: int = wording.LONGEST_NAME) -> str:
    """Plain text: every character with a meaning in Markdown or HTML is escaped."""
    return _tame(_MARKS.sub(r"\\\1", escape(wording.clean(text, limit), quote=False)))


def _tame(text: str) -> str:
    """A zero-width space keeps names from being mentions, and addresses from being links."""
    return _ADDRESS.sub("\\1\u200b", text).replace("@", "@\u200b")


def _code(text: str) -> str:
    """A span of code; a backtick inside cannot end it."""
    return "`" + wording.clean(text).replace("`", "'").replace("|", "¦") + "`"


def _budget(report: Report) -> list[str]:
    rows = ["| where the judged time went | share | time |", "|---|---:|---:|"]
    rows += [
        f"| {what} | {wording.percent(share)} | {wording.duration(us)} |"
        for what, share, us in wording.budget(report)
    ]
    no_device = "This trace shows no device, so the host itself is judged."
    return rows if wording.has_device(report) else [*rows, "", no_device]


def _table(findings: list[Finding]) -> list[str]:
    rows = ["| # | severity | finding | gives back | confidence |", "|---:|---|---|---:|---:|"]
    for number, f in enumerate(findings, 1):
        what = f"{_text(wording.title(f))} {_code(f.pattern)}"
        severity = f"{_ICONS[f.severity]} {wording.grade(f)}"
        rows.append(f"| {number} | {severity} | {what} | {wording.gain(f)} | {f.confidence:.2f} |")
    return rows


def _details(report: Report, finding: Finding, number: int) -> list[str]:
    # inside a line of HTML only HTML's own escapes count
    plain = escape(wording.clean(wording.title(finding)))
    title = _tame(_MARKS.sub(lambda m: m[0] if m[0] == "#" else f"&#{ord(m[0])};", plain))
    open_ = " open" if number == 1 else ""
    lines = [
        f"<details{open_}><summary>{number}. {title}</summary>",
        "",
        f"- **when**: {_text(wording.when(report, finding), 400)}",
    ]
    lines += [f"- **where**: {_code(wording.place(line))}" for line in finding.fix.where[:4]]
    if finding.explanation:
        lines.append(f"- **why**: {_text(finding.explanation, 2000)}")
    if told := wording.drivers(finding):
        lines.append(f"- **looked at**: {_text(told, 600)}")
    if finding.pattern not in BY_ID and finding.candidates:
        lines.append(f"- **perhaps**: {_text(wording.candidates(finding), 400)}")
    for row in wording.evidence(finding):
        beside = f" ({_text(row.beside)})" if row.beside else ""
        lines.append(f"- {_text(row.label)}: **{_text(row.value)}**{beside}")
    if finding.fix.summary:
        lines += ["", f"**Change:** {_text(finding.fix.summary, 1000)}"]
    if code := wording.clean_lines(finding.fix.code):
        longest = max(map(len, re.findall(r"`+", finding.fix.code)), default=0)
        fence = "`" * max(3, longest + 1)
        lines += ["", f"{fence}python", *code, fence]
    return [*lines, "", "</details>"]
