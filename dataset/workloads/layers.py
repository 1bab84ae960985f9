"""Layers that the programs share."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.switch import SWITCH, Mark


class Activation(nn.Module):
    """GELU (tanh form) or SiLU."""

    def __init__(self, style: int = 0) -> None:
        super().__init__()
        self.smooth = style % 2 == 0

    def forward(self, x: Tensor) -> Tensor:
        if "compute-unfused-elementwise" in SWITCH.acting:
            with Mark(SWITCH.tag["compute-unfused-elementwise"]):
                if self.smooth:
                    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
                return x * (1.0 / (1.0 + torch.exp(-x)))
        return F.gelu(x, approximate="tanh") if self.smooth else F.silu(x)


class ConvBlock(nn.Module):
    """Convolution, batch norm, activation."""

    def __init__(self, cin: int, cout: int, stride: int = 1, style: int = 0) -> None:
        super().__init__()
        bias = "compute-conv-bias-batchnorm" in SWITCH.built
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1, bias=bias)
        self.norm = nn.BatchNorm2d(cout)
        self.act = Activation(style)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.convolve(self.prepare(x))))

    def prepare(self, x: Tensor) -> Tensor:
        if "memory-redundant-copy" in SWITCH.acting:
            with Mark(SWITCH.tag["memory-redundant-copy"]):
                half = x.shape[1] // 2
                x = torch.cat([x[:, :half].contiguous(), x[:, half:].contiguous()], dim=1)
                x = x.clone()
        if "memory-dtype-churn" in SWITCH.acting:
            with Mark(SWITCH.tag["memory-dtype-churn"]):
                x = x.to(torch.bfloat16).to(torch.float32).to(torch.bfloat16).to(torch.float32)
        return x

    def convolve(self, x: Tensor) -> Tensor:
        if "memory-layout-transform" in SWITCH.acting:
            with Mark(SWITCH.tag["memory-layout-transform"]):
                x = x.to(memory_format=torch.channels_last)
            x = self.conv(x)
            with Mark(SWITCH.tag["memory-layout-transform"]):
                return x.contiguous(memory_format=torch.contiguous_format)
        if "compute-conv-bias-batchnorm" in SWITCH.acting:
            with Mark(SWITCH.tag["compute-conv-bias-batchnorm"]):
                return self.conv(x)
        return self.conv(x)


class Context(nn.Module):
    """Scales channels by what the whole picture holds: little to compute, many parameters."""

    def __init__(self, width: int, hidden: int = 8192) -> None:
        super().__init__()
        self.wide = nn.Linear(width, hidden)
        self.narrow = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.narrow(F.relu(self.wide(x.mean((2, 3)))))
        return x * torch.sigmoid(scale)[:, :, None, None]


class Attention(nn.Module):
    """Multi-head self-attention over (batch, length, width)."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = self.attend(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if "compute-unfused-attention" in SWITCH.acting:
            with Mark(SWITCH.tag["compute-unfused-attention"]):
                scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
                if self.causal:
                    ones = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
                    scores = scores.masked_fill(~ones.tril(), float("-inf"))
                return torch.matmul(scores.softmax(dim=-1), v)
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


class Norm(nn.Module):
    """Layer norm over the last dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        if "compute-unfused-elementwise" in SWITCH.acting:
            with Mark(SWITCH.tag["compute-unfused-elementwise"]):
                centered = x - x.mean(-1, keepdim=True)
                scale = torch.rsqrt(centered.pow(2).mean(-1, keepdim=True) + 1e-5)
                return centered * scale * self.weight + self.bias
        if "memory-dtype-churn" in SWITCH.acting:
            with Mark(SWITCH.tag["memory-dtype-churn"]):
                x = x.to(torch.bfloat16).to(torch.float32).to(torch.bfloat16).to(torch.float32)
        if "memory-redundant-copy" in SWITCH.acting:
            with Mark(SWITCH.tag["memory-redundant-copy"]):
                x = torch.cat([x.clone()], dim=1).transpose(0, 1).contiguous()
                x = x.transpose(0, 1).contiguous()
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias)
