"""A labeled trace as training rows: windows, candidates, and places with evidence.

Labels of windows are weak at the edges, so a window carries the share of it that a labeled
region covers, per side; what to do with a half-covered window is the trainer's choice. Beside it
stands the share in which nobody knows what is wrong (``unknown_cpu``, ``unknown_gpu``), or in which
a fault acts that costs next to nothing: there a window without another fault of that side is
neither healthy nor faulty. The label alone says where that is. What a model learns from
(features, text, numbers) never holds the trace's name, markers or anything else that names the
fault.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dataset.labels import UNKNOWN, Label, LabelError, LabelRegion
from detector import features, kineto
from detector.analysis import Analysis, analyze
from detector.evidence import Evidence, gather
from detector.evidence.text import as_text
from detector.features import candidate
from detector.findings import joined
from detector.intervals import Intervals
from detector.patterns import BY_ID, CLASSES
from detector.region import Region
from detector.taxonomy import NONE, Side
from detector.trace import NS_PER_US, Int64
from detector.window import AnalyzedTime, ByStep, Window

Windower = Callable[[AnalyzedTime], Sequence[Window]]
Shares = dict[Side, npt.NDArray[np.float64]]  # by side: the share of each window

SIDES: tuple[Side, ...] = ("cpu", "gpu")
COVERED = 0.1  # a window this far inside a labeled region belongs to it
FILLED = 0.5  # a step with so many faulty windows is faulty as a whole
WINDOWER: Windower = ByStep()  # as a scan cuts, by default
PER_PATTERN = 3  # evidence rows per pattern and trace: one trace must not fill the set
UNSUSPICIOUS = 3  # evidence rows per trace from places without a fault
TOKENS = 2_200  # of a text, by the rule of ``evidence.words``


@dataclass(frozen=True)
class Truth:
    """What the label says of each window. ``overlap``: by side float64[windows, classes]."""

    overlap: Shares
    covered: Shares
    unknown: Shares


@dataclass(frozen=True)
class Tables:
    """Rows of one trace: plain dicts for the tables. ``analyzed_us``: the time that a scan
    analyzes."""

    analyzed_us: float
    windows: list[dict[str, object]]
    matrix: npt.NDArray[np.float32]
    candidates: list[dict[str, object]]
    evidence: list[dict[str, object]]


def tables(
    trace_file: Path,
    label: Label,
    name: str,
    windower: Windower = WINDOWER,
    *,
    with_evidence: bool = True,
) -> Tables:
    """Read one labeled trace into rows. ``name`` identifies the trace within the benchmark.

    ``windower`` cuts the analyzed time. Evidence takes longer than the rest and may be left out.
    Raises TraceError, and LabelError where the label names a pattern that the taxonomy lacks.
    """
    if foreign := [p for p in label.patterns if p not in BY_ID]:
        raise LabelError(f"{trace_file}: labeled {foreign[0]!r}, which is no pattern")
    analysis = analyze(kineto.read(trace_file))
    analyzed = analysis.analyzed
    windows = windower(analyzed)
    truth = _truth(windows, label)
    about = {"trace": name, **_about(label)}
    rows = [about | _window(window, truth, i) for i, window in enumerate(windows)]
    chosen = _regions(windows, truth, zlib.crc32(name.encode())) if with_evidence else ()
    places = [(region, pattern) for region, pattern in chosen if pattern not in analysis.blind]
    gathered = gather(analysis.activity, analyzed, [region for region, _ in places])
    texts = [
        {**about, "pattern": pattern, "side": region.side, **_in_words(evidence)}
        for (region, pattern), evidence in zip(places, gathered, strict=True)
    ]
    analyzed_us = (analyzed.end - analyzed.start) / NS_PER_US
    matrix = features.extract(analysis, windows)
    found = [about | row for row in _candidates(analysis)]
    return Tables(analyzed_us, rows, matrix, found, texts)


def _about(label: Label) -> dict[str, object]:
    return {
        "origin": label.origin,
        "workload": label.workload,
        "device": label.device,
        "pair": label.pair,
        "quality": label.quality,
        "seed": label.seed,
    }


def _candidates(analysis: Analysis) -> Iterator[dict[str, object]]:
    """What the product would find before any model has spoken, as a scan places and sizes it."""
    numbers = candidate.matrix(analysis)
    for one, row in zip(analysis.candidates.found, numbers, strict=True):
        spans = joined(one, analysis.analyzed)
        yield {
            "pattern": one.pattern.id,
            "savings_us": one.best_ns / NS_PER_US,
            "starts_us": (spans.start / NS_PER_US).tolist(),
            "ends_us": (spans.end / NS_PER_US).tolist(),
            "numbers": row.tolist(),
        }


def _in_words(evidence: Evidence) -> dict[str, object]:
    """Without names of the profiled program, so that no model learns the names of programs."""
    visible = [c for c in CLASSES if c == NONE or c in evidence.visible]
    return {"text": as_text(evidence, TOKENS, user_names=False), "visible": visible}


def _window(window: Window, truth: Truth, i: int) -> dict[str, object]:
    return {
        "start_us": window.start / NS_PER_US,
        "end_us": window.end / NS_PER_US,
        **{side: float(truth.covered[side][i]) for side in SIDES},
        **{f"unknown_{side}": float(truth.unknown[side][i]) for side in SIDES},
        "pattern": _main_pattern(truth.overlap, i),
    }


def _truth(windows: Sequence[Window], label: Label) -> Truth:
    """Unknown is what the label says is unknown, and where a harmless fault acts."""
    shown = [r for r in label.regions if r.pattern != UNKNOWN and not r.harmless]
    rest = [r for r in label.regions if r.pattern == UNKNOWN or r.harmless]
    return Truth(
        {side: _overlaps(windows, shown, side) for side in SIDES},
        {side: _covered(windows, [r for r in shown if r.side == side]) for side in SIDES},
        {side: _covered(windows, [r for r in rest if r.side == side]) for side in SIDES},
    )


def _overlaps(
    windows: Sequence[Window], regions: Sequence[LabelRegion], side: Side
) -> npt.NDArray[np.float64]:
    """float64[windows, classes]: the share of each window that each pattern's regions cover."""
    shares = np.zeros((len(windows), len(CLASSES)))
    for pattern in {r.pattern for r in regions if r.side == side}:
        mine = [r for r in regions if r.pattern == pattern and r.side == side]
        shares[:, CLASSES.index(pattern)] = _covered(windows, mine)
    return shares


