"""The arithmetic of ops by their shapes, and the bytes that they move at least.

Products count two operations for each multiply and add, as torch.utils.flop_counter does. Bytes
are those of inputs and outputs, each moved once: what a perfect cache would leave.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Shape = tuple[int, ...]
_MOST_SIDES: Final = 16
_SIZES: Final = {
    "double": 8,
    "float": 4,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "long int": 8,
    "long": 8,
    "int": 4,
    "short": 2,
    "unsigned char": 1,
    "signed char": 1,
    "bool": 1,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
}


@dataclass(frozen=True)
class Work:
    """Floating-point operations of a call, the bytes it moves at least, its first input's type."""

    flop: float
    bytes: float
    type: str


@dataclass(frozen=True)
class _Call:
    shapes: tuple[Shape, ...]  # of each argument; () for what is no tensor
    sizes: tuple[int, ...]  # bytes of an element; 0 for what is no tensor
    outputs: Mapping[tuple[Shape, Shape], Shape]

    def moved(self, *more: Shape) -> float:
        """Bytes of all inputs, and of outputs of these shapes in the widest input's type."""
        inputs = sum(
            math.prod(shape) * size for shape, size in zip(self.shapes, self.sizes, strict=True)
        )
        return float(inputs + sum(math.prod(shape) for shape in more) * max(self.sizes))


_Made = tuple[float, float] | None  # FLOP and bytes


def _product(first: int) -> Callable[[_Call], _Made]:
    """A product of [.., m, k] by [.., k, n]; ``first``: which argument is the left one."""

    def made(call: _Call) -> _Made:
        a, b = call.shapes[first], call.shapes[first + 1]
        if len(a) < 2 or len(b) != len(a) or a[:-2] != b[:-2] or a[-1] != b[-2]:
            return None
        out = (*a[:-1], b[-1])
        return 2.0 * math.prod(out) * a[-1], call.moved(out)

    return made


def _convolution(call: _Call) -> _Made:
    """A convolution of [n, c, ..] by [out, c / groups, ..]; its output has its gradient's shape."""
    x, weight = call.shapes[:2]
    out = call.outputs.get((x, weight))
    return None if out is None else (_convolved(out, weight), call.moved(out))


def _convolution_backward(gradient: int, x: int, weight: int) -> Callable[[_Call], _Made]:
    """Gradients of the input and of the weight: a convolution's work each."""

    def made(call: _Call) -> _Made:
        grad, given, w = (call.shapes[i] for i in (gradient, x, weight))
        if len(grad) < 3 or len(w) != len(grad) or grad[1] != w[0]:
            return None  # transposed, or unknown
        return 2 * _convolved(grad, w), call.moved(given, w)

    return made


def _convolved(out: Shape, weight: Shape) -> float:
    return 2.0 * math.prod(out) * math.prod(weight[1:])


def _attention(q: int, heads: int, products: tuple[int, int]) -> Callable[[_Call], _Made]:
    """Of q, k, v with four dimensions, the heads in this one; masks are not taken off, as their
    shapes do not say what is skipped. ``products``: those over the heads' width, over v's width."""

    def made(call: _Call) -> _Made:
        if len(call.shapes) < q + 3 or any(len(s) != 4 for s in call.shapes[q : q + 3]):
            return None
        (query, key, value), length = call.shapes[q : q + 3], 3 - heads
        scores = query[0] * query[heads] * query[length] * key[length]
        flop = 2.0 * scores * (products[0] * query[-1] + products[1] * value[-1])
        outputs = (query,) if products == _FORWARD else (query, key, value)
        return flop, call.moved(*outputs)

    return made


def _pointwise(call: _Call) -> _Made:
    """Inputs read, one output of their common shape written; arithmetic does not limit these."""
    tensors = [shape for shape in call.shapes if shape]
    rank = max(map(len, tensors), default=0)
    if not rank:
        return None
    aligned = [(1,) * (rank - len(shape)) + shape for shape in tensors]
    out = tuple(max(sides) for sides in zip(*aligned, strict=True))
    return 0.0, call.moved(out)


