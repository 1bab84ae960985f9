"""How far two recordings of one healthy program are apart, as recorded and at the same pace.

    python scripts/twin_noise.py [FOLDER]

Of each pair in dataset/recorded/cpu the healthy runs whose steps do the same work (not those that
pause on purpose): the ratio of their median steps, then the same divided by `dataset.pace`. Both
should be 1; what is left is what a fault's measured cost is wrong by.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from dataset import labels  # noqa: E402  the path first
from dataset.labels import Label  # noqa: E402
from dataset.pace import own_times, pace  # noqa: E402

FOLDER = ROOT / "dataset" / "recorded" / "cpu"


def distances(folder: Path) -> Iterator[tuple[str, float, float]]:
    """The names of each two runs, and the logarithm of their steps' ratio, as recorded and at one
    pace."""
    pairs: dict[str, list[tuple[str, Label]]] = {}
    for trace, label in labels.labeled(folder):
        if label.quality == "good" and label.parameters.get("extra") != "pause":
            pairs.setdefault(label.pair, []).append((str(trace), label))
    for runs in pairs.values():
        for (file, label), (other, twin) in combinations(runs, 2):
            ratio, speed = label.step_us / twin.step_us, pace(own_times(file), own_times(other))
            names = f"{Path(file).name} {Path(other).name}"
            yield names, float(np.log(ratio)), float(np.log(ratio / speed))


def main() -> None:
    """A line for each two runs, and how far they are apart."""
    found = list(distances(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
    for names, raw, paced in found:
        print(f"{names}: {np.exp(raw):.2f}, {np.exp(paced):.2f}")
    for name, place in (("as recorded", 1), ("at one pace", 2)):
        errors = np.abs([row[place] for row in found])
        mean, median, most = np.mean(errors), np.median(errors), np.quantile(errors, 0.9)
        print(f"{name}: apart by {mean:.3f} on average, {median:.3f} median, {most:.3f} at 90 %")


if __name__ == "__main__":
    main()
