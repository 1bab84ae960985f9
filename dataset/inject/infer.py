"""Faulty inference: autograd left on, and caches of keys and values that grow by copying."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dataset.inject import pieces as p
from dataset.inject import rounds as r
from dataset.inject import tensors as ts
from dataset.inject.base import Base, Span
from dataset.inject.edits import Alter, Call, Edit, Insert, Replace, Unfit
from dataset.inject.matrices import matrix_work
from dataset.inject.pieces import Slack, Tensor
from dataset.inject.products import Product
from detector.trace import Cat

_RECORDED: Final = re.compile(
    r"^aten::(?!empty|as_strided|detach|zeros|ones|arange|full|item|_local|result_type|resize|is_"
    r"|set_|_to_copy|_reshape_alias|fill_|zero_)"
)
_HEAVIER: Final = 1.6  # most that graph building adds to an op's own time, times that time
_DROPOUT: Final = (
    "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<{t}, float, unsigned int, 1,"
    " 4, bool>(at::cuda::detail::TensorInfo<{t} const, unsigned int>, at::cuda::detail::TensorInfo"
    "<{t}, unsigned int>, at::cuda::detail::TensorInfo<bool, unsigned int>, unsigned int, float,"
    " at::PhiloxCudaState)"
)
_DECODER: Final = re.compile(r"(?i)rotary|rope|neg_kernel|paged|reshape_and_cache|act_and_mul")


def _needs_inference(base: Base) -> None:
    p.needs_device(base)
    if r.trains(base) or len(base.activity.host("optimizer_step")):
        raise Unfit(f"{base.name}: a training run")


# -- autograd left on ------------------------------------------------------------------------------
def autograd(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """No ``inference_mode()``, no ``eval()``: every op records its node, dropout drops."""
    _needs_inference(base)
    if int((base.trace.sequence >= 0).sum()) > len(base.activity.aten) // 20:
        raise Unfit(f"{base.name}: records its graph itself")
    slack, number, edits = Slack(base), int(draw.integers(0, 2_000)), list[Edit]()
    for span in spans:
        rows = _differentiable(base, span)
        if not rows:
            continue
        drops = _dropouts(base, span, draw)
        dropped = {e.row for e in drops}
        own = int(base.own[rows].sum())
        need = slack.stall(rows_start(base, rows), p.budget(span, strength))
        factor = min(_HEAVIER, need / max(1, own))
        for row in rows:
            number += 1
            if row in dropped:
                continue
            ns = int(base.own[row] * (1 + factor * draw.uniform(0.7, 1.3)))
            edits.append(Alter(row, dur=ns, args=_recorded(number)))
        edits += drops
    if not edits:
        raise Unfit(f"{base.name}: no ops that autograd could record")
    return edits


def _recorded(number: int) -> dict[str, int]:
    """What the profiler writes for an op that autograd records."""
    return {"Sequence number": number, "Fwd thread id": 0}


def rows_start(base: Base, rows: Sequence[int]) -> int:
    """When the first of these rows starts."""
    return int(base.trace.start[rows[0]])


def _differentiable(base: Base, span: Span) -> list[int]:
    """Ops that autograd sees: what the program calls, and what a composite calls in turn."""
    trace, rows = base.trace, base.ops(_RECORDED, span)
    rows = rows[trace.track[rows] == base.main]
    return [int(row) for row in rows if _is_seen(base, int(row))]


def _is_seen(base: Base, row: int) -> bool:
    parent = int(base.trace.parent[row])
    if parent < 0 or base.trace.cat[parent] != Cat.CPU_OP:
        return True
    name = base.trace.names[base.trace.name[parent]]
    return not name.startswith("aten::") or (r.is_composite(name) and _is_seen(base, parent))


def _dropouts(base: Base, span: Span, draw: np.random.Generator) -> list[Replace]:
    """``aten::dropout`` of evaluation does nothing; of training it draws a mask."""
    edits = []
    seen = ts.activation(base, draw)
    for row in base.ops(r"^aten::dropout$", span).tolist():
        if len(base.works(row)):
            continue
        given = [t for t in ts.tensors_of(base, row) if t.elems > 1]
        edits.append(Replace(row, (_dropout(base, given[0] if given else seen, draw),)))
    return edits


def _dropout(base: Base, x: Tensor, draw: np.random.Generator) -> Call:
    number = _recorded(int(draw.integers(0, 4_000)))
    work = base.kernel("elementwise", x.elems, x.dtype, draw)
    kernel = replace(work, name=_DROPOUT.format(t=x.dtype))
    inside = (
        base.op("aten::empty_like", draw=draw),
        base.op("aten::empty", draw=draw),
        base.launch(kernel, draw),
    )
    dims, types = [list(x.shape), [], []], [x.dtype, "Scalar", "Scalar"]
    native = base.op("aten::native_dropout", None, inside, dims, types, draw=draw, **number)
    return base.op("aten::dropout", None, (native,), dims, types, draw=draw, **number)


# -- caches that grow ------------------------------------------------------------------------------
def kv_cat(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """A few tokens more are generated, and each copies every layer's cache to append one row.

    The products and the attention of those tokens are the program's; the copies are the fault.
    """
    _needs_inference(base)
    trace = base.trace
    names = {trace.names[i] for i in np.unique(trace.name[base.activity.kernels])}
    if not len(base.activity.kernels_of("attention")) or not any(map(_DECODER.search, names)):
        raise Unfit(f"{base.name}: no decoder of tokens")
    cache = _cache(base, draw)
    layers, room = int(draw.choice([4, 6, 8, 12])), r.Room(base)
    edits: list[Edit] = []
    for span in spans:
        at = p.place(base, span, draw)
        need = p.budget(span, strength)
        probe = _appended(base, cache, draw)
        host, device = 2 * r.called_ns(base, probe), 2 * r.device_ns(probe)
        grow = max(1.0, min(64.0, room.rounds(at, span, need, host, device) / (16 * layers)))
        cache = ts.scaled(cache, grow)
        device = 2 * r.device_ns(_appended(base, cache, draw))
        tokens = int(np.clip(room.rounds(at, span, need, host, device) / layers, 2, 32))
        for _ in range(tokens):
            b, h, length, size = cache.shape
            cache = Tensor((b, h, length + 1, size), cache.dtype)
            for _ in range(layers):
                edits.append(_needed(base, at, _projected(base, cache, draw)))
                both = (*_appended(base, cache, draw), *_appended(base, cache, draw))
                edits.append(Insert(base.main, at, both, 2_000))
                edits.append(_needed(base, at, _looked_up(base, cache, draw)))
    return edits


def _needed(base: Base, at: int, calls: tuple[Call, ...]) -> Insert:
    """What the program has to call, whatever becomes of the fault."""
    return Insert(base.main, at, calls, 2_000, faulty=False, instead=calls)


def _cache(base: Base, draw: np.random.Generator) -> Tensor:
    """Keys of one layer, of a batch that fits this program's width."""
    dtype = ts.half_of(base)
    batch, heads = int(draw.choice([1, 4, 8, 16])), int(draw.choice([4, 8, 16]))
    return Tensor(
        (batch, heads, int(draw.integers(300, 2_500)), int(draw.choice([64, 128]))), dtype
    )