def _copied(call: _Call) -> _Made:
    """One tensor read, the other written."""
    if len(call.shapes) < 2 or not call.shapes[0]:
        return None
    return 0.0, call.moved()


_FORWARD, _BACKWARD = (1, 1), (3, 2)
_FLASH: Final = "scaled_dot_product_(?:flash|efficient|cudnn|fused)_attention"
_RULES: Final[tuple[tuple[re.Pattern[str], Callable[[_Call], _Made]], ...]] = tuple(
    (re.compile(rf"^aten::(?:{names})$"), made)
    for names, made in (
        (r"mm|bmm|_scaled_mm", _product(0)),
        (r"addmm|baddbmm|_addmm_activation|addmm_", _product(1)),
        (r"convolution_backward", _convolution_backward(0, 1, 2)),
        (r"(?:cudnn|miopen|mkldnn)_convolution_backward", _convolution_backward(1, 0, 2)),
        (
            r"(?:cudnn|miopen|mkldnn)_convolution|convolution_overrideable"
            r"|_slow_conv2d_forward|_conv_depthwise2d",
            _convolution,
        ),
        (rf"_{_FLASH}(?:_for_cpu)?", _attention(0, 1, _FORWARD)),
        (rf"_{_FLASH}(?:_for_cpu)?_backward", _attention(1, 1, _BACKWARD)),
        (r"_(?:flash|efficient)_attention_forward", _attention(0, 2, _FORWARD)),
        (r"_(?:flash|efficient)_attention_backward", _attention(1, 2, _BACKWARD)),
        (r"copy_", _copied),
        (
            r"(?:add|sub|mul|div|relu|gelu|silu|sigmoid|tanh|exp|neg|sqrt|rsqrt|pow"
            r"|clamp(?:_min)?)_?|(?:threshold|gelu|silu|sigmoid|tanh)_backward",
            _pointwise,
        ),
    )
)
GRADIENTS: Final = re.compile(r"^aten::(?:(?:cudnn|miopen|mkldnn)_)?convolution_backward$")


def is_known(name: str) -> bool:
    """Whether the work of ops of this name follows from their shapes."""
    return any(names.match(name) for names, _ in _RULES)


class Arithmetic:
    """The work of calls of one trace; each distinct (name, shapes, types) is worked out once."""

    def __init__(self) -> None:
        self._outputs: dict[tuple[Shape, Shape], Shape] = {}

    def learn(self, name: str, dims: str) -> None:
        """Convolutions' inputs do not give their output's shape; their gradients' do."""
        if not GRADIENTS.match(name):
            return
        shapes = _shapes(dims)[:3]
        if len(shapes) == 3:
            first, second, weight = shapes
            grad, x = (first, second) if name == "aten::convolution_backward" else (second, first)
            self._outputs[x, weight] = grad

    def of(self, name: str, dims: str, types: str) -> Work | None:
        """The work of a call; None where its shapes or types do not tell."""
        made = next((rule for names, rule in _RULES if names.match(name)), None)
        shapes, listed = _shapes(dims), _listed(types)
        if made is None or not shapes or len(listed) != len(shapes):
            return None
        kinds = [kind if isinstance(kind, str) else "" for kind in listed]
        if any(shape and kind not in _SIZES for shape, kind in zip(shapes, kinds, strict=True)):
            return None
        sizes = tuple(
            _SIZES[kind] if shape else 0 for shape, kind in zip(shapes, kinds, strict=True)
        )
        try:
            found = made(_Call(shapes, sizes, self._outputs))
        except (IndexError, ValueError, OverflowError):  # not the op's arguments
            return None
        if found is None:
            return None
        first = next((kind for shape, kind in zip(shapes, kinds, strict=True) if shape), "")
        return Work(*found, first)


def _shapes(dims: str) -> tuple[Shape, ...]:
    """The shape of each argument; () for scalars and lists of tensors."""
    return tuple(_shape(one) for one in _listed(dims))


def _shape(one: object) -> Shape:
    if not isinstance(one, list) or len(one) > _MOST_SIDES:
        return ()
    return tuple(one) if all(isinstance(n, int) and n >= 0 for n in one) else ()


def _listed(text: str) -> Sequence[object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    return found if isinstance(found, list) else ()
