"""The whole analyzed time on the page: steps, scores of the windows, where each finding lies."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from detector.render import wording
from detector.render.html_text import WIDTH, rect, svg, text
from detector.render.ledger import color, has_device
from detector.report import Finding, Report, WindowScore, occurrences
from detector.units import duration

_THINNEST = 2.0  # units: what is shorter would not be seen
_MOST_COLUMNS = 500  # of scores; more windows than this share one
_LEAST_SCORE = 0.01  # less would not be seen
_MOST_LANES = 20
_MOST_STEPS = 120  # bars of the chart; more steps than this share one
_TALL = 100.0  # units of the chart of steps


@dataclass(frozen=True)
class _Scale:
    """µs -> units of a row."""

    start: float
    end: float

    def rect(self, start: float, end: float, kind: str, *, opacity: float = 1.0) -> str:
        """A bar over this time; never too thin to be seen."""
        span = max(self.end - self.start, 1e-9)
        left = min(max((start - self.start) / span, 0.0), 1.0) * WIDTH
        right = min(max((end - self.start) / span, 0.0), 1.0) * WIDTH
        return rect(min(left, WIDTH - _THINNEST), max(right - left, _THINNEST), kind, opacity)


def section(report: Report) -> list[str]:
    """Steps, scores and findings above one axis of time."""
    if not report.analyzable:
        return []
    scale = _scale(report)
    rows = [_row("steps", _step_rects(report, scale))] if report.source.steps else []
    rows += _scores(report, scale)
    rows += [_lane(scale, n, finding) for n, finding in _lanes(report)]
    click = " A click leads to the nearest finding." if wording.findings(report) else ""
    zero = report.source.span_us[0]
    ticks = [scale.start + i * (scale.end - scale.start) / 4 - zero for i in range(5)]
    axis = "".join(f"<span>{duration(t)}</span>" for t in ticks)
    return [
        '<section class="overview" aria-label="overview">',
        "<h2>Overview</h2>",
        f'<p class="soft hint">Dark is suspicious.{click}</p>',
        *rows,
        f'<div class="row"><span></span><div class="axis">{axis}</div></div>',
        "</section>",
    ]


def data(report: Report) -> dict[str, object]:
    """What a click on the overview is looked up in: its time, and each finding's occurrences."""
    scale = _scale(report)
    rows = [{"number": n, "spans": occurrences(finding)} for n, finding in _lanes(report)]
    return {"start": scale.start, "end": scale.end, "findings": rows}


def _lanes(report: Report) -> list[tuple[int, Finding]]:
    return list(enumerate(wording.findings(report)[:_MOST_LANES], 1))


def _lane(scale: _Scale, number: int, finding: Finding) -> str:
    rects = [scale.rect(a, b, finding.severity) for a, b in occurrences(finding)]
    if finding.excerpt is not None:
        rects.append(scale.rect(finding.excerpt.start_us, finding.excerpt.end_us, "drawn"))
    return _row(f"{number}. {finding.pattern}", rects, href=f"#finding-{number}")


def _row(label: str, rects: Iterable[str], href: str = "") -> str:
    inside = f'<span class="label">{text(label, 80)}</span>{svg("strip", rects)}'
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


def _scores(report: Report, scale: _Scale) -> list[str]:
    columns = thinned(report.windows)
    if not columns:
        return []
    labels = ("cpu score", "gpu score") if has_device(report) else ("host score", "compute score")
    cpu = [
        scale.rect(w.start_us, w.end_us, "cpu", opacity=w.cpu_score)
        for w in columns
        if w.cpu_score >= _LEAST_SCORE
    ]
    gpu = [
        scale.rect(w.start_us, w.end_us, "gpu", opacity=w.gpu_score)
        for w in columns
        if w.gpu_score >= _LEAST_SCORE
    ]
    return [_row(label, rects) for label, rects in zip(labels, (cpu, gpu), strict=True)]


def thinned(windows: Sequence[WindowScore]) -> list[WindowScore]:
    """The windows in at most ``_MOST_COLUMNS`` columns, each as suspicious as its worst window."""
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


# --- the chart of steps ------------------------------------------------------------------------


def steps(report: Report) -> list[str]:
    """A bar for the length of each step, and a line at their median."""
    lengths = [step.end_us - step.start_us for step in report.source.steps]
    if not report.analyzable or len(lengths) < 2 or max(lengths) <= 0:
        return []
    median = statistics.median(lengths)
    bars = _step_bars(report, max(lengths))
    line = _TALL * (1 - median / max(lengths))
    spread = f"{duration(min(lengths))} to {duration(max(lengths))}"
    return [
        '<section aria-label="steps">',
        "<h2>Steps</h2>",
        f'<p class="soft">{len(lengths):,} steps, median {duration(median)} (the line), '
        f"{spread}; colors as in the bar of all time</p>",
        f'<svg class="steps" viewBox="0 0 {WIDTH:.0f} {_TALL:.0f}" preserveAspectRatio="none" '
        f'role="img" aria-label="length of each step, {spread}">',
        *bars,
        f'<rect class="median" x="0" y="{line:.1f}" width="{WIDTH:.0f}" height="1"/>',
        "</svg>",
        "</section>",
    ]


def _step_bars(report: Report, longest: float) -> list[str]:
    """One bar a step; of a group of steps that share one, the longest."""
    all_steps = report.source.steps
    group = -(-len(all_steps) // _MOST_STEPS)
    parts = [all_steps[i : i + group] for i in range(0, len(all_steps), group)]
    wide = WIDTH / len(parts)
    bars = []
    for i, part in enumerate(parts):
        step = max(part, key=lambda s: s.end_us - s.start_us)
        length = step.end_us - step.start_us
        title = f"<title>{text(step.name, 80)}: {duration(length)}</title>"
        top = _TALL
        for kind, us in _pieces(report, all_steps.index(step), length):
            tall = _TALL * us / longest
            top -= tall
            bars.append(
                f'<rect class="{kind}" x="{(i + 0.05) * wide:.1f}" y="{top:.1f}" '
                f'width="{0.9 * wide:.1f}" height="{tall:.1f}">{title}</rect>'
            )
    return bars


def _pieces(report: Report, step: int, length: float) -> list[tuple[str, float]]:
    """A step's time by group of the ledger; in one piece where the report does not say."""
    by_group: dict[str, float] = {}
    for row in report.ledger:
        if step < len(row.by_step_us):
            kind = color(row.group)
            by_group[kind] = by_group.get(kind, 0.0) + max(row.by_step_us[step], 0.0)
    return list(by_group.items()) or [("step", length)]
