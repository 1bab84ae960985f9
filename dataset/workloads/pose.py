"""Pose estimator: heat maps of joints, read out by a soft arg max."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import Context, ConvBlock
from dataset.workloads.setting import Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task, pictures

JOINTS = 17


class Network(nn.Module):
    """Pictures to heat maps [batch, joints, side / 4, side / 4]."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width, style = setting.width, setting.style
        self.stem = nn.Sequential(ConvBlock(3, width, 2, style), ConvBlock(width, width, 2, style))
        self.down = nn.Sequential(
            ConvBlock(width, 2 * width, 2, style),
            *(ConvBlock(2 * width, 2 * width, 1, style) for _ in range(setting.depth)),
        )
        self.context = Context(2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.merge = ConvBlock(width, width, 1, style)
        self.head = nn.Conv2d(width, JOINTS, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(self.merge(x + self.up(self.context(self.down(x)))))


class Pose(Task):
    """Distance of the joints from where they are, and of the heat from where it belongs."""

    def build(self) -> nn.Module:
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        return {"x": pictures(size, self.setting.side), "joints": torch.rand(size, JOINTS, 2)}

    def places(self, maps: Tensor) -> Tensor:
        """Expected place of each joint in [0, 1], [batch, joints, 2]."""
        axis = torch.linspace(0, 1, maps.shape[-1], device=maps.device)
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                joints = []
                for joint in range(JOINTS):
                    heat = maps[:, joint].flatten(1).softmax(1).view_as(maps[:, joint])
                    across, down = (heat.sum(1) * axis).sum(1), (heat.sum(2) * axis).sum(1)
                    joints.append(torch.stack([across, down], 1))
                return torch.stack(joints, 1)
        heat = maps.flatten(2).softmax(2).view_as(maps)
        return torch.stack([(heat.sum(2) * axis).sum(2), (heat.sum(3) * axis).sum(2)], 2)

    def loss(self, batch: Batch) -> Tensor:
        maps = self.model(batch["x"])
        return F.smooth_l1_loss(self.places(maps), batch["joints"]) + 1e-3 * maps.square().mean()

    def infer(self, batch: Batch) -> Tensor:
        return self.places(self.model(batch["x"]))
