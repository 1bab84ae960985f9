"""A trace's timeline as one strip: what the host did, what the device did, and what is wrong.

    draw(trace, regions, out="strip.png")

One lane a thread's level or a device stream. Every pixel column of a lane shows how much of its
time is covered, so a trace of a million events draws as quickly, and as truly, as one of ten;
neighbors alternate in shade. Calls that make the host wait are red, however short they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from dataset.labels import UNKNOWN, LabelRegion
from dataset.lanes import Lane, lanes
from detector.activity import Activity
from detector.intervals import Intervals
from detector.trace import NS_PER_US, Int64, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Color = str
Image = npt.NDArray[np.float64]

PIXELS: Final = (1600, 500)
DPI: Final = 100
COLUMNS: Final = 1400  # pixel columns of the plot itself
LETTER: Final = 0.0047  # share of the strip that one letter takes

COLORS: Final[dict[str, tuple[Color, Color]]] = {  # two shades, for neighbors
    "loader": ("#e0a800", "#c79500"),
    "python": ("#c9b79c", "#ddd0bb"),
    "annotation": ("#7fb7a6", "#a3cdc0"),
    "op": ("#3b6fb6", "#6f9bd3"),
    "inner op": ("#8fb3e0", "#b5cdec"),
    "launch": ("#5b6770", "#8a959d"),
    "copy call": ("#f0903c", "#f5ad6b"),
    "alloc": ("#d146b5", "#de78c9"),
    "sync": ("#e2001a", "#e2001a"),
    "compute": ("#2f8f4e", "#67b380"),
    "copy": ("#f0903c", "#f5ad6b"),
    "collective": ("#7a3fb0", "#9d6ccb"),
    "memset": ("#9aa0a6", "#b9bec3"),
}
DARK: Final = frozenset(("op", "launch", "alloc", "sync", "compute", "collective"))
PATTERN_COLORS: Final = (
    *("#d62728", "#1f77b4", "#ff7f0e", "#9467bd", "#17becf"),
    *("#8c564b", "#e377c2", "#2ca02c", "#bcbd22", "#393b79"),
)
UNKNOWN_COLOR: Final = "#8d8d8d"
LABEL_HEIGHT: Final = 0.7
LEAST: Final = 0.25  # so dark at least is a column in which anything happens
LEAST_SYNC: Final = 0.8


def draw(
    trace: Trace,
    regions: Iterable[LabelRegion],
    span: tuple[float, float] | None = None,
    out: str | Path = "strip.png",
    title: str = "",
) -> Path:
    """Draw ``span`` (µs on the file's axis; all of the trace without one) as a PNG, 1600 x 500.

    Raises ValueError for an empty span.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PIXELS[0] / DPI, PIXELS[1] / DPI), dpi=DPI)
    axes = figure.add_axes((0.125, 0.085, 0.855, 0.83))
    kinds = strip(axes, Activity(trace), tuple(regions), span)
    figure.text(0.005, 0.965, title, fontsize=9)
    _legend(figure, kinds)
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def strip(
    axes: Axes,
    activity: Activity,
    regions: Sequence[LabelRegion],
    span: tuple[float, float] | None = None,
) -> list[str]:
    """Draw one strip into ``axes``: labels on top, then the host's lanes, then the device's.

    Returns the kinds of ``COLORS`` that it shows.
    """
    start, end = _ns(activity.trace, span)
    seen = [r for r in regions if r.end_us * NS_PER_US > start and r.start_us * NS_PER_US < end]
    colors = pattern_colors(seen)
    drawn = [lane for lane in lanes(activity, start, end) if lane.layers]
    ticks = _label_lanes(axes, seen, colors, (start, end))
    top, edges = LABEL_HEIGHT * len(ticks), {}
    for is_device in (False, True):
        first = top
        for lane in (lane for lane in drawn if lane.is_device == is_device):
            _paint(axes, lane, top, (start, end))
            ticks.append((top + lane.height / 2, lane.title))
            top += lane.height
        edges[is_device] = (first, top)
    _shade(axes, seen, colors, edges, (start, end))
    _steps(axes, activity, (start, end))
    _finish(axes, ticks, top, (end - start) / 1e6)
    shown = {layer.kind for lane in drawn for layer in lane.layers}
    return [kind for kind in COLORS if kind in shown]


def _ns(trace: Trace, span: tuple[float, float] | None) -> tuple[int, int]:
    if span is not None:
        start, end = (round(t * NS_PER_US) for t in span)
    elif len(trace):
        start, end = int(trace.start.min()), int(trace.end.max())
    else:
        start = end = 0
    if end <= start:
        raise ValueError(f"{trace.source.path}: nothing to draw in {span or 'an empty trace'}")
    return start, end


def pattern_colors(regions: Iterable[LabelRegion]) -> dict[str, Color]:
    """A color for each pattern, in order of first appearance; unknown is gray."""
    patterns = enumerate(_patterns(regions))
    found = {p: PATTERN_COLORS[i % len(PATTERN_COLORS)] for i, p in patterns}
    return {**found, UNKNOWN: UNKNOWN_COLOR}


def _patterns(regions: Iterable[LabelRegion]) -> list[str]:
    """The distinct patterns, in order of first appearance, the unknown last."""
    return sorted(dict.fromkeys(r.pattern for r in regions), key=lambda p: p == UNKNOWN)


# -- painting --------------------------------------------------------------------------------------


