"""A base's own tensors, and calls over them as its own ops would run. Times are ns."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np

from dataset.inject import pieces as p
from dataset.inject.base import Base, Span
from dataset.inject.edits import Call, Unfit, Work
from dataset.inject.pieces import Tensor
from dataset.simulate import kernels as usual
from detector.trace import Cat, Int64

T = TypeVar("T")

ACCUMULATE: Final = r"^torch::autograd::AccumulateGrad$|^AccumulateGrad$"
FLOATING: Final = ("float", "c10::BFloat16", "c10::Half")
_SMALLER: Final = 0.02  # of the program's own tensors at least
_LARGEST: Final = 1 << 28  # values of one tensor
_ENOUGH: Final = 3  # so many ops of a name tell how long it takes
_LONG_NS: Final = 60_000  # of an op's own time: it says something, and stays
_TYPES: Final = {
    "c10::BFloat16": re.compile(r"(?i)bfloat16|bf16|_BBS_|_B_BS_"),
    "c10::Half": re.compile(r"c10::Half|__half|fp16|_HHS_"),
    "float": re.compile(r"float|f32|sgemm"),
}
_WORDS: Final = {
    Cat.CPU_OP: "cpu_op",
    Cat.USER_ANNOTATION: "user_annotation",
    Cat.RUNTIME: "cuda_runtime",
    Cat.DRIVER: "cuda_runtime",
}


# -- tensors ---------------------------------------------------------------------------------------
def activation(base: Base, draw: np.random.Generator) -> Tensor:
    """One of the larger tensors that the program's pointwise ops see."""
    found = _shaped(base) or _timed(base, draw)
    return found[p.pick(draw, found)]