def _appended(base: Base, cache: Tensor, draw: np.random.Generator) -> tuple[Call, ...]:
    b, h, length, size = cache.shape
    work = base.kernel("cat", cache.elems, cache.dtype, draw)
    dims = [[[b, h, length - 1, size], [b, h, 1, size]], []]
    launch = base.launch(work, draw)
    return (base.op("aten::cat", None, (launch,), dims, ["TensorList", "Scalar"], draw=draw),)


def _projected(base: Base, cache: Tensor, draw: np.random.Generator) -> tuple[Call, ...]:
    """The token's keys and values."""
    b, h, _, size = cache.shape
    of = Product(b, 3 * h * size, h * size)
    x, w = Tensor((b, 1, of.k), cache.dtype), Tensor((of.n, of.k), cache.dtype)
    launch = base.launch(matrix_work(base, of, cache.dtype, draw), draw)
    flat = Tensor((b, of.k), cache.dtype), Tensor((of.k, of.n), cache.dtype)
    product = p.op(base, "aten::mm", *flat, draw=draw, inside=(launch,))
    return (p.op(base, "aten::linear", x, w, draw=draw, inside=(product,)),)


def _looked_up(base: Base, cache: Tensor, draw: np.random.Generator) -> tuple[Call, ...]:
    """Attention of one token over the cache."""
    b, h, _, size = cache.shape
    q = Tensor((b, h, 1, size), cache.dtype)
    work = base.kernel("attention", max(1, cache.elems * 2), cache.dtype, draw)
    reads = base.moving_ns(cache.size * 2)
    work = replace(work, dur=base.lasting(max(3_000.0, reads)))
    inner = p.op(
        base,
        "aten::_scaled_dot_product_flash_attention",
        q,
        cache,
        cache,
        draw=draw,
        inside=(base.launch(work, draw),),
    )
    return (
        p.op(
            base, "aten::scaled_dot_product_attention", q, cache, cache, draw=draw, inside=(inner,)
        ),
    )


INJECTORS: Final = {"infer-autograd": autograd, "infer-kv-cat": kv_cat}
