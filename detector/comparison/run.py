"""Train every flagger on each split, measure, and write it down."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.comparison import extras, figures, page, plots, regions
from detector.comparison.ablations import plans
from detector.comparison.labelled import Labelled
from detector.comparison.scored import Scored
from detector.errors import DetectorError
from detector.experiment import table
from detector.features import COLUMNS
from detector.flagger import Flagger, Scores
from detector.flagger.lightgbm import HEADS
from detector.flagger.baselines import BASELINES, NAMES, rival
from detector.flagger.training import INSIDE, SIDES, Training, fit, limits_of, matrix
from detector.taxonomy import CLASSES

if TYPE_CHECKING:
    import pandas as pd

OURS: Final = "LightGBM"
# Beside the page in ``out``: the plots, and what the scripts and a person add to the page.
BESIDE: Final = "results"
EVERYTHING: Final = ("train", "validation", "test", "natural", "excluded")
LEARNT: Final = ("train", "validation")
# What is measured: the name of the test, the split scheme, its part.
TESTS: Final = (
    ("in distribution", "split", "test"),
    ("unseen device", "unseen_device", "test"),
    ("unseen workload", "unseen_workload", "test"),
    ("unseen origin: recorded", "unseen_recorded", "test"),
    ("unseen origin: injected", "unseen_injected", "test"),
    ("natural", "unseen_natural", "test"),
)


class Trees:
    """LightGBM's heads, as trained here, behind the flagger's contract.

    ``columns``: the features that it may see; ``heads``: those to train, without the classes' head
    all classes are equally likely.
    """

    name = OURS

    def __init__(
        self,
        frame: pd.DataFrame,
        settings: Training,
        columns: Sequence[str] = COLUMNS,
        heads: Sequence[str] = HEADS,
    ):
        self.threshold = dict.fromkeys(SIDES, 0.0)  # each window is asked for its class
        self._heads = fit(frame, settings, heads, columns)

    def score(self, matrix: Any) -> Scores:
        """See ``Flagger``."""
        seen = self._heads.seen(matrix)
        cpu, gpu = (self._heads.raw(side, seen).astype(np.float32) for side in SIDES)
        return Scores(cpu, gpu, self._heads.classes(seen, np.ones(len(seen), np.bool_)))

    def drivers(self, matrix: Any, side: str) -> list[tuple[str, ...]]:
        """Not asked for here."""
        return [()] * len(matrix)

    def contributions(self, matrix: Any, side: str) -> Any:
        """Each feature's part in the raw scores (SHAP values, log odds), [windows, COLUMNS]."""
        whole = np.zeros((len(matrix), len(COLUMNS)))
        places = [COLUMNS.index(column) for column in self._heads.columns]
        whole[:, places] = self._heads.contributions(side, self._heads.seen(matrix))
        return whole


@dataclass(frozen=True)
class ComparisonExperiment:
    """``rivals``: names of ``detector.flagger.baselines``; ``tests``: names of ``TESTS``;
    ``page_only``: write the page anew from what ``out`` holds."""

    settings: Training = field(default_factory=Training)
    rivals: tuple[str, ...] = NAMES
    tests: tuple[str, ...] = tuple(name for name, *_ in TESTS)
    ablations: bool = True
    page_only: bool = False

    def train(self, data: Path, out: Path) -> list[str]:
        """There is nothing to ship."""
        raise DetectorError("experiment=comparison has nothing to train: use detector.evaluate")

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """All tests; writes ``comparison.json``, ``RESULTS.md`` and its plots into ``out``."""
        extras.read(out / BESIDE)  # what does not fit shall be said before an hour of training
        if not self.page_only:
            self._measure(data, out)
        text = page.render(_kept(out / "comparison.json"), extras.read(out / BESIDE))
        (out / "RESULTS.md").write_text(text)
        return [*text.splitlines(), f"-> {out / 'RESULTS.md'}"]

    def _measure(self, data: Path, out: Path) -> None:
        windows, parts = windows_of(data)
        labels = labels_of(data)
        results: dict[str, Any] = {"windows": len(windows), "tests": {}}
        results["traces"] = windows["trace"].nunique()
        (out / BESIDE).mkdir(parents=True, exist_ok=True)
        for name, scheme, part in TESTS:
            if name not in self.tests or scheme not in parts:
                continue
            split = windows["trace"].map(parts[scheme])
            if not (split == part).any() or not (split == "train").any():
                continue
            found, scored = self._test(windows, split, part, labels)
            if name == "in distribution" and self.ablations:
                found["ablations"] = self._ablations(windows, split, part)
            results["tests"][name] = found
            found["plots"] = _drawn(name, found, scored, out)
            plots.bars(results["tests"], out / BESIDE / "tests.png")
            (out / "comparison.json").write_text(json.dumps(_plain(results), indent=1) + "\n")

    def _test(
        self, windows: pd.DataFrame, split: pd.Series[str], part: str, labels: Labelled | None
    ) -> tuple[dict[str, Any], dict[str, Scored]]:
        learnt, test = windows[split.isin(LEARNT)], windows[split == part]
        found: dict[str, Any] = {
            "train traces": learnt["trace"].nunique(),
            "test traces": test["trace"].nunique(),
            "test windows": len(test),
            "flaggers": {},
        }
        scored: dict[str, Scored] = {}
        for name, make in self._flaggers(learnt).items():
            begun = time.perf_counter()
            flagger = make()
            fitted = time.perf_counter()
            scored[name] = scored_by(flagger, test, labels)
            figure = {
                "fit_s": fitted - begun,
                "us_per_window": 1e6 * (time.perf_counter() - fitted) / max(1, len(test)),
                "windows": {s: figures.window_figures(scored[name], s) for s in SIDES},
            }
            if name == OURS:
                limits = limits_of(learnt, self.settings)
                figure |= {
                    "thresholds": limits,
                    "regions": regions.region_figures(scored[name], limits),
                    "extent": {s: figures.by_extent(scored[name], s) for s in SIDES},
                    "patterns": figures.by_pattern(scored[name]),
                }
            found["flaggers"][name] = figure
        found["margin"] = {s: _margin(scored, found["flaggers"], s) for s in SIDES}
        return found, scored

    def _flaggers(self, train: pd.DataFrame) -> dict[str, Callable[[], Flagger]]:
        seed = self.settings.seed
        made: dict[str, Callable[[], Flagger]] = {OURS: lambda: Trees(train, self.settings)}
        for name in self.rivals:
            made[name] = lambda name=name: rival(name)(train, seed)  # type: ignore[misc]
        return made

    def _ablations(
        self, windows: pd.DataFrame, split: pd.Series[str], part: str
    ) -> dict[str, dict[str, Any]]:
        """Without a kind of feature, an origin, or some of the data; window AUC by side."""
        learnt, test = windows[split.isin(LEARNT)], windows[split == part]
        found = {}
        for name, (rows, columns) in plans(learnt, self.settings.seed).items():
            if rows["cpu"].max() >= INSIDE and rows["gpu"].max() >= INSIDE:
                scored = scored_by(Trees(rows, self.settings, columns, SIDES), test)
                found[name] = {s: figures.window_figures(scored, s).get("AUC") for s in SIDES}
        return found


