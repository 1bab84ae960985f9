"""Translator: a transformer that reads one sentence and writes another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import Activation, Attention, Norm
from dataset.workloads.setting import Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task

WORDS = 4096
HEADS = 4


class Cross(Attention):
    """Attention of one sequence over another."""

    def mix(self, x: Tensor, source: Tensor) -> Tensor:
        width = x.shape[-1]
        q = F.linear(x, self.qkv.weight[:width], self.qkv.bias[:width])
        k, v = F.linear(source, self.qkv.weight[width:], self.qkv.bias[width:]).chunk(2, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Self-attention, attention over the source where there is one, feed-forward."""

    def __init__(self, width: int, style: int, writes: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(Norm(width) for _ in range(3 if writes else 2))
        self.own = Attention(width, HEADS, causal=writes)
        self.other = Cross(width, HEADS) if writes else None
        self.wide, self.narrow = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.act = Activation(style)

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        x = x + self.own(self.norms[0](x))
        if self.other is not None and source is not None:
            x = x + self.other.mix(self.norms[2](x), source)
        return x + self.narrow(self.act(self.wide(self.norms[1](x))))


class Network(nn.Module):
    """(ids, target ids) to logits of the target's words."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width, style = setting.width, setting.style
        self.words = nn.Embedding(WORDS, width)
        self.reader = nn.ModuleList(Layer(width, style, False) for _ in range(setting.depth))
        self.writer = nn.ModuleList(Layer(width, style, True) for _ in range(setting.depth))
        self.norm = Norm(width)

    def forward(self, ids: Tensor, target: Tensor) -> Tensor:
        source, x = self.words(ids), self.words(target)
        for layer in self.reader:
            source = layer(source)
        for layer in self.writer:
            x = layer(x, source)
        return F.linear(self.norm(x), self.words.weight)


class Translator(Task):
    """Label-smoothed next-word loss."""

    def build(self) -> nn.Module:
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        shape = (size, self.setting.side)
        return {
            "ids": torch.randint(0, WORDS, shape),
            "target": torch.randint(0, WORDS, shape),
        }

    def loss(self, batch: Batch) -> Tensor:
        logits, words = self.model(batch["ids"], batch["target"])[:, :-1], batch["target"][:, 1:]
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                total = logits.new_zeros(())
                for place in range(0, words.shape[1], 4):
                    part = logits[:, place : place + 4].flatten(0, 1)
                    hit = words[:, place : place + 4].flatten()
                    total = total + F.cross_entropy(part, hit, reduction="sum", label_smoothing=0.1)
                return total / words.numel()
        return F.cross_entropy(logits.flatten(0, 1), words.flatten(), label_smoothing=0.1)

    def infer(self, batch: Batch) -> Tensor:
        return self.model(batch["ids"], batch["target"])[:, -1].argmax(-1)
