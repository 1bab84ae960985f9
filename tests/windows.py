"""Tables of windows as a benchmark has them, made by hand: two features say what is wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd

from detector.features import COLUMNS
from detector.features.savings import SAVED
from detector.flagger import Scores
from detector.lab.training import Training
from detector.taxonomy import NONE

CPU, GPU = "host-gc-pause", "memory-dtype-churn"
TINY = Training(rounds=15, parameters={"num_threads": 1})
ROWS = 24  # windows of a trace
SAVINGS = [COLUMNS.index(column) for column in SAVED]


def table(traces: int = 12, seed: int = 0, prefix: str = "t", programs: int = 3) -> pd.DataFrame:
    """Every second trace is bad on one side, in its windows 8 to 15; the first two features say it
    with some noise, and are extreme there."""
    random = np.random.default_rng(seed)
    parts = []
    for k in range(traces):
        inside = (np.arange(ROWS) >= 8) & (np.arange(ROWS) < 16) & (k % 2 == 1)
        side = k // 2 % 2
        features = random.normal(size=(ROWS, len(COLUMNS))).astype(np.float32)
        features[:, side] += 8 * inside
        features[:, 2:40] += 4 * inside[:, None]
        features[:, SAVINGS] = 0  # noise there would be what a head begins with
        about = {
            "trace": f"{prefix}{k}",
            "origin": "recorded",
            "workload": f"w{k % programs}",
            "cluster": f"w{k % programs}",
            "quality": "bad" if inside.any() else "good",
            "healthy": not inside.any(),
            "extent": "every" if k % 4 == 1 else "some",
            "start_us": 10.0 * np.arange(ROWS),
            "end_us": 10.0 * np.arange(1, ROWS + 1),
            "cpu": inside * float(side == 0),
            "gpu": inside * float(side == 1),
            "unknown_cpu": 0.0,
            "unknown_gpu": 0.0,
            "pattern": np.where(inside, (CPU, GPU)[side], NONE),
        }
        rest = pd.DataFrame(features, columns=list(COLUMNS))
        parts.append(pd.concat([pd.DataFrame(about), rest], axis=1))
    return pd.concat(parts, ignore_index=True)


def perfect(frame: pd.DataFrame) -> Scores:
    """Scores that are the labels."""
    return Scores(frame["cpu"].to_numpy(np.float32), frame["gpu"].to_numpy(np.float32))
