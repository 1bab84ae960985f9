"""Faulty host code: small kernels, loops, interpreter work, pauses, CPU ops, allocation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from dataset.inject import frames
from dataset.inject import pieces as p
from dataset.inject.base import Base, Span
from dataset.inject.edits import Alter, Call, Edit, Insert, Unfit
from dataset.inject.pieces import Slack, Tensor
from detector.trace import Int64

Work = Callable[[Base, int, np.random.Generator], tuple[Call, ...]]

_SMALL_NS: Final = 10_000  # kernels below this leave the device to the host's speed
_PAUSE_NS: Final = 1_200_000  # the collector's full rounds take at least so long
_SLOWEST: Final = 6.0  # times a host's usual
_FEWEST, _ROUNDS = 12, 400  # rounds of a loop
_PIECE_NS: Final = 900_000  # the longest pause that a hook makes


# -- many small kernels ----------------------------------------------------------------------------
def launch_bound(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """A recurrence unrolled in Python; or, where kernels are small, a host that is slow."""
    p.needs_device(base)
    kernels = base.trace.dur[base.activity.compute_rows]
    if len(kernels) and np.median(kernels) < _SMALL_NS and draw.random() < 0.5:
        return _slowed(base, spans, strength)
    return _unrolled(base, spans, strength, draw)


_GATES: Final = (
    ("aten::mul", "aten::add", "aten::sigmoid", "aten::tanh", "aten::addcmul"),
    ("aten::sub", "aten::mul", "aten::add", "aten::clamp"),
    ("aten::exp", "aten::mul", "aten::add", "aten::where", "aten::mul", "aten::div"),
    ("aten::add", "aten::tanh", "aten::mul"),
)


def _unrolled(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    gates = _GATES[p.pick(draw, _GATES)]
    site = frames.site(base, ("forward", "cell", "step", "recurrence"), draw)
    state = Tensor((int(draw.choice([1, 8, 32])), int(draw.choice([64, 256, 1024]))))
    return _looped(
        base,
        spans,
        strength,
        draw,
        site,
        lambda: [p.ran(base, name, "elementwise", state, state, draw=draw) for name in gates],
    )


def _looped(
    base: Base,
    spans: Sequence[Span],
    strength: float,
    draw: np.random.Generator,
    site: str,
    group: Callable[[], list[Call]],
) -> list[Edit]:
    """Rounds of a loop until the device has run dry for as long as the strength asks."""
    slack, edits = Slack(base), list[Edit]()
    for span in spans:
        for at in p.starved(base, span, slack, draw):
            need, gap = slack.stall(at, p.budget(span, strength)), base.gap_ns(draw)
            calls, rounds = list[Call](), 0
            while rounds < _FEWEST or (need > 0 and rounds < _ROUNDS):
                calls += (more := group())
                need -= sum(p.length(c) + gap for c in more)
                rounds += 1
            framed = base.frame(site, tuple(calls), gap * len(calls))
            edits.append(p.inserted(base, at, framed, draw, gap))
    return edits


def _slowed(base: Base, spans: Sequence[Span], strength: float) -> list[Edit]:
    """Every op and launch takes the host longer, as on a slow or a busy processor."""
    trace, slack, edits = base.trace, Slack(base), list[Edit]()
    rows = np.union1d(base.activity.aten, base.activity.launches)
    rows = rows[np.isin(trace.track[rows], [base.main, base.backward])]
    for span in spans:
        here = rows[(trace.start[rows] >= span.start) & (trace.start[rows] < span.end)]
        own = base.own[here]
        if not own.sum():
            raise Unfit(f"{base.name}: a step without ops")
        need = slack.stall(span.start, p.budget(span, strength))
        factor = min(_SLOWEST, 1 + need / int(own.sum()))
        edits += [
            Alter(int(row), dur=int(ns * factor)) for row, ns in zip(here, own, strict=True) if ns
        ]
    return edits


# -- loops over rows -------------------------------------------------------------------------------
_BODIES: Final = (
    (("aten::mul", "elementwise"), ("aten::copy_", "copy")),
    (("aten::add_", "elementwise"),),
    (("aten::sub", "elementwise"), ("aten::pow", "elementwise"), ("aten::sum", "reduce")),
    (("aten::copy_", "copy"),),
    (("aten::fill_", "fill"),),
)


def loop_indexing(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """``for i in range(n): out[i] = f(x[i])``."""
    body = _BODIES[p.pick(draw, _BODIES)]
    site = frames.site(base, ("forward", "update", "process", "assign"), draw)
    access = str(draw.choice(["aten::select", "aten::select", "aten::slice"]))
    row = Tensor((int(draw.choice([16, 64, 256, 1024])),))
    whole = Tensor((int(draw.choice([16, 64, 256])), *row.shape))

    def one() -> list[Call]:
        done = [p.ran(base, name, kind, row, row, draw=draw) for name, kind in body]
        return [p.view(base, access, whole, draw), *done]

    return _looped(base, spans, strength, draw, site, one)


# -- the interpreter -------------------------------------------------------------------------------
def python_overhead(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """Hooks after many ops, or book-keeping in a few places; in frames where there are stacks."""
    slack, edits = Slack(base), list[Edit]()
    hooks = not base.has_stacks or draw.random() < 0.4
    work, site = _PYTHON[p.pick(draw, _PYTHON)], frames.site(base, _CALLERS, draw)
    for span in spans:
        wanted = p.budget(span, strength)
        count = int(draw.integers(12, 60)) if hooks else int(draw.choice([1, 2, 4, 6]))
        count = max(count, int(wanted / _PIECE_NS)) if hooks else count
        found = p.places(base, span, draw, count)
        if not found:
            continue
        need = slack.stall(found[0], wanted)
        for at, share in zip(found, draw.dirichlet(np.full(len(found), 6.0)), strict=True):
            edits.append(_interpreted(base, at, int(need * share), work, site, draw))
    return edits


def _interpreted(
    base: Base, at: int, ns: int, work: Work, site: str, draw: np.random.Generator
) -> Insert:
    calls = base.frame(site, work(base, ns, draw), p.about(5_000, draw)) if base.has_stacks else ()
    return Insert(base.main, at, calls, 1_000 if calls else ns)


_CALLERS: Final = ("hook", "log", "track", "on_step_end", "callback", "report", "summarise")


def _chained(
    base: Base,
    chain: Sequence[tuple[str, str]],
    leaf: str,
    of: str,
    ns: int,
    draw: np.random.Generator,
) -> tuple[Call, ...]:
    """Calls of a library one in the other, around built-ins that share ``ns``."""
    count = max(1, min(60, round(ns / draw.uniform(20_000, 90_000))))
    each = max(200, ns // count)
    inner = tuple(
        c
        for _ in range(count)
        for c in frames.builtin(base, leaf, (), of, p.about(each * 0.6, draw))
    )
    for depth, (file, function) in enumerate(chain):
        own = int(ns * 0.4) if depth == 0 else 2_000
        inner = frames.library(base, file, function, inner, own)
    return inner


def _written(base: Base, ns: int, draw: np.random.Generator) -> tuple[Call, ...]:
    log = "logging/__init__.py"
    chain = ((log, "emit"), (log, "callHandlers"), (log, "handle"), (log, "_log"), (log, "info"))
    return _chained(base, chain, "write", "_io.TextIOWrapper object", ns, draw)


def _encoded(base: Base, ns: int, draw: np.random.Generator) -> tuple[Call, ...]:
    chain = (
        ("json/encoder.py", "iterencode"),
        ("json/encoder.py", "encode"),
        ("json/__init__.py", "dumps"),
    )
    return _chained(base, chain, "join", "str object", ns, draw)


def _copied(base: Base, ns: int, draw: np.random.Generator) -> tuple[Call, ...]:
    chain = (("copy.py", "_deepcopy_dict"), ("copy.py", "deepcopy"))
    return _chained(base, chain, "get", "dict object", ns, draw)


def _walked(base: Base, ns: int, draw: np.random.Generator) -> tuple[Call, ...]:
    module = "torch/nn/modules/module.py"
    chain = ((module, "named_modules"), (module, "_named_members"), (module, "named_parameters"))
    return _chained(base, chain, "items", "collections.OrderedDict object", ns, draw)


def _counted(base: Base, ns: int, draw: np.random.Generator) -> tuple[Call, ...]:
    return _chained(base, (), "append", "list object", ns, draw)


_PYTHON: Final[tuple[Work, ...]] = (_written, _encoded, _copied, _walked, _counted)


def gc_pause(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """The collector's full rounds: nothing happens on the host. Called by the program, a frame of
    ``gc.collect`` shows where there are stacks."""
    slack, edits = Slack(base), list[Edit]()
    called, rounds = base.has_stacks and draw.random() < 0.4, int(draw.choice([1, 1, 1, 2]))
    if len(base.spans) == 1:  # parts of one step: the collector is not back so soon
        spans = (Span(spans[0].start, spans[-1].end),)
    for span in spans:
        for at in _apart(p.places(base, span, draw, rounds), span):
            ns = max(_PAUSE_NS, slack.stall(at, p.budget(span, strength) / rounds))
            ns = int(ns * draw.uniform(0.85, 1.15))
            calls = base.frame("<built-in function collect>", (), ns) if called else ()
            edits.append(Insert(base.main, at, calls, 1_000 if calls else ns))
    return edits


def _apart(times: Sequence[int], span: Span) -> list[int]:
    """Those that a collector's full rounds can have: a long time of allocating between two."""
    kept: list[int] = []
    for at in times:
        if not kept or at - kept[-1] >= span.length / 4:
            kept.append(at)
    return kept


