"""Whether scores tell windows apart, or only traces.

What stays the same through a trace (its device, its program, its size) says which trace it is. A
model may use that to guess how likely the trace is faulty, but it cannot tell where: within a
trace its AUC-ROC is a half. What a model is worth beyond that is what it does within traces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from detector.features import COLUMNS
from detector.lab.metrics import Estimate, auc, by_cluster

if TYPE_CHECKING:
    import pandas as pd


def identity(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with each feature replaced by its median over the trace: nothing varies in it."""
    import pandas as pd

    constant = frame.groupby("trace", sort=False)[list(COLUMNS)].transform("median")
    about = [column for column in frame.columns if column not in set(COLUMNS)]
    return pd.concat([frame[about], constant.astype(np.float32)], axis=1)


def within_trace(
    truth: npt.NDArray[np.bool_],
    score: npt.NDArray[np.float64],
    trace: npt.NDArray[np.object_],
    cluster: npt.NDArray[np.object_] | None = None,
    *,
    rounds: int = 500,
) -> Estimate:
    """AUC-ROC in each trace that has windows of both kinds, averaged over these traces, with an
    interval over clusters of them (by default over traces)."""
    names, which = np.unique(trace, return_inverse=True)
    rows = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    each = np.array([auc(truth[mine], score[mine]) for mine in rows])
    both = ~np.isnan(each)
    if not both.any():
        return Estimate(float("nan"), float("nan"), float("nan"))
    values = each[both]
    drawn = names if cluster is None else cluster[[mine[0] for mine in rows]]
    return by_cluster(lambda i: float(values[i].mean()), drawn[both], rounds=rounds)
