"""Whether a repair saves what the core says: recorded faults beside their healthy twins.

    python scripts/pair_gains.py [FOLDER] [--parts train validation]

Of each faulty trace of FOLDER (dataset/recorded/cpu) the measured gain: the median step in which
the fault acts, less that of the healthy twin at one pace (`dataset.costs`). Beside it what the
core's candidate of that pattern states: its best figure, and the range that a report shows. All in
shares of a step in which the fault acts; counted are faults that cost 5 % of it and more.

A gain lies within a range as it is, or where the range is widened at both ends by the noise: what
two healthy recordings of one program differ by at one pace, in the median (`scripts/twin_noise.py`,
the same folder). Two yardsticks get the same: the range that one replay alone knows of (with all
others repaired ... alone), and [0, 2 x best], which says nothing. Widths are medians. The error is
the best figure less the gain, without its sign; the rank correlation is Spearman's. A fault without
a candidate has no range, and 0 as best figure. No model has a part in any of this.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from dataset import labels  # noqa: E402  the path first
from dataset.splits import PARTS, drawn  # noqa: E402
from dataset.units import recorded  # noqa: E402
from detector import kineto  # noqa: E402
from detector.analysis import analyze  # noqa: E402
from detector.candidates import Candidate  # noqa: E402
from scripts.twin_noise import FOLDER, distances  # noqa: E402

MEASURABLE = 0.05  # of the step
DEVELOPMENT = ("train", "validation")


@dataclass(frozen=True)
class Pair:
    """A fault beside its twin, in shares of a step in which it acts. ``rest`` to ``alone``: what
    replays say with all other candidates repaired, and with none; ``low`` to ``high``: as shown."""

    trace: str
    pattern: str
    gain: float
    of_trace: float  # the gain as a share of the analyzed time
    found: bool = False
    best: float = 0.0
    rest: float = 0.0
    alone: float = 0.0
    low: float = 0.0
    high: float = 0.0


def pairs(folder: str, parts: Sequence[str]) -> Iterator[Pair]:
    """The faulty recordings of these parts. Raises LabelError, TraceError."""
    for unit in recorded([folder]):
        label = labels.read(labels.label_path(unit.file))
        if label.quality == "good" or drawn(label.workload) not in parts:
            continue
        _, label = unit.make()
        analysis = analyze(kineto.read(unit.file))
        wall = analysis.analyzed.end - analysis.analyzed.start
        found = {c.pattern.id: c for c in analysis.candidates.found}
        for pattern, cost in label.parameters["costs"].items():
            whole_us = cost["steps"] * cost["step_us"]
            of_trace = 1e3 * cost["total_us"] / wall
            missed = Pair(unit.name, pattern, cost["total_us"] / whole_us, of_trace)
            yield _stated(missed, found.get(pattern), wall, 1e3 * whole_us)


def _stated(pair: Pair, one: Candidate | None, wall: int, whole_ns: float) -> Pair:
    """With what a candidate states of it."""
    if one is None:
        return pair
    best, rest, alone, low, high = (
        ns / whole_ns for ns in (one.best_ns, one.rest_ns, one.alone_ns, *one.likely_ns(wall))
    )
    return replace(pair, found=True, best=best, rest=rest, alone=alone, low=low, high=high)


# -- figures ---------------------------------------------------------------------------------------

Range = Callable[[Pair], tuple[float, float]]

RANGES: dict[str, Range] = {
    "as shown": lambda p: (p.low, p.high),
    "[all others repaired, alone]": lambda p: (p.rest, p.alone),
    "[0, 2 x best]": lambda p: (0.0, 2 * p.best),
}


def within(found: Iterable[Pair], of: Range, wider: float = 0.0) -> float:
    """The share whose gain lies in its range, ``wider`` at both ends."""
    return fmean(of(p)[0] - wider <= p.gain <= of(p)[1] + wider for p in found)


def width(found: Iterable[Pair], of: Range) -> float:
    """The median width."""
    return median(of(p)[1] - of(p)[0] for p in found)


def error(found: Iterable[Pair]) -> float:
    """The median of how far the best figure is off."""
    return median(abs(p.best - p.gain) for p in found)


def rank_correlation(found: Sequence[Pair]) -> float:
    """Spearman's, of best figure and gain; ties at their middle rank."""
    best, gain = (_ranks([getattr(p, name) for p in found]) for name in ("best", "gain"))
    return float(np.corrcoef(best, gain)[0, 1])


def _ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    found: npt.NDArray[np.float64] = (np.cumsum(count) - (count - 1) / 2)[place]
    return found


def lines(found: Sequence[Pair], noise: float) -> Iterator[str]:
    """What is printed: each pair, then the figures."""
    for p in sorted(found, key=lambda p: (p.pattern, p.trace)):
        said = f"{p.best:.3f} [{p.low:.3f}, {p.high:.3f}]" if p.found else "no candidate"
        yield f"{p.pattern} {p.trace}: gain {p.gain:.3f}, {said}"
    kept = [p for p in found if p.found]
    small = sum(p.of_trace < MEASURABLE for p in found if not p.found)
    missed = f"{len(found) - len(kept)} without a candidate"
    yield f"{len(found)} measurable faults, {missed}, {small} of these under 5 % of the trace"
    yield f"error {error(kept):.3f}, of all {error(found):.3f}"
    yield f"rank correlation {rank_correlation(kept):.2f}, of all {rank_correlation(found):.2f}"
    for name, of in RANGES.items():
        inside = (
            f"within {within(kept, of):.2f}, by {noise:.3f} wider {within(kept, of, noise):.2f}"
        )
        yield f"range {name}: {inside}, width {width(kept, of):.3f}"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description="Savings as stated and as measured.")
    parser.add_argument("folder", nargs="?", default=str(FOLDER.relative_to(ROOT)))
    parser.add_argument("--parts", nargs="+", default=list(DEVELOPMENT), choices=PARTS)
    given = parser.parse_args(words)
    noise = median(abs(paced) for _, _, paced in distances(ROOT / given.folder))
    found = [p for p in pairs(given.folder, given.parts) if p.gain >= MEASURABLE]
    print("\n".join(lines(found, noise)))


if __name__ == "__main__":
    main()
