"""The report as one HTML file: no script, nothing loaded, every text escaped.

The browser enforces that: the page's own policy allows its one style sheet and no more.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from detector.patterns import BY_ID
from detector.render import job as job_text
from detector.render import ledger, wording
from detector.render.clean import LONGEST_NAME, clean, clean_lines
from detector.render.units import duration, percent
from detector.report import Finding, Report, WindowScore, occurrences

_WIDTH = 1000.0  # units of a timeline row
_THINNEST = 2.0  # units: what is shorter would not be seen
_MOST_COLUMNS = 500  # of scores; more windows than this share one
_MOST_LANES = 20
_MOST_METRICS = 200


def render(report: Report) -> str:
    """The whole page."""
    style = files("detector.render").joinpath("report.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    body = "\n".join(
        [
            *_head(report),
            *_job(report),
            *_ledger(report),
            *_timeline(report),
            *_findings(report),
            *_foot(report),
        ]
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{_text(report.source.path)}: performance findings</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _text(text: object, limit: int = LONGEST_NAME) -> str:
    return escape(clean(text, limit))


def _head(report: Report) -> list[str]:
    lines = [wording.facts(report), wording.extent(report), *wording.coverage(report)]
    instead = wording.record_instead(report)
    return [
        "<header>",
        f"<h1>{_text(report.source.path)}</h1>",
        *(f'<p class="soft">{_text(line, 600)}</p>' for line in lines),
        f'<p class="verdict">{_text(wording.verdict(report), 700)}</p>',
        *([f"<p>{_text(instead, 1100)}</p>"] if instead else []),
        *(f'<p class="warn">{_text(warning, 2000)}</p>' for warning in report.warnings),
        "</header>",
        "<main>",
    ]


def _job(report: Report) -> list[str]:
    return job_text.html(report.job) if report.job is not None else []


# --- the ledger --------------------------------------------------------------------------------


def _ledger(report: Report) -> list[str]:
    """One bar that adds up to the analyzed time, and a table of its groups and causes."""
    if not report.ledger:
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
    """The groups one after the other, each in its colour."""
    rects, x = [], 0.0
    for line in groups:
        width = max(line.share, 0.0) * _WIDTH
        rects.append(_rect(x, width, _colour(line.group)))
        x += width
    return _svg("stack", rects)


def _ledger_row(line: ledger.Line) -> str:
    swatch = "" if line.is_cause else f'<span class="swatch {_colour(line.group)}"></span>'
    where = f"<code>{_text(line.place, 80)}</code>" if line.place else ""
    return (
        f'<tr class="{"cause" if line.is_cause else "group"}">'
        f'<th scope="row">{swatch}{_text(line.label)}</th>'
        f'<td class="number">{percent(line.share)}</td>'
        f'<td class="number">{duration(line.us)}</td><td class="place">{where}</td></tr>'
    )


def _colour(group: str) -> str:
    """The style of a group; a later version's groups look like unexplained time."""
    return f"g-{group}" if group in ("busy", "exposed", "host", "device") else "g-unexplained"


# --- the timeline ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scale:
    """µs -> units of a timeline row."""

    start: float
    end: float

    def rect(self, start: float, end: float, kind: str, *, opacity: float = 1.0) -> str:
        """A bar over this time; never too thin to be seen."""
        span = max(self.end - self.start, 1e-9)
        left = min(max((start - self.start) / span, 0.0), 1.0) * _WIDTH
        right = min(max((end - self.start) / span, 0.0), 1.0) * _WIDTH
        return _rect(min(left, _WIDTH - _THINNEST), max(right - left, _THINNEST), kind, opacity)


def _rect(x: float, width: float, kind: str, opacity: float = 1.0) -> str:
    faint = "" if opacity >= 1 else f' fill-opacity="{opacity:.2f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="0" width="{width:.1f}" height="20"{faint}/>'


def _svg(kind: str, rects: Iterable[str]) -> str:
    inside = "".join(rects)
    view = f'viewBox="0 0 {_WIDTH:.0f} 20" preserveAspectRatio="none"'
    return f'<svg class="{kind}" {view} aria-hidden="true">{inside}</svg>'


def _timeline(report: Report) -> list[str]:
    if not report.analyzable:
        return []
    scale = _scale(report)
    rows = [_row("steps", _step_rects(report, scale))] if report.source.steps else []
    columns = _thinned(report.windows)
    if columns:
        rows += [
            _row(
                f"{side} score",
                [
                    scale.rect(w.start_us, w.end_us, side, opacity=score)
                    for w in columns
                    if (score := w.cpu_score if side == "cpu" else w.gpu_score) >= 0.01
                ],
            )
            for side in ("cpu", "gpu")
        ]
    for number, finding in enumerate(wording.findings(report)[:_MOST_LANES], 1):
        spans = occurrences(finding)
        rects = [scale.rect(start, end, finding.severity) for start, end in spans]
        rows.append(_row(f"{number}. {finding.pattern}", rects, href=f"#finding-{number}"))
    zero = report.source.span_us[0]
    ticks = [scale.start + i * (scale.end - scale.start) / 4 - zero for i in range(5)]
    axis = "".join(f"<span>{duration(t)}</span>" for t in ticks)
    return [
        '<section aria-label="timeline">',
        "<h2>Timeline</h2>",
        *rows,
        f'<div class="row"><span></span><div class="axis">{axis}</div></div>',
        "</section>",
    ]


def _row(label: str, rects: Iterable[str], href: str = "") -> str:
    inside = f'<span class="label">{_text(label, 80)}</span>{_svg("strip", rects)}'
    return (
        f'<a class="row" href="{href}">{inside}</a>' if href else f'<div class="row">{inside}</div>'
    )


