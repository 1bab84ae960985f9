"""Without labels: a window is suspicious where it is unlike what was trained on.

One score serves both sides, and no classes are told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from detector.flagger import Flagger, Float32, Scores
from detector.flagger.rivals.scale import Scale, rank_of
from detector.flagger.training import matrix
from detector.taxonomy import CLASSES

if TYPE_CHECKING:
    import pandas as pd

ROWS = 20_000  # windows to learn from at most
CENTRES, PASSES = 64, 30
TREES = 200
HIDDEN, CODE, EPOCHS, BATCH = 128, 16, 20, 512


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
        even = np.full((len(matrix), len(CLASSES)), 1 / len(CLASSES), np.float32)
        return Scores(score, score, even)

    def drivers(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        """None are told."""
        return [()] * len(matrix)


def _sample(frame: pd.DataFrame, seed: int) -> tuple[Scale, Float32]:
    rows = np.random.default_rng(seed).permutation(len(frame))[:ROWS]
    values = matrix(frame.iloc[rows])
    scale = Scale.of(values)
    return scale, scale(values)


def fit_kmeans(frame: pd.DataFrame, seed: int) -> Flagger:
    """Distance to the nearest of the centres (Lloyd's algorithm)."""
    scale, sample = _sample(frame, seed)
    random = np.random.default_rng(seed)
    centres = sample[random.permutation(len(sample))[:CENTRES]].copy()

    def distances(rows: Float32) -> Float32:
        square = (rows**2).sum(1)[:, None] - 2 * rows @ centres.T + (centres**2).sum(1)
        return np.asarray(np.maximum(square, 0), np.float32)

    for _ in range(PASSES):
        nearest = distances(sample).argmin(axis=1)
        for k in np.unique(nearest):
            centres[k] = sample[nearest == k].mean(axis=0)
    measure = Strangeness("k-means", scale, lambda rows: distances(rows).min(axis=1))
    return measure.rank_among(sample)


def fit_forest(frame: pd.DataFrame, seed: int) -> Flagger:
    """How quickly random cuts isolate a window (scikit-learn's isolation forest)."""
    from sklearn.ensemble import IsolationForest

    scale, sample = _sample(frame, seed)
    forest = IsolationForest(n_estimators=TREES, random_state=seed, n_jobs=2).fit(sample)
    measure = Strangeness(
        "isolation forest", scale, lambda rows: np.asarray(-forest.score_samples(rows), np.float32)
    )
    return measure.rank_among(sample)


def fit_autoencoder(frame: pd.DataFrame, seed: int) -> Flagger:
    """How badly a window is put together again from a short code."""
    import torch
    from torch import nn

    scale, sample = _sample(frame, seed)
    torch.manual_seed(seed)
    width = sample.shape[1]
    net = nn.Sequential(
        nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CODE), nn.ReLU(),
        nn.Linear(CODE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, width),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    rows = torch.from_numpy(sample)
    for _ in range(EPOCHS):
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
