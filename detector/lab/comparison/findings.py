"""Findings of every row on programs that it never saw, and their primary figures by group.

All rows but the constant answer choose among the same candidates (the table ``candidates``): each
gives a candidate a confidence, or drops it. Places and savings are the candidate's own, so no trace
is scanned for this. ``PRODUCT`` are the trees' confidences, from which a scan with the embedded
judge makes its findings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from detector.errors import DetectorError
from detector.flagger.confidence import ConstantConfidence, Float64
from detector.lab.comparison.benchmark import Benchmark
from detector.lab.comparison.contenders import SHIPS
from detector.lab.comparison.folds import Fold
from detector.lab.comparison.scored import Scored
from detector.lab.confidence import Candidates
from detector.lab.experiments.confidence import findings
from detector.lab.scoring import (
    Prediction,
    Predictions,
    Truth,
    constant,
    finding_differences,
    finding_figures,
    paired_figures,
)
from detector.lab.scoring.truth import intervals
from detector.patterns import BY_ID
from detector.trace import NS_PER_US

ROUNDS: Final = 300
WAYS: Final = {"masked": True, "unmasked": False}
CONSTANT: Final = "constant answer"
CORE: Final = "core alone"
PRODUCT: Final = "confidence"
BOTH: Final = "confidence × flagger"
EVERYTHING: Final = "constant"  # a flagger that flags every window: its findings are the core's


def rows_of(
    truths: Mapping[str, Truth],
    data: Benchmark,
    cut: Sequence[Fold],
    candidates: Candidates,
    confidence: Float64,
    scored: Mapping[str, Scored],
) -> dict[str, Predictions]:
    """By row the findings of every real trace that has windows.

    ``confidence``: of each candidate by trees that never saw its program; ``scored``: the same
    traces by the window flaggers.
    """
    names = [str(name) for fold in cut for name in data.windows["trace"][fold.test].unique()]
    kept = {row: flagged(candidates, one) for row, one in scored.items() if row != EVERYTHING}
    found: dict[str, Predictions] = {
        CONSTANT: constant_answers(truths, data, cut),
        CORE: findings(candidates, ConstantConfidence().score(candidates.matrix), names, 0.0),
        **{row: findings(candidates, sure, names, 0.0) for row, sure in kept.items()},
        PRODUCT: findings(candidates, confidence, names),
    }
    if SHIPS in kept:
        agreed = np.where(np.isnan(kept[SHIPS]), np.nan, confidence)
        found[BOTH] = findings(candidates, agreed, names)
    return found


def constant_answers(
    truths: Mapping[str, Truth], data: Benchmark, cut: Sequence[Fold]
) -> dict[str, list[Prediction]]:
    """The constant answer: of each fold, by the traces that it may learn from. A fold without a
    costly problem to learn from says nothing."""
    found: dict[str, list[Prediction]] = {}
    for fold in cut:
        names = data.windows["trace"]
        learned = [truths[str(name)] for name in names[fold.train].unique()]
        test = [truths[str(name)] for name in names[fold.test].unique()]
        try:
            found |= constant(learned).predict(test)
        except DetectorError:
            found |= {truth.trace: [] for truth in test}
    return found


def flagged(candidates: Candidates, scored: Scored) -> Float64:
    """Of each candidate the highest score of a flagged window of its side in its places; NaN where
    none is flagged."""
    places = scored.frame.groupby("trace", sort=False).indices
    start, end = (
        np.round(scored.frame[key].to_numpy() * NS_PER_US).astype(np.int64)
        for key in ("start_us", "end_us")
    )
    found = np.full(len(candidates), np.nan)
    for i, one in enumerate(candidates.finding):
        side = BY_ID[one.pattern].side
        rows = places.get(one.trace, np.zeros(0, np.int64))
        rows = rows[scored.flagged[side][rows]]
        there = rows[intervals(one.spans_us).covered(start[rows], end[rows]) > 0]
        if len(there):
            found[i] = scored.side(side)[there].max()
    return found


# -- figures ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Traces to measure on, and every row's findings of them."""

    truths: Mapping[str, Truth]
    rows: Mapping[str, Predictions]


def groups_of(
    truths: Mapping[str, Truth],
    rows: Mapping[str, Predictions],
    members: Mapping[str, set[str]],
) -> dict[str, Group]:
    """By name, those that have any traces."""
    found = {}
    for group, names in members.items():
        mine = {name: truths[name] for name in truths if name in names}
        theirs = {row: {n: of[n] for n in mine if n in of} for row, of in rows.items()}
        if mine:
            found[group] = Group(mine, theirs)
    return found


def measure(group: Group) -> dict[str, Any]:
    """By row: finding figures masked and unmasked, by how much the product exceeds the row's, and
    the paired figures of injected traces."""
    product = group.rows[PRODUCT]
    return {row: _row(group.truths, of, product) for row, of in group.rows.items()}


def _row(truths: Mapping[str, Truth], of: Predictions, product: Predictions) -> dict[str, Any]:
    paired = paired_figures(truths, of, rounds=ROUNDS)
    return {
        **{way: finding_figures(truths, of, m, rounds=ROUNDS) for way, m in WAYS.items()},
        "product minus this": {}
        if product is of
        else {
            way: finding_differences(truths, product, of, m, rounds=ROUNDS)
            for way, m in WAYS.items()
        },
        "paired": paired if paired.all is not None else None,
    }
