"""Faulty memory traffic: gradients filled with zeros, needless copies, layouts and types that go
back and forth."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dataset.inject import frames
from dataset.inject import pieces as p
from dataset.inject import rounds as r
from dataset.inject import tensors as ts
from dataset.inject.base import Base, Span
from dataset.inject.edits import Call, Edit, Insert, Unfit
from dataset.inject.pieces import Tensor
from dataset.inject.rounds import Round
from dataset.simulate import kernels as usual
from detector.trace import Int64

_CONV: Final = r"^aten::(cudnn_convolution|miopen_convolution|convolution_backward)$"
_NEEDS_NHWC: Final = re.compile(r"(?i)s1688|16816|tf32|bf16|fp16|h884|s884|tensorop")
_OWN_LAYOUTS: Final = 0.3  # layout kernels for each convolution that make a base have the fault
_COLLECTED_NS: Final = 400  # host time per parameter that `zero_grad` looks at


# -- gradients -------------------------------------------------------------------------------------
def zero_grad_fill(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """``zero_grad(set_to_none=False)``: every gradient is filled, and then added to.

    What it costs is the model's to say, not the strength's.
    """
    p.needs_device(base)
    together = p.knows(base, "aten::_foreach_add_") and draw.random() < 0.4
    edits: list[Edit] = []
    for span in spans:
        found = _fills(base, span, together, draw)
        edits += [*found, *_accumulated(base, span, draw)] if found else []
    if not edits:
        raise Unfit(f"{base.name}: no optimizer in these steps")
    return edits


def _fills(base: Base, span: Span, together: bool, draw: np.random.Generator) -> list[Edit]:
    """Into each ``zero_grad`` of the span; after each step of the optimizer without one."""
    marks, steps = _starting(base, "zero_grad", span), _starting(base, "optimizer_step", span)
    if any(_fills_already(base, int(row)) for row in marks):
        raise Unfit(f"{base.name}: fills its gradients with zeros itself")
    rows = marks if len(base.activity.host("zero_grad")) else steps
    if not len(rows):
        return []
    model = ts.parameters(base, span, draw)
    params = model[: max(1, round(len(model) / len(rows)))]
    edits = list[Edit]()
    for row in rows.tolist():
        calls = _together(base, params, draw) if together else _each(base, params, draw)
        if len(marks):
            edits.append(Insert(base.main, r.inside_of(base, row), calls, 2_000))
        else:
            name = base.trace.names[base.trace.name[row]].split("#")[-1].split(".")[0]
            own = 4_000 + _COLLECTED_NS * len(params)
            mark = Call(f"Optimizer.zero_grad#{name}.zero_grad", "user_annotation", own, calls)
            edits.append(Insert(base.main, int(base.trace.end[row]), (mark,), base.gap_ns(draw)))
    return edits


def _starting(base: Base, kind: str, span: Span) -> Int64:
    rows, start = base.activity.host(kind), base.trace.start
    found: Int64 = rows[(start[rows] >= span.start) & (start[rows] < span.end)]
    return found


def _fills_already(base: Base, row: int) -> bool:
    return len(base.works(row)) > 0


def _each(base: Base, params: Sequence[Tensor], draw: np.random.Generator) -> tuple[Call, ...]:
    """One fill after the other."""
    calls = []
    for tensor in params:
        fill = ts.ran(base, "aten::fill_", "fill", tensor, draw=draw)
        calls.append(p.op(base, "aten::zero_", tensor, draw=draw, inside=(fill,)))
    return tuple(calls)


def _together(base: Base, params: Sequence[Tensor], draw: np.random.Generator) -> tuple[Call, ...]:
    """``_foreach_zero_``: few kernels, the same bytes."""
    launches = []
    for first in range(0, len(params), 36):
        part = params[first : first + 36]
        size = float(sum(t.size for t in part))
        model = usual.multi_tensor(base.device, "mul_", size, len(part))
        work = base.kernel("optimizer", 1, "float", draw)
        work = replace(work, name=model.name.replace("BinaryOpListAlphaFunctor", "ZeroFunctor"))
        work = replace(
            work,
            dur=base.lasting(base.moving_ns(size)),
            args={"grid": model.grid, "block": model.block},
        )
        launches.append(base.launch(work, draw))
    own = base.op_ns(draw) + 250 * len(params)
    return (base.op("aten::_foreach_zero_", own, tuple(launches), draw=draw),)


def _accumulated(base: Base, span: Span, draw: np.random.Generator) -> list[Edit]:
    """Gradients that stay are added to: a kernel for each parameter more."""
    edits: list[Edit] = []
    rows = base.ops(ts.ACCUMULATE, span)
    for row, tensor in zip(rows.tolist(), ts.parameters(base, span, draw), strict=True):
        if len(base.works(row)):
            continue
        add = ts.ran(base, "aten::add_", "elementwise", tensor, tensor, draw=draw)
        at = (int(base.trace.start[row]) + int(base.trace.end[row])) // 2
        if not len(base.children(row)):
            edits.append(Insert(int(base.trace.track[row]), at, (add,), faulty=False))
    return edits


# -- copies ----------------------------------------------------------------------------------------
def redundant_copy(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """``contiguous``, ``clone`` and ``cat`` of activations."""
    p.needs_device(base)
    part, kind = ts.activation(base, draw), draw.choice(["contiguous", "clone", "cat", "expand"])

    def unit(scale: float) -> Round:
        tensor = ts.scaled(part, scale)
        if kind == "cat":
            return Round((_cat(base, tensor, draw),))
        if kind == "expand":
            expanded = p.view(base, "aten::expand", tensor, draw)
            return Round((expanded, _contiguous(base, tensor, draw)))
        if kind == "clone":
            return Round(frames.builtin(base, "clone", (_clone(base, tensor, draw),)))
        turned = p.view(base, "aten::transpose", tensor, draw)
        return Round(
            (turned, *frames.builtin(base, "contiguous", (_contiguous(base, tensor, draw),)))
        )

    return r.filled(base, spans, strength, draw, unit, "forward")


def _cat(base: Base, tensor: Tensor, draw: np.random.Generator) -> Call:
    half = Tensor((*tensor.shape[:-1], max(1, tensor.shape[-1] // 2)), tensor.dtype)
    launch = base.launch(base.kernel("cat", tensor.elems, tensor.dtype, draw), draw)
    dims, types = [[list(half.shape)] * 2, []], ["TensorList", "Scalar"]
    return base.op("aten::cat", None, (launch,), dims, types, draw=draw)


def _contiguous(base: Base, tensor: Tensor, draw: np.random.Generator) -> Call:
    """A copy of what a view has put out of order."""
    work = base.kernel("copy", tensor.elems, tensor.dtype, draw)
    work = replace(work, dur=base.lasting(work.dur * draw.uniform(1.2, 1.9)))
    copied = _copied(base, tensor, base.launch(work, draw), draw)
    return p.op(base, "aten::contiguous", tensor, draw=draw, inside=(copied,))


def _clone(base: Base, tensor: Tensor, draw: np.random.Generator) -> Call:
    """A copy of what lies in order: the copy engine's or the runtime's own."""
    return _copied(base, tensor, base.launch(base.copy("dtod", tensor.size, draw), draw), draw)


def _copied(base: Base, tensor: Tensor, launch: Call, draw: np.random.Generator) -> Call:
    copy = p.op(base, "aten::copy_", tensor, tensor, draw=draw, inside=(launch,))
    return p.op(base, "aten::clone", tensor, draw=draw, inside=(ts.empty(base, draw), copy))


# -- layouts ---------------------------------------------------------------------------------------
def layout_transform(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """Tensors in one layout for kernels that want the other: the library turns them, and back."""
    p.needs_device(base)
    convs = base.ops(_CONV)
    if len(base.activity.kernels_of("layout")) > _OWN_LAYOUTS * len(convs):
        raise Unfit(f"{base.name}: turns layouts itself")
    edits, room = list[Edit](), r.Room(base)
    for span in spans:
        rows = [int(row) for row in base.ops(_CONV, span) if len(r.launches_of(base, int(row)))]
        if not rows:
            continue
        first = int(base.trace.start[rows[0]])
        need, cost = p.budget(span, strength) + room.of_device(first, span), 0.0
        for row in draw.permutation(rows).tolist():
            found = _around(base, row, draw)
            cost += sum(r.device_ns(e.calls) for e in found)
            edits += found
            if cost > need:
                break
    if not edits:
        raise Unfit(f"{base.name}: no convolutions")
    return edits


def _around(base: Base, row: int, draw: np.random.Generator) -> list[Insert]:
    """Input and weight before the first kernel of the convolution, the output after its last.

    Kernels for tensor cores want NHWC and get NCHW; plain ones the reverse.
    """
    trace, calls, works = base.trace, r.launches_of(base, row), base.works(row)
    given = [t for t in ts.tensors_of(base, row) if len(t.shape) == 4]
    dtype = given[0].dtype if given else ts.dtype_of(base)
    names = [trace.names[trace.name[w]] for w in works]
    to_nhwc = base.vendor == "rocm" or any(_NEEDS_NHWC.search(n) for n in names)
    guess = float(trace.dur[works].max()) * base.rate * draw.uniform(0.05, 0.15)
    sizes = [t.elems for t in given[:2]] or [int(guess / Tensor((1,), dtype).size), 65_536]
    launch = trace.names[trace.name[calls[0]]]

    def turned(elems: int, there: bool) -> Call:
        model = usual.layout_change(base.device, elems * Tensor((1,), dtype).size, dtype, there)
        work = base.kernel("layout", elems, dtype, draw)
        return replace(base.launch(replace(work, name=model.name), draw), name=launch)

    track = int(trace.track[row])
    before = tuple(turned(n, to_nhwc) for n in sizes)
    return [
        Insert(track, int(trace.start[calls[0]]), before),
        Insert(track, int(trace.end[calls[-1]]), (turned(max(sizes), not to_nhwc),)),
    ]


# -- types -----------------------------------------------------------------------------------------
def dtype_churn(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """The same tensor to fp32 and back, around one op or around none."""
    p.needs_device(base)
    part, half = ts.activation(base, draw), ts.half_of(base)
    between = [(), ("aten::mul",), ("aten::add",), ("aten::pow",)][p.pick(draw, range(4))]

    def unit(scale: float) -> Round:
        wide = replace(ts.scaled(part, scale), dtype="float")
        narrow = replace(wide, dtype=half)
        there, back = (narrow, wide) if part.dtype != "float" else (wide, narrow)
        ops = tuple(ts.ran(base, name, "elementwise", back, back, draw=draw) for name in between)
        to, fro = cast(base, there, back.dtype, draw), cast(base, back, there.dtype, draw)
        returned = cast(base, there, back.dtype, draw), cast(base, back, there.dtype, draw)
        nodes = [r.node(base, "ToCopyBackward0", (c,), draw) for c in returned]
        return Round((to, *ops, fro), nodes[0] + nodes[1], Round(ops))

    return r.filled(base, spans, strength, draw, unit, "forward")


def cast(base: Base, tensor: Tensor, dtype: str, draw: np.random.Generator) -> Call:
    """``tensor.to(dtype)``."""
    work = base.kernel("cast", tensor.elems, dtype if dtype != "float" else tensor.dtype, draw)
    launch = base.launch(replace(work, name=_cast_name(base, work.name, dtype)), draw)
    copy = p.op(
        base, "aten::copy_", replace(tensor, dtype=dtype), tensor, draw=draw, inside=(launch,)
    )
    inside: tuple[Call, ...] = (p.op(base, "aten::empty_strided", draw=draw), copy)
    if p.knows(base, "aten::_to_copy") or not p.knows(base, "aten::to"):
        inside = (p.op(base, "aten::_to_copy", tensor, draw=draw, inside=inside),)
    return p.op(base, "aten::to", tensor, draw=draw, inside=inside)


def _cast_name(base: Base, name: str, dtype: str) -> str:
    """The kernel that this PyTorch casts with: its own where it has one for that type."""
    functor = {"c10::BFloat16": "bfloat16_copy_kernel", "c10::Half": "float16_copy_kernel"}
    word = functor.get(dtype, "direct_copy_kernel")
    known = sorted(
        n
        for n in ts.kernel_names(base, "copy")
        if word in n and (word[0] != "d" or "lambda(float" in n)
    )
    if known:
        return str(known[0])
    op = "cast" if dtype == "c10::BFloat16" else "copy_"
    model = usual.pointwise(base.device, op, 1, dtype if dtype in usual.BYTES else "float", 2).name
    return model.replace("bfloat16", "float16") if dtype == "c10::Half" else model


INJECTORS: Final = {
    "memory-zero-grad-fill": zero_grad_fill,
    "memory-redundant-copy": redundant_copy,
    "memory-layout-transform": layout_transform,
    "memory-dtype-churn": dtype_churn,
}
