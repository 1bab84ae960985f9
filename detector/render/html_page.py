"""The report as one HTML file: no script, nothing loaded, every text escaped.

The browser is told to hold to that: the page's own policy allows its one style sheet and no more.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from detector.render import wording
from detector.report import Finding, Report, WindowScore, occurrences
from detector.taxonomy import BY_ID

_WIDTH = 1000.0  # units of a timeline row
_THINNEST = 2.0  # units: what is shorter would not be seen
_MOST_COLUMNS = 500  # of scores; more windows than this share one
_MOST_LANES = 20
_FIRST_ROWS = 6  # of the evidence, shown at once


def render(report: Report) -> str:
    """The whole page."""
    style = files("detector.render").joinpath("report.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    body = "\n".join([*_head(report), *_timeline(report), *_findings(report), *_foot(report)])
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


def _text(text: object, limit: int = wording.LONGEST_NAME) -> str:
    return escape(wording.clean(text, limit))


def _head(report: Report) -> list[str]:
    lines = [wording.facts(report), wording.extent(report), *wording.coverage(report)]
    return [
        "<header>",
        f"<h1>{_text(report.source.path)}</h1>",
        *(f'<p class="soft">{_text(line, 600)}</p>' for line in lines),
        f'<p class="verdict">{_text(wording.verdict(report))}</p>',
        *(f'<p class="warn">{_text(warning, 2000)}</p>' for warning in report.warnings),
        "</header>",
        "<main>",
        "<h2>Where the judged time went</h2>",
        *_budget(report),
    ]


def _budget(report: Report) -> list[str]:
    note = "This trace shows no device, so the host itself is judged."
    rows = [] if wording.has_device(report) else [f'<p class="soft">{note}</p>']
    rows.append("<table>")
    for what, share, us in wording.budget(report):
        bar = _svg("bar", [_rect(0.0, share * _WIDTH, "gpu")] if share > 0 else [])
        rows.append(
            f'<tr><th scope="row">{what}</th><td class="number">{wording.percent(share)}</td>'
            f'<td class="number">{wording.duration(us)}</td><td>{bar}</td></tr>'
        )
    return [*rows, "</table>"]


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
    for number, finding in enumerate(wording.by_cost(report)[:_MOST_LANES], 1):
        spans = occurrences(finding)
        rects = [scale.rect(start, end, finding.severity) for start, end in spans]
        rows.append(_row(f"{number}. {finding.pattern}", rects, href=f"#finding-{number}"))
    zero = report.source.span_us[0]
    ticks = [scale.start + i * (scale.end - scale.start) / 4 - zero for i in range(5)]
    axis = "".join(f"<span>{wording.duration(t)}</span>" for t in ticks)
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
    """The judged time where windows tell it, else the whole trace."""
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
    cards = [
        line
        for number, finding in enumerate(wording.by_cost(report), 1)
        for line in _card(report, finding, number)
    ]
    return ["<h2>Findings</h2>", *(cards or [f"<p>{_text(wording.verdict(report))}</p>"])]


def _card(report: Report, finding: Finding, number: int) -> list[str]:
    sure = f"{wording.confidence(finding.confidence)}, {wording.SIDES[finding.side]}"
    lines = [
        f'<article class="card {finding.severity}" id="finding-{number}">',
        f'<span class="badge {finding.severity}">{wording.grade(finding)}</span>',
        f"<h3>{number}. {_text(wording.title(finding))} <code>{_text(finding.pattern)}</code></h3>",
        f'<p><span class="gain">gives back {wording.gain(finding)}</span>, {sure}</p>',
        "<dl>",
        *(f"<dt>{label}</dt><dd>{inside}</dd>" for label, inside in _facts(report, finding)),
        "</dl>",
    ]
    rows = wording.evidence(finding, most=100, everything=True)
    if rows:
        lines += ["<h4>Evidence</h4>", *_evidence(rows[:_FIRST_ROWS])]
    if more := rows[_FIRST_ROWS:]:
        summary = f"<summary>{wording.plural(len(more), 'more number')}</summary>"
        lines += ["<details>", summary, *_evidence(more), "</details>"]
    return [*lines, "</article>"]


def _facts(report: Report, finding: Finding) -> list[tuple[str, str]]:
    """(label, escaped HTML) for each line of a card."""
    rows = [("when", _text(wording.when(report, finding), 400))]
    if finding.fix.where:
        places = "<br>".join(_text(wording.place(line, 200)) for line in finding.fix.where[:8])
        rows.append(("where", f"<code>{places}</code>"))
    if finding.explanation:
        rows.append(("why", _text(finding.explanation, 4000)))
    if told := wording.drivers(finding):
        rows.append(("looked at", _text(told, 600)))
    if finding.candidates and (finding.pattern not in BY_ID or finding.confidence < 0.6):
        rows.append(("perhaps", _text(wording.candidates(finding), 400)))
    code = escape("\n".join(wording.clean_lines(finding.fix.code)))
    block = f"<pre>{code}</pre>" if code else ""
    if finding.fix.summary or block:
        rows.append(("change", _text(finding.fix.summary, 2000) + block))
    return rows


def _evidence(rows: Sequence[wording.Row]) -> list[str]:
    inside = [
        f'<tr><th scope="row">{_text(row.label)}</th><td class="value">{_text(row.value)}</td>'
        f'<td class="soft">{_text(row.beside)}</td></tr>'
        for row in rows
    ]
    return ["<table>", *inside, "</table>"]


def _foot(report: Report) -> list[str]:
    groups = wording.not_checked(report.not_checked, most=len(report.not_checked))
    blind = [f"<li>{_text(cause)}: {_text(ids, 4000)}</li>" for cause, ids in groups]
    lines = ["<h2>Not checked</h2>", "<ul>", *blind, "</ul>"] if blind else []
    tool = report.tool
    made = f"version {tool.version}, flagger {tool.flagger}, judge {tool.judge}"
    config = json.dumps(tool.config, indent=2, ensure_ascii=False, default=str)
    setting = escape("\n".join(wording.clean_lines(config, most=400)))
    return [
        *lines,
        "</main>",
        "<footer>",
        f'<p class="soft">trace-antipattern-detector {_text(made, 800)}</p>',
        f'<p class="soft">sha256 of the trace: <code>{_text(report.source.sha256)}</code></p>',
        f"<details><summary>Settings</summary><pre>{setting}</pre></details>",
        "</footer>",
    ]
