"""Parts of the SVG pictures of recorded traces in the documents: a step's thread as bars."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from detector.analysis import Analysis
from detector.evidence import excerpt
from detector.patterns import Occurrences
from detector.render.clean import clean
from detector.units import duration
from detector.window import AnalyzedTime

WIDTH, ROW, DEEPEST = 860, 15, 7
LEAST = 1.5  # px: what is narrower is not drawn
LETTER = 6.1  # px of a character
INK, FAULT, USUAL = "#1c1e21", "#c62f26", "#a9c3e6"

Step = tuple[int, int]


def document(lines: Sequence[str], height: int) -> str:
    """A whole picture."""
    style = "font: 11px system-ui, sans-serif"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" style="{style}">',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *lines,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, color: str = INK, bold: bool = False) -> str:
    """A line of words; ``y`` of their feet."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y}"{weight} fill="{color}">{escape(clean(words))}</text>'


def bar(x: float, y: int, width: float, color: str, words: str = "", ink: str = INK) -> list[str]:
    """A bar with as much of the words as it has room for."""
    lines = [f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" fill="{color}"/>']
    room = int((width - 6) / LETTER)
    if words and room >= 4:
        shown = words if len(words) <= room else words[: room - 1] + "…"
        lines.append(text(x + 3, y + 11, shown, ink))
    return lines


def typical_step(analyzed: AnalyzedTime, found: Occurrences | None = None) -> Step | None:
    """Of the steps (with occurrences, where given) the one of median length; None without any."""
    steps = [s for s in analyzed.steps if found is None or len(found.within(s.start, s.end))]
    ranked = sorted(steps, key=lambda s: s.end - s.start)
    return (ranked[len(ranked) // 2].start, ranked[len(ranked) // 2].end) if ranked else None


def panel(
    name: str, analysis: Analysis, step: Step, found: Occurrences, longest: int, top: int
) -> tuple[list[str], int]:
    """A step's thread as bars, with the pattern's events red and its time shaded, and where it
    ends. ``longest``: ns that the whole width stands for."""
    start, end = step
    shown = excerpt.excerpt(analysis.activity, analysis.analyzed, step, found)
    lines = [text(2, top + 13, f"{name}: a step of {duration((end - start) / 1e3)}", bold=True)]
    top += 19
    track, deepest = shown.tracks[0], 0
    scale, offset = WIDTH * 1e3 / longest, shown.start_us - start / 1e3
    bars = zip(track.start_us, track.dur_us, track.depth, track.name, track.count, strict=True)
    for i, (begin, dur, depth, called, count) in enumerate(bars):
        left = max((begin + offset) * scale, 0.0)
        right = min((begin + dur + offset) * scale, (end - start) / longest * WIDTH)
        is_fault = i in track.at_fault
        if depth >= DEEPEST or right - left < LEAST:
            continue
        deepest = max(deepest, depth)
        color, ink = (FAULT, "#fff") if is_fault else (USUAL, "#14202e")
        label = f"{count} events" if count > 1 else clean(shown.names[called])
        drawn = bar(left, top + depth * ROW, right - left - 0.4, color, label, ink)
        if count > 1 and not is_fault:
            drawn[0] = drawn[0].replace("/>", ' fill-opacity=".55"/>')
        lines += drawn
    height = (deepest + 1) * ROW
    return [*lines, *_shades(found.within(start, end), step, longest, top, height)], top + height


def _shades(found: Occurrences, step: Step, longest: int, top: int, height: int) -> list[str]:
    """The time of occurrences, where it is wide enough to be seen: of gaps all there is."""
    shades = []
    for left, end in zip(found.spans.start.tolist(), found.spans.end.tolist(), strict=True):
        width = (min(end, step[1]) - left) / longest * WIDTH
        if width >= LEAST:
            shades.append(
                f'<rect x="{(left - step[0]) / longest * WIDTH:.1f}" y="{top}" width="{width:.1f}" '
                f'height="{height}" fill="{FAULT}" fill-opacity=".13"/>'
            )
    return shades
