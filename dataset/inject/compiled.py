"""Faulty use of ``torch.compile``: graphs that break, and code that is compiled again and again."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dataset.inject import pieces as p
from dataset.inject import rounds as r
from dataset.inject import tensors as ts
from dataset.inject.base import Base, Span
from dataset.inject.edits import Call, Edit, Insert, Unfit, Work
from dataset.inject.pieces import Slack, Tensor
from dataset.inject.rounds import Round
from dataset.simulate import kernels as usual

_SMALL: Final = 0.05  # of the program's tensors: what the host is to wait for is short
_REGION: Final = r"^Torch-Compiled Region: (\d+)/(\d+)$"
_FUSED: Final = (
    "poi_fused_add_mul",
    "poi_fused_gelu",
    "per_fused_native_layer_norm",
    "poi_fused__to_copy_add",
    "red_fused_mean_pow",
    "poi_fused_mul_silu",
)
_EAGER: Final = (
    ("aten::mean", "aten::add", "aten::mul"),
    ("aten::abs", "aten::max", "aten::div"),
    ("aten::sum", "aten::sqrt"),
    ("aten::gt", "aten::any"),
)
# What a compilation spends its time on, by the names of its spans.
_PHASES: Final = (
    ("bytecode_tracing", 0.22),
    ("build_guards", 0.04),
    ("create_aot_dispatcher_function", 0.08),
    ("aot_collect_metadata", 0.04),
    ("_recursive_joint_graph_passes", 0.06),
    ("fx_codegen_and_compile", 0.10),
    ("GraphLowering.run", 0.12),
    ("GraphLowering.compile_to_module", 0.16),
    ("async_compile.wait", 0.12),
    ("PyCodeCache.load_by_key_path", 0.06),
)
_OUTER: Final = ("entire_frame_compile", "_compile.compile_inner")
_BACKEND: Final = ("OutputGraph.call_user_compiler", "compile_fx_inner")


def _needs_compiler(base: Base) -> None:
    """Raises Unfit for PyTorch of before 2024, whose traces do not name compiled regions."""
    p.needs_device(base)
    if not len(base.ops(_REGION)) and base.trace.base_ns <= 0:
        raise Unfit(f"{base.name}: a PyTorch whose traces name no compiled regions")


def _first_region(base: Base) -> tuple[int, int]:
    """Number and version of the compiled code that this trace runs; of code of our own without."""
    names = [base.trace.names[i] for i in base.trace.name[base.ops(_REGION)]]
    found = [re.match(_REGION, name) for name in names]
    numbers = [(int(m[1]), int(m[2])) for m in found if m]
    return max(numbers, default=(0, 0))


@dataclass(frozen=True)
class Graph:
    """Compiled code: the hash of its graph, and its kernels."""

    code: str
    kernels: tuple[str, ...]


def _graph(draw: np.random.Generator) -> Graph:
    code = "f" + "".join(draw.choice(list("abcdefghijklmnopqrstuvwxyz234567"), 51))
    count = int(draw.integers(1, 4))
    names = [f"triton_{_FUSED[p.pick(draw, _FUSED)]}_{i}" for i in range(count)]
    return Graph(code, tuple(names))


def _triton(base: Base, name: str, x: Tensor, draw: np.random.Generator) -> Call:
    """A generated kernel, by the driver call that Triton uses."""
    model = usual.named(base.device, name, x.size * 3.0)
    api = "hipModuleLaunchKernel" if base.vendor == "rocm" else "cuLaunchKernel"
    args = {"grid": list(model.grid), "block": [256, 1, 1]}
    ns = base.lasting(base.moving_ns(x.size * 3.0) * math.exp(draw.normal(0, 0.05)))
    work = Work(name, "kernel", ns, base.stream, args)
    return Call(api, "cuda_runtime", base.launch_ns(draw), work=work)


def region(
    base: Base, place: tuple[int, int], graph: Graph, x: Tensor, draw: np.random.Generator
) -> Call:
    """A call of the compiled code of that number and version."""
    own = base.op_ns(draw)
    kernels = tuple(_triton(base, name, x, draw) for name in graph.kernels)
    inner = Call(
        f"## Call CompiledFxGraph {graph.code} ##", "user_annotation", 20_000 + 4 * own, kernels
    )
    inside: list[Call] = [base.op("TorchDynamo Cache Lookup", 6 * own, draw=draw)]
    if r.runs(base, "^Pregraph bytecode$"):
        inside.append(base.op("Pregraph bytecode", 2 * own, draw=draw))
    name = f"Torch-Compiled Region: {place[0]}/{place[1]}"
    return base.op(name, 40_000 + 5 * own, (*inside, inner), draw=draw)


# -- breaks ----------------------------------------------------------------------------------------
def graph_break(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """A print, a branch on data or a foreign call in a compiled function: its rest is compiled
    apart, and the interpreter runs what lies between."""
    _needs_compiler(base)
    first, small = _first_region(base)[0] + 1, ts.scaled(ts.activation(base, draw), _SMALL)
    eager, pieces = _EAGER[p.pick(draw, _EAGER)], int(draw.integers(2, 7))
    line, graphs = int(draw.integers(30, 400)), [_graph(draw) for _ in range(pieces)]

    def unit(scale: float) -> Round:
        calls: list[Call] = []
        for i in range(pieces):
            piece: tuple[Call, ...] = (region(base, (first + i, 0), graphs[i], small, draw),)
            if i:
                calls += _between(base, eager, draw)
                name = f"torch_dynamo_resume_in_forward_at_{line + 4 * i}"
                piece = base.frame(f"model.py({line + 4 * i}): {name}", piece, 20_000)
            calls += piece
        return Round(tuple(calls))

    return r.filled(base, spans, strength, draw, unit, "forward")


def _between(base: Base, eager: Sequence[str], draw: np.random.Generator) -> tuple[Call, ...]:
    """What runs uncompiled."""
    x = Tensor((int(draw.choice([16, 64, 256])), 64))
    kinds = {
        "aten::mean": "reduce",
        "aten::sum": "reduce",
        "aten::max": "reduce",
        "aten::any": "reduce",
    }
    return tuple(ts.ran(base, name, kinds.get(name, "elementwise"), x, draw=draw) for name in eager)


# -- compiled again --------------------------------------------------------------------------------
def recompile(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """A guard fails in steady state: another shape, another number, and the code is made anew."""
    _needs_compiler(base)
    slack, seen = Slack(base), ts.activation(base, draw)
    number, version = _first_region(base)
    own = base.ops(_REGION)
    edits: list[Edit] = []
    for span in spans:
        rows = own[(base.trace.start[own] >= span.start) & (base.trace.start[own] < span.end)]
        at = int(base.trace.start[rows[0]]) if len(rows) else p.place(base, span, draw, "forward")
        version += 1
        total = slack.stall(at, p.budget(span, strength)) * draw.uniform(0.9, 1.1)
        calls = (
            _compiling(base, total, draw),
            region(base, (number, version), _graph(draw), seen, draw),
        )
        wrapped = base.frame("torch/_dynamo/eval_frame.py(736): compile_wrapper", calls, 6_000)
        edits.append(Insert(base.main, at, wrapped, base.gap_ns(draw)))
    return edits


def _compiling(base: Base, ns: float, draw: np.random.Generator) -> Call:
    """The spans of one compilation: the tracer, then the back end, each in its own parts."""
    weights = np.array([share for _, share in _PHASES]) * np.exp(draw.normal(0, 0.25, len(_PHASES)))
    times = (weights / weights.sum() * ns * 0.92).astype(np.int64)
    parts = [
        _timed(base, name, int(t), (), draw) for (name, _), t in zip(_PHASES, times, strict=True)
    ]
    backend = tuple(parts[2:])
    for name in reversed(_BACKEND):
        backend = (_timed(base, name, int(ns * 0.015), backend, draw),)
    whole: tuple[Call, ...] = (parts[0], *backend, parts[1])
    for name in reversed(_OUTER):
        whole = (_timed(base, name, int(ns * 0.01), whole, draw),)
    framed = base.frame("torch/_dynamo/convert_frame.py(1272): __call__", whole, 20_000)
    return framed[0]


def _timed(
    base: Base, name: str, own: int, inside: tuple[Call, ...], draw: np.random.Generator
) -> Call:
    return base.op(f"{name} (dynamo_timed)", max(1_000, own), inside, draw=draw)


INJECTORS: Final = {"compile-graph-break": graph_break, "compile-recompile": recompile}
