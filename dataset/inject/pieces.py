"""Pieces of programs that several faults share: copies, small ops, frames, and how long a host may
stop before the device runs dry. Times are ns."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from dataset.inject import frames
from dataset.inject.base import Base, Span, Where
from dataset.inject.edits import Call, Insert, Unfit, Work
from dataset.simulate import kernels as usual
from detector.trace import Cat, Int64

WIDTH: Final = {"float": 4, "long int": 8, "int": 4, "bool": 1, "unsigned char": 1, "double": 8}
_SERVING: Final = re.compile(
    r"^(execute_|step\[)"
)  # marks of engines that get requests, no batches
_ROCM_READ: Final = "Memcpy DtoD (Device -> Device)"  # what HIP calls a copy into pinned memory
_TRIED, _ALL = 8, 1 << 20  # places to choose from
_FULL_NS: Final = 50_000  # a launch this long found the queue full
_HALVES: Final = ("c10::BFloat16", "c10::Half")


@dataclass(frozen=True)
class Tensor:
    """Shape and element type, in the profiler's words."""

    shape: tuple[int, ...] = ()
    dtype: str = "float"

    @property
    def elems(self) -> int:
        """How many values."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def size(self) -> int:
        """Bytes."""
        return self.elems * WIDTH.get(self.dtype, 2)


SCALAR: Final = Tensor()


def pick(draw: np.random.Generator, options: Sized) -> int:
    """Index of one of the options."""
    return int(draw.integers(len(options)))


def shaped(size: float, draw: np.random.Generator, dtype: str = "float") -> Tensor:
    """A tensor of about ``size`` bytes with the sides that programs have."""
    elems = max(8, int(size) // WIDTH.get(dtype, 2))
    columns = int(draw.choice([32, 64, 128, 512, 1024, 2048, 4096]))
    if elems < 4 * columns:
        return Tensor((elems,), dtype)
    side = int(draw.choice([64, 128, 224, 256]))
    if dtype == "float" and elems > 3 * side * side and draw.random() < 0.5:
        return Tensor((round(elems / (3 * side * side)), 3, side, side), dtype)
    return Tensor((elems // columns, columns), dtype)


def about(ns: float, draw: np.random.Generator) -> int:
    """A duration near this one, as no two are the same."""
    return max(1, int(ns * draw.lognormal(0, 0.08)))


# -- strength --------------------------------------------------------------------------------------
def budget(span: Span, strength: float) -> float:
    """Time to add, ns: ``strength`` is its share of the longer span."""
    share = min(strength, 0.6)
    return span.length * share / (1 - share)


def typical(spans: Sequence[Span], strength: float) -> float:
    """The budget of the spans' mean: what a program does alike in each of them."""
    return float(np.mean([budget(span, strength) for span in spans]))


class Slack:
    """How long the host may stop at a time before the device, or a later wait, is the later for it.

    Launches run ahead of the device by their queue; a wait of the host absorbs up to its length.
    """

    def __init__(self, base: Base) -> None:
        trace, activity = base.trace, base.activity
        work = activity.device_work
        work = work[trace.launch[work] >= 0]
        calls = trace.launch[work].astype(np.int64)
        queue = trace.start[work] - trace.end[calls]
        waits = activity.calls("sync")
        waits = waits[trace.track[waits] == base.main]
        at = np.concatenate([trace.start[calls], trace.start[waits]])
        spare = np.concatenate([np.maximum(queue, 0), trace.dur[waits]])
        order = np.argsort(at, kind="stable")
        self._at, self._spare = at[order], spare[order]
        self._waits = np.sort(trace.start[waits])
        self._used, self._until, self._last = 0, -1, 0
        full = calls[trace.dur[calls] > _FULL_NS]  # these launches waited for room in the queue
        full = np.unique(full)
        self._full, self._queue_waits = trace.start[full], np.append(0, np.cumsum(trace.dur[full]))
        begin = np.argsort(trace.start[calls], kind="stable")
        self._issued = trace.start[calls][begin]
        self._done = np.maximum.accumulate(trace.end[work][begin]) if len(work) else work

    def reserve(self, at: int) -> int:
        """What a stop at ``at`` costs nothing up to."""
        until = np.searchsorted(self._waits, at)
        end = self._waits[until] if until < len(self._waits) else np.iinfo(np.int64).max
        first, last = np.searchsorted(self._at, [at, end])
        spare = self._spare[first : last + 1]
        return int(spare.min()) if len(spare) else 0

    def backlog(self, at: int) -> int:
        """How long the device still works on what was launched before ``at``."""
        i = int(np.searchsorted(self._issued, at)) - 1
        return max(0, int(self._done[i]) - at) if i >= 0 else 0

    def cost_of_wait(self, at: int) -> int:
        """About what a wait for the device at ``at`` costs."""
        return max(0, self.backlog(at) - self.reserve(at))

    def stall(self, at: int, ns: float) -> int:
        """How long the host has to stop at ``at`` to cost ``ns``, after the stops asked for so far.

        To be asked in order of time: what one stop has used of the queue the next has no more, but
        for what the host gains where it would have waited for room in it.
        """
        until = int(np.searchsorted(self._waits, at))
        first, last = np.searchsorted(self._full, [self._last, at])
        gained = int(self._queue_waits[last] - self._queue_waits[first])
        used = max(0, self._used - gained) if until == self._until else 0
        left = max(0, self.reserve(at) - used)
        self._used, self._until, self._last = used + left, until, at
        return int(left + ns)


