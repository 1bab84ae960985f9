"""Writes docs/images/patterns/: for a pattern with a recorded pair a step before and after.

    python scripts/pattern_pictures.py

From the CPU recordings in dataset/recorded: of each pattern the pair whose step gains most, of
those in which the scan sees it. Both steps have one scale; red and the shade are what the scan
counts as the pattern. `pattern_pages.py` shows them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from html import escape
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout whose pages are made, installed or not

from dataset import labels  # noqa: E402  the path first
from detector import kineto  # noqa: E402
from detector.analysis import Analysis, analyze  # noqa: E402
from detector.evidence import excerpt  # noqa: E402
from detector.patterns import BY_ID, Occurrences, Pattern  # noqa: E402
from detector.render.clean import clean  # noqa: E402
from detector.render.units import duration  # noqa: E402

RECORDED = ROOT / "dataset" / "recorded" / "cpu"
FOLDER = ROOT / "docs" / "images" / "patterns"
WIDTH, ROW, DEEPEST = 860, 15, 7
LEAST = 1.5  # px: what is narrower is not drawn
LETTER = 6.1  # px of a character

Step = tuple[int, int]


def main() -> None:
    """Every pattern that has a pair."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    pairs: dict[str, list[tuple[Path, labels.Label]]] = defaultdict(list)
    for file in sorted(RECORDED.glob("*.json.gz")):
        label = labels.read(labels.label_path(file))
        pairs[label.pair].append((file, label))
    known: dict[str, list[tuple[float, Path, Path]]] = defaultdict(list)
    for members in pairs.values():
        healthy = [(file, label) for file, label in members if not label.regions]
        for file, label in members:
            patterns = {region.pattern for region in label.regions if not region.harmless}
            if len(patterns) != 1 or not healthy:
                continue
            twin, after = healthy[0]
            gain = 1 - after.step_us / label.step_us
            (pattern,) = patterns
            known[pattern].append((gain, file, twin))
    for pattern, tried in sorted(known.items()):
        (FOLDER / f"{pattern}.svg").unlink(missing_ok=True)
        for gain, file, twin in sorted(tried, reverse=True):
            made = picture(BY_ID[pattern], analyze(kineto.read(file)), analyze(kineto.read(twin)))
            if made is not None:
                (FOLDER / f"{pattern}.svg").write_text(made, "utf-8")
                print(f"{pattern}: {file.name}, {gain:.0%}, {len(made) / 1e3:.1f} kB")
                break
        else:
            print(f"{pattern}: not seen in any of {len(tried)} recordings")


def picture(pattern: Pattern, before: Analysis, after: Analysis) -> str | None:
    """Both steps below each other; None where the scan sees nothing of the pattern, or not twice
    as much as in the step after."""
    found = pattern.occurrences(before.signals)
    step = _typical(before, found)
    if not len(found) or step is None:
        return None
    healed = pattern.occurrences(after.signals)
    twin = _typical(after, healed) or _median(after)
    if found.within(*step).spans.measure <= 2 * healed.within(*twin).spans.measure:
        return None
    longest = max(step[1] - step[0], twin[1] - twin[0])
    first, y = _panel("before", before, step, found, longest, 0)
    second, height = _panel("after", after, twin, healed, longest, y + 8)
    style = "font: 11px system-ui, sans-serif"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" style="{style}">',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *first,
            *second,
            "</svg>\n",
        ]
    )


def _typical(analysis: Analysis, found: Occurrences) -> Step | None:
    """Of the steps with the pattern the one of median length."""
    steps = [s for s in analysis.analyzed.steps if len(found.within(s.start, s.end))]
    ranked = sorted(steps, key=lambda s: s.end - s.start)
    return (ranked[len(ranked) // 2].start, ranked[len(ranked) // 2].end) if ranked else None


def _median(analysis: Analysis) -> Step:
    ranked = sorted(analysis.analyzed.steps, key=lambda s: s.end - s.start)
    return ranked[len(ranked) // 2].start, ranked[len(ranked) // 2].end


def _panel(
    name: str, analysis: Analysis, step: Step, found: Occurrences, longest: int, top: int
) -> tuple[list[str], int]:
    """A step's thread as bars, and where it ends."""
    start, end = step
    shown = excerpt.excerpt(analysis.activity, analysis.analyzed, step, found)
    title = f"{name}: a step of {duration((end - start) / 1e3)}"
    lines = [f'<text x="2" y="{top + 13}" font-weight="bold" fill="#1c1e21">{title}</text>']
    top += 19
    strip = shown.strips[0]
    deepest = 0
    for i in np.flatnonzero(strip.depth < DEEPEST).tolist():
        left = max((int(strip.start[i]) - start) / longest * WIDTH, 0.0)
        right = min((int(strip.end[i]) - start) / longest * WIDTH, (end - start) / longest * WIDTH)
        if right - left < LEAST:
            continue
        deepest = max(deepest, int(strip.depth[i]))
        fault = bool(strip.at_fault[i])
        colours = ("#c62f26", "#fff") if fault else ("#a9c3e6", "#14202e")
        pale = ' fill-opacity=".55"' if strip.count[i] > 1 and not fault else ""
        y = top + int(strip.depth[i]) * ROW
        lines.append(
            f'<rect x="{left:.1f}" y="{y}" width="{right - left - 0.4:.1f}" height="{ROW - 1}" '
            f'fill="{colours[0]}"{pale}/>'
        )
        label = clean(excerpt.label_of(analysis.trace, int(strip.row[i])))
        if strip.count[i] > 1:
            label = f"{strip.count[i]} events"
        room = int((right - left - 6) / LETTER)
        if room >= 4:
            text = label if len(label) <= room else label[: room - 1] + "…"
            lines.append(
                f'<text x="{left + 3:.1f}" y="{y + 11}" fill="{colours[1]}">{escape(text)}</text>'
            )
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
                f'height="{height}" fill="#c62f26" fill-opacity=".13"/>'
            )
    return shades


if __name__ == "__main__":
    main()
