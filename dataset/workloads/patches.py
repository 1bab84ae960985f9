"""Patches: a small vision transformer of ``transformers``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

from dataset.workloads.setting import Setting
from dataset.workloads.task import Batch, Task, pictures

CLASSES = 100


class Network(nn.Module):
    """Pictures [batch, 3, side, side] to logits [batch, classes]."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.vit = ViTForImageClassification(
            ViTConfig(
                hidden_size=setting.width,
                intermediate_size=4 * setting.width,
                num_hidden_layers=setting.depth,
                num_attention_heads=4,
                image_size=setting.side,
                patch_size=8,
                num_labels=CLASSES,
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.vit(pixel_values=x).logits
        return logits


class Patches(Task):
    """Cross-entropy on classes of pictures."""

    def build(self) -> nn.Module:
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        labels = torch.randint(0, CLASSES, (size,))
        return {"x": pictures(size, self.setting.side), "y": labels}

    def loss(self, batch: Batch) -> Tensor:
        return F.cross_entropy(self.model(batch["x"]), batch["y"])

    def infer(self, batch: Batch) -> Tensor:
        return self.model(batch["x"]).softmax(1)
