"""Depth from one picture: strided encoder, resizing decoder, scale-invariant loss."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import Context, ConvBlock
from dataset.workloads.setting import Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task, pictures


class Network(nn.Module):
    """Pictures to log depth [batch, side, side]."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        widths = [setting.width * 2**level for level in range(setting.depth + 2)]
        style = setting.style
        self.stem = ConvBlock(3, widths[0], 2, style)
        self.down = nn.ModuleList(ConvBlock(a, b, 2, style) for a, b in pairwise(widths))
        self.up = nn.ModuleList(ConvBlock(b, a, 1, style) for a, b in pairwise(widths))
        self.context = Context(widths[-1])
        self.head = nn.Conv2d(widths[0], 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        side = x.shape[-1]
        kept = [self.stem(x)]
        for block in self.down:
            kept.append(block(kept[-1]))
        x = self.context(kept.pop())
        for block in reversed(self.up):
            skip = kept.pop()
            x = block(F.interpolate(x, size=skip.shape[-2:], mode="bilinear")) + skip
        return F.interpolate(self.head(x), size=(side, side), mode="bilinear")[:, 0]


class Depth(Task):
    """Errors in log depth count but for the picture's own scale."""

    def build(self) -> nn.Module:
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        side = self.setting.side
        return {"x": pictures(size, side), "depth": 1 + 9 * torch.rand(size, side, side)}

    def loss(self, batch: Batch) -> Tensor:
        wrong = self.model(batch["x"]) - batch["depth"].log()
        return (wrong**2).mean() - 0.5 * (self.scales(wrong) ** 2).mean()

    def scales(self, wrong: Tensor) -> Tensor:
        """Mean error of each picture, [batch]."""
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                rows = [
                    torch.stack([picture[line].mean() for line in range(0, len(picture), 2)]).mean()
                    for picture in wrong
                ]
                return torch.stack(rows)
        return wrong.mean((1, 2))

    def infer(self, batch: Batch) -> Tensor:
        return self.model(batch["x"]).exp().clamp(1, 10)
