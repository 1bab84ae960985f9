"""Writes docs/images/patterns/: for a pattern with a recorded pair a step before and after.

    python scripts/pattern_pictures.py

From the CPU recordings in dataset/recorded: of each pattern the pair whose step gains most, of
those in which the scan sees it. Both steps have one scale; red and the shade are what the scan
counts as the pattern. `pattern_pages.py` shows them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout whose pages are made, installed or not

from dataset import labels  # noqa: E402  the path first
from detector import kineto  # noqa: E402
from detector.analysis import Analysis, analyze  # noqa: E402
from detector.patterns import BY_ID, Pattern  # noqa: E402
from scripts.panels import document, panel, typical_step  # noqa: E402

RECORDED = ROOT / "dataset" / "recorded" / "cpu"
FOLDER = ROOT / "docs" / "images" / "patterns"


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
    step = typical_step(before.analyzed, found)
    if not len(found) or step is None:
        return None
    healed = pattern.occurrences(after.signals)
    twin = typical_step(after.analyzed, healed) or typical_step(after.analyzed)
    assert twin is not None  # a recording has steps
    if found.within(*step).spans.measure <= 2 * healed.within(*twin).spans.measure:
        return None
    longest = max(step[1] - step[0], twin[1] - twin[0])
    first, y = panel("before", before, step, found, longest, 0)
    second, height = panel("after", after, twin, healed, longest, y + 8)
    return document([*first, *second], height)


if __name__ == "__main__":
    main()