def _scale(report: Report) -> _Scale:
    """The analyzed time, which the windows tile, else the whole trace."""
    if report.windows:
        starts = [w.start_us for w in report.windows]
        return _Scale(min(starts), max(w.end_us for w in report.windows))
    return _Scale(*report.source.span_us)


def _step_rects(report: Report, scale: _Scale) -> list[str]:
    shown = [s for s in report.source.steps if s.end_us > scale.start and s.start_us < scale.end]
    every = max(len(shown) // _MOST_COLUMNS, 1)
    return [
        scale.rect(step.start_us, step.end_us, "odd" if i % 2 else "even")
        for i, step in enumerate(shown[::every])
    ]


def _thinned(windows: Sequence[WindowScore]) -> list[WindowScore]:
    """At most so many columns, each as suspicious as the worst window in it."""
    group = -(-len(windows) // _MOST_COLUMNS) or 1
    parts = (windows[i : i + group] for i in range(0, len(windows), group))
    return [
        WindowScore(
            min(w.start_us for w in part),
            max(w.end_us for w in part),
            cpu_score=max(w.cpu_score for w in part),
            gpu_score=max(w.gpu_score for w in part),
        )
        for part in parts
    ]


# --- the findings ------------------------------------------------------------------------------


def _findings(report: Report) -> list[str]:
    if not report.analyzable:
        return []
    cards = [
        line
        for number, finding in enumerate(wording.findings(report), 1)
        for line in _card(report, finding, number)
    ]
    leads = [
        f"<li>{_text(what)} <code>{_text(pattern)}</code>: {_text(rest, 400)}</li>"
        for what, pattern, rest in wording.leads(report)
    ]
    lost = [f"<li>{_text(line, 400)}</li>" for line in wording.unexplained(report)]
    return [
        "<h2>Findings</h2>",
        *(cards or [f"<p>{_text(wording.verdict(report))}</p>"]),
        *_list(wording.LEADS, leads),
        *_list(wording.UNEXPLAINED, lost),
    ]


def _list(heading: str, items: Sequence[str]) -> list[str]:
    return [f"<h2>{heading}</h2>", "<ul>", *items, "</ul>"] if items else []


def _card(report: Report, finding: Finding, number: int) -> list[str]:
    lines = [
        f'<article class="card {finding.severity}" id="finding-{number}">',
        f'<span class="badge {finding.severity}">{wording.grade(finding)}</span>',
        f"<h3>{number}. {_text(wording.title(finding))} <code>{_text(finding.pattern)}</code></h3>",
        f'<p><span class="gain">saves {wording.savings(finding)}</span></p>',
        f'<p class="soft">{_text(wording.nature(report, finding))}</p>',
        "<dl>",
        *(f"<dt>{label}</dt><dd>{inside}</dd>" for label, inside in _facts(report, finding)),
        "</dl>",
    ]
    if first := wording.evidence(finding):
        lines += ["<h4>Evidence</h4>", *_evidence(first)]
    if len(rows := wording.evidence(finding, most=_MOST_METRICS, everything=True)) > len(first):
        summary = f"<summary>Show all metrics ({len(rows)})</summary>"
        lines += ["<details>", summary, *_evidence(rows), "</details>"]
    return [*lines, "</article>"]


def _facts(report: Report, finding: Finding) -> list[tuple[str, str]]:
    """(label, escaped HTML) for each line of a card."""
    span = wording.savings_range(finding)
    rows = [("range", _text(span))] if span else []
    rows.append(("when", _text(wording.when(report, finding), 400)))
    if finding.fix.where:
        places = "<br>".join(_text(wording.source_line(x, 200)) for x in finding.fix.where[:8])
        rows.append(("where", f"<code>{places}</code>"))
    if finding.explanation:
        rows.append(("why", _text(finding.explanation, 4000)))
    if features := wording.top_features(finding):
        rows.append(("top features", _text(features, 600)))
    if finding.candidates and (finding.pattern not in BY_ID or finding.confidence < 0.6):
        rows.append(("perhaps", _text(wording.candidates(finding), 400)))
    code = escape("\n".join(clean_lines(finding.fix.code)))
    block = f"<pre>{code}</pre>" if code else ""
    if finding.fix.summary or block:
        rows.append(("change", _text(finding.fix.summary, 2000) + block))
    if finding.assumes:
        rows.append(("assumes", _text(finding.assumes, 600)))
    return rows


def _evidence(rows: Sequence[wording.Row]) -> list[str]:
    inside = [
        f'<tr><th scope="row">{_text(row.label)}</th><td class="value">{_text(row.value)}</td>'
        f'<td class="soft baseline">{_text(row.beside)}</td></tr>'
        for row in rows
    ]
    return ["<table>", *inside, "</table>"]


def _foot(report: Report) -> list[str]:
    groups = wording.not_checked(report, most=len(report.not_checked))
    lines = _list(
        "Not checked", [f"<li>{_text(cause)}: {_text(ids, 4000)}</li>" for cause, ids in groups]
    )
    tool = report.tool
    made = f"version {tool.version}, flagger {tool.flagger}, judge {tool.judge}"
    config = json.dumps(tool.config, indent=2, ensure_ascii=False, default=str)
    setting = escape("\n".join(clean_lines(config, most=400)))
    return [
        *lines,
        "</main>",
        "<footer>",
        f'<p class="soft">trace-antipattern-detector {_text(made, 800)}</p>',
        f'<p class="soft">sha256 of the trace: <code>{_text(report.source.sha256)}</code></p>',
        f"<details><summary>Settings</summary><pre>{setting}</pre></details>",
        "</footer>",
    ]