# -- a CPU op in between ---------------------------------------------------------------------------
_ON_CPU: Final = (
    "aten::linalg_eigh",
    "aten::_fft_r2c",
    "aten::grid_sampler_2d",
    "aten::histc",
    "aten::sort",
    "aten::unique_dim",
    "aten::_linalg_svd",
    "aten::median",
    "torchvision::nms",
)


def cpu_fallback(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """An op that runs on the CPU, between a copy down and a copy up."""
    p.needs_device(base)
    name, count = _ON_CPU[p.pick(draw, _ON_CPU)], int(draw.choice([1, 1, 2, 4]))
    busy = float(draw.uniform(0.5, 0.85))  # of the time, in the op
    per_byte = 2 / base.device.pageable * 1_000  # ns there and back
    site, edits = frames.site(base, ("forward", "transform", "match"), draw), list[Edit]()
    ns = p.typical(spans, strength) / count
    x = p.shaped(min(float(1 << 28), max(2_048.0, ns * (1 - busy) / per_byte)), draw)
    slack = Slack(base)
    for span in spans:
        for at in p.bearable(base, span, slack, draw, count, 0.2 * ns):
            ran = p.op(base, name, x, draw=draw, own=p.about(max(30_000, ns * busy), draw))
            calls = (*p.to_host(base, x, draw), ran, *p.to_device(base, x, draw))
            framed = base.frame(site, calls, p.about(3_000, draw))
            edits.append(p.inserted(base, at, framed, draw))
    return edits


# -- allocation ------------------------------------------------------------------------------------
_ALLOCATES: Final = r"^aten::(empty|empty_strided|empty_like|resize_)$"


def alloc_churn(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """``empty_cache()`` in the step, or sizes that change: the driver allocates under the ops."""
    p.needs_device(base)
    cleared, slow = bool(draw.random() < 0.5), float(draw.choice([1.0, 2.0, 4.0]))
    slack, edits = Slack(base), list[Edit]()
    for span in spans:
        wanted = p.budget(span, strength)
        for at in p.bearable(base, span, slack, draw, 1, 0.5 * wanted):
            freed = [_freed(base, slow, draw) for _ in range(int(draw.integers(2, 9)))]
            edits.append(p.inserted(base, at, _emptied(base, freed, cleared, draw), draw, 500))
            need = wanted - sum(p.length(c) for c in freed) - slack.cost_of_wait(at)
            edits += _allocated(base, span, at, need, slow, draw)
    return edits


def _freed(base: Base, slow: float, draw: np.random.Generator) -> Call:
    own = int(slow * 60_000 * draw.lognormal(0, 0.6))
    return Call(base.call("free"), "cuda_runtime", own, wait="device")


def _emptied(
    base: Base, freed: Sequence[Call], cleared: bool, draw: np.random.Generator
) -> tuple[Call, ...]:
    """The cache given back: by the program, or by an op that found no room."""
    if not cleared:
        own = _driver_ns(base, 2.0, draw)
        malloc = Call(base.call("malloc"), "cuda_runtime", own)
        return (p.op(base, "aten::empty", draw=draw, inside=(malloc, *freed, malloc)),)
    called = base.frame("<built-in function _cuda_emptyCache>", tuple(freed))
    return frames.library(base, "torch/cuda/memory.py", "empty_cache", called)


def _driver_ns(base: Base, slow: float, draw: np.random.Generator) -> int:
    """A driver's allocation: of this trace's own, else the usual."""
    rows = base.activity.calls("alloc")
    own = base.trace.dur[rows][base.trace.dur[rows] > 10_000]
    ns = int(own[p.pick(draw, own)]) if len(own) >= 10 else int(80_000 * draw.lognormal(0, 0.7))
    return min(2_000_000, int(slow * ns))


def _allocated(
    base: Base, span: Span, after: int, need: float, slow: float, draw: np.random.Generator
) -> list[Edit]:
    """The driver's calls inside ops that allocate, while ``need`` lasts; at least two."""
    rows = _allocating(base, span)
    rows = rows[base.trace.start[rows] > after]
    edits = list[Edit]()
    for row in rows[: 8 * _ROUNDS]:
        if need <= 0 and len(edits) >= 2:
            break
        ns = _driver_ns(base, slow, draw)
        malloc = Call(base.call("malloc"), "cuda_runtime", ns)
        edits.append(Insert(int(base.trace.track[row]), int(base.trace.start[row]) + 1, (malloc,)))
        need -= ns
    return edits


def _allocating(base: Base, span: Span) -> Int64:
    """Ops that allocate on the device: innermost, in an op that launches something."""
    trace, rows = base.trace, base.ops(_ALLOCATES, span)
    rows = rows[np.isin(trace.track[rows], [base.main, base.backward]) & (trace.dur[rows] > 1_000)]
    around = trace.parent[rows]
    return np.array(
        [
            row
            for row, above in zip(rows, around, strict=True)
            if above >= 0 and len(base.works(int(above))) and not len(base.children(int(row)))
        ],
        np.int64,
    )


INJECTORS: Final = {
    "host-launch-bound": launch_bound,
    "host-python-overhead": python_overhead,
    "host-loop-indexing": loop_indexing,
    "host-gc-pause": gc_pause,
    "host-cpu-fallback": cpu_fallback,
    "memory-alloc-churn": alloc_churn,
}
