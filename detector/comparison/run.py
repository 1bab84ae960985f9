"""The one evaluation: every contender on programs that it never saw, and the page of it."""

from __future__ import annotations

import logging
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.comparison import ablations, benchmark, findings, page, product, scans, strangers
from detector.comparison.benchmark import GROUPS, Benchmark
from detector.comparison.contenders import OURS, ROWS, TODAY, Contenders, scores_of, space_of
from detector.comparison.figures import all_figures, by_pattern
from detector.comparison.folds import Fold, fewer, folds, known_programs
from detector.comparison.product import Recipe
from detector.comparison.resample import Drawn, Resamples
from detector.comparison.scored import Scored
from detector.comparison.strangers import Part, of_rows, together
from detector.comparison.thresholds import flags
from detector.comparison.tuning import Tuned, tune
from detector.errors import ConfigError, DetectorError
from detector.experiment.record import code
from detector.experiment.tables import PARTS, table
from detector.flagger.lightgbm import LightGBMFlagger
from detector.scoring import read_truths

if TYPE_CHECKING:
    import pandas as pd

LOG: Final = logging.getLogger(__name__)
FILE: Final = "strangers.json"
KNOWN: Final = 0.2  # share of the real traces that in-distribution figures are measured on


@dataclass(frozen=True)
class StrangersExperiment:
    """``rows``: names of ``contenders.ROWS``; ``folds``: groups of programs that are left out;
    ``trials``: settings tried for each row that has any; ``trial_windows``, ``ablation_windows``:
    that a trial, and a model of an ablation, learns from at most; ``train_windows``: any other;
    ``with_product``: train and scan with today's product, too; ``scanned``: the share of the
    injected traces that are scanned, untouched bases always; ``page_only``: write the pages anew
    from what ``out`` holds."""

    recipe: Recipe = field(default_factory=Recipe)
    rows: tuple[str, ...] = ROWS
    folds: int = 4
    trials: int = 20
    trial_windows: int = 10_000
    train_windows: int = 1_000_000
    ablations: bool = True
    ablation_windows: int = 20_000
    with_product: bool = True
    scanned: float = 1.0
    workers: int = 2
    page_only: bool = False

    def train(self, data: Path, out: Path) -> list[str]:
        """There is nothing to ship."""
        raise DetectorError("experiment=strangers has nothing to train: use detector.evaluate")

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """Everything; writes ``strangers.json``, ``RESULTS.md``, ``results/`` with the details and
        a line in the log of looks into ``out``. Raises ConfigError for a row of no such name."""
        if unknown := set(self.rows) - set(ROWS):
            raise ConfigError(f"rows: no {', '.join(sorted(unknown))}, only {', '.join(ROWS)}")
        if not self.page_only:
            results = self._measure(benchmark.read(data))
            results |= {"about": _about(data), "settings": _settings(self)}
            page.keep(results, out / FILE)
            page.log_look(results["about"], out)
        lines = page.write(page.kept(out / FILE), out)
        return [*lines, f"-> {out / 'RESULTS.md'}"]

    def _measure(self, data: Benchmark) -> dict[str, Any]:
        clock = Clock()
        tuned = self._tuned(data)
        clock.lap("tuning")
        chosen = {name: t.settings for name, t in tuned.items()}
        contenders = Contenders(self.recipe.flagger, chosen)
        cut = list(folds(data, self.folds, self.train_windows))
        with tempfile.TemporaryDirectory(prefix="strangers-") as folder:
            scored = self._scored(data, cut, contenders, Path(folder))
            clock.lap("folds")
            found = self._findings(data, cut, scored, Path(folder))
        clock.lap("scans")
        results = {
            "traces": {o: int(n) for o, n in _traces(data.windows).items()},
            "folds": [list(fold.programs) for fold in cut],
            "tuning": {name: asdict(t) for name, t in tuned.items()},
            "ships": max(tuned, key=lambda name: tuned[name].value),
            "windows": {name: _windows(data, scored, group) for name, group in GROUPS.items()},
            "patterns": by_pattern(scored.get(TODAY, next(iter(scored.values())))),
            "findings": found,
        }
        clock.lap("figures")
        results["ablations"] = self._ablated(data, cut) if self.ablations else {}
        clock.lap("ablations")
        return {**results, "seconds": clock.laps}

    def _tuned(self, data: Benchmark) -> dict[str, Tuned]:
        """Of every row; those without a space are but measured on the validation part."""
        windows, seed = data.windows, self.recipe.flagger.seed
        train, valid = (data.part(part) & ~data.of_origin("natural") for part in PARTS[:2])
        if not (train.any() and valid.any()):
            raise DetectorError(
                f"{data.data}: no train or no validation part to choose settings by"
            )
        few = windows[fewer(windows, train, self.trial_windows, seed)]
        seen = windows[fewer(windows, valid, self.trial_windows, seed)]
        contenders, found = Contenders(self.recipe.flagger), {}
        for name in self.rows:
            found[name] = tune(name, contenders, few, seen, self.trials if space_of(name) else 1)
            LOG.info("tuned %s: %s", name, found[name])
        return found

    def _scored(
        self, data: Benchmark, cut: Sequence[Fold], contenders: Contenders, folder: Path
    ) -> dict[str, Scored]:
        """By row the real traces as their fold scores them."""
        parts: dict[str, list[Part]] = {}
        for fold in cut:
            for name in self.rows:
                begun = time.perf_counter()
                parts.setdefault(name, []).append(strangers.fold_of(name, contenders, data, fold))
                LOG.info("%s, %s: %.0f s", fold.name, name, time.perf_counter() - begun)
            if self.with_product:
                parts.setdefault(TODAY, []).append(self._today(data, fold, folder / fold.name))
        return {name: together(mine, data) for name, mine in parts.items()}

    def _today(self, data: Benchmark, fold: Fold, folder: Path) -> Part:
        """Today's recipe, trained for a fold: its models in a folder, its flagger's scores."""
        begun = time.perf_counter()
        evidence = table(data.data, "evidence")
        rest = ~evidence["workload"].isin(fold.programs).to_numpy()
        product.train(data.windows[fold.train], evidence[rest], self.recipe, folder)
        flagger = LightGBMFlagger(str(folder / "flagger"))
        test = data.windows[fold.test]
        scores = scores_of(flagger, test)
        LOG.info("%s, today's product: %.0f s", fold.name, time.perf_counter() - begun)
        return Part(test, scores, flags(scores, flagger.threshold))

    def _findings(
        self, data: Benchmark, cut: Sequence[Fold], scored: Mapping[str, Scored], folder: Path
    ) -> dict[str, Any]:
        """Of all contenders, on the traces of all folds."""
        suspected = {
            name: scans.suspicions(one) for name, one in scored.items() if name != "constant"
        }
        frame = next(iter(scored.values())).frame
        names = set(scan_sample(data, self.scanned, self.recipe.flagger.seed))
        if scans.CLAIMS in suspected:
            suspected[scans.CLAIMS] = scans.claims(frame)
        jobs = [
            scans.Job(
                str(name),
                data.data / data.files[str(name)],
                folder / fold.name if self.with_product else None,
                {row: of[str(name)] for row, of in suspected.items()},
            )
            for fold in cut
            for name in data.windows["trace"][fold.test].unique()
            if name in names
        ]
        found = list(scans.scan(jobs, self.workers))
        rows = {
            row: {job.trace: f[row] for job, f in zip(jobs, found, strict=True)} for row in found[0]
        }
        truths = read_truths(data.data)
        if "constant" in scored:
            rows = {"constant": findings.constant_rows(truths, data, cut), **rows}
        groups = {name: data.members(group) for name, group in GROUPS.items()}
        return findings.measure(truths, rows, groups)

    def _ablated(self, data: Benchmark, cut: Sequence[Fold]) -> dict[str, Any]:
        """By ablation: figures on programs never seen, and on known ones."""
        settings, most = self.recipe.flagger, self.ablation_windows
        known, found = known_programs(data, KNOWN, settings.seed), {}
        for name, plan in ablations.plans().items():
            begun = time.perf_counter()
            unseen = ablations.measure(plan, settings, data, cut, most)
            seen = ablations.measure(plan, settings, data, [known], most)
            if unseen and seen:
                found[name] = {"unseen programs": unseen, "known programs": seen}
            LOG.info("ablation %s: %.0f s", name, time.perf_counter() - begun)
        return found


