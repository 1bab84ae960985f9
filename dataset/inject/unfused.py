"""Faulty programs of many kernels where one would do: attention, chains of pointwise ops, the
optimizer, the bias before a batch norm."""

from __future__ import annotations

import math
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
from dataset.inject.edits import Alter, Call, Edit, Insert, Remove, Replace, Unfit
from dataset.inject.matrices import matrix_work
from dataset.inject.memory import cast
from dataset.inject.pieces import Tensor
from dataset.inject.products import Product
from dataset.inject.rounds import Round
from dataset.simulate import kernels as usual
from detector.trace import Cat, Int64

_SDPA: Final = r"^aten::scaled_dot_product_attention$"
_FOREACH: Final = r"^aten::_(foreach|fused)_"
_TOGETHER: Final = re.compile(r": (_multi_tensor_|_fused_)(\w+)$")
_STRIDED_ADD: Final = re.compile(r"^void at::native::elementwise_kernel.*CUDAFunctor_add<")
_FEW_PRODUCTS: Final = 12  # a program with fewer matrix ops is no transformer
# Norms, activations, rotations and losses, as people write them.
_CHAINS: Final = (
    ("pow", "mean", "add", "rsqrt", "mul", "mul"),
    ("neg", "mul", "mul", "add"),
    ("pow", "mul", "add", "mul", "tanh", "add", "mul", "mul"),
    ("sub", "abs", "clamp", "mul", "exp", "add"),
    ("sigmoid", "mul", "sub", "mul", "add"),
    ("mean", "sub", "pow", "mean", "add", "sqrt", "div", "mul", "add"),
)
_WITH: Final = frozenset(("add", "mul", "sub", "div"))  # ops of two tensors
_NODES: Final = {"rsqrt": "RsqrtBackward0", "abs": "AbsBackward0"}
_SINGLE: Final = {
    "AdamW": ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_"),
    "Adam": ("lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_"),
    "SGD": ("mul_", "add_", "add_"),
    "Adagrad": ("addcmul_", "sqrt", "add_", "addcdiv_"),
    "RMSprop": ("mul_", "addcmul_", "sqrt", "add_", "addcdiv_"),
}


