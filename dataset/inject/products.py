"""Matrix products of a trace: their sizes, and how long another one takes beside them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dataset.inject import durations
from dataset.inject import tensors as ts
from dataset.inject.base import Base


@dataclass(frozen=True)
class Product:
    """A (batched) product of m x k by k x n."""

    m: int
    n: int
    k: int
    batch: int = 1


def product_of(base: Base, op: int) -> Product | None:
    """What a matrix op multiplies; None where the trace does not tell."""
    shapes = [t.shape for t in ts.tensors_of(base, op) if len(t.shape) in (2, 3)]
    if len(shapes) < 2 or len(shapes[-1]) != len(shapes[-2]):
        return None
    left, right = shapes[-2], shapes[-1]
    if base.trace.names[base.trace.name[op]] == "aten::bmm":
        left, right = shapes[0], shapes[1]
    if left[-1] != right[-2]:
        return None
    return Product(left[-2], right[-1], left[-1], left[0] if len(left) == 3 else 1)


def product_ns(base: Base, of: Product, dtype: str) -> float:
    """What the product takes at the share of the peak that this trace's own products reach."""
    peak = durations.matrix_peak(base.device, dtype)
    return base.moving_ns(0) + _flop(of) / (peak * _reach(base))


def _flop(of: Product | None) -> float:
    return 2.0 * of.batch * of.m * of.n * of.k if of else 0.0


@lru_cache(maxsize=1)
def _reach(base: Base) -> float:
    """Share of the peak that the matrix kernels get whose shapes are recorded."""
    rows = base.activity.kernels_of("gemm")
    rows = rows[base.trace.op[rows] >= 0]
    shapes = {int(op): product_of(base, int(op)) for op in np.unique(base.trace.op[rows])}
    flop = np.array([_flop(shapes[op]) for op in base.trace.op[rows].tolist()], np.float64)
    peak = durations.matrix_peak(base.device, ts.dtype_of(base))
    return durations.matrix_reach(flop, base.trace.dur[rows], peak)
