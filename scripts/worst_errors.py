"""The flagger's worst errors on traces that it never saw, as pictures and as a table of numbers.

    python scripts/worst_errors.py FOLDER OUT [--misses 6] [--alarms 4] [--rounds 200]

FOLDER is a built benchmark. For each test the flagger is trained on that scheme's training part,
its thresholds are set on the validation part, and the test part is scored. Misses: labelled
patterns of a trace none of whose windows reaches the threshold, by how far they stay below it times
the share of the trace that they take. Alarms: told regions in healthy traces, by how far above it.
At most one of each trace and of each pattern. OUT gets a picture each, `errors.json` and
`errors.md`.

Pictures of injected and natural traces are made from traces of others: do not publish them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from dataset.labels import Label, LabelRegion  # noqa: E402  the path first
from dataset.pictures import strip  # noqa: E402
from detector.analysis import Analysis, analyze  # noqa: E402
from detector.features import COLUMNS  # noqa: E402
from detector.features.savings import SAVED  # noqa: E402
from detector.lab.comparison.benchmark import windows_of  # noqa: E402
from detector.lab.comparison.contenders import Trees, scores_of  # noqa: E402
from detector.lab.comparison.plots import save  # noqa: E402
from detector.lab.comparison.scored import Scored  # noqa: E402
from detector.lab.comparison.thresholds import flags  # noqa: E402
from detector.lab.scoring import Truth, read_truths  # noqa: E402
from detector.lab.scoring.truth import intervals  # noqa: E402
from detector.lab.training import SIDES, Training, limits_of, matrix  # noqa: E402
from detector.patterns import BY_ID, IDS  # noqa: E402
from detector.taxonomy import NONE  # noqa: E402
from detector.trace import NS_PER_US  # noqa: E402
from detector.window import AnalyzedTime  # noqa: E402
from scripts.scanned import Case, cases  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What is looked at: the test's name, the split scheme, its part.
TESTS = (
    ("test part", "split", "test"),
    ("unseen device", "unseen_device", "test"),
    ("unseen workload", "unseen_workload", "test"),
)
LEARNT = ("train", "validation")
OWN = ("recorded", "simulated")  # origins of which pictures may be published
SPOKE = 3  # features named for each error
COLOURS = {"cpu": "#1f77b4", "gpu": "#2f8f4e"}
SIZE, DPI = (16.0, 7.0), 80


@dataclass(frozen=True)
class Error:
    """A labelled pattern missed in a trace, or a healthy place told to hold one.

    ``start_us`` and ``end_us`` are those of its highest window, ``share`` of the trace's windowed
    time. ``spoke``: the features that spoke most against the truth there, with their value and
    their part in the raw score (log odds). ``saved``: the share of the analyzed time that repairing
    the pattern saves by the core, 0 where it is no candidate.
    """

    test: str
    kind: str  # "miss", "alarm"
    trace: str
    side: str
    pattern: str
    row: int  # of the test's windows: the one with the highest score
    start_us: float
    end_us: float
    share: float
    score: float
    threshold: float
    thresholds: tuple[float, float]
    places: tuple[tuple[float, float], ...] = ()
    spoke: tuple[tuple[str, float, float], ...] = ()
    origin: str = ""
    workload: str = ""
    device: str = ""
    extent: str = ""
    saved: float = 0.0
    picture: str = ""

    @property
    def weight(self) -> float:
        """How bad it is, among those of its kind."""
        if self.kind == "miss":
            return (1 - self.score / self.threshold) * self.share
        return (self.score - self.threshold) / (1 - self.threshold)


# -- finding them ----------------------------------------------------------------------------------


def misses(
    test: str, scored: Scored, limits: dict[str, float], truths: Mapping[str, Truth]
) -> Iterator[Error]:
    """Labelled patterns without a window that reaches the threshold of their side."""
    for name, rows in scored.frame.groupby("trace").indices.items():
        start, end = _edges(scored, rows)
        for problem in truths[str(name)].problems:
            side = problem.side
            covered = intervals(problem.spans_us).covered(start, end)
            mine = rows[(covered >= 0.1 * (end - start)) & scored.truth(side)[rows]]
            if not len(mine) or scored.side(side)[mine].max() >= limits[side]:
                continue
            share = float(covered.sum() / max(1, (end - start).sum()))
            places = problem.spans_us
            yield _error(test, "miss", scored, side, problem.pattern, mine, limits, share, places)


def alarms(test: str, scored: Scored, limits: dict[str, float]) -> Iterator[Error]:
    """Predicted regions in traces that somebody vouches for."""
    healthy = scored.frame["healthy"].to_numpy(bool)
    whole = (
        scored.frame.groupby("trace")["end_us"].max()
        - scored.frame.groupby("trace")["start_us"].min()
    )
    for side in SIDES:
        for run in scored.predicted(side):
            if healthy[run.first]:
                rows = np.arange(run.first, run.last + 1)
                share = (run.end - run.start) / whole[scored.trace_of(run)]
                named = largest(scored, side, rows)
                place = [(run.start, run.end)]
                yield _error(test, "alarm", scored, side, named, rows, limits, share, place)


def largest(scored: Scored, side: str, rows: Any) -> str:
    """The pattern of a side whose repair saves most of some windows, "none" where none saves."""
    mine = [column for column, pattern in SAVED.items() if BY_ID[pattern].side == side]
    saved = np.nan_to_num(scored.frame.iloc[rows][mine].to_numpy(np.float64)).mean(axis=0)
    return SAVED[mine[int(saved.argmax())]] if saved.max(initial=0.0) > 0 else NONE


def _error(
    test: str,
    kind: str,
    scored: Scored,
    side: str,
    pattern: str,
    rows: Any,
    limits: dict[str, float],
    share: float,
    places: Sequence[tuple[float, float]],
) -> Error:
    row = int(rows[np.argmax(scored.side(side)[rows])])
    about = scored.frame.iloc[row]
    return Error(
        test,
        kind,
        str(about["trace"]),
        side,
        pattern,
        row,
        float(about["start_us"]),
        float(about["end_us"]),
        float(share),
        float(scored.side(side)[row]),
        limits[side],
        (limits["cpu"], limits["gpu"]),
        tuple(places),
        (),
        *(str(about[key]) for key in ("origin", "workload", "device", "extent")),
    )


def _edges(scored: Scored, rows: Any) -> tuple[Any, Any]:
    """Of windows, ns."""
    times = (scored.frame[key].to_numpy()[rows] for key in ("start_us", "end_us"))
    start, end = ((values * NS_PER_US).round().astype(np.int64) for values in times)
    return start, end


def worst(found: Iterable[Error], most: int) -> list[Error]:
    """The worst of one kind, one for each trace and each pattern."""
    kept: list[Error] = []
    for error in sorted(found, key=lambda e: (-e.weight, e.trace)):
        if len(kept) < most and not any(
            error.trace == k.trace or error.pattern == k.pattern for k in kept
        ):
            kept.append(error)
    return kept


def spoken(error: Error, trees: Trees, scored: Scored) -> Error:
    """The error with the features that spoke most against the truth."""
    rows = matrix(scored.frame.iloc[[error.row]])
    part = trees.contributions(rows, error.side)[0]
    order = np.argsort(part if error.kind == "miss" else -part)[:SPOKE]
    told = ((COLUMNS[i], float(rows[0, i]), float(part[i])) for i in order.tolist())
    return replace(error, spoke=tuple(told))


def errors_of(
    test: str, scheme: str, part: str, data: Any, settings: Training, most: tuple[int, int]
) -> list[tuple[Error, Scored]]:
    """The worst of a test, with the scores of its windows."""
    windows, parts, truths = data
    split = windows["trace"].map(parts[scheme])
    learnt = windows[split.isin(LEARNT)]
    trees, limits = Trees(learnt, settings), limits_of(learnt, settings)
    frame = windows[split == part].reset_index(drop=True)
    scores = scores_of(trees, frame)
    scored = Scored(frame, scores, flags(scores, limits))
    found = worst(misses(test, scored, limits, truths), most[0])
    found += worst(alarms(test, scored, limits), most[1])
    return [(spoken(error, trees, scored), scored) for error in found]


# -- showing them ----------------------------------------------------------------------------------


def show(error: Error, scored: Scored, case: Case, out: Path, number: int) -> Error:
    """Draw an error; returns it with its picture and what the core saves by it."""
    from matplotlib.figure import Figure

    analysis, label = analyze(case.read()), case.label
    span = span_of(error, analysis.analyzed)
    shown = label if error.kind == "miss" else _told(label, error)
    figure = Figure(figsize=SIZE, dpi=DPI)
    upper = figure.add_axes((0.125, 0.33, 0.855, 0.6))
    strip(upper, analysis.activity, shown.regions, span)
    lower = figure.add_axes((0.125, 0.06, 0.855, 0.2))
    _scores(lower, scored, error, span)
    figure.text(0.005, 0.97, headline(number, error), fontsize=10)
    path = out / f"{number:02d}-{error.kind}-{error.pattern}.png"
    save(figure, path)
    return replace(error, picture=path.name, saved=saved(analysis, error.pattern))


def saved(analysis: Analysis, pattern: str) -> float:
    """The share of the analyzed time that repairing a candidate saves; 0 where it is none."""
    return next((c.share for c in analysis.candidates.found if c.pattern.id == pattern), 0.0)


def _told(label: Label, error: Error) -> Label:
    """What was told, in place of labels that a healthy trace has none of."""
    side: Any = error.side
    told = tuple(LabelRegion(*place, error.pattern, side) for place in error.places)
    return replace(label, regions=(*label.regions, *told))


def span_of(error: Error, analyzed: AnalyzedTime) -> tuple[float, float]:
    """What a picture shows, µs: the step of the error and its neighbours, else all."""
    steps = [(s.start / NS_PER_US, s.end / NS_PER_US) for s in analyzed.steps]
    at = [i for i, (a, b) in enumerate(steps) if a < error.end_us and b > error.start_us]
    if not at:
        return analyzed.start / NS_PER_US, analyzed.end / NS_PER_US
    return steps[max(at[0] - 1, 0)][0], steps[min(at[-1] + 1, len(steps) - 1)][1]


def _scores(axes: Axes, scored: Scored, error: Error, span: tuple[float, float]) -> None:
    """Window scores of both sides with their thresholds, on the strip's axis."""
    mine = np.flatnonzero((scored.frame["trace"] == error.trace).to_numpy())
    start, end = (scored.frame[k].to_numpy()[mine] for k in ("start_us", "end_us"))
    length = span[1] - span[0]
    x = np.stack([start, end], axis=1).ravel()
    for side, limit in zip(SIDES, error.thresholds, strict=True):
        y = np.repeat(scored.side(side)[mine], 2)
        axes.plot((x - span[0]) / length, y, color=COLOURS[side], lw=1.3, label=f"{side} score")
        axes.axhline(limit, color=COLOURS[side], lw=0.8, ls="--")
    for a, b in error.places:
        axes.axvspan((a - span[0]) / length, (b - span[0]) / length, color="#d62728", alpha=0.08)
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xticks([])
    axes.set_ylabel("window score", fontsize=8)
    axes.legend(fontsize=7, loc="upper right", frameon=False)


