"""Graph network: messages along edges, summed at the nodes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import Activation, Norm
from dataset.workloads.setting import CHANNELS, Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task

DEGREE = 6
CLASSES = 10


class Layer(nn.Module):
    """One round of messages."""

    def __init__(self, width: int, style: int) -> None:
        super().__init__()
        self.norm = Norm(width)
        self.message, self.update = nn.Linear(2 * width, width), nn.Linear(2 * width, width)
        self.act = Activation(style)

    def forward(self, x: Tensor, origin: Tensor, target: Tensor) -> Tensor:
        known = self.norm(x)
        ends = torch.cat([known[:, origin], known[:, target]], -1)
        heard = torch.zeros_like(x).index_add(1, target, self.act(self.message(ends)))
        return x + self.update(torch.cat([known, heard], -1))


class Network(nn.Module):
    """Nodes [batch, nodes, channels] and edges [2, edges] to one class a graph."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width = setting.width
        self.first = nn.Linear(CHANNELS, width)
        count = setting.depth + 1
        self.layers = nn.ModuleList(Layer(width, setting.style) for _ in range(count))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, edges[0], edges[1])
        return self.head(self.pooled(x))

    def pooled(self, x: Tensor) -> Tensor:
        """Mean and maximum over the nodes, added."""
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                best = x[:, 0]
                total = torch.zeros_like(best)
                for node in range(x.shape[1]):
                    best = torch.maximum(best, x[:, node])
                    total = total + x[:, node]
                return total / x.shape[1] + best
        return x.mean(1) + x.amax(1)


class Graph(Task):
    """Classifies graphs that share their edges, as a mesh does."""

    def build(self) -> nn.Module:
        nodes = self.setting.side
        self.edges = torch.randint(0, nodes, (2, DEGREE * nodes)).to(self.setting.device)
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        return {
            "x": torch.randn(size, self.setting.side, CHANNELS),
            "y": torch.randint(0, CLASSES, (size,)),
        }

    def loss(self, batch: Batch) -> Tensor:
        return F.cross_entropy(self.model(batch["x"], self.edges), batch["y"])

    def infer(self, batch: Batch) -> Tensor:
        return self.model(batch["x"], self.edges).argmax(-1)
