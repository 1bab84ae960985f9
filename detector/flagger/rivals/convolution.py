"""A convolution over the sequence of windows: the heavier rival, which sees the neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from detector.flagger import Flagger
from detector.flagger.rivals.nets import NetFlagger, Sequence, scale_of, sequences, train

if TYPE_CHECKING:
    import pandas as pd

WIDTH, LAYERS, EPOCHS, TRACES = 96, 3, 12, 8
MOST = 512  # neighbouring windows of a trace to look at in one step


class Net(nn.Module):
    """[windows, features] -> logits [windows, 2], by residual dilated convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(width, WIDTH), nn.ReLU(), nn.Dropout(0.2))
        self.layers = nn.ModuleList(
            nn.Conv1d(WIDTH, WIDTH, 3, padding=2**i, dilation=2**i) for i in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, rows: Tensor) -> Tensor:
        x = self.first(rows).T[None]
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return self.head(x[0].T)  # type: ignore[no-any-return]


def fit(frame: pd.DataFrame, seed: int) -> Flagger:
    """Train on the windows' labels; windows that nobody knows count for nothing."""
    torch.manual_seed(seed)
    scale = scale_of(frame, seed)
    traces = sequences(frame, scale)
    net = Net(traces[0].rows.shape[1])

    def losses(batch: list[Sequence]) -> list[Tensor]:
        return [term for trace in batch for term in _loss(net, trace)]

    train(net, traces, losses, EPOCHS, TRACES)
    return NetFlagger("convolution", net, scale)


def _loss(net: Net, trace: Sequence) -> list[Tensor]:
    """Of a part of a trace; nothing where nobody knows any of it."""
    at = int(torch.randint(max(1, len(trace.rows) - MOST + 1), ()))
    part = slice(at, at + MOST)
    known = trace.known[part]
    if not known.any():
        return []
    logits = net(trace.rows[part])
    return [F.binary_cross_entropy_with_logits(logits[known], trace.truth[part][known])]
