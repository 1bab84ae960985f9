"""What a report says of communication: collectives by kind and size, and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from detector.render.clean import clean
from detector.render.html_text import WIDTH, rect, strip
from detector.report import Report
from detector.report.job import Gradients, JobTraffic
from detector.units import plural, size

HEADING = "Communication profile"
MOST = 6  # rows on a terminal
LISTED = 20  # rows on a page


def rows(report: Report) -> Sequence[JobTraffic]:
    """The traffic of all ranks of a job, else of the one rank; the most bytes first."""
    if report.job is not None:
        return report.job.traffic
    return report.communication.traffic if report.communication else ()


def row(t: JobTraffic) -> str:
    """One line of the profile."""
    words = [
        f"{t.calls:,} × {t.op}",
        f"{size(t.bytes)} each" if t.bytes >= 0 else "",
        t.dtype,
        f"group {t.group} of {t.group_size}" if t.group_size else "",
        f"{t.dimension} parallel" if t.dimension else "",
        f"{t.algorithm} {t.protocol}".strip(),
        _bandwidth(t.bus_gbs, t.best_bus_gbs),
    ]
    return clean(", ".join(word for word in words if word))


def gradients(report: Report) -> str:
    """What a step reduces beside the model's own gradients; empty where it is not known."""
    g = report.communication.gradients if report.communication else None
    return _gradients(g) if g else ""


def _gradients(g: Gradients) -> str:
    own = f"{size(g.model_bytes)} of gradients"
    if g.model_elements >= 0:
        own = f"{g.model_elements:,} parameters ({size(g.model_bytes)})"
    text = (
        f"Each step reduces {g.reduced_elements:,.0f} elements ({size(g.reduced_bytes)}) on a rank,"
        f" {g.times:.2f} × the model's {own}"
    )
    if g.times >= 1.5:
        text += f": gradients are reduced {g.times:.0f} times a step"
    return text


def lines(report: Report) -> list[str]:
    """For a terminal; none without a collective."""
    listed = rows(report)
    found = [*filter(None, [gradients(report)]), *map(row, listed[:MOST])]
    more = len(listed) - MOST
    return [*found, f"and {plural(more, 'more kind')}"] if more > 0 else found


def html(report: Report) -> list[str]:
    """The section of the page, folded."""
    listed = rows(report)
    if not listed:
        return []
    said = gradients(report)
    return [
        f"<details><summary>{HEADING}</summary>",
        *([f"<p>{escape(said)}</p>"] if said else []),
        "<ul>",
        *(f"<li>{escape(row(t))}</li>" for t in listed[:LISTED]),
        "</ul>",
        *_histogram(listed),
        "</details>",
    ]


def _histogram(listed: Sequence[JobTraffic]) -> list[str]:
    """Calls by size: powers of two."""
    counts: dict[int, int] = {}
    for t in listed:
        if t.bytes > 0:
            power = t.bytes.bit_length() - 1
            counts[power] = counts.get(power, 0) + t.calls
    most = max(counts.values(), default=1)
    head = ["<h3>Calls by size of the message</h3>"] if counts else []
    return head + [
        strip(
            f"from {size(1 << power)}: {counts[power]:,}",
            rect(0, WIDTH * counts[power] / most, "g-busy"),
        )
        for power in sorted(counts)
    ]


def _bandwidth(gbs: float, best: float) -> str:
    """Of its kind, beside the best of the same size where that is another."""
    if not gbs:
        return ""
    return f"{gbs:.1f} GB/s" + (f" (best {best:.1f})" if best > 1.01 * gbs else "")
