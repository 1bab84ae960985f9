"""Faulty matrix work: full fp32, sides that tensor cores dislike, grids too small for a device."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dataset.inject import durations
from dataset.inject import pieces as p
from dataset.inject import rounds as r
from dataset.inject import tensors as ts
from dataset.inject.base import Base, Span
from dataset.inject.edits import Alter, Call, Edit, Insert, Unfit, Work
from dataset.inject.memory import cast
from dataset.inject.pieces import Tensor
from dataset.inject.products import Product, product_ns, product_of
from dataset.inject.rounds import Round
from dataset.simulate import kernels as usual
from detector import vocabulary
from detector.signals.event_sets import multiprocessors
from detector.trace import Cat, Int64

_MATMUL: Final = r"^aten::(mm|addmm|bmm|baddbmm)$"
_LAYOUT: Final = re.compile(r"_(tn|nn|nt)(_|$|>|n_)")
_HALF_MATRIX: Final = re.compile(r"(?i)bf16|bfloat16|f16|half|h884|s884|_BBS_|_B_BS_|_HHS_|nvjet")
_ROCM_HALF: Final = re.compile(r"_(B_BS|BBS|HHS|H_HS)_BH_|_(HHS|BBS)_")
_ROCM_TILE: Final = re.compile(r"_MT(\d+)x(\d+)x(\d+)_")
_ROCM_WIDTH: Final = re.compile(r"_(GRVW[AB]?)\d")
_PASSES: Final = {"dgrad": "dgrad|bwd", "wgrad": "wgrad|wrw"}
_FULL_REACH: Final = (0.35, 0.6)  # of the peaks' ratio: fast kernels reach less of theirs
_SCAN: Final = (
    "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(float*, float"
    " const*, unsigned int, unsigned int, unsigned int, float, std::plus<float>)"
)
_THIN: Final = 64  # rows and columns of the tiles of a thin product


def matrix_work(
    base: Base, of: Product, dtype: str, draw: np.random.Generator, rate: str = ""
) -> Work:
    """A kernel for the product, named as this trace's own."""
    model = usual.gemm(base.device, of.m, of.n, of.k, rate or dtype, batch=of.batch)
    own = base.kernel("gemm", max(1, of.m * of.n * of.k), dtype, draw)
    own = replace(own, name=ts.matrix_kernel(base, dtype, draw) or model.name)
    ns = product_ns(base, of, rate or dtype) * math.exp(draw.normal(0, 0.06))
    return replace(own, dur=base.lasting(ns), args={**own.args, "grid": model.grid})


