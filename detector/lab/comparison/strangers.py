"""Every contender on every real trace, scored once by a model that never saw its program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from detector.flagger import Scores
from detector.lab.comparison.benchmark import Benchmark, Bools
from detector.lab.comparison.contenders import SHIPS, Contenders, join_scores, scores_of
from detector.lab.comparison.folds import Fold
from detector.lab.comparison.scored import Scored
from detector.lab.comparison.thresholds import flags, thresholds
from detector.lab.training import SIDES

if TYPE_CHECKING:
    import pandas as pd

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Part:
    """What one fold says of its own traces: their windows, scores and flags."""

    frame: pd.DataFrame
    scores: Scores
    flagged: dict[str, Bools]


def fold_of(name: str, contenders: Contenders, benchmark: Benchmark, fold: Fold) -> Part:
    """Thresholds by a model that saw neither the fold's programs nor those of its validation,
    scores by one that learned from both. What ships brings thresholds of its own."""
    windows = benchmark.windows
    valid, test = windows[fold.valid], windows[fold.test]
    if name == SHIPS:
        today = contenders.fit(name, windows[fold.train])
        scores = scores_of(today, test)
        return Part(test, scores, flags(scores, today.threshold))
    inner = contenders.fit(name, windows[fold.inner])
    limits = thresholds(valid, scores_of(inner, valid))
    scores = scores_of(contenders.fit(name, windows[fold.train]), test)
    return Part(test, scores, flags(scores, limits))


def together(parts: Sequence[Part]) -> Scored:
    """The folds as one table, by trace and time."""
    import pandas as pd

    frame = pd.concat([part.frame for part in parts])
    order = np.argsort(frame.index.to_numpy(), kind="stable")
    scores = join_scores([part.scores for part in parts])
    flagged = {s: np.concatenate([part.flagged[s] for part in parts])[order] for s in SIDES}
    return Scored(
        frame.iloc[order].reset_index(drop=True),
        Scores(scores.cpu[order], scores.gpu[order]),
        flagged,
    )


def of_rows(scored: Scored, rows: Bools) -> Scored:
    """The part of a table that whole traces make."""
    s = scored.scores
    return Scored(
        scored.frame[rows].reset_index(drop=True),
        Scores(s.cpu[rows], s.gpu[rows]),
        {side: flags[rows] for side, flags in scored.flagged.items()},
    )
