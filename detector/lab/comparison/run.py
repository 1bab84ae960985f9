"""The one evaluation: every contender on programs that it never saw, and the page of it."""

from __future__ import annotations

import logging
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.errors import ConfigError, DetectorError
from detector.lab.comparison import ablations, findings, page, scans, work
from detector.lab.comparison.benchmark import GROUPS, Benchmark
from detector.lab.comparison.contenders import OURS, ROWS, TODAY, Contenders
from detector.lab.comparison.figures import all_figures, by_pattern
from detector.lab.comparison.product import Recipe
from detector.lab.comparison.resample import Drawn, Resamples
from detector.lab.comparison.scored import Scored
from detector.lab.comparison.strangers import of_rows, together
from detector.lab.comparison.tuning import Tuned
from detector.lab.comparison.work import Plan, Trial, Turn, each
from detector.lab.experiments.record import code
from detector.lab.scoring import read_truths

if TYPE_CHECKING:
    import pandas as pd

LOG: Final = logging.getLogger(__name__)
FILE: Final = "results/strangers.json"


@dataclass(frozen=True)
class StrangersExperiment:
    """``same``: by the beginning of a workload's name the program that it is a version of;
    ``rows``: names of ``contenders.ROWS``; ``folds``: groups of programs that are left out;
    ``trials``: settings tried for each row that has any; ``trial_windows``, ``ablation_windows``:
    that a trial, and a model of an ablation, learns from at most; ``train_windows``: any other;
    ``with_product``: train and scan with the product, too; ``scanned``: the share of the
    injected traces that are scanned, untouched bases always; ``page_only``: write the pages anew
    from what ``out`` holds."""

    recipe: Recipe = field(default_factory=Recipe)
    same: dict[str, str] = field(default_factory=dict)
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
        """Everything; writes ``RESULTS.md``, ``results/`` with the figures, the details and
        a line in the log of looks into ``out``. Raises ConfigError for a row of no such name."""
        if unknown := set(self.rows) - set(ROWS):
            raise ConfigError(f"rows: no {', '.join(sorted(unknown))}, only {', '.join(ROWS)}")
        if not self.page_only:
            results = self._measure(data)
            results |= {"about": _about(data), "settings": _settings(self)}
            page.keep(results, out / FILE)
            page.log_look(results["about"], out)
        lines = page.write(page.kept(out / FILE), out)
        return [*lines, f"-> {out / 'RESULTS.md'}"]

    def _measure(self, folder: Path) -> dict[str, Any]:
        clock, plan = Clock(), self._plan(folder)
        data = work.read(plan)
        tuned = self._tuned(plan)
        clock.lap("tuning")
        with tempfile.TemporaryDirectory(prefix="strangers-") as models:
            scored = self._scored(plan, tuned, Path(models))
            clock.lap("folds")
            found = self._findings(plan, scored, Path(models))
        clock.lap("scans")
        results = {
            "traces": {o: int(n) for o, n in _traces(data.windows).items()},
            "folds": [list(fold.programs) for fold in work.cut(plan)],
            "tuning": {name: asdict(t) for name, t in tuned.items()},
            "ships": max(tuned, key=lambda name: tuned[name].value),
            "windows": {name: _windows(data, scored, group) for name, group in GROUPS.items()},
            "patterns": by_pattern(scored.get(TODAY, next(iter(scored.values())))),
            "findings": found,
        }
        clock.lap("figures")
        results["ablations"] = self._ablated(plan) if self.ablations else {}
        clock.lap("ablations")
        return {**results, "seconds": clock.laps}

    def _plan(self, data: Path) -> Plan:
        """What the pieces of the work need to know."""
        mine = {f.name: getattr(self, f.name) for f in fields(Plan)[2:]}
        return Plan(data, tuple(self.same.items()), **mine)

    def _tuned(self, plan: Plan) -> dict[str, Tuned]:
        """By row, the settings that the validation part chooses."""
        jobs = [Trial(plan, name) for name in reversed(self.rows)]  # the longest first
        found = dict(zip(reversed(self.rows), each(work.choose, jobs, self.workers), strict=True))
        return {name: found[name] for name in self.rows}

    def _scored(self, plan: Plan, tuned: Mapping[str, Tuned], models: Path) -> dict[str, Scored]:
        """By row the real traces as their fold scores them."""
        chosen = {name: t.settings for name, t in tuned.items()}
        contenders = Contenders(self.recipe.flagger, chosen)
        rows = [*self.rows, *([TODAY] if self.with_product else [])]
        numbers = range(len(work.cut(plan)))
        jobs = [
            Turn(plan, name, k, contenders, models / str(k)) for name in rows[::-1] for k in numbers
        ]
        found = dict(
            zip([(j.name, j.fold) for j in jobs], each(work.take, jobs, self.workers), strict=True)
        )
        data = work.read(plan)
        return {
            name: together(work.rows_of([found[name, k] for k in numbers], plan), data)
            for name in rows
        }

    def _findings(self, plan: Plan, scored: Mapping[str, Scored], models: Path) -> dict[str, Any]:
        """Of all contenders, on the traces of all folds."""
        data, cut = work.read(plan), work.cut(plan)
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
                models / str(k) if self.with_product else None,
                {row: of[str(name)] for row, of in suspected.items()},
            )
            for k, fold in enumerate(cut)
            for name in data.windows["trace"][fold.test].unique()
            if name in names
        ]
        found = list(each(scans.scan_one, jobs, self.workers))
        rows = {
            row: {job.trace: f[row] for job, f in zip(jobs, found, strict=True)} for row in found[0]
        }
        truths = read_truths(data.data)
        if "constant" in scored:
            rows = {"constant": findings.constant_rows(truths, data, cut, names), **rows}
        groups = {name: data.members(group) for name, group in GROUPS.items()}
        return findings.measure(truths, rows, groups)

    def _ablated(self, plan: Plan) -> dict[str, Any]:
        """By ablation: figures on programs never seen, and on known ones."""
        names = list(ablations.plans())
        found = each(work.ablate, [Trial(plan, name) for name in names], self.workers)
        return {name: of for name, of in zip(names, found, strict=True) if of}


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