def windows_of(data: Path) -> tuple[pd.DataFrame, dict[str, dict[str, str]]]:
    """All windows by trace and time, and by scheme the part of each trace."""
    windows, traces = table(data, "windows", EVERYTHING), table(data, "traces", EVERYTHING)
    windows = windows.merge(traces[["trace", "extent"]], on="trace", how="left")
    windows = windows.sort_values(["trace", "start_us"], kind="stable").reset_index(drop=True)
    schemes = [c for c in traces.columns if c == "split" or c.startswith("unseen_")]
    return windows, {s: dict(zip(traces["trace"], traces[s], strict=True)) for s in schemes}


def labels_of(data: Path) -> Labelled | None:
    """All labels of the benchmark; None where it has no table of them."""
    try:
        return Labelled(table(data, "regions", EVERYTHING))
    except DetectorError:
        return None


def scored_by(flagger: Flagger, frame: pd.DataFrame, labels: Labelled | None = None) -> Scored:
    """Each trace on its own, as a scan would."""
    rows = matrix(frame)
    if isinstance(flagger, Trees):
        return Scored(frame.reset_index(drop=True), flagger.score(rows), labels)
    breaks = np.flatnonzero((frame["trace"] != frame["trace"].shift()).to_numpy())[1:]
    parts = [flagger.score(part) for part in np.split(rows, breaks)]
    joined = Scores(
        np.concatenate([p.cpu for p in parts]),
        np.concatenate([p.gpu for p in parts]),
        np.concatenate([p.classes for p in parts]).reshape(-1, len(CLASSES)),
    )
    return Scored(frame.reset_index(drop=True), joined, labels)


def _drawn(
    name: str, found: dict[str, Any], scored: dict[str, Scored], out: Path
) -> dict[str, str]:
    """The plots of a test, by what they show; paths relative to the page."""
    slug = "-".join(name.replace(":", "").split())
    made = {"curves": f"{BESIDE}/curves-{slug}.png", "confusion": f"{BESIDE}/classes-{slug}.png"}
    plots.curves(name, scored, out / made["curves"])
    pairs = found["flaggers"][OURS]["regions"]["confusion"]
    if not plots.confusion(name, pairs, out / made["confusion"]):
        del made["confusion"]
    return made


def _kept(file: Path) -> dict[str, Any]:
    """What was measured before. Raises DetectorError."""
    try:
        kept: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise DetectorError(f"{file}: no comparison to write a page of ({error})") from error
    return kept


def _margin(scored: dict[str, Scored], found: dict[str, Any], side: str) -> dict[str, Any] | None:
    """Over the best of the baselines on this side."""
    level = {
        name: found[name]["windows"][side]["AUC"].value
        for name in scored
        if name in BASELINES and found[name]["windows"][side]
    }
    if not level:
        return None
    best = max(level, key=lambda name: level[name])
    return {"over": best, "by": figures.margin(scored[OURS], scored[best], side)}


def _plain(value: Any) -> Any:
    """For JSON: dataclasses as objects, undefined numbers as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (float, np.floating)):
        return None if np.isnan(value) else round(float(value), 5)
    return int(value) if isinstance(value, np.integer) else value
