"""The embedded judge's network, in numpy: a transformer over lines, each a bag of pieces.

    line    = LayerNorm(sum of its pieces' embeddings / sqrt(their number))
    layer   : line += attention(LayerNorm(line)); line += W2 gelu(W1 LayerNorm(line))
    logits  = W [mean over lines; maximum over lines; gelu(Wd dense + bd)] + b

``training`` builds the same network in torch; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Weights = Mapping[str, Floats]

EPSILON: Final = 1e-5
BATCH: Final = 8  # regions at a time: keeps the attention of a batch in the cache
LOWEST: Final = np.float32(-1e9)


def logits(
    weights: Weights, ids: npt.NDArray[np.int32], dense: Floats, *, layers: int, heads: int
) -> Floats:
    """[n, classes] from piece ids [n, lines, pieces] and dense numbers [n, m]."""
    parts = [
        _batch(weights, ids[i : i + BATCH], dense[i : i + BATCH], layers, heads)
        for i in range(0, len(ids), BATCH)
    ]
    width = weights["out.bias"].shape[0]
    return np.concatenate(parts) if parts else np.empty((0, width), np.float32)


def _batch(
    weights: Weights, ids: npt.NDArray[np.int32], dense: Floats, layers: int, heads: int
) -> Floats:
    filled = (ids != 0).any(axis=2)
    most = max(int(filled.sum(axis=1).max()), 1)  # lines are filled from the front
    ids, filled = ids[:, :most], filled[:, :most]
    x = _norm(_bags(weights["embed.weight"], ids), weights, "norm_in")
    for i in range(layers):
        x = x + _attention(_norm(x, weights, f"layers.{i}.norm1"), filled, weights, i, heads)
        inner = _gelu(_linear(_norm(x, weights, f"layers.{i}.norm2"), weights, f"layers.{i}.up"))
        x = x + _linear(inner, weights, f"layers.{i}.down")
    x = _norm(x, weights, "norm_out")
    mask = filled[:, :, None]
    mean = (x * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)
    highest = np.where(mask, x, LOWEST).max(axis=1)
    highest = np.where(filled.any(axis=1)[:, None], highest, np.float32(0))
    scaled = (dense - weights["dense.mean"]) / weights["dense.scale"]
    numbers = _gelu(_linear(np.clip(scaled, -5, 5), weights, "dense"))
    return _linear(np.concatenate([mean, highest, numbers], axis=1), weights, "out")


def _bags(embedding: Floats, ids: npt.NDArray[np.int32]) -> Floats:
    """Sum of the pieces' embeddings over the root of their number; padding counts nothing."""
    n, lines, pieces = ids.shape
    flat = ids.reshape(-1)
    rows = np.where(flat[:, None] != 0, embedding[flat], np.float32(0))
    total = rows.reshape(n, lines, pieces, -1).sum(axis=2)
    count = np.maximum((ids != 0).sum(axis=2, keepdims=True), 1)
    return np.asarray(total / np.sqrt(count, dtype=np.float32), np.float32)


def _linear(x: Floats, weights: Weights, name: str) -> Floats:
    return np.asarray(x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"], np.float32)


def _norm(x: Floats, weights: Weights, name: str) -> Floats:
    mean = x.mean(axis=-1, keepdims=True)
    centred = x - mean
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt(variance + np.float32(EPSILON))
    return np.asarray(scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"], np.float32)


def _gelu(x: Floats) -> Floats:
    """The tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    root = np.float32(np.sqrt(2 / np.pi))
    cubed = x + np.float32(0.044715) * x * x * x
    return np.asarray(np.float32(0.5) * x * (1 + np.tanh(root * cubed)), np.float32)


def _attention(
    x: Floats, filled: npt.NDArray[np.bool_], weights: Weights, layer: int, heads: int
) -> Floats:
    n, lines, width = x.shape
    qkv = _linear(x, weights, f"layers.{layer}.qkv").reshape(n, lines, 3, heads, -1)
    query, key, value = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    score = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(width // heads))
    score = np.where(filled[:, None, None, :], score, LOWEST)
    score -= score.max(axis=-1, keepdims=True)
    np.exp(score, out=score)
    score /= score.sum(axis=-1, keepdims=True)
    mixed = (score @ value).transpose(0, 2, 1, 3).reshape(n, lines, width)
    return _linear(np.ascontiguousarray(mixed), weights, f"layers.{layer}.mix")
