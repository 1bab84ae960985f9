"""A convolution over the sequence of windows: the heavier rival, which sees the neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from detector.flagger import Flagger
from detector.flagger.rivals.nets import NetFlagger, scale_of, sequences

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
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-4)
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(traces)), TRACES):
            losses = []
            for i in batch.tolist():
                trace = traces[i]
                at = int(torch.randint(max(1, len(trace.rows) - MOST + 1), ()))
                part = slice(at, at + MOST)
                logits, known = net(trace.rows[part]), trace.known[part]
                if known.any():
                    losses.append(
                        F.binary_cross_entropy_with_logits(logits[known], trace.truth[part][known])
                    )
            if losses:
                optimizer.zero_grad()
                torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return NetFlagger("convolution", net, scale)
