"""Train every flagger on each split, measure, and write it down."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.comparison import figures, page
from detector.comparison.scored import Scored
from detector.errors import DetectorError
from detector.experiment import table
from detector.features import COLUMNS, VARIANTS
from detector.flagger import Flagger, Scores
from detector.flagger.lightgbm import HEADS
from detector.flagger.rivals import BASELINES, NAMES, rival
from detector.flagger.training import SIDES, Training, fit, matrix
from detector.taxonomy import CLASSES

if TYPE_CHECKING:
    import pandas as pd

OURS: Final = "LightGBM"
EVERYTHING: Final = ("train", "validation", "test", "natural", "excluded")
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
    """LightGBM's heads, as trained here, behind the flagger's contract."""

    name = OURS

    def __init__(self, frame: pd.DataFrame, settings: Training, columns: Sequence[str] = COLUMNS):
        self.threshold = dict.fromkeys(SIDES, 0.5)
        self._hidden = np.array([c not in set(columns) for c in COLUMNS])
        shown = frame.copy(deep=False)
        if self._hidden.any():
            shown[[c for c in COLUMNS if c not in set(columns)]] = np.float32(0)
        self._heads = fit(shown, settings)

    def score(self, matrix: Any) -> Scores:
        """See ``Flagger``."""
        seen = np.where(self._hidden, np.float32(0), matrix) if self._hidden.any() else matrix
        return Scores(*(np.asarray(self._heads[h].predict(seen), np.float32) for h in HEADS))

    def drivers(self, matrix: Any, side: str) -> list[tuple[str, ...]]:
        """Not asked for here."""
        return [()] * len(matrix)


@dataclass(frozen=True)
class ComparisonExperiment:
    """``rivals``: names of ``detector.flagger.rivals``; ``tests``: names of ``TESTS``."""

    settings: Training = field(default_factory=Training)
    rivals: tuple[str, ...] = NAMES
    tests: tuple[str, ...] = tuple(name for name, *_ in TESTS)
    ablations: bool = True

    def train(self, data: Path, out: Path) -> list[str]:
        """There is nothing to ship."""
        raise DetectorError("experiment=comparison has nothing to train: use detector.evaluate")

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """All tests; writes ``comparison.json`` and ``RESULTS.md`` into ``out``."""
        windows, parts = windows_of(data)
        results: dict[str, Any] = {"windows": len(windows), "tests": {}}
        results["traces"] = windows["trace"].nunique()
        out.mkdir(parents=True, exist_ok=True)
        for name, scheme, part in TESTS:
            if name not in self.tests or scheme not in parts:
                continue
            split = windows["trace"].map(parts[scheme])
            if not (split == part).any() or not (split == "train").any():
                continue
            found = self._test(windows, split, part)
            if name == "in distribution" and self.ablations:
                found["ablations"] = self._ablations(windows, split, part)
            results["tests"][name] = found
            (out / "comparison.json").write_text(json.dumps(_plain(results), indent=1) + "\n")
        text = page.render(_plain(results))
        (out / "RESULTS.md").write_text(text)
        return [*text.splitlines(), f"-> {out / 'RESULTS.md'}"]

    def _test(self, windows: pd.DataFrame, split: pd.Series[str], part: str) -> dict[str, Any]:
        train, valid, test = (windows[split == p] for p in ("train", "validation", part))
        valid = valid if len(valid) else train
        found: dict[str, Any] = {
            "train traces": train["trace"].nunique(),
            "test traces": test["trace"].nunique(),
            "test windows": len(test),
            "flaggers": {},
        }
        scored: dict[str, Scored] = {}
        for name, make in self._flaggers(train).items():
            begun = time.perf_counter()
            flagger = make()
            fitted = time.perf_counter()
            scored[name] = _score(flagger, test)
            figure = {
                "fit_s": fitted - begun,
                "us_per_window": 1e6 * (time.perf_counter() - fitted) / max(1, len(test)),
                "windows": {s: figures.window_figures(scored[name], s) for s in SIDES},
            }
            if name == OURS:
                limits = figures.thresholds(_score(flagger, valid))
                figure |= {
                    "thresholds": limits,
                    "regions": figures.region_figures(scored[name], limits),
                    "extent": {s: figures.by_extent(scored[name], s) for s in SIDES},
                    "patterns": figures.by_pattern(scored[name]),
                }
            found["flaggers"][name] = figure
        found["margin"] = {s: _margin(scored, found["flaggers"], s) for s in SIDES}
        return found

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
        train, test = windows[split == "train"], windows[split == part]
        plans: dict[str, tuple[pd.DataFrame, Sequence[str]]] = {}
        for suffix in VARIANTS:
            mine = [c for c in COLUMNS if _variant(c) == suffix]
            plans[f"only {suffix or 'plain values'}"] = train, mine
            plans[f"without {suffix or 'plain values'}"] = (
                train,
                [c for c in COLUMNS if c not in set(mine)],
            )
        for origin in sorted(train["origin"].unique()):
            plans[f"only {origin} traces"] = train[train["origin"] == origin], COLUMNS
            plans[f"without {origin} traces"] = train[train["origin"] != origin], COLUMNS
        names = train["trace"].unique()
        order = np.random.default_rng(self.settings.seed).permutation(len(names))
        for share in (0.1, 0.3):
            kept = set(names[order[: int(share * len(names))]])
            plans[f"{share:.0%} of the traces"] = train[train["trace"].isin(kept)], COLUMNS
        found = {}
        for name, (rows, columns) in plans.items():
            if rows["cpu"].max() >= 0.1 and rows["gpu"].max() >= 0.1:
                scored = _score(Trees(rows, self.settings, columns), test)
                found[name] = {s: figures.window_figures(scored, s).get("AUC") for s in SIDES}
        return found


def _variant(column: str) -> str:
    return "@" + column.split("@")[1] if "@" in column else ""


def windows_of(data: Path) -> tuple[pd.DataFrame, dict[str, dict[str, str]]]:
    """All windows by trace and time, and by scheme the part of each trace."""
    windows, traces = table(data, "windows", EVERYTHING), table(data, "traces", EVERYTHING)
    windows = windows.merge(traces[["trace", "extent"]], on="trace", how="left")
    windows = windows.sort_values(["trace", "start_us"], kind="stable").reset_index(drop=True)
    schemes = [c for c in traces.columns if c == "split" or c.startswith("unseen_")]
    return windows, {s: dict(zip(traces["trace"], traces[s], strict=True)) for s in schemes}


def _score(flagger: Flagger, frame: pd.DataFrame) -> Scored:
    """Each trace on its own, as a scan would."""
    rows = matrix(frame)
    if isinstance(flagger, Trees):
        return Scored(frame.reset_index(drop=True), flagger.score(rows))
    breaks = np.flatnonzero((frame["trace"] != frame["trace"].shift()).to_numpy())[1:]
    parts = [flagger.score(part) for part in np.split(rows, breaks)]
    joined = Scores(
        np.concatenate([p.cpu for p in parts]),
        np.concatenate([p.gpu for p in parts]),
        np.concatenate([p.classes for p in parts]).reshape(-1, len(CLASSES)),
    )
    return Scored(frame.reset_index(drop=True), joined)


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
