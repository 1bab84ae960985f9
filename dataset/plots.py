"""The pictures of the README: a timeline strip of each pattern, and counts of a built benchmark.

    python -m dataset.plots [BENCHMARK]

Strips are drawn from traces of this project alone, recorded on a device where there is one and
simulated otherwise. Counts need a finished benchmark.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dataset import labels
from dataset.labels import Label, LabelRegion
from dataset.pictures import strip
from dataset.simulate import TooFaint, simulate, workloads_for
from dataset.splits import MAIN, PARTS
from detector import kineto
from detector.activity import Activity
from detector.lab.comparison.plots import save
from detector.patterns import IDS
from detector.trace import NS_PER_US, Trace
from detector.window import analyzed_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE: Final = Path(__file__).resolve().parent
OUT: Final = HERE / "pictures"
RECORDED: Final = HERE / "recorded" / "cuda"
DEVICE: Final = "A100"  # of the simulated examples
SEEDS: Final = range(1, 20)
WIDTH, HEIGHT, DPI = 13.0, 2.9, 80  # inches, of one strip
ORIGINS: Final = {
    "recorded": "#1f77b4",
    "injected": "#ff7f0e",
    "simulated": "#9aa0a6",
    "natural": "#2ca02c",
}


@dataclass(frozen=True)
class Example:
    """A pattern in a trace of ours."""

    pattern: str
    trace: Trace
    regions: tuple[LabelRegion, ...]
    title: str


def examples(scratch: Path) -> list[Example]:
    """One of each pattern that this project's traces show, in the order of the taxonomy."""
    recorded = {}
    if RECORDED.is_dir():
        recorded = {label.patterns: (path, label) for path, label in labels.labeled(RECORDED)}
    found = []
    for pattern in IDS:
        path, label = recorded.get((pattern,)) or _simulated(pattern, scratch) or (None, None)
        if path is not None and label is not None:
            found.append(_example(pattern, path, label))
    return found


def _simulated(pattern: str, scratch: Path) -> tuple[Path, Label] | None:
    for seed in SEEDS:
        for workload in workloads_for(pattern):
            try:
                content, label = simulate(pattern, workload, DEVICE, seed)
            except TooFaint:
                continue
            if label.patterns == (pattern,):
                path = scratch / f"{pattern}.json"
                path.write_bytes(msgspec.json.encode(content))
                return path, label
    return None


def _example(pattern: str, path: Path, label: Label) -> Example:
    title = f"{pattern}: {label.workload}, {label.device} ({label.origin})"
    return Example(pattern, kineto.read(path), label.regions, title)


def step_of(example: Example) -> tuple[float, float]:
    """[start, end) µs of the step that holds most of the example's pattern."""
    steps = analyzed_time(example.trace).steps
    spans = [(s.start / NS_PER_US, s.end / NS_PER_US) for s in steps]
    mine = [r for r in example.regions if r.pattern == example.pattern]

    def covered(span: tuple[float, float]) -> float:
        return sum(max(min(r.end_us, span[1]) - max(r.start_us, span[0]), 0.0) for r in mine)

    if not spans:
        return min(r.start_us for r in mine), max(r.end_us for r in mine)
    return max(spans, key=covered)


def strips(found: Sequence[Example], out: Path) -> list[Path]:
    """A picture for each group of patterns, a strip each."""
    groups: dict[str, list[Example]] = defaultdict(list)
    for example in found:
        groups[example.pattern.split("-")[0]].append(example)
    return [_strips(mine, out / f"{group}.png") for group, mine in groups.items()]


def _strips(found: Sequence[Example], path: Path) -> Path:
    figure = _figure(HEIGHT * len(found))
    for i, example in enumerate(found):
        height = 1 / len(found)
        place = (0.125, 1 - (i + 1) * height + 0.13 * height, 0.865, 0.72 * height)
        axes = figure.add_axes(place)
        strip(axes, Activity(example.trace), example.regions, step_of(example))
        axes.set_title(example.title, fontsize=9, loc="left", pad=11)
    return save(figure, path)


def counts(traces: Sequence[Mapping[str, Any]], out: Path) -> Path:
    """Traces by pattern, device and part, each bar by origin."""
    patterns = [(p, t["origin"]) for t in traces for p in t["patterns"] or ["none"]]
    figure = _figure(10.0)
    left = figure.add_axes((0.2, 0.06, 0.28, 0.9))
    _bars(left, patterns, [*IDS, "none"], "by pattern")
    devices = [(t["device"], t["origin"]) for t in traces]
    usual = [name for name, _ in Counter(name for name, _ in devices).most_common()]
    _bars(figure.add_axes((0.72, 0.36, 0.26, 0.6)), devices, usual, "by device")
    parts = [(t[MAIN], t["origin"]) for t in traces]
    _bars(figure.add_axes((0.72, 0.06, 0.26, 0.22)), parts, PARTS, "by part")
    left.legend(loc="center right", fontsize=8, frameon=False)
    return save(figure, out / "counts.png")


def _bars(axes: Any, pairs: Sequence[tuple[str, str]], names: Sequence[str], title: str) -> None:
    """A bar for each name, its origins side by side."""
    count, start = Counter(pairs), [0] * len(names)
    for origin, color in ORIGINS.items():
        lengths = [count[name, origin] for name in names]
        axes.barh(range(len(names)), lengths, left=start, color=color, label=origin)
        start = [a + b for a, b in zip(start, lengths, strict=True)]
    axes.set_yticks(range(len(names)), names, fontsize=7.5)
    axes.invert_yaxis()
    axes.tick_params(axis="x", labelsize=7.5)
    axes.set_title(f"traces {title}", fontsize=9, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _figure(height: float) -> Figure:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), dpi=DPI)


def main() -> None:
    """Entry point."""
    with tempfile.TemporaryDirectory() as scratch:
        made = strips(examples(Path(scratch)), OUT)
    if len(sys.argv) > 1:
        manifest = json.loads((Path(sys.argv[1]) / "manifest.json").read_text())
        made.append(counts(manifest["traces"], OUT))
    for path in made:
        print(f"{path.relative_to(HERE.parent)} {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
