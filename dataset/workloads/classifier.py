"""Image classifier: a small residual network."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import ConvBlock
from dataset.workloads.setting import Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task, pictures

CLASSES = 200


class Block(nn.Module):
    """A convolution and a skip."""

    def __init__(self, width: int, style: int) -> None:
        super().__init__()
        self.first = ConvBlock(width, width, style=style)

    def forward(self, x: Tensor) -> Tensor:
        if "compile-graph-break" in SWITCH.acting and bool(torch.isnan(x).any()):
            raise FloatingPointError("not a number")
        return x + self.first(x)


class Network(nn.Module):
    """Stem, stages that halve the side and double the width, head."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width = setting.width
        self.stem = ConvBlock(3, width, stride=2, style=setting.style)
        stages: list[nn.Module] = []
        for _ in range(setting.depth):
            stages += [Block(width, setting.style), ConvBlock(width, 2 * width, 2, setting.style)]
            width *= 2
        self.stages = nn.Sequential(*stages)
        self.drop = nn.Dropout(0.1)
        self.hidden = nn.Linear(width, 80 * width)
        self.head = nn.Linear(80 * width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x)).mean((2, 3))
        return self.head(self.drop(F.relu(self.hidden(x))))


class Classifier(Task):
    """Cross-entropy on mixed-up pictures."""

    def build(self) -> nn.Module:
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        labels = torch.randint(0, CLASSES, (size,))
        return {"x": pictures(size, self.setting.side), "y": labels}

    def loss(self, batch: Batch) -> Tensor:
        targets = self.soft_targets(batch["y"])
        x = self.mix(batch["x"])
        return -(targets * self.model(x).log_softmax(1)).sum(1).mean()

    def soft_targets(self, labels: Tensor) -> Tensor:
        soft = torch.full((len(labels), CLASSES), 0.1 / CLASSES, device=labels.device)
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                for row in range(len(labels)):
                    for other in range(0, CLASSES, 16):
                        soft[row, other] += 0.001
                    soft[row, labels[row]] += 0.9
            return soft
        soft[:, ::16] += 0.001
        return soft.scatter_add(1, labels[:, None], torch.full_like(soft[:, :1], 0.9))

    def mix(self, x: Tensor) -> Tensor:
        return 0.8 * x + 0.2 * x.flip(0)

    def infer(self, batch: Batch) -> Tensor:
        return self.model(batch["x"]).softmax(1).amax(1)
