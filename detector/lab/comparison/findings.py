"""The primary figures of every contender's findings, by group of traces."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from detector.errors import DetectorError
from detector.lab.comparison.benchmark import Benchmark
from detector.lab.comparison.folds import Fold
from detector.lab.comparison.scans import PRODUCT
from detector.lab.scoring import (
    Prediction,
    Predictions,
    Truth,
    constant,
    finding_differences,
    finding_figures,
    paired_figures,
)

ROUNDS: Final = 300
WAYS: Final = {"masked": True, "unmasked": False}


def constant_rows(
    truths: Mapping[str, Truth], data: Benchmark, cut: Sequence[Fold], scanned: Collection[str]
) -> dict[str, list[Prediction]]:
    """The constant answer to the traces that were scanned: of each fold, by the traces that it may
    learn from. A fold without a costly problem to learn from says nothing."""
    found: dict[str, list[Prediction]] = {}
    for fold in cut:
        names = data.windows["trace"]
        learnt = [truths[str(name)] for name in names[fold.train].unique()]
        test = [truths[str(name)] for name in names[fold.test].unique() if name in scanned]
        try:
            found |= constant(learnt).predict(test)
        except DetectorError:
            found |= {truth.trace: [] for truth in test}
    return found


def measure(
    truths: Mapping[str, Truth],
    rows: Mapping[str, Predictions],
    groups: Mapping[str, set[str]],
) -> dict[str, Any]:
    """By group and row: finding figures masked and unmasked, by how much the product exceeds
    the row's, and the paired figures of injected traces."""
    found: dict[str, Any] = {}
    for group, names in groups.items():
        mine = {name: truths[name] for name in truths if name in names}
        if mine:
            found[group] = {row: _row(mine, of, rows.get(PRODUCT)) for row, of in rows.items()}
    return found


def _row(
    truths: Mapping[str, Truth], of: Predictions, product: Predictions | None
) -> dict[str, Any]:
    paired = paired_figures(truths, of, rounds=ROUNDS)
    return {
        **{way: finding_figures(truths, of, m, rounds=ROUNDS) for way, m in WAYS.items()},
        "product minus this": {}
        if product is None or product is of
        else {
            way: finding_differences(truths, product, of, m, rounds=ROUNDS)
            for way, m in WAYS.items()
        },
        "paired": paired if paired.all is not None else None,
    }
