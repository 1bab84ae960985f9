"""What a workload is: a model, its data, its loss and its inference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dataset.workloads.setting import Setting

Batch = dict[str, Tensor]


class Task(ABC):
    """One workload. ``model`` may be replaced by a compiled or a distributed one."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.model: Callable[..., Tensor] = self.build().to(setting.device)

    @abstractmethod
    def build(self) -> nn.Module:
        """The model with random weights, on the CPU."""

    @abstractmethod
    def make_batch(self, size: int) -> Batch:
        """``size`` made-up samples on the CPU; the first dimension of each entry is the sample."""

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """The scalar training loss."""

    @abstractmethod
    def infer(self, batch: Batch) -> Tensor:
        """The result of inference on a batch."""


def pictures(count: int, side: int) -> Tensor:
    """Random pictures, float32 [count, 3, side, side]."""
    return torch.randn(count, 3, side, side)
