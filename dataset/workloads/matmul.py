"""Large matrix products and nothing else: busy, and nothing to repair."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dataset.workloads.task import Batch, Task


class Matmul(Task):
    """A stack of wide linear layers without anything between."""

    def build(self) -> nn.Module:
        width = self.setting.width
        return nn.Sequential(*(nn.Linear(width, width) for _ in range(self.setting.depth)))

    def make_batch(self, size: int) -> Batch:
        return {"x": torch.randn(size * 4, self.setting.width)}

    def loss(self, batch: Batch) -> Tensor:
        return self.model(batch["x"]).square().mean()

    def infer(self, batch: Batch) -> Tensor:
        return self.model(batch["x"])