def _shaped(base: Base) -> list[Tensor]:
    rows = base.activity.ops("pointwise") if base.has_shapes else base.activity.of()
    found = [
        t
        for row in np.unique(base.trace.dims[rows], return_index=True)[1]
        for t in tensors_of(base, int(rows[row]))[:1]
    ]
    found = [t for t in found if t.dtype in FLOATING and t.elems >= 1_024]
    found.sort(key=lambda t: t.elems)
    return found[len(found) * 3 // 4 :]


def _timed(base: Base, draw: np.random.Generator) -> list[Tensor]:
    """By the time of the longer pointwise kernels and what these move."""
    trace = base.trace
    rows = np.concatenate([base.activity.kernels_of(k) for k in ("pointwise", "norm", "copy")])
    ns = np.percentile(trace.dur[rows], [75, 90, 97]) if len(rows) else np.array([8_000.0])
    dtype = dtype_of(base)
    size = ns * base.rate / 3
    return [p.shaped(max(4_096.0, float(s)), draw, dtype) for s in size]


def dtype_of(base: Base) -> str:
    """The element type that most of the program's kernels have."""
    used, times = np.unique(base.trace.name[base.activity.compute_rows], return_counts=True)
    counts = dict.fromkeys(FLOATING, 0)
    for i, count in zip(used.tolist(), times.tolist(), strict=True):
        for dtype, word in _TYPES.items():
            if word.search(base.trace.names[i]):
                counts[dtype] += count
                break
    return max(counts, key=lambda d: counts[d])


def half_of(base: Base) -> str:
    """The half-precision type of this program, else of its device."""
    dtype = dtype_of(base)
    return dtype if dtype != "float" else base.device.half_type


def scaled(tensor: Tensor, factor: float) -> Tensor:
    """The tensor with its first side so many times as long."""
    factor = max(_SMALLER, min(factor, _LARGEST / max(1, tensor.elems)))
    first, *rest = tensor.shape or (1,)
    if round(first * factor) < 1 and rest:  # a batch of one: what is smaller is its next side
        rest[0] = max(1, round(rest[0] * first * factor))
    return Tensor((max(1, round(first * factor)), *rest), tensor.dtype)


def tensors_of(base: Base, row: int) -> list[Tensor]:
    """Shapes and types of an op's tensors; empty where the trace has none."""
    dims, types = shapes_of(base, row)
    return [
        Tensor(tuple(d), t)
        for d, t in zip(dims, types, strict=False)
        if isinstance(d, list) and all(isinstance(n, int) for n in d) and (d or t in FLOATING)
    ]


def shapes_of(base: Base, row: int) -> tuple[list[Any], list[str]]:
    """An op's "Input Dims" and "Input type"; empty where the trace has none."""
    trace = base.trace
    dims, types = int(trace.dims[row]), int(trace.types[row])
    if dims < 0:
        return [], []
    shapes = json.loads(trace.names[dims])
    return shapes, json.loads(trace.names[types]) if types >= 0 else [""] * len(shapes)


def parameters(base: Base, span: Span, draw: np.random.Generator) -> list[Tensor]:
    """The parameters whose gradients the span accumulates: sizes as the trace tells, else drawn
    to what the optimizer's or the collectives' work says they have in all. Raises Unfit without."""
    rows = base.ops(ACCUMULATE, span)
    if not len(rows):
        raise Unfit(f"{base.name}: no gradients are accumulated")
    shapes = [tensors_of(base, int(row))[:1] for row in rows]
    known = [t[0] for t in shapes if t and t[0].elems > 0]
    if len(known) == len(rows):
        return known
    draw = np.random.default_rng(len(rows))  # the model is the same in every step
    weights = np.where(draw.random(len(rows)) < 0.55, 1.0, draw.lognormal(9.0, 1.8, len(rows)))
    total = _values(base, span)
    sizes = np.maximum(16, weights / weights.sum() * total).astype(np.int64) // 16 * 16
    return [Tensor((int(n),)) for n in sizes]


def _values(base: Base, span: Span) -> float:
    """How many values all parameters have: by the collectives' messages or the optimizer's time."""
    trace, activity = base.trace, base.activity
    rows = activity.comm_rows
    rows = rows[(trace.start[rows] >= span.start) & (trace.start[rows] < span.end)]
    messages = trace.msg_elems[rows][trace.msg_elems[rows] > 0]
    if len(messages):
        return float(messages.sum())
    steps = activity.host("optimizer_step")
    steps = steps[(trace.start[steps] >= span.start) & (trace.start[steps] < span.end)]
    work = [w for step in steps for w in base.works(int(step))]
    ns = float(trace.dur[work].sum()) / max(1, len(steps)) if work else 100_000.0
    return max(1e4, ns * base.rate / (4 * 8))


# -- what is looked up once ------------------------------------------------------------------------
_MEMORY: Final[WeakKeyDictionary[Base, dict[Hashable, Any]]] = WeakKeyDictionary()


def remembered(base: Base, key: Hashable, look: Callable[[], T]) -> T:
    """``look()``, for this base and key called once."""
    known = _MEMORY.setdefault(base, {})
    if key not in known:
        known[key] = look()
    return cast(T, known[key])


# -- calls -----------------------------------------------------------------------------------------
def ran(
    base: Base,
    name: str,
    kind: str,
    tensor: Tensor,
    *others: Tensor,
    draw: np.random.Generator,
    inside: tuple[Call, ...] = (),
) -> Call:
    """An op that runs one kernel over ``tensor``: that of the base's own ops of this name and type,
    else the usual one."""
    launch = base.launch(kernel_of(base, name, kind, tensor, draw), draw)
    call = p.op(base, name, tensor, *others, draw=draw, inside=(*inside, launch))
    return settled(base, call, draw)


def kernel_of(base: Base, name: str, kind: str, tensor: Tensor, draw: np.random.Generator) -> Work:
    """The kernel that ``name`` runs over the tensor."""
    dtype = tensor.dtype if tensor.dtype in usual.BYTES else "float"
    work = base.kernel(kind, max(1, tensor.elems), dtype, draw)
    text, threads = _known_kernel(base, name, dtype)
    if not text and kind == "elementwise":
        word = name.removeprefix("aten::").rstrip("_")
        text, threads = spelled(base, usual.pointwise(base.device, word, 1, dtype).name), 128
    if not text:
        return work
    values = math.prod(work.args["grid"]) * math.prod(work.args["block"])
    args = {"grid": (max(1, math.ceil(values / threads)), 1, 1), "block": (threads, 1, 1)}
    return replace(work, name=text, args={**work.args, **args})


def _known_kernel(base: Base, name: str, dtype: str) -> tuple[str, int]:
    """The commonest kernel of the base's own ops of this name and type, with its threads."""

    def look() -> tuple[str, int]:
        trace, found = base.trace, Counter[tuple[str, int]]()
        for row in p.named(base, name).tolist():
            for work in base.works(row).tolist():
                text = trace.names[trace.name[work]]
                if trace.cat[work] == Cat.KERNEL and _is_of(text, dtype):
                    found[text, max(64, int(trace.threads[work]))] += 1
        return found.most_common(1)[0][0] if found else ("", 0)

    return remembered(base, ("kernel", name, dtype), look)


def kernel_names(base: Base, kind: str) -> dict[str, int]:
    """The base's kernels of a kind of the vocabulary, and the time of each, ns."""

    def look() -> dict[str, int]:
        trace, rows, times = base.trace, base.activity.kernels_of(kind), Counter[str]()
        for i in np.unique(trace.name[rows]).tolist():
            times[trace.names[i]] = int(trace.dur[rows][trace.name[rows] == i].sum())
        return dict(sorted(times.items()))

    return remembered(base, ("names", kind), look)


def spelled(base: Base, kernel: str) -> str:
    """A usual kernel's name with the array type that this PyTorch's kernels take."""
    names = kernel_names(base, "pointwise")
    if any("std::array" in n for n in names) or not any("detail::Array" in n for n in names):
        return kernel
    return re.sub(r"std::array<char\*, (\d+)ul>", r"at::detail::Array<char*, \1>", kernel)


def matrix_kernel(base: Base, dtype: str, draw: np.random.Generator) -> str:
    """One of the base's own matrix kernels for this type, the busier the likelier; "" without."""
    known = {n: ns for n, ns in kernel_names(base, "gemm").items() if _is_of(n, dtype)}
    if not known:
        return ""
    weight = np.array([*known.values()]) + 1.0
    return list(known)[int(draw.choice(len(known), p=weight / weight.sum()))]


def _is_of(kernel: str, dtype: str) -> bool:
    """Whether a kernel's name says this element type; the narrower type of two counts."""
    first = next((d for d, word in _TYPES.items() if word.search(kernel)), "")
    return first == dtype


def settled(base: Base, call: Call, draw: np.random.Generator) -> Call:
    """The call with the own times that its ops have in this trace."""
    inside = tuple(settled(base, c, draw) for c in call.inside)
    if call.cat != "cpu_op" or not call.name.startswith("aten::") or call.own > _LONG_NS:
        return replace(call, inside=inside)
    times = _times_of(base, call.name)
    if len(times) < _ENOUGH and any(c.work for c in call.inside):
        times = _times_of(base, "")
    own = int(times[draw.integers(len(times))]) if len(times) >= _ENOUGH else call.own
    return replace(call, own=own, inside=inside)


def _times_of(base: Base, name: str) -> Int64:
    """Own times of the base's ops of a name; "": of those that launch a kernel."""

    def look() -> Int64:
        times = np.sort(base.own[p.named(base, name) if name else _launching(base)])
        return times[len(times) // 20 : max(1, len(times) * 4 // 5)]

    return remembered(base, ("times", name), look)


def _launching(base: Base) -> Int64:
    rows = base.trace.op[base.activity.kernels]
    ops = base.activity.aten
    found: Int64 = ops[np.isin(ops, rows)]
    return found


def empty(base: Base, draw: np.random.Generator) -> Call:
    """``aten::empty_like`` as this PyTorch runs it."""
    inner = base.op("aten::empty_strided", draw=draw)
    return base.op("aten::empty_like", None, (inner,), draw=draw)


def mirrored(
    base: Base, row: int, change: Callable[[int, Call], Call], draw: np.random.Generator
) -> Call:
    """A host event of the base with all inside it as calls; ``change`` may alter each by its row.

    Work that it issued goes along, on the stream where it ran.
    """
    trace = base.trace
    inside = tuple(
        mirrored(base, int(child), change, draw)
        for child in base.children(row)
        if trace.cat[child] in _WORDS
    )
    own = max(300, int(base.own[row] * math.exp(draw.normal(0, 0.15))))
    call = Call(trace.names[trace.name[row]], _WORDS[Cat(int(trace.cat[row]))], own, inside)  # type: ignore[arg-type]
    if call.cat == "cuda_runtime":
        works = np.flatnonzero(trace.launch == row)
        call = replace(call, work=_work_of(base, int(works[0]), draw) if len(works) else None)
    elif base.has_shapes and trace.dims[row] >= 0:
        dims, types = shapes_of(base, row)
        call = replace(call, args={"Input Dims": dims, "Input type": types})
    return change(row, call)


def _work_of(base: Base, row: int, draw: np.random.Generator) -> Work:
    """Device work of the base once more."""
    trace, args = base.trace, dict[str, Any]()
    cat = {Cat.KERNEL: "kernel", Cat.GPU_MEMCPY: "gpu_memcpy"}.get(Cat(int(trace.cat[row])))
    if trace.bytes[row] >= 0 and cat != "kernel":
        args["bytes"] = int(trace.bytes[row])
    if trace.blocks[row] > 0:
        args |= {"grid": [int(trace.blocks[row]), 1, 1], "block": [int(trace.threads[row]), 1, 1]}
    ns = base.lasting(int(trace.dur[row]) * math.exp(draw.normal(0, 0.04)))
    name = trace.names[trace.name[row]]
    return Work(name, cat or "gpu_memset", ns, int(trace.track[row]), args)  # type: ignore[arg-type]
