"""What the baselines in torch share: traces as sequences, and a flagger around a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from detector.flagger import Float32, Scores
from detector.lab.baselines.scale import Scale
from detector.lab.training import INSIDE, SIDES, is_known, matrix

if TYPE_CHECKING:
    import pandas as pd

SAMPLE = 20_000  # windows from which the scale is taken


@dataclass(frozen=True, eq=False)
class Sequence:
    """The windows of one trace in order.

    ``rows`` [windows, features]; ``truth`` and ``known`` [windows, 2]: suspicious by side, and
    whether anybody knows; ``bad`` [2]: whether the trace has a fault of that side at all.
    """

    rows: Tensor
    truth: Tensor
    known: Tensor

    @property
    def bad(self) -> Tensor:
        return self.truth.amax(0)


def sequences(frame: pd.DataFrame, scale: Scale) -> list[Sequence]:
    """One a trace, in the order of the table."""
    known = np.stack([is_known(frame, side) for side in SIDES], 1)
    truth = np.stack([frame[side] >= INSIDE for side in SIDES], 1)
    rows = scale(matrix(frame))
    return [
        Sequence(
            torch.from_numpy(rows[at]),
            torch.from_numpy(truth[at].astype(np.float32)),
            torch.from_numpy(known[at]),
        )
        for at in _by_trace(frame)
    ]


def _by_trace(frame: pd.DataFrame) -> Iterator[np.ndarray]:
    numbers = frame.groupby("trace", sort=False).ngroup().to_numpy()
    order = np.argsort(numbers, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def scale_of(frame: pd.DataFrame, seed: int) -> Scale:
    """From a sample of the table's windows."""
    rows = np.random.default_rng(seed).permutation(len(frame))[:SAMPLE]
    return Scale.of(matrix(frame.iloc[rows]))


def train(
    net: nn.Module,
    traces: list[Sequence],
    losses: Callable[[list[Sequence]], list[Tensor]],
    epochs: int,
    size: int,
    rate: float,
) -> None:
    """Adam over batches of ``size`` traces; ``losses`` gives the terms of a batch, if any."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=1e-4)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(traces)), size):
            terms = losses([traces[i] for i in batch.tolist()])
            if terms:
                optimizer.zero_grad()
                torch.stack(terms).mean().backward()  # type: ignore[no-untyped-call]
                optimizer.step()


class NetFlagger:
    """A network [windows, features] -> logits [windows, 2] as a flagger."""

    def __init__(self, name: str, net: nn.Module, scale: Scale) -> None:
        self.name = name
        self.threshold = {"cpu": 0.5, "gpu": 0.5}
        self._net = net.eval()
        self._scale = scale

    @torch.no_grad()
    def score(self, matrix: Float32) -> Scores:
        """See ``Flagger``."""
        logits = self._net(torch.from_numpy(np.ascontiguousarray(self._scale(matrix))))
        both = torch.sigmoid(logits).numpy().astype(np.float32)
        return Scores(both[:, 0], both[:, 1])

    def top_features(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        """Not asked for."""
        return [()] * len(matrix)
