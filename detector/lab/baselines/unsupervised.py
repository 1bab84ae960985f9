"""Without labels: a window is suspicious where it is unlike what was trained on.

One score serves both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from detector.flagger import Flagger, Float32, Scores
from detector.lab.baselines.scale import Scale, rank_of
from detector.lab.training import matrix

if TYPE_CHECKING:
    import pandas as pd

ROWS = 20_000  # windows to learn from at most
BATCH = 512


class Strangeness:
    """Scores windows by a measure of how strange they are, ranked among the trained ones."""

    def __init__(self, name: str, scale: Scale, measure: Callable[[Float32], Float32]) -> None:
        self.name = name
        self.threshold = {"cpu": 0.9, "gpu": 0.9}
        self._scale = scale
        self._measure = measure
        self._known = np.zeros(0, np.float32)

    def rank_among(self, sample: Float32) -> Strangeness:
        """Take a sample of scaled windows as what scores are ranked among."""
        self._known = np.sort(self._measure(sample))
        return self

    def score(self, matrix: Float32) -> Scores:
        """See ``Flagger``."""
        score = rank_of(self._known, self._measure(self._scale(matrix)))
        return Scores(score, score)

    def top_features(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        """Not asked for."""
        return [()] * len(matrix)


def _sample(frame: pd.DataFrame, seed: int) -> tuple[Scale, Float32]:
    rows = np.random.default_rng(seed).permutation(len(frame))[:ROWS]
    values = matrix(frame.iloc[rows])
    scale = Scale.of(values)
    return scale, scale(values)


def fit_forest(
    frame: pd.DataFrame, seed: int, *, trees: int = 200, samples: int = 256, share: float = 1.0
) -> Flagger:
    """How quickly random cuts isolate a window (scikit-learn's isolation forest). Each of the
    ``trees`` sees so many ``samples`` and this ``share`` of the features."""
    from sklearn.ensemble import IsolationForest

    scale, sample = _sample(frame, seed)
    forest = IsolationForest(
        n_estimators=trees,
        max_samples=min(samples, len(sample)),
        max_features=share,
        random_state=seed,
    ).fit(sample)
    measure = Strangeness(
        "isolation forest", scale, lambda rows: np.asarray(-forest.score_samples(rows), np.float32)
    )
    return measure.rank_among(sample)


def fit_autoencoder(
    frame: pd.DataFrame,
    seed: int,
    *,
    hidden: int = 128,
    code: int = 16,
    epochs: int = 20,
    rate: float = 1e-3,
) -> Flagger:
    """How badly a window is put together again from a short code."""
    import torch
    from torch import nn

    scale, sample = _sample(frame, seed)
    torch.manual_seed(seed)
    width = sample.shape[1]
    net = nn.Sequential(
        nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, code), nn.ReLU(),
        nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, width),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    rows = torch.from_numpy(sample)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(rows)), BATCH):
            loss = (net(rows[batch]) - rows[batch]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def error(scaled: Float32) -> Float32:
        values = torch.from_numpy(np.ascontiguousarray(scaled))
        return np.asarray((net(values) - values).square().mean(1), np.float32)

    return Strangeness("autoencoder", scale, error).rank_among(sample)
