"""The calls that all of eager mode is made of: ops, launches, the tape, pointwise work.

A `Tensor` here is a shape and a dtype. In training each differentiable call pushes a node onto the
tape; `autograd.py` walks the tape back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dataset.simulate import kernels as K
from dataset.simulate.machine import Machine, _Open


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, ...]
    dtype: str = "float"

    @property
    def elems(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.elems * K.BYTES[self.dtype]

    def like(self, *shape: int, dtype: str | None = None) -> Tensor:
        return Tensor(shape or self.shape, dtype or self.dtype)


@dataclass
class Param:
    """A trained tensor; ``grad`` says whether its gradient buffer exists."""

    shape: tuple[int, ...]
    dtype: str = "float"
    grad: bool = False
    key: int = 0

    @property
    def elems(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        return self.elems * K.BYTES[self.dtype]


@dataclass(frozen=True)
class Node:
    """A backward step: its name, sequence number, the shape it sees, what it does, whose grads."""

    name: str
    sequence: int
    seen: Tensor
    run: Callable[[], None]
    params: tuple[Param, ...] = ()


@dataclass
class Modes:
    """Which faulty ways of calling are on in this step, and for what share of the layers.

    Keys are pattern ids; a healthy step has none.
    """

    share: dict[str, float] = field(default_factory=dict)

    def on(self, pattern: str, layer: int = 0) -> bool:
        """Whether this layer is called the faulty way (golden-ratio hash spreads the layers)."""
        share = self.share.get(pattern, 0.0)
        return share > 0 and (share >= 1 or (layer * 0.6180339887) % 1.0 < share)


_VIEWS = ("aten::view", "aten::unsqueeze", "aten::expand", "aten::permute", "aten::slice")


class Calls:
    """Plumbing, pointwise ops, views and casts.

    ``amp`` is the dtype of autocast, or None for fp32 with TF32 allowed; with ``half`` the
    parameters have that dtype themselves.
    """

    def __init__(
        self, machine: Machine, *, amp: str | None, grad: bool, shapes: bool, half: bool = False
    ) -> None:
        self.m, self.d, self.amp = machine, machine.device, amp
        self.grad, self.shapes = grad, shapes
        self.param_type = amp if amp and half else "float"
        self.tape: list[Node] = []
        self.params: list[Param] = []
        self.modes = Modes()
        self.layer = 0
        self.chatty = 0  # most views that a module takes beside its work
        self.casts: set[int] = set()
        self.depth_tax = 1.0  # host factor of ops that record a graph
        self.on_grad: Callable[[Param], None] = lambda param: None

    # -- plumbing ---------------------------------------------------------------------------
    def param(self, *shape: int) -> Param:
        made = Param(shape, self.param_type, key=len(self.params))
        self.params.append(made)
        return made

    def op(self, name: str, *tensors: Tensor | Param, seq: bool = False, pre: float = 1.3) -> _Open:
        dims: list[Any] | None = None
        types: list[str] | None = None
        if self.shapes and tensors:
            dims = [list(t.shape) for t in tensors]
            types = [t.dtype for t in tensors]
            if name in ("aten::cat", "aten::stack"):  # one list of tensors, and the dimension
                dims, types = [dims, []], ["TensorList", "Scalar"]
        number = self.m.sequence if (seq and self.grad) else None
        return self.m.op(name, dims, types, seq=number, pre=pre * self.depth_tax)

    def launch(self, kernel: K.Kernel, stream: int | None = None, **args: Any) -> None:
        self.m.launch(
            kernel.name, kernel.us, kernel.grid, kernel.block, api=kernel.api, stream=stream, **args
        )

    def node(self, name: str, seen: Tensor, run: Callable[[], None], *params: Param) -> None:
        if self.grad:
            self.tape.append(Node(name, self.m.sequence, seen, run, params))
            self.m.sequence += 1

    def empty(self, like: str = "aten::empty") -> None:
        with self.op(like, pre=1.6):
            pass

    @contextmanager
    def module(self, name: str):  # type: ignore[no-untyped-def]
        """``nn.Module: name`` and the frames around a forward."""
        with self.m.frame(f"nn.Module: {name}_{self.layer}", pre=2.0):
            with self.m.frame("torch/nn/modules/module.py(1784): _call_impl", pre=0.8):
                self.m.leaves(5)
                with self.m.frame(f"torch/nn/modules/{name.lower()}.py(134): forward", pre=0.5):
                    self.m.leaves(3)
                    for _ in range(self.m.rng.randint(0, self.chatty)):
                        self.view(self.m.rng.choice(_VIEWS), Tensor((64, 64)))
                    yield
        self.layer += 1

    # -- pointwise --------------------------------------------------------------------------
    def pointwise(
        self,
        name: str,
        x: Tensor,
        *,
        tensors: float = 2.0,
        node: str | None = None,
        out: Tensor | None = None,
        stride: bool = False,
        back: float | None = None,
        back_op: str | None = None,
    ) -> Tensor:
        """An elementwise op; ``node`` names its backward node, which costs ``back`` tensors."""
        short = name.split("::")[-1]
        with self.op(name, x, seq=True):
            kernel = (K.strided if stride else K.pointwise)(
                self.d, short, x.elems, x.dtype, tensors
            )
            self.launch(kernel)
        if node:
            inner = back_op or f"aten::{short}_backward"
            self.node(node, x, lambda: self._back(inner, x, back or tensors))
        return out or x

    def _back(self, name: str, x: Tensor, tensors: float) -> None:
        if tensors <= 0:
            return
        with self.op(name, x):
            self.launch(K.pointwise(self.d, name.split("::")[-1], x.elems, x.dtype, tensors))

    def relu(self, x: Tensor) -> Tensor:
        with self.op("aten::relu_", x, seq=True), self.op("aten::clamp_min_", x):
            self.launch(K.pointwise(self.d, "relu", x.elems, x.dtype, 2))
        self.node("ReluBackward0", x, lambda: self._back("aten::threshold_backward", x, 3))
        return x

    def gelu(self, x: Tensor) -> Tensor:
        return self.pointwise("aten::gelu", x, node="GeluBackward0", back=3)

    def silu(self, x: Tensor) -> Tensor:
        return self.pointwise("aten::silu", x, node="SiluBackward0", back=3)

    def add(self, x: Tensor) -> Tensor:
        with self.op("aten::add", x, x, seq=True):
            self.launch(K.pointwise(self.d, "add", x.elems, x.dtype, 3))
        self.node("AddBackward0", x, lambda: None)
        return x

    def dropout(self, x: Tensor) -> Tensor:
        with self.op("aten::dropout", x, seq=True), self.op("aten::native_dropout", x):
            name = (
                "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<"
                f"{x.dtype}, float, unsigned int, 1, 4, bool>(at::cuda::detail::TensorInfo)"
            )
            self.launch(K.named(self.d, name, 2.5 * x.size, threads=256))
        self.node(
            "NativeDropoutBackward0",
            x,
            lambda: self._back("aten::native_dropout_backward", x, 2.5),
        )
        return x

    def view(self, name: str, x: Tensor, *shape: int) -> Tensor:
        """A view: host time alone."""
        with self.op(name, x, seq=True, pre=0.8):
            if name in ("aten::transpose", "aten::permute", "aten::slice", "aten::select"):
                with self.op("aten::as_strided", x, pre=0.5):
                    pass
        return x.like(*shape)

    def cast(self, x: Tensor | Param, dtype: str, name: str = "aten::to") -> Tensor:
        """``x.to(dtype)`` on the device."""
        with self.op(name, x, seq=True), self.op("aten::_to_copy", x):
            with self.op("aten::empty_strided", pre=1.5):
                pass
            with self.op("aten::copy_", x):
                self.launch(K.pointwise(self.d, "cast", x.elems, "float", 1.5))
        return Tensor(x.shape, dtype)

    def weight(self, w: Param) -> Tensor:
        """The weight as a matrix call sees it: autocast casts each once a step."""
        if not self.amp or w.dtype == self.amp:
            return Tensor(w.shape, w.dtype)
        if w.key not in self.casts:
            self.casts.add(w.key)
            self.cast(w, self.amp)
        return Tensor(w.shape, self.amp)