def _covered(windows: Sequence[Window], regions: Sequence[LabelRegion]) -> npt.NDArray[np.float64]:
    """float64[windows]: the share of each window that lies in any of these regions."""
    start = np.array([w.start for w in windows], np.int64)
    end = np.array([w.end for w in windows], np.int64)
    spans = Intervals.union(
        np.array([round(r.start_us * NS_PER_US) for r in regions], np.int64),
        np.array([round(r.end_us * NS_PER_US) for r in regions], np.int64),
    )
    return np.asarray(spans.covered(start, end) / np.maximum(end - start, 1))


def _main_pattern(overlap: Shares, i: int) -> str:
    both = overlap["cpu"][i] + overlap["gpu"][i]
    return CLASSES[int(np.argmax(both))] if both.max() >= COVERED else NONE


def _regions(windows: Sequence[Window], truth: Truth, seed: int) -> Iterator[tuple[Region, str]]:
    """Regions as a perfect flagger would cut them, whole steps that a fault fills, and healthy
    places of any length up to a step."""
    random = np.random.default_rng(seed)
    for side in SIDES:
        overlap = truth.overlap[side]
        for j in np.flatnonzero(overlap.max(axis=0, initial=0.0) >= COVERED):
            covered = np.flatnonzero(overlap[:, j] >= COVERED)
            runs = _some(_runs(windows, covered), PER_PATTERN, random)
            runs += _some(_filled_steps(windows, covered), PER_PATTERN - 1, random)
            for run in runs:
                yield _region(windows, run, side), CLASSES[j]
    taken = truth.covered["cpu"] + truth.covered["gpu"]
    clean = np.flatnonzero(taken + truth.unknown["cpu"] + truth.unknown["gpu"] == 0)
    for run in _some(_runs(windows, clean), UNSUSPICIOUS, random):
        first = int(random.integers(len(run)))
        length = int(random.integers(1, 9))
        side = SIDES[int(random.integers(2))]
        yield _region(windows, run[first : first + length], side), NONE


def _some(runs: list[Int64], most: int, random: np.random.Generator) -> list[Int64]:
    return [runs[k] for k in random.permutation(len(runs))[:most]]


def _filled_steps(windows: Sequence[Window], covered: Int64) -> list[Int64]:
    """All windows of each step of which at least ``FILLED`` are covered."""
    steps = np.array([_step(w) for w in windows])
    return [
        np.flatnonzero(steps == step)
        for step in np.unique(steps[covered])
        if step >= 0 and (steps[covered] == step).sum() >= FILLED * (steps == step).sum()
    ]


def _runs(windows: Sequence[Window], chosen: Int64) -> list[Int64]:
    """Neighboring windows of one step."""
    if not len(chosen):
        return []
    steps = np.array([_step(windows[i]) for i in chosen])
    cut = np.flatnonzero((np.diff(chosen) > 1) | (np.diff(steps) != 0)) + 1
    return np.split(chosen, cut)


def _step(window: Window) -> int:
    return -1 if window.step is None else window.step


def _region(windows: Sequence[Window], run: Int64, side: Side) -> Region:
    return Region(windows[int(run[0])].start, windows[int(run[-1])].end, 1.0, side)
