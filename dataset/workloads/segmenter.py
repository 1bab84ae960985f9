"""Segmenter: a U-Net with a dice and cross-entropy loss."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import Context, ConvBlock
from dataset.workloads.setting import Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task, pictures

CLASSES = 8


class Network(nn.Module):
    """Down, up with skips; returns [batch, classes, side, side]."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        widths = [setting.width * 2**level for level in range(setting.depth + 1)]
        style = setting.style
        self.stem = ConvBlock(3, widths[0], 1, style)
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList(ConvBlock(a, b, 2, style) for a, b in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.merge = nn.ModuleList(ConvBlock(2 * a, a, 1, style) for a, _ in reversed(pairs))
        self.context = Context(widths[-1])
        self.head = nn.Conv2d(widths[0], CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.stem(x)]
        for down in self.down:
            if "compile-graph-break" in SWITCH.acting and bool(torch.isnan(kept[-1]).any()):
                raise FloatingPointError("not a number")
            kept.append(down(kept[-1]))
        x = self.context(kept.pop())
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), kept.pop()], dim=1))
        return self.head(x)


class Segmenter(Task):
    """Per-pixel classes."""

    def build(self) -> nn.Module:
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        side = self.setting.side
        return {"x": pictures(size, side), "y": torch.randint(0, CLASSES, (size, side, side))}

    def dice(self, shares: Tensor, target: Tensor) -> Tensor:
        hot = F.one_hot(target, CLASSES).movedim(-1, 1).to(shares.dtype)
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                total = shares.new_zeros(())
                for sample in range(shares.shape[0]):
                    for kind in range(CLASSES):
                        mine, theirs = shares[sample, kind], hot[sample, kind]
                        both = (mine * theirs).sum()
                        total = total + 2 * both / (mine.sum() + theirs.sum() + 1)
                return 1 - total / (shares.shape[0] * CLASSES)
        both = (shares * hot).sum((2, 3))
        return 1 - (2 * both / (shares.sum((2, 3)) + hot.sum((2, 3)) + 1)).mean()

    def shares(self, out: Tensor) -> Tensor:
        if "host-cpu-fallback" in SWITCH.acting:
            with Mark(SWITCH.tag["host-cpu-fallback"]):
                return out.cpu().softmax(1).to(out.device)
        return out.softmax(1)

    def loss(self, batch: Batch) -> Tensor:
        out = self.model(batch["x"])
        if "sync-dynamic-shape" in SWITCH.acting:
            with Mark(SWITCH.tag["sync-dynamic-shape"]):
                known = batch["y"].flatten() > 0
                rows = out.movedim(1, -1).flatten(0, 2)[known]
                named = F.cross_entropy(rows, batch["y"].flatten()[known])
        else:
            named = F.cross_entropy(out, batch["y"], ignore_index=0)
        return named + self.dice(self.shares(out), batch["y"])

    def infer(self, batch: Batch) -> Tensor:
        return self.model(batch["x"]).argmax(1)
