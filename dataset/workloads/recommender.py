"""Recommender: embedding tables, dense features, pairwise interactions (after DLRM)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import Activation, Norm
from dataset.workloads.setting import Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task

TABLES = 8
ROWS = 4096
DENSE = 13


class Dense(nn.Module):
    """Norm, linear, activation."""

    def __init__(self, cin: int, cout: int, style: int) -> None:
        super().__init__()
        self.norm, self.linear, self.act = Norm(cin), nn.Linear(cin, cout), Activation(style)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(self.norm(x)))


class Network(nn.Module):
    """(ids [batch, places], dense [batch, 13]) to logits [batch]."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width, style = setting.width, setting.style
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, width, mode="sum") for _ in range(TABLES))
        self.bottom = nn.Sequential(Dense(DENSE, 4 * width, style), Dense(4 * width, width, style))
        pairs = (TABLES + 1) * TABLES // 2
        layers = [Dense(8 * width, 8 * width, style) for _ in range(setting.depth)]
        self.top = nn.Sequential(Dense(width + pairs, 8 * width, style), *layers)
        self.head = nn.Linear(8 * width, 1)

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        bags = ids.chunk(TABLES, dim=1)
        looked_up = [table(bag % ROWS) for table, bag in zip(self.tables, bags, strict=True)]
        joined = torch.cat([bottom, self.interact(torch.stack([bottom, *looked_up], 1))], 1)
        return self.head(self.top(joined)).squeeze(1)

    def interact(self, vectors: Tensor) -> Tensor:
        """Dot products of all pairs, [batch, pairs]."""
        count = vectors.shape[1]
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                products = [
                    (vectors[:, i] * vectors[:, j]).sum(1) for i in range(count) for j in range(i)
                ]
                return torch.stack(products, 1)
        rows, columns = torch.tril_indices(count, count, -1, device=vectors.device)
        return torch.bmm(vectors, vectors.transpose(1, 2))[:, rows, columns]


class Recommender(Task):
    """Click prediction."""

    def build(self) -> nn.Module:
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        return {
            "ids": torch.randint(0, ROWS, (size, self.setting.side)),
            "dense": torch.rand(size, DENSE),
            "y": torch.randint(0, 2, (size,)).float(),
        }

    def loss(self, batch: Batch) -> Tensor:
        logits = self.model(batch["ids"], batch["dense"])
        return F.binary_cross_entropy_with_logits(logits, batch["y"])

    def infer(self, batch: Batch) -> Tensor:
        return self.model(batch["ids"], batch["dense"]).sigmoid()
