"""The report as one HTML file: nothing loaded, every text escaped, its own small script.

The browser enforces that: the page's own policy allows its one style sheet and its one script.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from detector.render import html_overview, html_timeline, ledger, measures, traffic, wording
from detector.render import job as job_text
from detector.render.clean import clean_lines
from detector.render.html_text import WIDTH, document, rect, svg, text
from detector.report import Finding, Fix, Report
from detector.report.events import TopEvent
from detector.units import duration, percent

_MOST_METRICS = 200
_FACTS = 5
_BASELINE = '<caption class="soft hint">baseline: the rest of the trace</caption>'


def render(report: Report) -> str:
    """The whole page."""
    data = {
        "timelines": html_timeline.data(wording.findings(report)),
        "overview": html_overview.data(report) if report.analyzable else None,
    }
    body = [
        *_head(report),
        *_job(report),
        *_ledger(report),
        *html_overview.section(report),
        *_findings(report),
        *html_overview.steps(report),
        *_top(report),
        *traffic.html(report),
        *_foot(report),
    ]
    return document(f"{report.source.path}: performance findings", body, data=data)


def _head(report: Report) -> list[str]:
    lines = [wording.facts(report), wording.extent(report), *wording.coverage(report)]
    more = wording.record_instead(report) or wording.bound(report)
    return [
        "<header>",
        *_verdict(report),
        *([f"<p>{text(more, 1100)}</p>"] if more else []),
        f'<p class="source">{text(report.source.path)}</p>',
        *(f'<p class="soft">{text(line, 600)}</p>' for line in lines),
        *(f'<p class="warn">{text(warning, 2000)}</p>' for warning in report.warnings),
        "</header>",
        "<main>",
    ]


def _verdict(report: Report) -> list[str]:
    """What a newcomer has to know; of a job first who waits for whom, and why."""
    said, job = text(wording.verdict(report), 700), report.job
    if job is None:
        return [f'<h1 class="verdict">{said}</h1>']
    why = text(job_text.reason(job), 700)
    return [
        f'<h1 class="verdict">{text(job_text.verdict(job), 700)}</h1>',
        *([f"<p>{why}</p>"] if why else []),
        f'<p class="verdict">{said}</p>',
    ]


def _job(report: Report) -> list[str]:
    return job_text.html(report.job) if report.job is not None else []


# --- the ledger --------------------------------------------------------------------------------


def _ledger(report: Report) -> list[str]:
    """One bar that adds up to the analyzed time, and a table of its groups and causes."""
    if not (report.analyzable and report.ledger):
        return []
    lines = ledger.lines(report)
    share, us = sum(r.share for r in report.ledger), sum(r.us for r in report.ledger)
    total = f'<td class="number">{percent(share)}</td><td class="number">{duration(us)}</td>'
    return [
        f"<h2>{wording.LEDGER}</h2>",
        _stacked([line for line in lines if not line.is_cause]),
        '<table class="ledger">',
        *map(_ledger_row, lines),
        f'<tr class="total"><th scope="row">analyzed time</th>{total}<td></td></tr>',
        "</table>",
    ]


def _stacked(groups: Sequence[ledger.Line]) -> str:
    """The groups one after the other, each in its color."""
    rects, x = [], 0.0
    for line in groups:
        width = max(line.share, 0.0) * WIDTH
        rects.append(rect(x, width, ledger.color(line.group)))
        x += width
    return svg("stack", rects)


def _ledger_row(line: ledger.Line) -> str:
    swatch = "" if line.is_cause else f'<span class="swatch {ledger.color(line.group)}"></span>'
    where = f"<code>{text(line.place, 80)}</code>" if line.place else ""
    return (
        f'<tr class="{"cause" if line.is_cause else "group"}">'
        f'<th scope="row">{swatch}{text(line.label)}</th>'
        f'<td class="number">{percent(line.share)}</td>'
        f'<td class="number">{duration(line.us)}</td><td class="place">{where}</td></tr>'
    )


# --- the findings ------------------------------------------------------------------------------


def _findings(report: Report) -> list[str]:
    if not report.analyzable:
        return []
    found = wording.findings(report)
    cards = [
        line for number, finding in enumerate(found, 1) for line in _card(report, finding, number)
    ]
    leads = [_named(*lead, 400) for lead in wording.leads(report)]
    named = [_named(*one, 1200) for one in wording.unsized(report)]
    lost = [f"<li>{text(line, 400)}</li>" for line in wording.unexplained(report)]
    return [
        "<h2>Findings</h2>",
        *(cards or ["<p>None above 1 % of the analyzed time.</p>"]),
        *_list(wording.LEADS, leads),
        *_list(wording.UNSIZED, named),
        *_list(wording.UNEXPLAINED, lost),
    ]


def _named(what: str, pattern: str, rest: str, limit: int) -> str:
    return f"<li>{text(what)} <code>{text(pattern)}</code>: {text(rest, limit)}</li>"


def _list(heading: str, items: Sequence[str]) -> list[str]:
    return [f"<h2>{heading}</h2>", "<ul>", *items, "</ul>"] if items else []


def _card(report: Report, finding: Finding, number: int) -> list[str]:
    """Why in a sentence, five facts, the place as a timeline, the fix; the rest folded away."""
    why, more = wording.first_sentence(finding.explanation)
    return [
        f'<article class="card {finding.severity}" id="finding-{number}" tabindex="-1">',
        '<div class="top">',
        f'<h3><span class="badge {finding.severity}">{finding.severity}</span> '
        f"{number}. {text(wording.title(finding))} <code>{text(finding.pattern)}</code></h3>",
        f'<p class="gain">saves {wording.savings(finding)}</p>',
        "</div>",
        f'<p class="soft">{text(_about(report, finding), 700)}</p>',
        *([f'<p class="why">{text(why, 1200)}</p>'] if why else []),
        *_evidence(measures.measures(finding, most=_FACTS)),
        *html_timeline.figure(report, finding, number),
        *_fix(finding),
        *_all_metrics(finding, more),
        "</article>",
    ]


def _about(report: Report, finding: Finding) -> str:
    """What kind of finding, how sure, how often and when, and within what its savings lie."""
    parts = (wording.nature(report, finding), wording.when(report, finding))
    return "; ".join(filter(None, (*parts, wording.savings_range(finding))))


def _fix(finding: Finding) -> list[str]:
    """What to change and where, and the code with a button that copies it."""
    fix, lines = finding.fix, []
    if fix.summary:
        lines.append(f"<p>{text(fix.summary, 2000)}</p>")
    if fix.where and not (len(fix.where) == 1 and _is_said(fix)):
        places = "<br>".join(text(wording.source_line(x, 200)) for x in fix.where[:8])
        lines.append(f'<p class="where"><code>{places}</code></p>')
    elif fix.module and not fix.where:
        lines.append(f'<p class="where">module <code>{text(" > ".join(fix.module))}</code></p>')
    if code := escape("\n".join(clean_lines(fix.code))):
        button = '<button type="button" class="copy" hidden>Copy</button>'
        lines.append(f'<div class="code">{button}<pre tabindex="0">{code}</pre></div>')
    return ['<div class="fix">', "<h4>Change</h4>", *lines, "</div>"] if lines else []


def _is_said(fix: Fix) -> bool:
    """Whether the advice itself names the place."""
    return f"({fix.where[0].file}:{fix.where[0].line})" in fix.summary


def _all_metrics(finding: Finding, more: str) -> list[str]:
    """What only somebody who doubts the finding wants to see."""
    rows = measures.measures(finding, most=_MOST_METRICS, everything=True)
    facts = _facts(finding, more)
    if not rows and not facts:
        return []
    inside = [f"<dt>{label}</dt><dd>{text(value, 4000)}</dd>" for label, value in facts]
    return [
        f"<details><summary>{f'Show all metrics ({len(rows)})' if rows else 'Show more'}</summary>",
        *(["<dl>", *inside, "</dl>"] if inside else []),
        *_evidence(rows),
        "</details>",
    ]


def _facts(finding: Finding, more: str) -> list[tuple[str, str]]:
    """(label, text) of what is no measure."""
    rows = [("here", more), ("top features", measures.top_features(finding))]
    if finding.candidates and finding.confidence < 0.6:
        rows.append(("perhaps", wording.candidates(finding)))
    rows.append(("assumes", finding.assumes))
    return [(label, value) for label, value in rows if value]


def _evidence(rows: Sequence[measures.Row]) -> list[str]:
    inside = [
        f'<tr><th scope="row">{text(row.label)}</th><td class="value">{text(row.value)}</td>'
        f'<td class="soft baseline">{text(row.beside)}</td></tr>'
        for row in rows
    ]
    said = [_BASELINE] if any(row.beside for row in rows) else []
    return ['<table class="facts">', *said, *inside, "</table>"] if inside else []


# --- what most time goes to --------------------------------------------------------------------


def _top(report: Report) -> list[str]:
    """The heaviest kernels and ops."""
    if not report.analyzable:
        return []
    kernels = _top_table("Top kernels", report.top_kernels, "time", on_gpu=False)
    on_gpu = ledger.has_device(report)
    ops = _top_table("Top ops", report.top_ops, "CPU time", on_gpu=on_gpu)
    said = wording.peaks(report)
    return [*kernels, *ops, *([f'<p class="soft">{text(said, 600)}</p>'] if said else [])]


def _top_table(heading: str, rows: Sequence[TopEvent], time: str, *, on_gpu: bool) -> list[str]:
    if not rows:
        return []
    shaped = any(row.shapes for row in rows)
    reached = any(row.gb_per_s for row in rows)
    head = ["name", "calls", time, *["GPU time"] * on_gpu, *["reaches"] * reached]
    head += ["largest inputs' shapes"] * shaped
    cells = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    return [
        "<section>",
        f"<h2>{heading}</h2>",
        f'<div class="wide" tabindex="0" role="region" aria-label="{heading}">',
        '<table class="heavy">',
        f"<thead><tr>{cells}</tr></thead>",
        "<tbody>",
        *(_top_row(row, on_gpu=on_gpu, reached=reached, shaped=shaped) for row in rows),
        "</tbody>",
        "</table></div>",
        "</section>",
    ]


def _top_row(row: TopEvent, *, on_gpu: bool, reached: bool, shaped: bool) -> str:
    gpu = f'<td class="number">{duration(row.gpu_us)}</td>' if on_gpu else ""
    rate = f'<td class="reaches">{text(wording.reached(row))}</td>' if reached else ""
    shapes = f'<td class="soft">{text(wording.shapes(row), 120)}</td>' if shaped else ""
    return (
        f'<tr><th scope="row">{text(row.name, 120)}</th><td class="number">{row.count:,}</td>'
        f'<td class="number">{duration(row.us)}</td>{gpu}{rate}{shapes}</tr>'
    )


# --- the end -----------------------------------------------------------------------------------


def _foot(report: Report) -> list[str]:
    tool = report.tool
    made = f"version {tool.version}, flagger {tool.flagger}, judge {tool.judge}"
    config = json.dumps(tool.config, indent=2, ensure_ascii=False, default=str)
    setting = escape("\n".join(clean_lines(config, most=400)))
    return [
        *_list("Not checked", _not_checked(report)),
        "</main>",
        "<footer>",
        f'<p class="soft">trace-antipattern-detector {text(made, 800)}</p>',
        f'<p class="soft">sha256 of the trace: <code>{text(report.source.sha256)}</code></p>',
        f'<details><summary>Settings</summary><pre tabindex="0">{setting}</pre></details>',
        "</footer>",
    ]


def _not_checked(report: Report) -> list[str]:
    """Why, which patterns, and what to set in the profiler so that they can be checked."""
    groups = wording.not_checked(report, most=len(report.not_checked))
    settings = {wording.cause(row): row.setting for row in report.not_checked}
    return [
        f"<li>{text(cause)}: {text(ids, 4000)}{_setting(settings.get(cause, ''))}</li>"
        for cause, ids in groups
    ]


def _setting(setting: str) -> str:
    return f'<br><span class="soft">record: <code>{text(setting)}</code></span>' if setting else ""
