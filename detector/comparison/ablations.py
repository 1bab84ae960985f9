"""What the flagger is trained without, to see what it lives on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from detector.features import COLUMNS, VARIANTS, claims
from detector.features.sets import THEMES

if TYPE_CHECKING:
    import pandas as pd

Plan = tuple["pd.DataFrame", Sequence[str]]  # rows to learn from, columns to see
SHARES: Final = (0.1, 0.3)  # of the traces
SCALES: Final = {
    "": "values of the window",
    "@outer": "values of the wide window",
    "@rel": "values against the trace",
    "@place": "values against other steps",
}


def plans(train: pd.DataFrame, seed: int) -> dict[str, Plan]:
    """Each ablation by name; the first is none."""
    found: dict[str, Plan] = {"everything": (train, COLUMNS)}
    for kind in (_by_scale(), _by_theme()):
        for name, mine in kind.items():
            found[f"only {name}"] = train, mine
            found[f"without {name}"] = train, [c for c in COLUMNS if c not in set(mine)]
    for origin in sorted(train["origin"].unique()):
        found[f"only {origin} traces"] = train[train["origin"] == origin], COLUMNS
        found[f"without {origin} traces"] = train[train["origin"] != origin], COLUMNS
    names = train["trace"].unique()
    order = np.random.default_rng(seed).permutation(len(names))
    for share in SHARES:
        kept = set(names[order[: int(share * len(names))]])
        found[f"{share:.0%} of the traces"] = train[train["trace"].isin(kept)], COLUMNS
    return found


def _by_scale() -> dict[str, list[str]]:
    """Columns by what their values are measured against."""
    return {
        SCALES.get(variant, variant): [c for c in COLUMNS if _parts(c)[1] == variant]
        for variant in VARIANTS
    }


def _by_theme() -> dict[str, list[str]]:
    """Columns by what their feature looks at."""
    theme = {f.name: t.__name__.rpartition(".")[2] for t in (*THEMES, claims) for f in t.FEATURES}
    found: dict[str, list[str]] = {}
    for column in COLUMNS:
        found.setdefault(f"{theme[_parts(column)[0]]} features", []).append(column)
    return found


def _parts(column: str) -> tuple[str, str]:
    name, at, variant = column.partition("@")
    return name, at + variant