# -- attention -------------------------------------------------------------------------------------
def unfused_attention(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """Attention as bmm, softmax, bmm: in place of the fused call, or in a program without one."""
    p.needs_device(base)
    upcast, masked, as_math = draw.random(3) < (0.4, 0.5, 0.35)

    def make(row: int) -> tuple[Call, ...]:
        q, keys = _heads_of(base, row)
        calls = _attend(base, q, keys, masked, upcast and not as_math, draw)
        return (_as_math(base, q, calls, draw),) if as_math else calls

    if not r.trains(base):
        edits = r.replaced(base, spans, strength, draw, _SDPA, make)
        if edits:
            return edits
    q = _some_heads(base, draw)

    def unit(scale: float) -> Round:
        larger = ts.scaled(q, scale)
        calls = _attend(base, larger, larger.shape[2], masked, upcast, draw)
        back = _attend_back(base, larger, draw)
        return Round(calls, back, Round(_products(calls), _products(back)))

    return r.filled(base, spans, strength, draw, unit, "forward", most=12)


def _heads_of(base: Base, row: int) -> tuple[Tensor, int]:
    """The query of a fused call and how many keys it sees."""
    given = [t for t in ts.tensors_of(base, row) if len(t.shape) == 4]
    if len(given) < 2:
        raise Unfit(f"{base.name}: attention without shapes")
    return given[0], given[1].shape[2]


def _some_heads(base: Base, draw: np.random.Generator) -> Tensor:
    """Heads for the program's own width. Raises Unfit where it is no transformer."""
    products, convs = base.activity.ops("matmul"), base.activity.ops("conv_call")
    if len(products) < _FEW_PRODUCTS or len(convs) > len(products):
        raise Unfit(f"{base.name}: no attention, and no transformer")
    seen = ts.activation(base, draw)
    size, length = int(draw.choice([32, 64, 64, 128])), int(draw.choice([128, 256, 512, 1024]))
    heads = int(draw.choice([4, 8, 12, 16]))
    rows = max(1, seen.elems // (heads * length * size))
    return Tensor((min(rows, 64), heads, length, size), seen.dtype)


def _attend(
    base: Base, q: Tensor, keys: int, masked: bool, upcast: bool, draw: np.random.Generator
) -> tuple[Call, ...]:
    """``softmax(q @ k.transpose(-2, -1) / sqrt(d) + mask) @ v``."""
    batch, heads, length, size = q.shape
    k = Tensor((batch, heads, keys, size), q.dtype)
    scores = Tensor((batch, heads, length, keys), q.dtype)
    wide = replace(scores, dtype="float") if upcast else scores
    calls = [
        p.view(base, "aten::transpose", k, draw),
        _product(base, q, Tensor((batch, heads, size, keys), q.dtype), draw),
        ts.ran(base, "aten::div" if size % 3 else "aten::mul", "elementwise", scores, draw=draw),
    ]
    if masked:
        mask = Tensor((1, 1, length, keys), q.dtype)
        calls.append(ts.ran(base, "aten::add", "elementwise", scores, mask, draw=draw))
    calls += [cast(base, scores, "float", draw)] if wide != scores else []
    calls.append(_softmax(base, wide, draw))
    calls += [cast(base, wide, q.dtype, draw)] if wide != scores else []
    calls.append(_product(base, scores, k, draw))
    return tuple(calls)


def _products(calls: Sequence[Call]) -> tuple[Call, ...]:
    """Those that multiply: a fused kernel has as much to multiply."""
    return tuple(c for c in calls if c.name == "aten::matmul" or "BmmBackward" in c.name)


def _product(base: Base, left: Tensor, right: Tensor, draw: np.random.Generator) -> Call:
    """``aten::matmul`` of two stacks of matrices."""
    batch = math.prod(left.shape[:2])
    flat = [Tensor((batch, *t.shape[2:]), t.dtype) for t in (left, right)]
    views = tuple(
        p.op(base, name, t, draw=draw, inside=(p.op(base, "aten::as_strided", t, draw=draw),))
        for t in (left, right)
        for name in ("aten::expand",)
    )
    multiplied = p.op(base, "aten::bmm", *flat, draw=draw, inside=(_multiply(base, flat, draw),))
    back = p.op(base, "aten::_unsafe_view", flat[0], draw=draw)
    return p.op(base, "aten::matmul", left, right, draw=draw, inside=(*views, multiplied, back))


def _multiply(base: Base, flat: Sequence[Tensor], draw: np.random.Generator) -> Call:
    (batch, m, k), n = flat[0].shape, flat[1].shape[2]
    return base.launch(matrix_work(base, Product(m, n, k, batch), flat[0].dtype, draw), draw)


def _softmax(base: Base, scores: Tensor, draw: np.random.Generator) -> Call:
    inner = ts.ran(base, "aten::_softmax", "softmax", scores, draw=draw)
    return p.op(base, "aten::softmax", scores, draw=draw, inside=(inner,))


def _as_math(base: Base, q: Tensor, calls: tuple[Call, ...], draw: np.random.Generator) -> Call:
    """The same where no fused kernel takes the arguments."""
    inner = p.op(base, "aten::_scaled_dot_product_attention_math", q, q, q, draw=draw, inside=calls)
    return p.op(base, "aten::scaled_dot_product_attention", q, q, q, draw=draw, inside=(inner,))


def _attend_back(base: Base, q: Tensor, draw: np.random.Generator) -> tuple[Call, ...]:
    """Autograd's nodes of `_attend`, last first."""
    batch, heads, length, size = q.shape
    flat, scores = (batch * heads, length, size), (batch * heads, length, length)
    a, b = Tensor(flat, q.dtype), Tensor((flat[0], size, length), q.dtype)
    s = Tensor(scores, q.dtype)

    def products(*pairs: tuple[Tensor, Tensor]) -> tuple[Call, ...]:
        return tuple(
            p.op(base, "aten::bmm", x, y, draw=draw, inside=(_multiply(base, (x, y), draw),))
            for x, y in pairs
        )

    softmax = ts.ran(base, "aten::_softmax_backward_data", "softmax", s, s, draw=draw)
    scaling = ts.ran(base, "aten::div", "elementwise", s, draw=draw)
    nodes = (
        ("BmmBackward0", products((s, a), (a, b))),
        ("SoftmaxBackward0", (softmax,)),
        ("DivBackward0", (scaling,)),
        ("BmmBackward0", products((s, a), (s, a))),
    )
    return tuple(c for name, inside in reversed(nodes) for c in r.node(base, name, inside, draw))


# -- chains ----------------------------------------------------------------------------------------
def unfused_elementwise(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """A norm, an activation, a rotation or a loss written op by op."""
    p.needs_device(base)
    chain, part = _CHAINS[p.pick(draw, _CHAINS)], ts.activation(base, draw)
    site = frames.site(base, ("forward", "norm", "activation", "rotate"), draw)

    def unit(scale: float) -> Round:
        x = ts.scaled(part, scale)
        calls = tuple(_pointwise(base, name, x, draw) for name in chain)
        nodes = [_pointwise_back(base, name, x, draw) for name in chain if name != "clamp"]
        framed = base.frame(site, calls, base.gap_ns(draw) * len(calls))
        return Round(framed, tuple(c for n in nodes for c in n))

    return r.filled(base, spans, strength, draw, unit, "forward", most=12)


def _pointwise(base: Base, name: str, x: Tensor, draw: np.random.Generator) -> Call:
    kind = "reduce" if name == "mean" else "elementwise"
    others = (x,) if name in _WITH else ()
    return ts.ran(base, f"aten::{name}", kind, x, *others, draw=draw)


def _pointwise_back(
    base: Base, name: str, x: Tensor, draw: np.random.Generator
) -> tuple[Call, ...]:
    inside = (ts.ran(base, "aten::mul", "elementwise", x, x, draw=draw),)
    return r.node(base, _NODES.get(name, f"{name.capitalize()}Backward0"), inside, draw)


# -- the optimizer ---------------------------------------------------------------------------------
def single_tensor_optimizer(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """``foreach=False``: the step walks the parameters. What it costs is the model's to say."""
    p.needs_device(base)
    if len(spans) < len(base.spans):
        raise Unfit(f"{base.name}: one optimizer makes all steps")
    edits: list[Edit] = []
    for span in spans:
        steps = base.activity.host("optimizer_step")
        start = base.trace.start[steps]
        steps = steps[(start >= span.start) & (start < span.end)]
        model = ts.parameters(base, span, draw) if len(steps) else []
        params = model[: max(1, round(len(model) / max(1, len(steps))))]
        for step in steps.tolist():
            edits += _walked(base, step, params, draw)
    if not edits:
        raise Unfit(f"{base.name}: no optimizer that takes its parameters together")
    return edits


def _walked(
    base: Base, step: int, params: Sequence[Tensor], draw: np.random.Generator
) -> list[Edit]:
    """One op after the other for each parameter, in place of the ops over all of them."""
    trace = base.trace
    rows = _directly(base, step)
    if not len(rows):
        return []
    kind = trace.names[trace.name[step]].split("#")[-1].split(".")[0]
    ops = _SINGLE.get(kind, _SINGLE["SGD"])[-len(rows) if kind == "SGD" else 0 :]
    calls = tuple(
        ts.ran(base, f"aten::{name}", "elementwise", tensor, *_operands(name, tensor), draw=draw)
        for tensor in params
        for name in ops
    )
    frame = _frame_of(base, int(rows[0]), step)
    if frame >= 0:
        name = _TOGETHER.sub(r": _single_tensor_\2", trace.names[trace.name[frame]])
        return [Replace(frame, (Call(name, "python_function", 3_000 * len(params), calls),))]
    first, *others = rows.tolist()
    return [*r.instead(base, first, calls, draw), *(Remove(row) for row in others)]


def _operands(name: str, tensor: Tensor) -> tuple[Tensor, ...]:
    return (tensor,) * {"addcmul_": 2, "addcdiv_": 2, "add_": 1, "lerp_": 1, "div": 1}.get(name, 0)


def _directly(base: Base, step: int) -> Int64:
    """The ops over lists of parameters inside a step."""
    trace, rows = base.trace, base.ops(_FOREACH)
    inside = (trace.start[rows] >= trace.start[step]) & (trace.end[rows] <= trace.end[step])
    found: Int64 = rows[inside & (trace.track[rows] == trace.track[step])]
    return found


def _frame_of(base: Base, row: int, step: int) -> int:
    """The frame of the function that holds them; -1 without stacks."""
    trace, above = base.trace, int(base.trace.parent[row])
    while above >= 0 and above != step:
        name = trace.names[trace.name[above]]
        if trace.cat[above] == Cat.PYTHON_FUNCTION and _TOGETHER.search(name):
            return above
        above = int(trace.parent[above])
    return -1


# -- convolutions with a bias ----------------------------------------------------------------------
def conv_bias_batchnorm(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """A bias added after convolutions whose output a batch norm centers at once."""
    p.needs_device(base)
    edits, room = list[Edit](), r.Room(base)
    for span in spans:
        rows = _before_norms(base, span)
        if not rows:
            continue
        at = int(base.trace.start[rows[0]])
        need, cost = p.budget(span, strength) + room.of_device(at, span), 0.0
        for row in rows:
            found = _biased(base, row, draw)
            edits += found
            cost += sum(r.device_ns(e.calls) for e in found if isinstance(e, Insert))
            if cost > need:
                break
        edits += _bias_gradients(base, span, draw)
    if not edits:
        raise Unfit(f"{base.name}: no convolution without a bias before a batch norm")
    return edits


def _before_norms(base: Base, span: Span) -> list[int]:
    """Calls of convolutions without a bias that a batch norm follows."""
    trace, activity = base.trace, base.activity
    convs, norms = activity.ops("conv_call"), activity.ops("batch_norm_call")
    calls = np.sort(np.concatenate([convs, norms]))
    calls = calls[(trace.start[calls] >= span.start) & (trace.start[calls] < span.end)]
    is_norm = np.isin(calls, norms)
    rows = calls[:-1][~is_norm[:-1] & is_norm[1:]].tolist() if len(calls) else []
    return [row for row in rows if not _has_bias(base, row) and len(base.works(row))]


def _has_bias(base: Base, row: int) -> bool:
    shapes = ts.shapes_of(base, row)[0]
    if len(shapes) > 2:
        return bool(shapes[2])
    adds, trace = base.ops(r"^aten::add_$"), base.trace
    inside = (trace.start[adds] >= trace.start[row]) & (trace.end[adds] <= trace.end[row])
    return bool((inside & (trace.track[adds] == trace.track[row])).any())


def _biased(base: Base, row: int, draw: np.random.Generator) -> list[Edit]:
    """The add where the library has none fused, and the bias among the arguments."""
    trace = base.trace
    inner = [c for c in _descend(base, row) if re.search(r"(cudnn|miopen)_conv", c[1])]
    call = inner[0][0] if inner else row
    out, bias = _output(base, row, draw)
    view = p.op(base, "aten::view", bias, draw=draw)
    shaped = p.op(base, "aten::reshape", bias, draw=draw, inside=(view,))
    add = ts.ran(base, "aten::add_", "elementwise", out, bias, draw=draw)
    add = _broadcast(base, add, out, draw)
    end = int(trace.end[call])
    edits: list[Edit] = [Insert(int(trace.track[row]), end, (shaped, add))]
    for op, name in [(row, ""), *_descend(base, row)]:
        dims, types = ts.shapes_of(base, op)
        if len(dims) > 2 and dims[2] == [] and "conv" in (name or "conv"):
            args = {
                "Input Dims": [*dims[:2], list(bias.shape), *dims[3:]],
                "Input type": [*types[:2], bias.dtype, *types[3:]],
            }
            edits.append(Alter(op, args=args, faulty=False))
    return edits


def _broadcast(base: Base, add: Call, out: Tensor, draw: np.random.Generator) -> Call:
    """The add reads and writes the output alone: the bias is small. Its kernel takes strides."""
    launch = add.inside[-1]
    if launch.work is None:
        return add
    own = ts.kernel_names(base, "pointwise")
    known = sorted(n for n in own if _STRIDED_ADD.search(n) and out.dtype in n)
    name = known[0] if known else usual.strided(base.device, "add", out.elems, out.dtype).name
    shorter = base.lasting(launch.work.dur * draw.uniform(0.65, 0.8))
    work = replace(launch.work, dur=shorter, name=ts.spelled(base, name))
    return replace(add, inside=(*add.inside[:-1], replace(launch, work=work)))


def _descend(base: Base, row: int) -> list[tuple[int, str]]:
    """Ops inside ``row``, outermost first: one below the other, the first child of each."""
    found: list[tuple[int, str]] = []
    children = [int(c) for c in base.children(row)]
    while children:
        names = [(c, base.trace.names[base.trace.name[c]]) for c in children]
        conv = [(c, n) for c, n in names if "conv" in n and base.trace.cat[c] == Cat.CPU_OP]
        if not conv:
            break
        found.append(conv[0])
        children = [int(c) for c in base.children(conv[0][0])]
    return found


def _output(base: Base, row: int, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
    """What the convolution makes, and the bias for it."""
    given = [t for t in ts.tensors_of(base, row) if len(t.shape) == 4]
    dtype = given[0].dtype if given else ts.dtype_of(base)
    if len(given) >= 2:
        (batch, _, height, width), filters = given[0].shape, given[1].shape[0]
        stride = 2 if given[1].shape[0] == 2 * given[1].shape[1] else 1
        sides = max(1, height // stride), max(1, width // stride)
        return Tensor((batch, filters, *sides), dtype), Tensor((filters,), dtype)
    norms = base.ops(r"^aten::(cudnn|miopen|native)_batch_norm$")
    after = norms[base.trace.start[norms] >= base.trace.end[row]]
    works = base.works(int(after[0])) if len(after) else base.works(row)
    size = float(base.trace.dur[works].sum()) * base.rate / 3
    return p.shaped(max(16_384.0, size), draw, dtype), Tensor(
        (int(draw.choice([64, 256, 512])),), dtype
    )


def _bias_gradients(base: Base, span: Span, draw: np.random.Generator) -> list[Edit]:
    """The sums over the outputs' gradients."""
    edits: list[Edit] = []
    for row in base.ops(r"^aten::convolution_backward$", span).tolist():
        calls = r.launches_of(base, row)
        if not len(calls):
            continue
        given = [t for t in ts.tensors_of(base, row) if len(t.shape) == 4]
        grad = given[0] if given else _output(base, row, draw)[0]
        total = ts.ran(base, "aten::sum", "reduce", grad, draw=draw)
        at = int(base.trace.end[calls[-1]])
        edits.append(Insert(int(base.trace.track[row]), at, (total,)))
    return edits
