"""The pieces of the evaluation that any process can do: each reads the benchmark for itself."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from detector.errors import DetectorError
from detector.features import COLUMNS
from detector.flagger import Scores
from detector.lab.comparison import ablations, benchmark, strangers
from detector.lab.comparison.benchmark import HAND, Benchmark, Bools
from detector.lab.comparison.contenders import Contenders, space_of
from detector.lab.comparison.folds import Fold, fewer, folds, known_programs
from detector.lab.comparison.strangers import Part
from detector.lab.comparison.tuning import Tuned, tune
from detector.lab.metrics import Estimate
from detector.lab.tables import PARTS
from detector.lab.training import Training

LOG: Final = logging.getLogger(__name__)
KNOWN: Final = 0.2  # share of the real traces that in-distribution figures are measured on
Given = TypeVar("Given")
Done = TypeVar("Done")


@dataclass(frozen=True)
class Plan:
    """What all pieces need to know; the fields are those of ``StrangersExperiment``."""

    data: Path
    same: tuple[tuple[str, str], ...] = ()
    flagger: Training = field(default_factory=Training)
    folds: int = 4
    trials: int = 20
    trial_windows: int = 10_000
    train_windows: int = 1_000_000
    ablation_windows: int = 20_000


@dataclass(frozen=True)
class Trial:
    """Settings to choose for a row."""

    plan: Plan
    name: str


@dataclass(frozen=True)
class Turn:
    """A row's turn in a fold."""

    plan: Plan
    name: str
    fold: int
    contenders: Contenders


def each(work: Callable[[Given], Done], jobs: Sequence[Given], workers: int) -> Iterator[Done]:
    """``work``, which lies at the top of a module, done on every job, in order. One worker: in this
    process."""
    if workers == 1:
        yield from map(work, jobs)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by the workers when they start
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(work, jobs)


def read(plan: Plan) -> Benchmark:
    """The benchmark, once a process."""
    return _read(plan.data, plan.same)


@lru_cache(maxsize=1)
def _read(data: Path, same: tuple[tuple[str, str], ...]) -> Benchmark:
    return benchmark.read(data, dict(same))


def cut(plan: Plan) -> list[Fold]:
    """The folds, once a process."""
    return _cut(plan.data, plan.same, plan.folds, plan.train_windows)


@lru_cache(maxsize=1)
def _cut(data: Path, same: tuple[tuple[str, str], ...], count: int, most: int) -> list[Fold]:
    return list(folds(_read(data, same), count, most))


def choose(trial: Trial) -> Tuned:
    """Settings of a row by the validation part; one without a space is but measured on it.

    Raises DetectorError where the benchmark has no such part.
    """
    plan, data = trial.plan, read(trial.plan)
    train, valid = (_part(plan, data, part) for part in PARTS[:2])
    trials = plan.trials if space_of(trial.name) else 1
    contenders = Contenders(plan.flagger)
    return tune(trial.name, contenders, data.windows[train], data.windows[valid], trials)


def _part(plan: Plan, data: Benchmark, name: str) -> Bools:
    rows = data.part(name) & ~data.of_origin(HAND)
    if not rows.any():
        raise DetectorError(f"{data.data}: no {name} part to choose settings by")
    return fewer(data.windows, rows, plan.trial_windows, plan.flagger.seed)


def take(turn: Turn) -> tuple[Scores, dict[str, Bools]]:
    """A row's scores and flags of a fold's test windows."""
    begun = time.perf_counter()
    data, fold = read(turn.plan), cut(turn.plan)[turn.fold]
    part = strangers.fold_of(turn.name, turn.contenders, data, fold)
    LOG.info("%s, %s: %.0f s", fold.name, turn.name, time.perf_counter() - begun)
    return part.scores, part.flagged


def ablate(trial: Trial) -> dict[str, dict[str, Estimate]]:
    """Figures of an ablation on programs never seen, and on known ones; empty where there is
    nothing left to learn from."""
    plan, data = trial.plan, read(trial.plan)
    settings, most = plan.flagger, plan.ablation_windows
    known = known_programs(data, KNOWN, settings.seed)
    mine = ablations.plans()[trial.name]
    found = {
        "unseen programs": ablations.measure(mine, settings, data, cut(plan), most),
        "known programs": ablations.measure(mine, settings, data, [known], most),
    }
    return found if all(found.values()) else {}


def rows_of(found: Sequence[tuple[Scores, dict[str, Bools]]], plan: Plan) -> list[Part]:
    """A row's turns in all folds, with their windows, which lose their features here."""
    windows: Any = read(plan).windows
    about = [column for column in windows.columns if column not in set(COLUMNS)]
    return [
        Part(windows.loc[fold.test, about], scores, flagged)
        for fold, (scores, flagged) in zip(cut(plan), found, strict=True)
    ]
