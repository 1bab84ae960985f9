"""Generator: a small diffusion model, up-convolutions and one attention block."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import Attention, Context, ConvBlock
from dataset.workloads.setting import Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task, pictures

TIMES = 100


class Network(nn.Module):
    """Noise prediction from a noisy picture and a time, both [batch, ...]."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width, style = setting.width, setting.style
        self.time = nn.Embedding(TIMES, 2 * width)
        self.stem = ConvBlock(3, width, 1, style)
        self.down = ConvBlock(width, 2 * width, 2, style)
        self.middle = nn.ModuleList(
            ConvBlock(2 * width, 2 * width, 1, style) for _ in range(setting.depth)
        )
        self.context = Context(2 * width)
        self.attention = Attention(2 * width, 4)
        self.tail = ConvBlock(3 * width, width, 1, style)
        self.out = nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        wide = self.stem(x)
        x = self.down(wide) + self.time(time)[:, :, None, None]
        for block in self.middle:
            if "compile-graph-break" in SWITCH.acting and bool(torch.isnan(x).any()):
                raise FloatingPointError("not a number")
            x = x + block(x)
        x = self.context(x)
        tokens = x.flatten(2).transpose(1, 2)
        x = x + self.attention(tokens).transpose(1, 2).view_as(x)
        x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        return self.out(self.tail(torch.cat([x, wide], dim=1)))


class Generator(Task):
    """Denoising loss for training, a few denoising rounds for inference."""

    def build(self) -> nn.Module:
        shares = torch.linspace(0.99, 0.01, TIMES, device=self.setting.device)
        self.keep, self.add = shares.sqrt(), (1 - shares).sqrt()
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        return {"x": pictures(size, self.setting.side), "t": torch.randint(0, TIMES, (size,))}

    def noise(self, x: Tensor) -> Tensor:
        if "input-cpu-tensor-to-device" in SWITCH.acting:
            with Mark(SWITCH.tag["input-cpu-tensor-to-device"]):
                return torch.randn(x.shape).to(x.device)
        return torch.randn_like(x)

    def spoil(self, x: Tensor, noise: Tensor, time: Tensor) -> Tensor:
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                noisy = torch.empty_like(x)
                for row in range(len(x)):
                    keep, add = self.keep[time[row]], self.add[time[row]]
                    for channel in range(3):
                        for top in range(0, x.shape[2], 8):
                            piece = x[row, channel, top : top + 8] * keep
                            piece = piece + noise[row, channel, top : top + 8] * add
                            noisy[row, channel, top : top + 8] = piece
                return noisy
        shape = (-1, 1, 1, 1)
        return x * self.keep[time].view(shape) + noise * self.add[time].view(shape)

    def loss(self, batch: Batch) -> Tensor:
        noise = self.noise(batch["x"])
        return F.mse_loss(self.model(self.spoil(batch["x"], noise, batch["t"]), batch["t"]), noise)

    def infer(self, batch: Batch) -> Tensor:
        x, time = batch["x"], batch["t"]
        for _ in range(2):
            x = x - 0.1 * self.model(x, time)
        return x