def _paint(axes: Axes, lane: Lane, top: float, span: tuple[int, int]) -> None:
    start, end = span
    extent = (0.0, 1.0, top + lane.height * 0.95, top + lane.height * 0.05)
    axes.imshow(picture(lane, start, end), extent=extent, aspect="auto", interpolation="nearest")
    for word in lane.words:
        a, b = _share(word.start, span), _share(word.end, span)
        text = word.text[: int((b - a) / LETTER)]
        color = "white" if word.kind in DARK else "black"
        place = (a + 0.002, top + lane.height / 2)
        axes.text(*place, text, fontsize=6.5, va="center", color=color, clip_on=True)


def picture(lane: Lane, start: int, end: int, columns: int = COLUMNS) -> Image:
    """One row of RGB pixels: each column mixes the colors by the time that they cover."""
    edges = np.linspace(start, end, columns + 1).round().astype(np.int64)
    pixels = np.full((1, columns, 3), 0.965)
    for layer in lane.layers:
        order = np.argsort(layer.start, kind="stable")
        first, last = layer.start[order], layer.end[order]
        shades = [_covered(first[i::2], last[i::2], edges) for i in (0, 1)]
        all_of_it = _covered(first, last, edges)
        least = LEAST_SYNC if layer.kind == "sync" else LEAST
        strength = np.where(all_of_it > 0, np.maximum(all_of_it, least), 0.0)
        second = shades[1] / np.maximum(shades[0] + shades[1], 1e-12)
        dark, light = (np.array(_rgb(color)) for color in COLORS[layer.kind])
        color = dark * (1 - second[:, None]) + light * second[:, None]
        pixels[0] = pixels[0] * (1 - strength[:, None]) + color * strength[:, None]
    return pixels


def _covered(start: Int64, end: Int64, edges: Int64) -> Image:
    """The covered share of each column; an event without length counts as 1 ns."""
    spans = Intervals.union(start, np.maximum(end, start + 1))
    share: Image = spans.covered(edges[:-1], edges[1:]) / np.maximum(np.diff(edges), 1)
    return share


def _rgb(color: Color) -> tuple[float, ...]:
    return tuple(int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))


def _share(t: float, span: tuple[int, int]) -> float:
    """Where on the strip, 0 to 1, an instant (ns) lies; outside ones lie on the edge."""
    return min(max((t - span[0]) / (span[1] - span[0]), 0.0), 1.0)


def _label_lanes(
    axes: Axes, regions: Sequence[LabelRegion], colors: dict[str, Color], span: tuple[int, int]
) -> list[tuple[float, str]]:
    """Each pattern's regions as solid bars in a lane of its own; returns the lanes' ticks."""
    ticks = []
    for i, pattern in enumerate(_patterns(regions)):
        ends = [_ends(r, span) for r in regions if r.pattern == pattern]
        bars = [(a, max(b - a, 1 / COLUMNS)) for a, b in ends]
        place = ((i + 0.12) * LABEL_HEIGHT, 0.7 * LABEL_HEIGHT)
        axes.broken_barh(bars, place, facecolors=colors[pattern], linewidth=0)
        ticks.append(((i + 0.5) * LABEL_HEIGHT, pattern))
    return ticks


def _ends(region: LabelRegion, span: tuple[int, int]) -> tuple[float, float]:
    """Where on the strip a region begins and ends."""
    return _share(region.start_us * NS_PER_US, span), _share(region.end_us * NS_PER_US, span)


def _shade(
    axes: Axes,
    regions: Sequence[LabelRegion],
    colors: dict[str, Color],
    edges: dict[bool, tuple[float, float]],
    span: tuple[int, int],
) -> None:
    """Tint the lanes of the side on which each region acts."""
    for region in regions:
        low, high = edges[region.side == "gpu"]
        color = colors[region.pattern]
        axes.fill_between(_ends(region, span), low, high, color=color, alpha=0.1, lw=0)


def _steps(axes: Axes, activity: Activity, span: tuple[int, int]) -> None:
    """A line where each step begins and ends, its name above."""
    for step in activity.trace.steps:
        for t in (step.start, step.end):
            if span[0] <= t <= span[1]:
                axes.axvline(_share(t, span), color="black", lw=0.7, ls=(0, (4, 3)))
        if span[0] <= step.start <= span[1]:
            place = (_share(step.start, span) + 0.001, 1.005)  # just above the axes
            above = axes.get_xaxis_transform()
            axes.text(*place, step.name[:24], transform=above, fontsize=6.5, va="bottom")


def _finish(axes: Axes, ticks: list[tuple[float, str]], top: float, length_ms: float) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0, 1)
    axes.set_ylim(top, 0)
    axes.set_yticks([y for y, _ in ticks], [name for _, name in ticks], fontsize=7.5)
    at = [x for x in MaxNLocator(12).tick_values(0, length_ms) if 0 <= x <= length_ms]
    axes.set_xticks([x / length_ms for x in at], [f"{x:g} ms" for x in at], fontsize=8)
    axes.tick_params(length=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _legend(figure: Figure, kinds: Sequence[str]) -> None:
    """What the colors mean, in one line below the strip."""
    x = 0.125
    for kind in kinds:
        figure.text(x, 0.012, "■", fontsize=9, color=COLORS[kind][0])
        figure.text(x + 0.009, 0.014, kind, fontsize=7.5)
        x += 0.02 + 0.0045 * len(kind)
