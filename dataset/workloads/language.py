"""Language model: a small causal transformer; training, and decoding token by token."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import Activation, Attention, Norm
from dataset.workloads.setting import Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task

WORDS = 5000
HEADS = 4
TOKENS = 6  # decoded per step


class Layer(nn.Module):
    """Attention and feed-forward, each after a norm."""

    def __init__(self, width: int, style: int) -> None:
        super().__init__()
        self.first, self.second = Norm(width), Norm(width)
        self.attention = Attention(width, HEADS, causal=True)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act = Activation(style)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.narrow(self.act(self.prepare(self.wide(self.second(x)))))

    def prepare(self, x: Tensor) -> Tensor:
        if "memory-redundant-copy" in SWITCH.acting:
            with Mark(SWITCH.tag["memory-redundant-copy"]):
                half = x.shape[2] // 2
                x = torch.cat([x[..., :half].contiguous(), x[..., half:].contiguous()], dim=2)
                x = x.clone()
        if "memory-dtype-churn" in SWITCH.acting:
            with Mark(SWITCH.tag["memory-dtype-churn"]):
                x = x.to(torch.bfloat16).to(torch.float32)
        return x

    def extend(self, x: Tensor, keys: Tensor, values: Tensor, at: int) -> Tensor:
        """One token with the cache [batch, heads, length, size], which is written at ``at``."""
        batch, _, width = x.shape
        parts = self.attention.qkv(self.first(x)).view(batch, 1, 3, HEADS, width // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        keys[:, :, at : at + 1] = k
        values[:, :, at : at + 1] = v
        return self.finish(x, q, keys[:, :, : at + 1], values[:, :, : at + 1])

    def finish(self, x: Tensor, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(q, keys, values)
        x = x + self.attention.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(self.act(self.wide(self.second(x))))


class Network(nn.Module):
    """Token ids [batch, length] to logits [batch, length, words]."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width = setting.width
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(4096, width)
        self.layers = nn.ModuleList(Layer(width, setting.style) for _ in range(setting.depth))
        self.norm = Norm(width)
        odd = "compute-misaligned-gemm" in SWITCH.built
        self.head = nn.Linear(width, WORDS + 1 if odd else WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for layer in self.layers:
            if "compile-graph-break" in SWITCH.acting and bool(torch.isnan(x).any()):
                raise FloatingPointError("not a number")
            x = layer(x)
        x = self.norm(x)
        if "compute-underfilled" in SWITCH.acting:
            with Mark(SWITCH.tag["compute-underfilled"]):
                return torch.stack([self.head(row) for part in x for row in part.split(16)]).view(
                    *x.shape[:2], -1
                )
        if "compute-misaligned-gemm" in SWITCH.acting:
            with Mark(SWITCH.tag["compute-misaligned-gemm"]):
                return self.head(x)
        return self.head(x)


class Language(Task):
    """Next-token loss; inference decodes tokens greedily with a cache."""

    def build(self) -> nn.Module:
        self.net = Network(self.setting)
        return self.net

    def make_batch(self, size: int) -> Batch:
        return {"ids": torch.randint(0, WORDS, (size, self.setting.side))}

    def loss(self, batch: Batch) -> Tensor:
        ids = batch["ids"]
        logits = self.model(ids)[:, :-1]
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                total = logits.new_zeros(())
                for row in range(logits.shape[0]):
                    for place in range(0, logits.shape[1], 12):
                        words = ids[row, place + 1 : place + 13]
                        part = F.cross_entropy(logits[row, place : place + 12], words)
                        total = total + part * len(words)
                return total / (logits.shape[0] * logits.shape[1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    def infer(self, batch: Batch) -> Tensor:
        if self.setting.variant != "decode":
            return self.model(batch["ids"])[:, -1].argmax(-1)
        if "infer-kv-cat" in SWITCH.acting:
            return self.decode_joined(batch["ids"])
        return self.decode_placed(batch["ids"])

    def cache(self, ids: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Made-up keys and values of a long prompt, one pair a layer."""
        size = self.setting.width // HEADS
        shape = (ids.shape[0], HEADS, 4 * ids.shape[1] + TOKENS, size)
        device = ids.device
        return [
            (torch.randn(shape, device=device), torch.randn(shape, device=device))
            for _ in self.net.layers
        ]

    def decode_placed(self, ids: Tensor) -> Tensor:
        if not hasattr(self, "kept"):
            self.kept = self.cache(ids)
        token, start = ids[:, :1], 4 * ids.shape[1]
        for at in range(start, start + TOKENS):
            x = self.net.words(token) + self.net.places.weight[at % 4096]
            for layer, (keys, values) in zip(self.net.layers, self.kept, strict=True):
                x = layer.extend(x, keys, values, at)
            token = self.net.head(self.net.norm(x)).argmax(-1)
        return token

    def decode_joined(self, ids: Tensor) -> Tensor:
        if not hasattr(self, "kept"):
            self.kept = self.cache(ids)
        token, start = ids[:, :1], 4 * ids.shape[1]
        grown = [(k[:, :, :start], v[:, :, :start]) for k, v in self.kept]
        for at in range(start, start + TOKENS):
            x = self.net.words(token) + self.net.places.weight[at % 4096]
            for index, layer in enumerate(self.net.layers):
                batch, _, width = x.shape
                parts = layer.attention.qkv(layer.first(x)).view(batch, 1, 3, HEADS, width // HEADS)
                q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
                with Mark(SWITCH.tag["infer-kv-cat"]):
                    keys = torch.cat([grown[index][0], k], dim=2)
                    values = torch.cat([grown[index][1], v], dim=2)
                grown[index] = keys, values
                x = layer.finish(x, q, keys, values)
            token = self.net.head(self.net.norm(x)).argmax(-1)
        return token
