"""Tiny: a deep and narrow network, whose time is the framework's more than its arithmetic's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import Activation, Norm
from dataset.workloads.setting import CHANNELS
from dataset.workloads.task import Batch, Task


class Layer(nn.Module):
    """Norm, linear, activation, with a skip."""

    def __init__(self, width: int, style: int) -> None:
        super().__init__()
        self.norm, self.linear = Norm(width), nn.Linear(width, width)
        self.act = Activation(style)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.act(self.linear(self.norm(x)))


class Tiny(Task):
    """Regression of a few numbers."""

    def build(self) -> nn.Module:
        width, style = self.setting.width, self.setting.style
        layers = (Layer(width, style) for _ in range(8 * self.setting.depth))
        return nn.Sequential(nn.Linear(CHANNELS, width), *layers, nn.Linear(width, 4))

    def make_batch(self, size: int) -> Batch:
        return {"x": torch.randn(size, CHANNELS), "y": torch.randn(size, 4)}

    def loss(self, batch: Batch) -> Tensor:
        return F.mse_loss(self.model(batch["x"]), batch["y"])

    def infer(self, batch: Batch) -> Tensor:
        return self.model(batch["x"])
