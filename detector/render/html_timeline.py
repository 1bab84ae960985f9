"""The timeline of a finding's place: a canvas for the script, its data, and the same in words."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from detector.render.clean import clean
from detector.render.html_text import text
from detector.report import Finding, Report
from detector.report.events import Excerpt, ExcerptTrack
from detector.units import duration, plural

_MOST_ROWS = 12  # of the table of events at fault
_TOOLS = (
    ("in", "+", "Zoom in"),
    ("out", "−", "Zoom out"),
    ("left", "◀", "Move left"),
    ("right", "▶", "Move right"),
    ("all", "All", "Show the whole excerpt"),
    ("previous", "‹ fault", "Previous event at fault"),
    ("next", "fault ›", "Next event at fault"),
)
_HINT = (
    "Point at or tap an event for its name and time. Keys: the arrows move, + and − zoom, "
    "0 shows all, n and p go to the next and the previous event at fault."
)


def figure(report: Report, finding: Finding, number: int) -> list[str]:
    """The timeline of a finding, as it is numbered. Empty where the report holds no events."""
    excerpt = finding.excerpt
    if excerpt is None or not excerpt.tracks:
        return []
    label = f"Timeline of finding {number}: threads and streams, events at fault marked"
    return [
        f'<figure class="timeline" data-finding="{number}">',
        '<div class="tools" hidden>',
        *(_button(excerpt, *tool) for tool in _TOOLS),
        "</div>",
        f'<div class="plot"><canvas tabindex="0" role="application" aria-label="{label}"></canvas>'
        '<div class="bubble" aria-hidden="true" hidden></div></div>',
        f'<p class="tip soft" aria-live="polite" data-rest="{text(_HINT, 400)}">'
        "The timeline is drawn by the page's own script.</p>",
        f'<figcaption class="soft">{text(_caption(report, excerpt), 600)}</figcaption>',
        *_faults(excerpt),
        "</figure>",
    ]


def _button(excerpt: Excerpt, act: str, sign: str, label: str) -> str:
    if act in ("next", "previous") and not any(track.at_fault for track in excerpt.tracks):
        return ""
    return f'<button type="button" data-act="{act}" aria-label="{label}">{sign}</button>'


def _caption(report: Report, excerpt: Excerpt) -> str:
    """Which time is shown, what is marked, and what was left out."""
    zero = report.source.span_us[0]
    length, place = excerpt.end_us - excerpt.start_us, excerpt.place_us[1] - excerpt.place_us[0]
    parts = [f"{duration(length)} from {duration(excerpt.start_us - zero)} into the trace"]
    if place > 1.1 * length:
        parts.append(f"the part of {duration(place)} with the most occurrences")
    drawn = sum(len(track.start_us) for track in excerpt.tracks)
    shown = sum(sum(track.count) for track in excerpt.tracks)
    if shown > drawn:
        parts.append(f"{plural(shown, 'event')} in {drawn:,} bars: pale bars join short events")
    if excerpt.hidden > 0:
        parts.append(f"{excerpt.hidden:,} events of deeper calls and other tracks are not drawn")
    return "; ".join([*parts, "shaded: where the pattern occurs; red and underlined: at fault"])


def _faults(excerpt: Excerpt) -> list[str]:
    """The longest events at fault as a table, for readers and paper."""
    rows = [
        (track.dur_us[i], track, i)
        for track in excerpt.tracks
        for i in track.at_fault
        if i < len(track.dur_us)
    ]
    if not rows:
        return []
    rows.sort(key=lambda row: -row[0])
    more = f", the longest {_MOST_ROWS}" if len(rows) > _MOST_ROWS else ""
    return [
        f"<details><summary>Events at fault in this place ({len(rows)}{more})</summary>",
        '<div class="wide" tabindex="0" role="region" aria-label="events at fault">',
        '<table class="events">',
        '<tr><th scope="col">event</th><th scope="col">start</th><th scope="col">time</th>'
        '<th scope="col">on</th></tr>',
        *(_fault(excerpt, track, i) for _, track, i in rows[:_MOST_ROWS]),
        "</table></div>",
        "</details>",
    ]


def _fault(excerpt: Excerpt, track: ExcerptTrack, i: int) -> str:
    name = _name(excerpt, track.name[i])
    if track.count[i] > 1:
        name = f"{track.count[i]:,} short events, the longest {name}"
    return (
        f"<tr><td>{text(name)}</td><td>{_at(track.start_us[i])}</td>"
        f"<td>{duration(track.busy_us[i])}</td><td>{text(track.label, 80)}</td></tr>"
    )


def _at(us: float) -> str:
    """A time from the start of the excerpt."""
    return duration(us) if us < 0 else f"+{duration(us)}"


def _name(excerpt: Excerpt, index: int) -> str:
    return excerpt.names[index] if 0 <= index < len(excerpt.names) else ""


def data(findings: Sequence[Finding]) -> dict[int, object]:
    """What the script draws, by the number of the finding."""
    return {
        number: _drawn(finding.excerpt)
        for number, finding in enumerate(findings, 1)
        if finding.excerpt is not None and finding.excerpt.tracks
    }


def _drawn(excerpt: Excerpt) -> dict[str, object]:
    return {
        "length": excerpt.end_us - excerpt.start_us,
        "names": [clean(name, 120) for name in excerpt.names],
        "spans": excerpt.spans_us,
        "tracks": [
            {**msgspec.to_builtins(track), "label": clean(track.label, 80)}
            for track in excerpt.tracks
        ],
    }