def headline(number: int, error: Error) -> str:
    """What an error is, in one line."""
    what = "missed" if error.kind == "miss" else "false alarm"
    return (
        f"{number}. {what}: {error.pattern} ({error.side}) in {error.workload}, {error.device}, "
        f"{error.origin}; {error.test}; score {error.score:.2f}, threshold {error.threshold:.2f}"
    )


def markdown(found: Sequence[Error]) -> str:
    """The table."""
    heads = ["", "test", "kind", "pattern", "device", "workload", "origin", "extent", "share"]
    heads += ["score", "threshold", "saved", "spoke most against the truth (value, log odds)"]
    rows = [heads, ["---"] * len(heads)]
    for number, e in enumerate(found, 1):
        spoke = "; ".join(f"{name} ({value:.3g}, {part:+.2f})" for name, value, part in e.spoke)
        rows.append(
            [str(number), e.test, e.kind, f"{e.pattern} ({e.side})", e.device, e.workload]
            + [e.origin, e.extent or "–", f"{e.share:.0%}", f"{e.score:.3f}"]
            + [f"{e.threshold:.3f}", f"{e.saved:.1%}", spoke]
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Find, draw, and write them down."""
    parser = argparse.ArgumentParser(description="The flagger's worst errors.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--misses", type=int, default=6)
    parser.add_argument("--alarms", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    settings = Training(seed=given.seed, rounds=given.rounds)
    data = (*windows_of(given.folder), read_truths(given.folder))
    # of each test more than wanted, as the worst of one may be that of another too
    most = given.misses + len(IDS), given.alarms + len(IDS)
    tests = [test for test in TESTS if test[1] in data[1]]
    found = [pair for test in tests for pair in errors_of(*test, data, settings, most)]
    scores = {id(error): scored for error, scored in found}
    given.out.mkdir(parents=True, exist_ok=True)
    kept = worst([e for e, _ in found if e.kind == "miss"], given.misses)
    kept += worst([e for e, _ in found if e.kind == "alarm"], given.alarms)
    names = {e.trace for e in kept}
    files = {c.name: c for c in cases(given.folder, lambda row: row["name"] in names)}
    kept = [show(e, scores[id(e)], files[e.trace], given.out, i) for i, e in enumerate(kept, 1)]
    rows = [asdict(e) | {"publish": e.origin in OWN} for e in kept]
    (given.out / "errors.json").write_text(json.dumps(rows, indent=1) + "\n")
    (given.out / "errors.md").write_text(markdown(kept))
    print(markdown(kept), end="")


if __name__ == "__main__":
    main()
