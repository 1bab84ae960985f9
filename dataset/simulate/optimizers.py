"""Optimizer steps, gradient clipping and ``zero_grad``."""

from __future__ import annotations

from collections.abc import Sequence

from dataset.simulate import kernels as K
from dataset.simulate.eager import Eager, Param, Tensor
from dataset.simulate.machine import Machine

SINGLE = "compute-single-tensor-optimizer"
ZERO = "memory-zero-grad-fill"

_SINGLE_OPS = {
    "AdamW": (
        ("mul_", 2),
        ("lerp_", 3),
        ("mul_", 2),
        ("addcmul_", 3),
        ("sqrt", 2),
        ("div", 2),
        ("add_", 2),
        ("addcdiv_", 4),
    ),
    "Adam": (
        ("lerp_", 3),
        ("mul_", 2),
        ("addcmul_", 3),
        ("sqrt", 2),
        ("div", 2),
        ("add_", 2),
        ("addcdiv_", 4),
    ),
    "SGD": (("mul_", 2), ("add_", 3), ("add_", 3)),
}
_FOREACH_OPS = {
    "AdamW": (
        ("mul_", 2),
        ("lerp_", 3),
        ("mul_", 2),
        ("addcmul_", 3),
        ("sqrt", 2),
        ("div_", 2),
        ("add_", 2),
        ("addcdiv_", 4),
    ),
    "Adam": (
        ("lerp_", 3),
        ("mul_", 2),
        ("addcmul_", 3),
        ("sqrt", 2),
        ("div_", 2),
        ("add_", 2),
        ("addcdiv_", 4),
    ),
    "SGD": (("mul_", 2), ("add_", 3), ("add_", 3)),
}


def optimizer_step(e: Eager, kind: str, fused: bool, params: Sequence[Param]) -> None:
    """``optimizer.step()`` of SGD with momentum, Adam or AdamW."""
    m = e.m
    grad, e.grad = e.grad, False
    with m.frame("torch/optim/optimizer.py(484): wrapper", pre=3.0):
        with m.annotation(f"Optimizer.step#{kind}.step", pre=12.0):
            _collect(m, params)
            if SINGLE in e.modes.share:
                with m.acting(SINGLE):
                    _single(e, kind, params)
            elif fused and kind != "SGD":
                _fused(e, kind, params)
            else:
                _foreach(e, kind, params)
    e.grad = grad


def _collect(m: Machine, params: Sequence[Param]) -> None:
    """The walk over the parameter lists."""
    m.busy(0.3 * len(params))
    for _ in range(0, len(params), 4):
        m.leaves(3)


def _single(e: Eager, kind: str, params: Sequence[Param]) -> None:
    share = e.modes.share[SINGLE]
    with e.m.frame(f"torch/optim/{kind.lower()}.py(346): _single_tensor_{kind.lower()}"):
        for i, p in enumerate(params):
            if share < 1 and not e.modes.on(SINGLE, i):
                continue
            _count_step(e)
            for name, tensors in _SINGLE_OPS[kind]:
                with e.op(f"aten::{name}", p, p, pre=2.2):
                    e.launch(K.pointwise(e.d, name, p.elems, p.dtype, tensors))
    rest = [p for i, p in enumerate(params) if share < 1 and not e.modes.on(SINGLE, i)]
    if rest:
        _foreach(e, kind, rest)


def _count_step(e: Eager) -> None:
    """The step counter of one parameter, which lives on the host: add one, read it, no wait."""
    one = Tensor(())
    with e.op("aten::add_", one, pre=2.0):
        pass
    with e.op("aten::item", one, pre=0.8), e.op("aten::_local_scalar_dense", one, pre=0.4):
        pass
    e.m.busy(9.0)


def _batches(params: Sequence[Param], most: int = 36) -> list[Sequence[Param]]:
    return [params[i : i + most] for i in range(0, len(params), most)]


def _foreach(e: Eager, kind: str, params: Sequence[Param]) -> None:
    for name, tensors in _FOREACH_OPS[kind]:
        with e.op(f"aten::_foreach_{name}", pre=3.0 + 0.05 * len(params)):
            for part in _batches(params):
                size = tensors * sum(p.size for p in part)
                e.launch(K.multi_tensor(e.d, name, size, len(part)))


def _fused(e: Eager, kind: str, params: Sequence[Param]) -> None:
    with e.op(f"aten::_fused_{kind.lower()}_", pre=5.0 + 0.1 * len(params)):
        for part in _batches(params, 48):
            e.launch(K.multi_tensor(e.d, "fused", 7 * sum(p.size for p in part), len(part)))


def zero_grad(e: Eager, kind: str, params: Sequence[Param]) -> None:
    """``zero_grad()``: drops the buffers; fills them where the fault says so."""
    m = e.m
    fill = ZERO in e.modes.share
    with m.annotation(f"Optimizer.zero_grad#{kind}.zero_grad", pre=5.0):
        _collect(m, params)
        if not fill:
            for p in params:
                p.grad = False
            return
        with m.acting(ZERO):
            for i, p in enumerate(params):
                if e.modes.on(ZERO, i):
                    with e.op("aten::zero_", p), e.op("aten::fill_", p):
                        e.launch(K.pointwise(e.d, "fill_", p.elems, p.dtype, 1))
                else:
                    p.grad = False


def clip_gradients(e: Eager, params: Sequence[Param]) -> None:
    """``clip_grad_norm_`` by foreach: no host wait."""
    grad, e.grad = e.grad, False
    with e.m.frame("torch/nn/utils/clip_grad.py(160): clip_grad_norm_"):
        with e.op("aten::_foreach_norm", pre=4.0):
            for part in _batches(params, 90):
                e.launch(K.multi_tensor(e.d, "norm", sum(p.size for p in part), len(part)))
        with e.op("aten::stack"), e.op("aten::cat"):
            e.launch(
                K.named(
                    e.d,
                    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int, 1, 128, 1>(at::native::(anonymous namespace)::OpaqueType<4u>*)",
                    512,
                )
            )
        with e.op("aten::linalg_vector_norm"):
            e.launch(K.reduction(e.d, "norm", len(params), "float", 1))
        for name in ("aten::add", "aten::reciprocal", "aten::mul", "aten::clamp"):
            with e.op(name):
                e.launch(K.pointwise(e.d, name[6:], 1, "float", 2))
        with e.op("aten::_foreach_mul_", pre=4.0):
            for part in _batches(params, 90):
                e.launch(K.multi_tensor(e.d, "mul_", 2 * sum(p.size for p in part), len(part)))
    e.grad = grad
