"""A convolution over the sequence of windows: the heavier baseline, which sees the neighbors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from detector.flagger import Flagger
from detector.lab.baselines.nets import NetFlagger, Sequence, scale_of, sequences, train

if TYPE_CHECKING:
    import pandas as pd

TRACES = 8
MOST = 512  # neighboring windows of a trace to look at in one step


class Net(nn.Module):
    """[windows, features] -> logits [windows, 2], by residual dilated convolutions."""

    def __init__(self, features: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Dropout(dropout))
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i) for i in range(layers)
        )
        self.head = nn.Linear(width, 2)

    def forward(self, rows: Tensor) -> Tensor:
        x = self.first(rows).T[None]
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return self.head(x[0].T)  # type: ignore[no-any-return]


def fit(
    frame: pd.DataFrame,
    seed: int,
    *,
    width: int = 96,
    layers: int = 3,
    epochs: int = 12,
    rate: float = 1e-3,
    dropout: float = 0.2,
    unknown_weight: float = 0.0,
) -> Flagger:
    """Train on the windows' labels; windows that nobody knows count as healthy ones with
    ``unknown_weight``."""
    torch.manual_seed(seed)
    scale = scale_of(frame, seed)
    traces = sequences(frame, scale)
    net = Net(traces[0].rows.shape[1], width, layers, dropout)

    def losses(batch: list[Sequence]) -> list[Tensor]:
        return [term for trace in batch for term in _loss(net, trace, unknown_weight)]

    train(net, traces, losses, epochs, TRACES, rate)
    return NetFlagger("convolution", net, scale)


def _loss(net: Net, trace: Sequence, unknown_weight: float) -> list[Tensor]:
    """Of a part of a trace; nothing where no window of it counts."""
    at = int(torch.randint(max(1, len(trace.rows) - MOST + 1), ()))
    part = slice(at, at + MOST)
    weight = torch.where(trace.known[part], 1.0, unknown_weight)
    if not weight.any():
        return []
    logits = net(trace.rows[part])
    each = F.binary_cross_entropy_with_logits(logits, trace.truth[part], reduction="none")
    return [(each * weight).sum() / weight.sum()]
