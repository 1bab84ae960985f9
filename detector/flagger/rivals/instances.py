"""Multiple-instance learning: from one label a trace, which of its windows are to blame.

Attention pooling after Ilse, Tomczak and Welling, "Attention-based Deep Multiple Instance
Learning" (ICML 2018): gated attention weighs the windows, and the weighted mean tells whether the
trace is faulty. A window's score is the classifier's logit on that window alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from detector.flagger import Flagger
from detector.flagger.rivals.nets import NetFlagger, scale_of, sequences

if TYPE_CHECKING:
    import pandas as pd

HIDDEN, EPOCHS, TRACES = 64, 15, 16
MOST = 600  # windows of a trace to look at in one step


class Bags(nn.Module):
    """[windows, features] -> logits [windows, 2]; ``pooled`` gives those of the whole trace."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Dropout(0.2))
        self.look, self.gate = nn.Linear(HIDDEN, 2 * HIDDEN), nn.Linear(HIDDEN, 2 * HIDDEN)
        self.weigh = nn.Parameter(torch.randn(2, HIDDEN) / HIDDEN**0.5)
        self.head = nn.Linear(HIDDEN, 2)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.body(rows))  # type: ignore[no-any-return]

    def pooled(self, rows: Tensor) -> Tensor:
        """Logits of the trace by side, [2]."""
        seen = self.body(rows)
        gated = torch.tanh(self.look(seen)) * torch.sigmoid(self.gate(seen))
        weight = (gated.view(len(rows), 2, HIDDEN) * self.weigh).sum(-1).softmax(0)  # [windows, 2]
        mixed = weight.T @ seen  # [2, hidden]
        told: Tensor = (mixed * self.head.weight).sum(1) + self.head.bias
        return told


def fit(frame: pd.DataFrame, seed: int) -> Flagger:
    """Train on whether each trace has a fault on each side; where, it is never told."""
    torch.manual_seed(seed)
    scale = scale_of(frame, seed)
    traces = sequences(frame, scale)
    net = Bags(traces[0].rows.shape[1])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-4)
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(traces)), TRACES):
            told = torch.stack([net.pooled(_some(traces[i].rows)) for i in batch.tolist()])
            bad = torch.stack([traces[i].bad for i in batch.tolist()])
            loss = F.binary_cross_entropy_with_logits(told, bad)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return NetFlagger("multiple instances", net, scale)


def _some(rows: Tensor) -> Tensor:
    return rows if len(rows) <= MOST else rows[torch.randperm(len(rows))[:MOST]]
