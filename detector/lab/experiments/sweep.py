"""A sweep over the flagger's settings, features and window scales; the test part is never read.

Each trial is scored twice: by models of the train part on the validation part, and on folds of
workloads held out of both parts. Validation has few traces, so the folds decide.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.errors import ConfigError
from detector.features import COLUMNS, FEATURES
from detector.lab import training
from detector.lab.experiments.record import Outcome, plain
from detector.lab.metrics import Estimate, auc, by_cluster
from detector.lab.tables import clusters, table
from detector.lab.training import INSIDE, SIDES, Training, is_clear, matrix

if TYPE_CHECKING:
    import pandas as pd

READ: Final = ("train", "validation")  # never the test part
BOOTSTRAPS: Final = 200
SAVED: Final = "saved_"  # columns of what repairing a pattern saves of the window
FEATURE_SET, SCALE = "features", "scale"  # settings that Training lacks
_SHARES = {f.name for f in FEATURES if f.unit == "share"}


def _is_magnitude(column: str) -> bool:
    """A size, rate or time as it is: what tells a large program from a small one."""
    name, _, variant = column.partition("@")
    return name not in _SHARES and variant in ("", "outer")


# Groups of features by name.
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "all": COLUMNS,
    "own": tuple(c for c in COLUMNS if "@" not in c),
    **{
        f"no {variant}": tuple(c for c in COLUMNS if not c.endswith(f"@{variant}"))
        for variant in ("outer", "rel", "place")
    },
    "savings": tuple(c for c in COLUMNS if c.startswith(SAVED)),
    "no savings": tuple(c for c in COLUMNS if not c.startswith(SAVED)),
    "no magnitudes": tuple(c for c in COLUMNS if not _is_magnitude(c)),
}


@dataclass(frozen=True)
class SweepExperiment:
    """``space``: the values of each setting that is swept: a field of ``Training``, ``features`` (a
    name of ``GROUPS``), ``scale`` (a name of ``scales``), or else a parameter of LightGBM.
    ``trials``: so many are drawn, beside the settings as they are; 0 for every combination;
    ``singly``: instead, each value of the space alone. ``scales``: other builds of the
    benchmark, by name, with windows cut otherwise (``scripts/rewindow.py``)."""

    settings: Training = field(default_factory=Training)
    space: dict[str, list[Any]] = field(default_factory=dict)
    trials: int = 20
    singly: bool = False
    seed: int = 0
    scales: dict[str, str] = field(default_factory=dict)

    def train(self, data: Path, out: Path) -> list[str]:
        """There is nothing to ship."""
        raise ConfigError("experiment=sweep has nothing to train: use detector.evaluate")

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """All trials, best first; ``sweep.json`` is written after each one.

        Raises ConfigError for a group of features or a scale of no such name.
        """
        plans = list(self._plans())
        self._check(plans)
        out.mkdir(parents=True, exist_ok=True)
        done: list[dict[str, Any]] = []
        for plan in plans:
            folder = Path(self.scales[plan[SCALE]]) if SCALE in plan else data
            done.append(_trial(_read(folder), plan, self.settings))
            done.sort(key=lambda row: -row["mean"])
            (out / "sweep.json").write_text(json.dumps(done, indent=1) + "\n")
        lines = [*_shown(done), f"-> {out / 'sweep.json'}"]
        return Outcome(lines, fit_s=sum(row["fit_s"] for row in done))

    def _plans(self) -> Iterator[dict[str, Any]]:
        """The settings as they are, then the trials."""
        yield {}
        if self.singly:
            yield from ({key: value} for key, values in self.space.items() for value in values)
            return
        size = int(np.prod([len(values) for values in self.space.values()]))
        chosen: Sequence[int] = range(size)
        if self.trials:
            random = np.random.default_rng(self.seed)
            chosen = random.choice(size, min(self.trials, size), replace=False).tolist()
        grid = list(itertools.product(*self.space.values()))
        for i in chosen if self.space else ():
            yield dict(zip(self.space, grid[i], strict=True))

    def _check(self, plans: Sequence[Mapping[str, Any]]) -> None:
        for key, known in ((FEATURE_SET, GROUPS), (SCALE, self.scales)):
            for plan in plans:
                if key in plan and plan[key] not in known:
                    raise ConfigError(f"space.{key}: no {plan[key]!r}, only {', '.join(known)}")


def settings_of(plan: Mapping[str, Any], usual: Training) -> Training:
    """The settings of a trial; what no field of ``Training`` is goes to LightGBM."""
    mine = {f.name for f in fields(Training)} - {"parameters"}
    own = {key: value for key, value in plan.items() if key in mine}
    rest = {k: v for k, v in plan.items() if k not in mine | {FEATURE_SET, SCALE}}
    return replace(usual, **own, parameters={**usual.parameters, **rest})


def _read(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    train, validation = (table(folder, "windows", (part,)) for part in READ)
    return train, validation


def _trial(
    tables: tuple[pd.DataFrame, pd.DataFrame], plan: Mapping[str, Any], usual: Training
) -> dict[str, Any]:
    """Figures of one trial. ``mean``: of both sides' AUC-ROC on the folds."""
    import pandas as pd

    settings = settings_of(plan, usual)
    shown = GROUPS[plan.get(FEATURE_SET, "all")]
    train, validation = tables
    begun = time.perf_counter()
    heads = training.fit(train, settings, SIDES, shown)
    fit_s = time.perf_counter() - begun
    rows = heads.seen(matrix(validation))
    scores = {f"{side}_score": heads.raw(side, rows) for side in SIDES}
    both = pd.concat([train, validation], ignore_index=True)
    folds = _by_side(training.held_out(both, training.fit_folds(both, settings, shown)))
    return {
        "plan": dict(plan),
        "mean": float(np.nanmean([folds[side].value for side in SIDES])),
        "folds": plain(folds),
        "validation": plain(_by_side(validation.assign(**scores))),
        "fit_s": fit_s,
        "columns": len(heads.columns),
    }


def _by_side(scored: pd.DataFrame) -> dict[str, Estimate]:
    """AUC-ROC by side, of windows clearly inside or outside a labeled region."""
    found = {}
    for side in SIDES:
        clear = scored[is_clear(scored, side)]
        truth = (clear[side] >= INSIDE).to_numpy()
        score = clear[f"{side}_score"].to_numpy(np.float64)
        found[side] = by_cluster(
            lambda rows, t=truth, s=score: auc(t[rows], s[rows]),  # type: ignore[misc]
            clusters(clear),
            rounds=BOOTSTRAPS,
        )
    return found


def _shown(done: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line per trial."""
    yield "folds: mean  cpu [95 %]            gpu [95 %]            validation: cpu    gpu  fit s"
    for row in done:
        cpu, gpu = (_with_interval(row["folds"][side]) for side in SIDES)
        valid = "  ".join(_figure(row["validation"][side]["value"]) for side in SIDES)
        plan = " ".join(f"{key}={value}" for key, value in row["plan"].items())
        yield (
            f"{row['mean']:11.3f}  {cpu:<20}  {gpu:<20}  {valid:>18}  {row['fit_s']:5.1f}  "
            f"{plan or 'as it is'}"
        )


def _with_interval(figure: Mapping[str, float | None]) -> str:
    value, low, high = (_figure(figure[key]) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _figure(value: float | None) -> str:
    return "  –  " if value is None else f"{value:.3f}"
