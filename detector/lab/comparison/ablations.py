"""What the flagger is trained without, to see what it lives on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.features import COLUMNS, VARIANTS, savings
from detector.features.sets import THEMES
from detector.lab.comparison.benchmark import GROUPS, Benchmark, Bools
from detector.lab.comparison.contenders import Trees, scores_of
from detector.lab.comparison.figures import window_figures
from detector.lab.comparison.folds import Fold, fewer
from detector.lab.comparison.resample import Resamples
from detector.lab.comparison.scored import Scored
from detector.lab.comparison.strangers import Part, of_rows, together
from detector.lab.metrics import Estimate
from detector.lab.training import INSIDE, SIDES, Training

if TYPE_CHECKING:
    import pandas as pd

SHARES: Final = (0.1, 0.3)  # of the traces
SCALES: Final = {
    "": "values of the window",
    "@outer": "values of the wide window",
    "@rel": "values against the trace",
    "@place": "values against other steps",
}
INJECTED: Final = "without injected traces"


@dataclass(frozen=True)
class Ablation:
    """Columns to see, and which traces to learn from: of all origins but ``without``, or ``only``
    one, and of these a ``share``."""

    columns: Sequence[str] = COLUMNS
    without: str = ""
    only: str = ""
    share: float = 1.0

    def kept(self, windows: pd.DataFrame, rows: Bools, seed: int) -> Bools:
        """Of these rows those to learn from."""
        origin = windows["origin"].to_numpy()
        rows = rows & (origin != self.without) & ((origin == self.only) | (not self.only))
        most = int(self.share * rows.sum())
        return rows if self.share == 1 else fewer(windows, rows, most, seed)


def plans() -> dict[str, Ablation]:
    """Each ablation by name; the first is none."""
    found = {"everything": Ablation()}
    for name, mine in _by_scale().items():
        found[f"without {name}"] = Ablation([c for c in COLUMNS if c not in set(mine)])
    for name, mine in _by_theme().items():
        found[f"without {name}"] = Ablation([c for c in COLUMNS if c not in set(mine)])
    found["only savings features"] = Ablation(_by_theme()["savings features"])
    found[INJECTED] = Ablation(without="injected")
    found["without recorded traces"] = Ablation(without="recorded")
    found["without simulated traces"] = Ablation(without="simulated")
    found["only recorded traces"] = Ablation(only="recorded")
    return found | {f"{share:.0%} of the traces": Ablation(share=share) for share in SHARES}


def measure(
    plan: Ablation, settings: Training, benchmark: Benchmark, folds: Sequence[Fold], most: int
) -> dict[str, Estimate]:
    """Window AUC-ROC, unmasked, the mean of both sides, by the group of traces that is measured on.
    ``most``: windows that a model learns from at most. Empty where a fold has nothing to learn."""
    parts = []
    for fold in folds:
        windows = benchmark.windows
        rows = fewer(windows, plan.kept(windows, fold.train, settings.seed), most, settings.seed)
        train, test = windows[rows], windows[fold.test]
        if not all(0 < (train[side] >= INSIDE).sum() < len(train) for side in SIDES):
            return {}
        trees = Trees(train, settings, plan.columns)
        nothing = {side: np.zeros(len(test), np.bool_) for side in SIDES}
        parts.append(Part(test, scores_of(trees, test), nothing))
    return dict(_by_group(together(parts), benchmark))


def _by_group(scored: Scored, benchmark: Benchmark) -> Iterator[tuple[str, Estimate]]:
    for name, group in GROUPS.items():
        rows = scored.frame["trace"].isin(benchmark.members(group)).to_numpy()
        mine = of_rows(scored, rows)
        if mine.frame.empty:
            continue
        resamples = Resamples.of(mine.frame["cluster"].to_numpy())
        sides: list[Any] = [
            window_figures(mine, side, resamples, masked=False).get("AUC") for side in SIDES
        ]
        if found := [figure for figure in sides if figure is not None]:
            yield name, sum(found[1:], found[0]).over(len(found)).estimate


def _by_scale() -> dict[str, list[str]]:
    """Columns by what their values are measured against."""
    return {
        SCALES.get(variant, variant): [c for c in COLUMNS if _parts(c)[1] == variant]
        for variant in VARIANTS
    }


def _by_theme() -> dict[str, list[str]]:
    """Columns by what their feature looks at."""
    themes = (*THEMES, savings)  # the ledger's columns are among the savings
    theme = {f.name: t.__name__.rpartition(".")[2] for t in themes for f in t.FEATURES}
    found: dict[str, list[str]] = {}
    for column in COLUMNS:
        found.setdefault(f"{theme[_parts(column)[0]]} features", []).append(column)
    return found


def _parts(column: str) -> tuple[str, str]:
    name, at, variant = column.partition("@")
    return name, at + variant
