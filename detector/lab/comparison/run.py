"""The one evaluation: every contender on programs that it never saw, and the page of it."""

from __future__ import annotations

import logging
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detector.errors import ConfigError, DetectorError
from detector.lab import confidence
from detector.lab.comparison import ablations, findings, page, work
from detector.lab.comparison.benchmark import GROUPS
from detector.lab.comparison.contenders import ROWS, SHIPS, Contenders
from detector.lab.comparison.figures import all_figures, by_pattern
from detector.lab.comparison.resample import Drawn, Resamples
from detector.lab.comparison.scored import Scored
from detector.lab.comparison.strangers import of_rows, together
from detector.lab.comparison.tuning import Tuned
from detector.lab.comparison.work import Plan, Trial, Turn, each
from detector.lab.confidence import ConfidenceTraining
from detector.lab.experiments.record import code
from detector.lab.scoring import read_truths
from detector.lab.training import Training

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
    ``page_only``: write the pages anew from what ``out`` holds. ``flagger`` and
    ``confidence``: how what ships is trained, anew for each fold."""

    flagger: Training = field(default_factory=Training)
    confidence: ConfidenceTraining = field(default_factory=ConfidenceTraining)
    same: dict[str, str] = field(default_factory=dict)
    rows: tuple[str, ...] = ROWS
    folds: int = 4
    trials: int = 20
    trial_windows: int = 10_000
    train_windows: int = 1_000_000
    ablations: bool = True
    ablation_windows: int = 20_000
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
        scored = self._scored(plan, tuned)
        clock.lap("folds")
        found = self._findings(plan, scored)
        clock.lap("findings")
        results = {
            "traces": {o: int(n) for o, n in _traces(data.windows).items()},
            "folds": [list(fold.programs) for fold in work.cut(plan)],
            "tuning": {name: asdict(t) for name, t in tuned.items()},
            "best": max(tuned, key=lambda name: tuned[name].value),
            "windows": self._windows(plan, scored),
            "patterns": by_pattern(scored[SHIPS]),
            "findings": found,
        }
        clock.lap("windows")
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

    def _scored(self, plan: Plan, tuned: Mapping[str, Tuned]) -> dict[str, Scored]:
        """By row the real traces as their fold scores them."""
        chosen = {name: t.settings for name, t in tuned.items()}
        contenders = Contenders(self.flagger, chosen)
        rows = [*self.rows, SHIPS]
        numbers = range(len(work.cut(plan)))
        jobs = [Turn(plan, name, k, contenders) for name in rows[::-1] for k in numbers]
        found = dict(
            zip([(j.name, j.fold) for j in jobs], each(work.take, jobs, self.workers), strict=True)
        )
        return {
            name: together(work.rows_of([found[name, k] for k in numbers], plan)) for name in rows
        }

    def _findings(self, plan: Plan, scored: Mapping[str, Scored]) -> dict[str, Any]:
        """Of all rows, on the traces of all folds."""
        data, truths = work.read(plan), read_truths(plan.data)
        candidates = confidence.read(plan.data, self.same)
        learned = confidence.strangers(candidates, self.confidence)
        rows = findings.rows_of(truths, data, work.cut(plan), candidates, learned, scored)
        members = {name: data.members(group) for name, group in GROUPS.items()}
        groups = findings.groups_of(truths, rows, members)
        measured = each(findings.measure, list(groups.values()), self.workers)
        return dict(zip(groups, measured, strict=True))

    def _windows(self, plan: Plan, scored: Mapping[str, Scored]) -> dict[str, Any]:
        """By group, ``measure_windows`` of its traces."""
        data, groups = work.read(plan), {}
        for name, group in GROUPS.items():
            mine = scored[SHIPS].frame["trace"].isin(data.members(group)).to_numpy()
            if mine.any():
                groups[name] = {row: of_rows(one, mine) for row, one in scored.items()}
        measured = each(measure_windows, list(groups.values()), self.workers)
        return dict(zip(groups, measured, strict=True))

    def _ablated(self, plan: Plan) -> dict[str, Any]:
        """By ablation: figures on programs never seen, and on known ones."""
        names = list(ablations.plans())
        found = each(work.ablate, [Trial(plan, name) for name in names], self.workers)
        return {name: of for name, of in zip(names, found, strict=True) if of}


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


def measure_windows(scored: Mapping[str, Scored]) -> dict[str, Any]:
    """Window and region figures of some traces by row, and by how much those of what ships exceed
    them."""
    resamples = Resamples.of(scored[SHIPS].frame["cluster"].to_numpy())
    found = {row: all_figures(one, resamples) for row, one in scored.items()}
    return {row: _compared(of, found[SHIPS]["figures"]) for row, of in found.items()}


def _compared(of: Mapping[str, Any], ships: Mapping[str, Mapping[str, Drawn]]) -> dict[str, Any]:
    """Figures as estimates, with the flagger's − theirs on the same resamples."""
    figures = {w: {k: d.estimate for k, d in one.items()} for w, one in of["figures"].items()}
    margins = {
        way: {k: (ships[way][k] - d).estimate for k, d in one.items() if k in ships[way]}
        for way, one in of["figures"].items()
    }
    return {"figures": figures, "flagger minus this": margins, "counts": of["counts"]}


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
    keys = ("folds", "trials", "trial_windows", "train_windows", "ablation_windows")
    return {**{key: getattr(of, key) for key in keys}, "confidence_folds": of.confidence.folds}