def scan_sample(data: Benchmark, share: float, seed: int) -> list[str]:
    """The traces to scan: of the faulty injected ones a share, all others."""
    about = data.windows.groupby("trace", sort=True).agg(
        origin=("origin", "first"), quality=("quality", "first")
    )
    few = about.index[(about["origin"] == "injected") & (about["quality"] == "bad")]
    order = np.random.default_rng(seed).permutation(len(few))
    left_out = set(few[order[round(share * len(few)) :]])
    return [str(name) for name in about.index if name not in left_out]


class Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """What went by since the last lap."""
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now
        LOG.info("%s: %.0f s", name, self.laps[name])


def _windows(data: Benchmark, scored: Mapping[str, Scored], group: Any) -> dict[str, Any]:
    """Window and region figures of a group by row, and by how much ours exceed the others'."""
    names = data.members(group)
    found: dict[str, Any] = {}
    for row, one in scored.items():
        mine = of_rows(one, one.frame["trace"].isin(names).to_numpy())
        if mine.frame.empty:
            return {}
        resamples = Resamples.of(mine.frame["cluster"].to_numpy())
        found[row] = all_figures(mine, resamples)
    ours = found[OURS]["figures"] if OURS in found else {}
    return {row: _compared(of, ours) for row, of in found.items()}


def _compared(of: Mapping[str, Any], ours: Mapping[str, Mapping[str, Drawn]]) -> dict[str, Any]:
    """Figures as estimates, with ours − theirs on the same resamples."""
    figures = {w: {k: d.estimate for k, d in one.items()} for w, one in of["figures"].items()}
    margins = {
        way: {k: (ours[way][k] - d).estimate for k, d in one.items() if k in ours.get(way, {})}
        for way, one in of["figures"].items()
    }
    return {"figures": figures, "ours minus this": margins, "counts": of["counts"]}


def _traces(windows: pd.DataFrame) -> Mapping[str, int]:
    found: Mapping[str, int] = windows.groupby("origin")["trace"].nunique().to_dict()
    return found


def _about(data: Path) -> dict[str, str]:
    """Of the run: when, which code, which command, which data."""
    commit = code()["commit"] or "unknown"
    command = shlex.join(["python", "-m", "detector.evaluate", *map(_without_folder, sys.argv[1:])])
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M"),
        "commit": commit[:12],
        "command": command,
        "data": data.name,
    }


def _without_folder(word: str) -> str:
    """An override whose path has lost its folders: they say nothing to others."""
    key, equals, value = word.partition("=")
    return f"{key}{equals}{Path(value).name}" if "/" in value else word


def _settings(of: StrangersExperiment) -> dict[str, Any]:
    keys = ("folds", "trials", "trial_windows", "train_windows", "ablation_windows", "scanned")
    judge = of.recipe.judge.settings.get("epochs", "all")
    found: dict[str, Any] = {key: getattr(of, key) for key in keys}
    return {**found, "judge_texts": of.recipe.judge_texts, "judge_epochs": judge}
