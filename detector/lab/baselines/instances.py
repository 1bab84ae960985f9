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
from detector.lab.baselines.nets import NetFlagger, Sequence, scale_of, sequences, train

if TYPE_CHECKING:
    import pandas as pd

TRACES = 16
MOST = 600  # windows of a trace to look at in one step


class Bags(nn.Module):
    """[windows, features] -> logits [windows, 2]; ``pooled`` gives those of the whole trace."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout))
        self.look, self.gate = nn.Linear(hidden, 2 * hidden), nn.Linear(hidden, 2 * hidden)
        self.weigh = nn.Parameter(torch.randn(2, hidden) / hidden**0.5)
        self.head = nn.Linear(hidden, 2)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.body(rows))  # type: ignore[no-any-return]

    def pooled(self, rows: Tensor) -> Tensor:
        """Logits of the trace by side, [2]."""
        seen = self.body(rows)
        gated = torch.tanh(self.look(seen)) * torch.sigmoid(self.gate(seen))
        weight = (gated.view(len(rows), 2, -1) * self.weigh).sum(-1).softmax(0)  # [windows, 2]
        mixed = weight.T @ seen  # [2, hidden]
        logits: Tensor = (mixed * self.head.weight).sum(1) + self.head.bias
        return logits


def fit(
    frame: pd.DataFrame,
    seed: int,
    *,
    hidden: int = 64,
    epochs: int = 15,
    rate: float = 1e-3,
    dropout: float = 0.2,
) -> Flagger:
    """Train on whether each trace has a fault on each side; where it is stays hidden."""
    torch.manual_seed(seed)
    scale = scale_of(frame, seed)
    traces = sequences(frame, scale)
    net = Bags(traces[0].rows.shape[1], hidden, dropout)

    def losses(batch: list[Sequence]) -> list[Tensor]:
        predicted = [net.pooled(_some(trace.rows)) for trace in batch]
        return [
            F.binary_cross_entropy_with_logits(logits, trace.bad)
            for logits, trace in zip(predicted, batch, strict=True)
        ]

    train(net, traces, losses, epochs, TRACES, rate)
    return NetFlagger("multiple instances", net, scale)


def _some(rows: Tensor) -> Tensor:
    return rows if len(rows) <= MOST else rows[torch.randperm(len(rows))[:MOST]]
