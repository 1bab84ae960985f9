"""Object detector: convolutional backbone, box and class heads, box decoding with masks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import Context, ConvBlock
from dataset.workloads.setting import Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task, pictures

CLASSES = 12
STRIDE = 16


class Backbone(nn.Module):
    """Stride-2 stages; with a depth of 3 they make the stride of 16."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width = setting.width
        blocks: list[nn.Module] = [ConvBlock(3, width, 2, setting.style)]
        for _ in range(setting.depth):
            grown = min(2 * width, 4 * setting.width)
            blocks += [ConvBlock(width, grown, 2, setting.style)]
            width = grown
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if "compile-graph-break" in SWITCH.acting and bool(torch.isnan(x).any()):
                raise FloatingPointError("not a number")
            x = block(x)
        return x


class Network(nn.Module):
    """Backbone and heads; returns [batch, cells, 4 + classes]."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width = 4 * setting.width
        self.backbone = Backbone(setting)
        self.tower = ConvBlock(width, width, 1, setting.style)
        self.context = Context(width)
        self.boxes = nn.Conv2d(width, 4, 1)
        self.classes = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.context(self.tower(self.backbone(x)))
        return torch.cat([self.boxes(x), self.classes(x)], 1).flatten(2).transpose(1, 2)


class Detector(Task):
    """Box regression on the cells that hold an object, classification everywhere."""

    def build(self) -> nn.Module:
        side = self.setting.side // STRIDE
        cells = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"))
        self.centers = (cells.flatten(1).T.float() + 0.5).mul(STRIDE).to(self.setting.device)
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        cells = (self.setting.side // STRIDE) ** 2
        return {
            "x": pictures(size, self.setting.side),
            "boxes": torch.rand(size, cells, 4) * self.setting.side,
            "labels": torch.randint(0, CLASSES, (size, cells)),
            "mask": (torch.rand(size, cells) < 0.3).float(),
        }

    def decode(self, offsets: Tensor) -> Tensor:
        """Corners (x0, y0, x1, y1) from offsets around the cells' centers; [batch, cells, 4]."""
        if "host-cpu-fallback" in SWITCH.acting:
            with Mark(SWITCH.tag["host-cpu-fallback"]):
                offsets = offsets.cpu().sort(dim=1).values.to(offsets.device)
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                rows = []
                for cell in range(0, offsets.shape[1], 2):
                    size = offsets[:, cell : cell + 2, 2:].exp() * STRIDE
                    center = self.centers[cell : cell + 2] + offsets[:, cell : cell + 2, :2]
                    rows.append(torch.cat([center - size / 2, center + size / 2], dim=2))
                return torch.cat(rows, dim=1)
        size = offsets[..., 2:].exp() * STRIDE
        center = self.centers + offsets[..., :2]
        return torch.cat([center - size / 2, center + size / 2], dim=-1)

    def loss(self, batch: Batch) -> Tensor:
        out = self.model(batch["x"])
        boxes = self.decode(out[..., :4].clamp(-4, 4))
        wrong = F.smooth_l1_loss(boxes, batch["boxes"], reduction="none").mean(-1)
        if "sync-dynamic-shape" in SWITCH.acting:
            with Mark(SWITCH.tag["sync-dynamic-shape"]):
                located = wrong[batch["mask"] > 0].mean()
        else:
            located = (wrong * batch["mask"]).sum() / batch["mask"].sum().clamp(min=1)
        named = F.cross_entropy(out[..., 4:].flatten(0, 1), batch["labels"].flatten())
        return located / self.setting.side + named

    def infer(self, batch: Batch) -> Tensor:
        out = self.model(batch["x"])
        boxes = self.decode(out[..., :4].clamp(-4, 4))
        scores = out[..., 4:].softmax(-1).amax(-1, keepdim=True)
        return torch.where(scores > 0.2, boxes, torch.zeros_like(boxes))
