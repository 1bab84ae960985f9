"""Leave-one-program-out: every real program is scored by models that never saw it.

Programs are left out in groups, which makes it only harder: a model sees neither a trace's own
program nor the others of its group, whatever their origin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from detector.errors import DetectorError
from detector.lab import programs
from detector.lab.comparison.benchmark import HAND, REAL, Benchmark, Bools

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Fold:
    """Rows of the windows: ``test`` to score, ``train`` to learn from, ``valid`` (a part of
    ``train``, other programs) to choose thresholds by, ``inner``: the rest of ``train``."""

    name: str
    programs: tuple[str, ...]
    test: Bools
    train: Bools
    inner: Bools
    valid: Bools


def groups(windows: pd.DataFrame, count: int) -> list[tuple[str, ...]]:
    """The real programs in at most so many groups of about as many windows.

    Raises DetectorError with less than two programs: nothing would be left to learn from.
    """
    found = programs.groups(windows["workload"][windows["origin"].isin(REAL)], count)
    if len(found) < 2:
        raise DetectorError(f"{len(found)} real programs: leaving one out needs two and more")
    return found


def folds(benchmark: Benchmark, count: int, most: int = 10**9) -> Iterator[Fold]:
    """One for each group; the next group's programs are its validation. ``most``: windows to learn
    from at most, of whole traces at random."""
    windows = benchmark.windows
    found = groups(windows, count)
    taught = ~benchmark.of_origin(HAND)
    for i, group in enumerate(found):
        mine = windows["workload"].isin(group).to_numpy()
        other = windows["workload"].isin(found[(i + 1) % len(found)]).to_numpy()
        real = benchmark.of_origin(*REAL)
        train = fewer(windows, taught & ~mine, most, i)
        two = len(found) > 2
        yield Fold(
            f"fold {i + 1}",
            group,
            mine & real,
            train,
            train & ~other if two else train,
            train & other & real,
        )


def known_programs(benchmark: Benchmark, share: float, seed: int) -> Fold:
    """In distribution: a share of each real program's traces is scored by models that saw its
    other ones, and their bases."""
    windows = benchmark.windows
    taught = ~benchmark.of_origin(HAND)
    real = benchmark.of_origin(*REAL) & taught
    random, chosen = np.random.default_rng(seed), set[str]()
    for _, names in windows[real].groupby("workload")["trace"]:
        mine = np.unique(names.to_numpy(str))
        chosen.update(random.permutation(mine)[: int(share * len(mine))].tolist())
    test = real & windows["trace"].isin(chosen).to_numpy()
    train = taught & ~test
    return Fold("known programs", (), test, train, train, train & real)


def fewer(windows: pd.DataFrame, rows: Bools, most: int, seed: int) -> Bools:
    """These rows, of so many whole traces at random as have at most ``most`` windows together."""
    if rows.sum() <= most:
        return rows
    size = windows["trace"][rows].value_counts(sort=False)
    order = np.random.default_rng(seed).permutation(len(size))
    kept = order[: max(1, int((np.cumsum(size.to_numpy()[order]) <= most).sum()))]
    return np.asarray(rows & windows["trace"].isin(set(size.index[kept])))