def place(base: Base, span: Span, draw: np.random.Generator, where: Where = "main") -> int:
    """One time at which code may be put. Raises Unfit where the span has none."""
    found = base.gaps(span, draw, 1, where)
    if not found:
        raise Unfit(f"{base.name}: no place between ops of {where} code")
    marked = any(step.start == found[0] for step in base.trace.steps)
    return found[0] + marked  # inside the step's mark, not before it


def places(base: Base, span: Span, draw: np.random.Generator, count: int) -> list[int]:
    """At most ``count`` times in the code that calls ops on the main thread, but not in the
    optimizer's; none where the span lies in one op."""
    found = np.array(base.gaps(span, draw, _ALL, "main"), np.int64)
    rows = [base.activity.host(kind) for kind in ("optimizer_step", "zero_grad")]
    found = found[base.activity.spans(np.concatenate(rows)).covered(found - 1, found) == 0]
    if base.has_stacks and (calling := frames.in_calling_code(base, found)).any():
        found = found[calling]
    chosen = found if len(found) <= count else draw.choice(found, count, replace=False)
    return sorted(int(at) for at in chosen)


def starved(base: Base, span: Span, slack: Slack, draw: np.random.Generator) -> list[int]:
    """Of a few places the one at which the device has least left to do; none as in `places`."""
    return sorted(places(base, span, draw, _TRIED), key=slack.reserve)[:1]


def bearable(
    base: Base, span: Span, slack: Slack, draw: np.random.Generator, count: int, ns: float
) -> list[int]:
    """At most ``count`` places at which a wait costs ``ns`` or less; else where it costs least."""
    found = places(base, span, draw, _TRIED + 3 * count)
    kept = [at for at in found if slack.cost_of_wait(at) <= ns]
    if len(kept) < count:
        return sorted(sorted(found, key=slack.cost_of_wait)[:count])
    return sorted(int(at) for at in draw.choice(kept, count, replace=False))


def needs_device(base: Base) -> None:
    """Raises Unfit for a run on the CPU."""
    if base.vendor == "cpu" or base.stream < 0:
        raise Unfit(f"{base.name}: no device work")


def needs_batches(base: Base) -> None:
    """Raises Unfit for the trace of a server: it has no data loader."""
    if any(_SERVING.search(step.name) for step in base.trace.steps):
        raise Unfit(f"{base.name}: a server's trace, which loads no batches")


_NAMED: WeakKeyDictionary[Base, dict[str, Int64]] = WeakKeyDictionary()


def named(base: Base, name: str) -> Int64:
    """Rows of the first few ops of this very name."""
    known = _NAMED.setdefault(base, {})
    if name not in known:
        known[name] = base.ops(f"^{re.escape(name)}$")[:8]
    return known[name]


def knows(base: Base, name: str) -> bool:
    """Whether this PyTorch has the op, as far as the trace tells."""
    return len(named(base, name)) > 0


# -- ops -------------------------------------------------------------------------------------------
def op(
    base: Base,
    name: str,
    *tensors: Tensor,
    draw: np.random.Generator,
    own: int | None = None,
    inside: tuple[Call, ...] = (),
) -> Call:
    """A cpu_op of these tensors; its other arguments as this trace writes them for the name."""
    dims: list[object] = [list(t.shape) for t in tensors]
    types = [t.dtype for t in tensors]
    known = _arguments(base, name if tensors or knows(base, name) else "aten::empty")
    dims += [[] for _ in known[len(tensors) :]]
    types += known[len(tensors) :]
    return base.op(name, own, inside, dims, types, draw=draw)


def _arguments(base: Base, name: str) -> list[str]:
    """The types of the first op of this name; of a tensor none, for it would need a shape."""
    trace, rows = base.trace, named(base, name)
    rows = rows[(trace.dims[rows] >= 0) & (trace.types[rows] >= 0)]
    if not len(rows):
        return []
    dims, types = (json.loads(trace.names[c[rows[0]]]) for c in (trace.dims, trace.types))
    if len(dims) != len(types):
        return []
    return ["" if dim else kind for dim, kind in zip(dims, types, strict=True)]