# -- full fp32 -------------------------------------------------------------------------------------
def fp32_matmul(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """TF32 switched off, or layers that run in fp32 in a half-precision program."""
    p.needs_device(base)
    room, edits = r.Room(base), list[Edit]()
    for span in spans:
        rows = _fast_products(base, span)
        if not len(rows):
            continue
        at = int(base.trace.start[base.trace.launch[rows[0]]])
        need, cost = p.budget(span, strength) + room.of_device(at, span), 0.0
        for row in _by_layer(base, rows, draw):
            alter = _in_fp32(base, row, draw)
            cost += (alter.dur or 0) - int(base.trace.dur[row])
            edits += [alter, *_types(base, row, draw)]
            if cost > need:
                break
    if not edits:
        raise Unfit(f"{base.name}: no matrix work on tensor cores")
    return edits


def _fast_products(base: Base, span: Span) -> Int64:
    """Kernels that use matrix cores, of calls in the span."""
    trace, activity = base.trace, base.activity
    kinds = ("gemm",) if base.vendor == "rocm" else ("gemm", "conv")
    rows = np.sort(np.concatenate([activity.kernels_of(kind) for kind in kinds]))
    rows = rows[trace.launch[rows] >= 0]
    starts = trace.start[trace.launch[rows]]
    rows = rows[(starts >= span.start) & (starts < span.end) & (trace.op[rows] >= 0)]
    fast = vocabulary.TENSOR_CORE
    keep = [_is_fast(trace.names[trace.name[row]], fast) for row in rows]
    found: Int64 = rows[np.array(keep, np.bool_)]
    return found


def _is_fast(name: str, fast: re.Pattern[str]) -> bool:
    if vocabulary.FP32_MATRIX.search(name) or "splitK" in name:
        return False
    return bool(fast.search(name) or _ROCM_HALF.search(name))


def _by_layer(base: Base, rows: Int64, draw: np.random.Generator) -> list[int]:
    """Those of one kind of layer together, the kinds in any order."""
    trace, kinds = base.trace, defaultdict(list)
    for row in rows.tolist():
        op = int(trace.op[row])
        kinds[int(trace.name[row]), int(trace.dims[op])].append(row)
    keys = list(kinds)
    return [row for i in draw.permutation(len(keys)).tolist() for row in kinds[keys[i]]]


def _in_fp32(base: Base, row: int, draw: np.random.Generator) -> Alter:
    trace, d = base.trace, base.device
    name, of = trace.names[trace.name[row]], product_of(base, int(trace.op[row]))
    half = bool(_HALF_MATRIX.search(name)) and "tf32" not in name
    dtype = ts.half_of(base) if half else "float"
    is_conv = row in base.activity.kernels_of("conv")
    peak = durations.matrix_peak(d, dtype) / durations.matrix_peak(d, durations.FULL)
    of = None if is_conv else of
    if of:
        slow = usual.gemm(d, of.m, of.n, of.k, "float!", layout=_layout(name), batch=of.batch)
    else:
        slow = usual.gemm(d, 1024, 1024, 1024, "float!", layout=_layout(name))
    if is_conv:
        slow = replace(slow, name=_fp32_conv(base, name))
    if base.vendor == "rocm" and _ROCM_HALF.search(name):
        slow = replace(slow, name=_rocm_fp32(name))
    ns = int(trace.dur[row]) * max(1.3, peak * draw.uniform(*_FULL_REACH))
    ns *= math.exp(draw.normal(0, 0.05))
    args: dict[str, Any] = {}
    if trace.blocks[row] > 0 and of:
        args = {"grid": list(slow.grid), "block": list(slow.block)}
    return Alter(row, slow.name, base.lasting(ns), args=args)


def _layout(name: str) -> str:
    found = _LAYOUT.search(name)
    return found[1] if found else "tn"


def _rocm_fp32(name: str) -> str:
    """The same problem's fp32 kernel: the other type, a smaller tile."""
    name = _ROCM_HALF.sub("_SB_", name)
    return _ROCM_TILE.sub(lambda m: f"_MT{min(128, int(m[1]))}x{min(128, int(m[2]))}x16_", name)


def _fp32_conv(base: Base, name: str) -> str:
    kind = next((k for k, words in _PASSES.items() if re.search(words, name)), "fprop")
    return usual.conv(base.device, kind, 1e9, 1e6, "float!", 1).name


def _types(base: Base, row: int, draw: np.random.Generator) -> list[Edit]:
    """A half-precision product in fp32: its ops say so, and casts stand around it."""
    trace, top = base.trace, r.outermost(base, int(base.trace.op[row]))
    inside = _ops_within(base, top)
    retyped = [(op, ts.shapes_of(base, op)[1]) for op in inside]
    edits: list[Edit] = [
        Alter(op, args={"Input type": _floats(types)}, faulty=False)
        for op, types in retyped
        if types != _floats(types)
    ]
    of = product_of(base, int(trace.op[row]))
    if not edits or not of:
        return edits
    half, track = ts.half_of(base), int(trace.track[top])
    given, out = Tensor((of.m * of.batch, of.k), half), Tensor((of.m * of.batch, of.n))
    edits.append(Insert(track, int(trace.start[top]), (cast(base, given, "float", draw),)))
    edits.append(Insert(track, int(trace.end[top]), (cast(base, out, half, draw),)))
    return edits


def _ops_within(base: Base, top: int) -> list[int]:
    trace = base.trace
    last = int(np.searchsorted(trace.start, trace.end[top]))
    rows = np.arange(top, last)
    rows = rows[(trace.track[rows] == trace.track[top]) & (trace.cat[rows] == Cat.CPU_OP)]
    return [int(row) for row in rows if trace.end[row] <= trace.end[top]]


def _floats(types: Any) -> Any:
    if isinstance(types, list):
        return [_floats(t) for t in types]
    return "float" if types in ("c10::BFloat16", "c10::Half") else types


# -- sides that are no multiple of 8 ---------------------------------------------------------------
def misaligned_gemm(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """A width such as 1021 or 50257 where 1024 or 50264 would do, wherever the spans have it."""
    p.needs_device(base)
    if not base.has_shapes:
        raise Unfit(f"{base.name}: no shapes, without which this cannot be seen")
    edits: list[Edit] = []
    for span in spans:
        rows = [int(row) for row in _fast_products(base, span)]
        widths = _widths(base, rows)
        if not widths:
            continue
        need, less = p.budget(span, strength), int(draw.choice([1, 3, 5, -1]))
        width = min(widths, key=lambda w: abs(math.log(widths[w] / need)))
        edits += [_unaligned(base, row, draw) for row in rows if _has(base, row, width)]
        edits += _odd_shapes(base, span, width, width - less)
    if not edits:
        raise Unfit(f"{base.name}: no matrix work on tensor cores whose shapes are known")
    return edits


def _widths(base: Base, rows: Sequence[int]) -> dict[int, float]:
    """Sides that one can change, and the time of the products that have them."""
    widths: defaultdict[int, float] = defaultdict(float)
    for row in rows:
        of = product_of(base, int(base.trace.op[row]))
        for side in {of.n, of.k} if of else ():
            if side % 8 == 0 and side >= 96:
                widths[side] += float(base.trace.dur[row]) * 1.2
    return dict(widths)


def _has(base: Base, row: int, width: int) -> bool:
    of = product_of(base, int(base.trace.op[row]))
    return of is not None and width in (of.n, of.k)


def _unaligned(base: Base, row: int, draw: np.random.Generator) -> Alter:
    trace, name = base.trace, base.trace.names[base.trace.name[row]]
    half = bool(_HALF_MATRIX.search(name)) and "tf32" not in name
    slow = usual.gemm(
        base.device, 999, 999, 999, ts.half_of(base) if half else "float", layout=_layout(name)
    )
    text = slow.name
    if base.vendor == "rocm":
        text = _ROCM_WIDTH.sub(r"_\g<1>1", name)
    ns = int(trace.dur[row]) * draw.uniform(1.7, 2.6)
    return Alter(row, text, base.lasting(ns))


def _odd_shapes(base: Base, span: Span, width: int, odd: int) -> list[Edit]:
    """Every op of the span that has the width has the odd one."""
    trace, rows = base.trace, base.ops(".", span)
    rows = rows[trace.dims[rows] >= 0]
    word = re.compile(rf"\b{width}\b")
    hit = {i for i in np.unique(trace.dims[rows]).tolist() if word.search(trace.names[i])}
    return [
        Alter(
            int(row),
            args={"Input Dims": _with(ts.shapes_of(base, int(row))[0], width, odd)},
            faulty=False,
        )
        for row in rows
        if int(trace.dims[row]) in hit
    ]


def _with(shape: Any, width: int, odd: int) -> Any:
    if isinstance(shape, list):
        return [_with(s, width, odd) for s in shape]
    return odd if shape == width else shape


# -- grids too small for the device ----------------------------------------------------------------
def underfilled(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """Thin products over a long inner side, scans of a few rows, a product in many parts."""
    p.needs_device(base)
    if not multiprocessors(base.activity):
        raise Unfit(f"{base.name}: does not tell how many multiprocessors its device has")
    kind = int(draw.integers(3)) if base.vendor == "cuda" else 2  # HIP's libraries tell no grids
    if kind == 0 and not r.trains(base):
        edits = r.replaced(
            *(base, spans, strength, draw, _MATMUL),
            make=lambda row: _in_pieces(base, row, draw),
            called=lambda row: _called(base, row),
        )
        if edits:
            return edits
    blocks = int(draw.integers(1, max(3, base.device.units // 8)))
    each = float(draw.uniform(15, 60))
    unit = _thin(base, blocks, each, draw) if kind < 2 else _scan(base, blocks, each, draw)
    return r.filled(base, spans, strength, draw, unit, "forward")


def _called(base: Base, row: int) -> int:
    """What the program called for this product, the frame of a built-in included: no loop runs
    inside. -1 where the product is only a part of it."""
    trace, top, count = base.trace, r.outermost(base, row), len(base.works(row))
    if len(base.works(top)) != count:
        return -1
    above = int(trace.parent[top])
    framed = above >= 0 and trace.names[trace.name[above]].startswith("<built-in")
    return above if framed and len(base.works(above)) == count else top


def _in_pieces(base: Base, row: int, draw: np.random.Generator) -> tuple[Call, ...]:
    """``for x_i in x: x_i @ w``: the rows of the product in so many calls."""
    trace, of = base.trace, product_of(base, row)
    works = base.works(row)
    main = int(works[np.argmax(trace.dur[works])])
    blocks = max(1, int(trace.blocks[main]))
    count = max(int(draw.choice([8, 16, 32])), math.ceil(4 * blocks / base.device.units))
    of = of or Product(count * 16, 1_024, 1_024)
    part = Product(max(1, of.m * of.batch // count), of.n, of.k)
    dtype = next((t.dtype for t in ts.tensors_of(base, row)), ts.dtype_of(base))
    ns = max(3_000.0, int(trace.dur[main]) / count * draw.uniform(1.5, 4.0))
    args = {
        "grid": [max(1, blocks // count), 1, 1],
        "block": [max(64, int(trace.threads[main])), 1, 1],
    }
    name = trace.names[trace.name[main]]
    left, right = Tensor((part.m, part.k), dtype), Tensor((part.k, part.n), dtype)
    calls: list[Call] = []
    for _ in range(count):
        work = Work(name, "kernel", base.lasting(ns * draw.uniform(0.95, 1.05)), base.stream, args)
        launch = base.launch(work, draw)
        product = p.op(base, "aten::mm", left, right, draw=draw, inside=(launch,))
        calls += _as_called(base, row, product, (left, right), draw)
    return tuple(calls)


def _as_called(
    base: Base, row: int, product: Call, of: tuple[Tensor, Tensor], draw: np.random.Generator
) -> tuple[Call, ...]:
    """The product as the program called the one of ``row``: as ``linear`` or by itself."""
    trace, event = base.trace, _called(base, row)
    outer = trace.names[trace.name[r.outermost(base, row)]]
    if outer == "aten::linear":
        weight = Tensor(of[1].shape[::-1], of[1].dtype)
        turned = p.view(base, "aten::transpose", weight, draw)
        turned = p.op(base, "aten::t", weight, draw=draw, inside=(turned,))
        product = p.op(base, outer, of[0], weight, draw=draw, inside=(turned, product))
    elif outer == "aten::matmul":
        product = p.op(base, outer, *of, draw=draw, inside=(product,))
    is_frame = trace.cat[event] == Cat.PYTHON_FUNCTION
    return base.frame(trace.names[trace.name[event]], (product,)) if is_frame else (product,)


def _thin(base: Base, blocks: int, each_us: float, draw: np.random.Generator) -> r.Unit:
    dtype = ts.dtype_of(base)
    rate = durations.matrix_peak(base.device, dtype) * 1_000 / base.device.units * 0.3
    first = max(1, math.ceil(each_us * rate / (2 * _THIN * _THIN) / 64)) * 64

    def unit(scale: float) -> Round:
        inner = max(64, round(first * scale / 64) * 64)
        of = Product(_THIN * blocks, _THIN, inner)
        nodes = r.node(
            base,
            "MmBackward0",
            tuple(_mm(base, of, each_us * scale, dtype, blocks, draw) for _ in range(2)),
            draw,
        )
        return Round((_mm(base, of, each_us * scale, dtype, blocks, draw),), nodes)

    return unit


def _mm(
    base: Base, of: Product, us: float, dtype: str, blocks: int, draw: np.random.Generator
) -> Call:
    work = matrix_work(base, of, dtype, draw)
    ns = us * 1_000 * math.exp(draw.normal(0, 0.05))
    work = replace(work, dur=base.lasting(ns), args={**work.args, "grid": (blocks, 1, 1)})
    left, right = Tensor((of.m, of.k), dtype), Tensor((of.k, of.n), dtype)
    launch = base.launch(work, draw)
    return p.op(base, "aten::mm", left, right, draw=draw, inside=(launch,))


def _scan(base: Base, blocks: int, each_us: float, draw: np.random.Generator) -> r.Unit:
    def unit(scale: float) -> Round:
        row = Tensor((blocks, round(each_us * scale * 400)))
        ns = base.lasting(each_us * scale * 1_000 * math.exp(draw.normal(0, 0.05)))
        args = {"grid": (blocks, 1, 1), "block": (32, 16, 1)}
        launch = base.launch(Work(_SCAN, "kernel", ns, base.stream, args), draw)
        inner = p.op(
            base,
            "aten::_cumsum_helper" if _is_old(base) else "aten::empty",
            row,
            draw=draw,
            inside=(launch,) if _is_old(base) else (),
        )
        inside = (inner,) if _is_old(base) else (inner, launch)
        return Round((p.op(base, "aten::cumsum", row, draw=draw, inside=inside),))

    return unit


def _is_old(base: Base) -> bool:
    """PyTorch of 2022 and before, whose op for this has a helper."""
    return base.trace.base_ns == 0 and not len(base.ops(r"Backward0$"))
