"""Forecaster: dilated convolutions over a series, quantiles of what comes next."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dataset.workloads.layers import Activation, Norm
from dataset.workloads.setting import CHANNELS, Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task

AHEAD = 24
SHARES = (0.1, 0.5, 0.9)


class Layer(nn.Module):
    """A causal dilated convolution after a norm, with a skip."""

    def __init__(self, width: int, dilation: int, style: int) -> None:
        super().__init__()
        self.norm = Norm(width)
        self.conv = nn.Conv1d(width, width, 3, padding=2 * dilation, dilation=dilation)
        self.act = Activation(style)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv(self.norm(x).transpose(1, 2))[..., : x.shape[1]]
        return x + self.act(out.transpose(1, 2))


class Network(nn.Module):
    """Series [batch, length, channels] to quantiles [batch, ahead, shares]."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width = setting.width
        self.first = nn.Linear(CHANNELS, width)
        levels = range(setting.depth + 2)
        self.layers = nn.Sequential(*(Layer(width, 2**i, setting.style) for i in levels))
        self.wide = nn.Linear(width, 32 * width)
        self.head = nn.Linear(32 * width, AHEAD * len(SHARES))

    def forward(self, x: Tensor) -> Tensor:
        last = self.layers(self.first(x))[:, -1]
        return self.head(self.wide(last).relu()).unflatten(1, (AHEAD, len(SHARES)))


class Forecaster(Task):
    """The pinball loss."""

    def build(self) -> nn.Module:
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        series = torch.randn(size, self.setting.side, CHANNELS).cumsum(1) / 8
        return {"x": series, "next": torch.randn(size, AHEAD)}

    def loss(self, batch: Batch) -> Tensor:
        predicted, true = self.model(batch["x"]), batch["next"]
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                total = predicted.new_zeros(())
                for hour in range(AHEAD):
                    for i, share in enumerate(SHARES):
                        wrong = true[:, hour] - predicted[:, hour, i]
                        total = total + torch.maximum(share * wrong, (share - 1) * wrong).mean()
                return total / (AHEAD * len(SHARES))
        shares = torch.tensor(SHARES).to(predicted.device)
        wrong = true[..., None] - predicted
        return torch.maximum(shares * wrong, (shares - 1) * wrong).mean()

    def infer(self, batch: Batch) -> Tensor:
        return self.model(batch["x"])[..., 1]