def ran(
    base: Base,
    name: str,
    kind: str,
    tensor: Tensor,
    *others: Tensor,
    draw: np.random.Generator,
    inside: tuple[Call, ...] = (),
) -> Call:
    """An op that runs one kernel over ``tensor``; in a run on the CPU it computes itself."""
    own = base.op_ns(draw)
    if base.vendor == "cpu":
        return op(base, name, tensor, *others, draw=draw, own=own + tensor.size // 8, inside=inside)
    issued = base.launch(kernel(base, name, kind, tensor, draw), draw)
    return op(base, name, tensor, *others, draw=draw, own=own, inside=(*inside, issued))


def kernel(base: Base, name: str, kind: str, tensor: Tensor, draw: np.random.Generator) -> Work:
    """The kernel of op ``name``: as this trace's own op of the name runs it, if it does."""
    dtype = tensor.dtype if tensor.dtype in WIDTH or tensor.dtype in _HALVES else "float"
    work = base.kernel(kind, max(1, tensor.elems), dtype, draw)
    own = [
        w
        for row in named(base, name)
        for w in base.works(int(row))
        if base.trace.cat[w] == Cat.KERNEL
    ]
    if own:
        return replace(work, name=base.trace.names[base.trace.name[own[pick(draw, own)]]])
    if kind == "elementwise":
        word = name.removeprefix("aten::").rstrip("_")
        dtype = dtype if dtype in usual.BYTES else "float"
        return replace(work, name=usual.pointwise(base.device, word, tensor.elems, dtype).name)
    return work


def view(base: Base, name: str, tensor: Tensor, draw: np.random.Generator) -> Call:
    """An op that makes a view."""
    return op(
        base, name, tensor, draw=draw, inside=(op(base, "aten::as_strided", tensor, draw=draw),)
    )


# -- copies ----------------------------------------------------------------------------------------
def moved(base: Base, tensor: Tensor, copies: tuple[Call, ...], draw: np.random.Generator) -> Call:
    """``tensor.to(...)`` around the calls that copy; before ``_to_copy`` was an op, without it."""
    inside: tuple[Call, ...] = (
        op(base, "aten::empty_strided", draw=draw),
        op(base, "aten::copy_", tensor, tensor, draw=draw, inside=copies),
    )
    if knows(base, "aten::_to_copy") or not knows(base, "aten::to"):
        inside = (op(base, "aten::_to_copy", tensor, draw=draw, inside=inside),)
    return op(base, "aten::to", tensor, draw=draw, inside=inside)


def to_device(
    base: Base,
    tensor: Tensor,
    draw: np.random.Generator,
    *,
    pinned: bool = False,
    wait: bool = True,
) -> tuple[Call, ...]:
    """``tensor.to(device)`` from pageable or pinned memory, that waits or not."""
    work = base.copy("htod_pinned" if pinned else "htod_pageable", tensor.size, draw)
    return frames.builtin(base, "to", (moved(base, tensor, copying(base, work, draw, wait), draw),))


def copying(
    base: Base, work: Work, draw: np.random.Generator, wait: bool = True
) -> tuple[Call, ...]:
    """The runtime calls of a copy."""
    return base.blocking_copy(work, draw) if wait else (base.launch(work, draw),)


def to_host(base: Base, tensor: Tensor, draw: np.random.Generator) -> tuple[Call, ...]:
    """``tensor.cpu()``: into pageable memory; it waits for the stream."""
    work = base.copy("dtoh_pageable", tensor.size, draw)
    return frames.builtin(base, "cpu", (moved(base, tensor, copying(base, work, draw), draw),))


def scalar(base: Base, dtype: str, draw: np.random.Generator) -> Call:
    """``aten::item`` of a value on the device."""
    value = Tensor((), dtype)
    kind = "dtoh_pinned" if _reads_pinned(base) else "dtoh_pageable"
    work = base.copy(kind, max(1, value.size), draw)
    if base.vendor == "rocm" and kind == "dtoh_pinned":
        work = replace(work, name=_ROCM_READ)
    inner = op(
        base, "aten::_local_scalar_dense", value, draw=draw, inside=copying(base, work, draw)
    )
    return op(base, "aten::item", value, draw=draw, inside=(inner,))


def _reads_pinned(base: Base) -> bool:
    """Whether this PyTorch reads values through pinned memory: as its own read-backs do; else the
    newer ones do, which count time from a base."""
    for row in named(base, "aten::_local_scalar_dense"):
        for work in base.works(int(row)):
            return "Pageable" not in base.trace.names[base.trace.name[work]]
    return base.trace.base_ns > 0


def length(call: Call) -> int:
    """Host time of a call and all inside it, without its waits."""
    return call.own + sum(length(c) for c in call.inside)


def bare(calls: Sequence[Call]) -> tuple[Call, ...]:
    """The calls without the frames around them: where an event's own frames stay."""
    frames = [c for c in calls if c.cat == "python_function"]
    rest = tuple(c for c in calls if c.cat != "python_function")
    return rest or bare([c for f in frames for c in f.inside]) if frames else tuple(calls)


def inserted(
    base: Base, at: int, calls: Sequence[Call], draw: np.random.Generator, gap: int | None = None
) -> Insert:
    """Calls of the main thread, with the interpreter's time before each."""
    return Insert(base.main, at, tuple(calls), base.gap_ns(draw) if gap is None else gap)
