"""Faulty input: batches made or waited for on the training thread, and copies to the device."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dataset.inject import frames, samples
from dataset.inject import pieces as p
from dataset.inject.base import Base, Span
from dataset.inject.edits import Call, Edit, Insert, Remove, Replace, Unfit
from dataset.inject.pieces import Slack, Tensor
from detector.trace import Cat, Int64

_LOADER: Final = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"
_OWN_FAULT: Final = 0.05  # of a step: a base whose own loader takes longer has the fault already
_SHORT_NS: Final = 60_000  # what a loader that keeps up takes
_TINY_BYTES: Final = (4, 8, 24, 64, 128, 256, 512, 1024, 2048, 8192)
_EARLY: Final = 12  # the first of so many places
_LARGEST: Final = 1 << 30  # bytes of one tensor
_NO_TIME: Final = 1  # ns
_BATCH_BYTES: Final = 16_384  # a smaller copy is no batch
_MOVE: Final = re.compile(r"^aten::(to|copy_|_to_copy)$")


# -- the loader ------------------------------------------------------------------------------------
def dataloader_sync(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """``num_workers=0``: the batch is read, decoded and collated in ``__next__``."""
    sample = samples.one_by_one(base, draw)
    count, busy = int(draw.choice([4, 8, 16, 24, 32])), float(draw.uniform(0.1, 0.6))

    def load(ns: int) -> tuple[Call, ...]:
        each = int(ns * 0.9 / count)
        made = [c for _ in range(count) for c in sample(p.about(each, draw), busy)]
        batch = p.op(base, "aten::stack", draw=draw, own=ns // 20 + 1)
        return _next(base, "SingleProcess", (*made, batch), ns)

    return _loads(base, spans, strength, draw, load, every=1)


def dataloader_starved(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """Workers that do not keep up: each batch is waited for, or one of every few."""
    every = int(draw.choice([1, 1, 1, 2, 4])) if len(spans) >= 4 else 1
    shared = draw.random() < 0.5  # tensors come through shared memory, not a pinning thread

    def wait(ns: int) -> tuple[Call, ...]:
        rebuilt = _rebuilt(base, draw) if shared else ()
        return _next(base, "MultiProcessing", _queue(base, ns) + rebuilt, ns)

    return _loads(base, spans, strength, draw, wait, every)


def _loads(
    base: Base,
    spans: Sequence[Span],
    strength: float,
    draw: np.random.Generator,
    load: Callable[[int], tuple[Call, ...]],
    every: int,
) -> list[Edit]:
    """A loader's call at the start of each span, in place of the base's own; long in ``every``."""
    p.needs_batches(base)
    slack, edits, phase = Slack(base), list[Edit](), int(draw.integers(every))
    for i, span in enumerate(_from_the_start(base, spans)):
        rows = _own_loads(base, span)
        late = i % every == phase
        at = int(base.trace.start[rows[0]]) if len(rows) else _start(base, span, draw)
        ns = slack.stall(at, p.budget(span, strength) * every) if late else _SHORT_NS
        ns = int(ns * draw.uniform(0.85, 1.15))
        calls = load(ns)
        if len(rows):
            edits.append(Replace(int(rows[0]), p.bare(calls), faulty=late))
            edits += [Remove(int(row)) for row in rows[1:]]
        else:
            edits.append(Insert(base.main, at, calls, base.gap_ns(draw), faulty=late))
    return edits


def _own_loads(base: Base, span: Span) -> Int64:
    """The base's own calls for batches in the span. Raises Unfit where they are the fault."""
    rows = _loader_rows(base, span)
    if base.trace.dur[rows].sum() > _OWN_FAULT * span.length:
        raise Unfit(f"{base.name}: its own loader holds the step up")
    return rows


def _loader_rows(base: Base, span: Span) -> Int64:
    start, rows = base.trace.start, base.activity.loader_rows
    found: Int64 = rows[(start[rows] >= span.start) & (start[rows] < span.end)]
    return found


def _from_the_start(base: Base, spans: Sequence[Span]) -> list[Span]:
    """Batches come with a step: parts of one count as its beginning, as long as they together."""
    if all(span in base.spans for span in spans):
        return list(spans)
    begun = []
    for step in base.spans:
        acting = sum(s.length for s in spans if step.start <= s.start < step.end)
        begun += [Span(step.start, step.start + acting)] if acting else []
    return begun


def _start(base: Base, span: Span, draw: np.random.Generator) -> int:
    """Where the step begins; without marked steps an early place of the program's own code."""
    early = [] if base.trace.steps else p.places(base, span, draw, _EARLY)[:1]
    return early[0] if early else p.place(base, span, draw, "between_steps")


def _after_loader(base: Base, span: Span, draw: np.random.Generator) -> int:
    rows = _loader_rows(base, span)
    return int(base.trace.end[rows[-1]]) if len(rows) else _start(base, span, draw)


def _next(base: Base, kind: str, inside: tuple[Call, ...], own: int) -> tuple[Call, ...]:
    spent = sum(p.length(call) for call in inside)
    mark = Call(_LOADER.format(kind), "user_annotation", max(2_000, own - spent), inside)
    return frames.library(base, "torch/utils/data/dataloader.py", "__next__", (mark,), 4_000)


def _queue(base: Base, ns: int) -> tuple[Call, ...]:
    """Frames of the wait for a worker; without stacks the wait shows in the loader's mark alone."""
    inner = frames.builtin(base, "poll", (), "select.poll object", int(ns * 0.94))
    for file, function in (
        ("selectors.py", "select"),
        ("multiprocessing/connection.py", "wait"),
        ("multiprocessing/connection.py", "poll"),
        ("multiprocessing/queues.py", "get"),
        ("torch/utils/data/dataloader.py", "_try_get_data"),
        ("torch/utils/data/dataloader.py", "_next_data"),
    ):
        inner = frames.library(base, file, function, inner, 3_000)
    return inner


def _rebuilt(base: Base, draw: np.random.Generator) -> tuple[Call, ...]:
    """Tensors made again from the worker's shared memory."""
    names = ("aten::empty", "aten::set_") * int(draw.integers(1, 4))
    return tuple(p.op(base, name, draw=draw) for name in names)


# -- work on the batch ---------------------------------------------------------------------------
def main_thread_preprocessing(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """Images or arrays of the whole batch worked on between the loader and the model."""
    p.needs_batches(base)
    slack, edits = Slack(base), list[Edit]()
    work = samples.whole_batch(base, draw)
    site = frames.site(base, ("prepare", "augment", "collate", "train_epoch"), draw)
    for span in _from_the_start(base, spans):
        at = _after_loader(base, span, draw)
        ns = slack.stall(at, p.budget(span, strength) * draw.uniform(0.85, 1.15))
        calls = base.frame(site, work(ns, 0.97), p.about(5_000, draw))
        edits.append(p.inserted(base, at, calls, draw))
    return edits


# -- copies ----------------------------------------------------------------------------------------
def pageable_copy(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """The batch moved from pageable memory."""
    return _batches(base, spans, strength, draw, pinned=False, wait=True)


def copy_not_overlapped(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """The batch moved from pinned memory on the stream that computes, at the step's start."""
    return _batches(base, spans, strength, draw, pinned=True, wait=False)


def _batches(
    base: Base,
    spans: Sequence[Span],
    strength: float,
    draw: np.random.Generator,
    *,
    pinned: bool,
    wait: bool,
) -> list[Edit]:
    p.needs_device(base)
    dtype = str(draw.choice(["float", "float", "float", "long int"]))
    parts, labels = int(draw.choice([1, 1, 1, 2, 4])), bool(draw.random() < 0.7)
    begun, edits = _from_the_start(base, spans), list[Edit]()
    size = _bytes_for(base, p.typical(begun, strength) / parts, pinned, draw)
    tensors = [p.shaped(size, draw, dtype) for _ in range(parts)]
    tensors += [Tensor((tensors[0].shape[0],), "long int")] if labels else []
    for span in begun:
        calls = [c for t in tensors for c in p.to_device(base, t, draw, pinned=pinned, wait=wait)]
        edit = _in_place_of_batch(base, span, tuple(calls), draw)
        instead = _hidden(calls) if pinned else _pinned(base, tensors)
        edits.append(replace(edit, instead=instead))
    return edits


def _pinned(base: Base, tensors: Sequence[Tensor]) -> tuple[Call, ...]:
    """The copies from pinned memory, which nobody waits for."""
    draw = np.random.default_rng(0)
    return tuple(c for t in tensors for c in p.to_device(base, t, draw, pinned=True, wait=False))


def _hidden(calls: Sequence[Call]) -> tuple[Call, ...]:
    """The same calls, whose copies run behind the compute of the step before."""
    return tuple(
        replace(c, work=c.work and replace(c.work, dur=_NO_TIME), inside=_hidden(c.inside))
        for c in calls
    )


def _bytes_for(base: Base, ns: float, pinned: bool, draw: np.random.Generator) -> float:
    """How many bytes take this long to copy."""
    kind = "htod_pinned" if pinned else "htod_pageable"
    small, large = (base.copy(kind, size, draw).dur for size in (1 << 12, 1 << 26))
    rate = (1 << 26) / max(1, large - small)
    return float(min(_LARGEST, max(4_096.0, (ns - small) * rate)))


def _in_place_of_batch(
    base: Base, span: Span, calls: tuple[Call, ...], draw: np.random.Generator
) -> Insert | Replace:
    """In place of the span's own copy of a batch; where it has none, after its loader."""
    trace, copies = base.trace, base.activity.copies_of("h2d")
    copies = copies[(trace.op[copies] >= 0) & (trace.bytes[copies] >= _BATCH_BYTES)]
    ops = trace.op[copies].astype(np.int64)
    inside = (trace.start[ops] >= span.start) & (trace.start[ops] < span.end)
    inside &= trace.track[ops] == base.main
    if inside.any():
        largest = ops[inside][np.argmax(trace.bytes[copies[inside]])]
        top = _outermost(base, int(largest))
        if _MOVE.search(trace.names[trace.name[top]]):
            return Replace(top, p.bare(calls))
    return p.inserted(base, _after_loader(base, span, draw), calls, draw)


def _outermost(base: Base, row: int) -> int:
    """The op that the program called."""
    while (above := int(base.trace.parent[row])) >= 0 and base.trace.cat[above] == Cat.CPU_OP:
        row = above
    return row


def tiny_copies(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """Values and short lists moved one by one."""
    p.needs_device(base)
    slack, edits = Slack(base), list[Edit]()
    pinned, where = bool(draw.random() < 0.3), int(draw.choice([1, 1, 2, 4]))
    site = frames.site(base, ("prepare", "to_device", "build_inputs", "forward"), draw)
    for span in spans:
        each = p.budget(span, strength) / where
        for at in p.bearable(base, span, slack, draw, where, 0.5 * each):
            calls = list[Call]()
            need = slack.stall(at, each) if pinned else each - slack.cost_of_wait(at)
            spent = 0.0
            while len(calls) < max(4, 12 // where) or (spent < need and len(calls) < 250):
                call = _tiny(base, pinned, draw)
                calls += call
                spent += sum(p.length(c) for c in call) + base.gap_ns(draw) + 2_000
            framed = base.frame(site, tuple(calls), len(calls) * base.gap_ns(draw))
            edits.append(p.inserted(base, at, framed, draw))
    return edits


def _tiny(base: Base, pinned: bool, draw: np.random.Generator) -> tuple[Call, ...]:
    dtype = str(draw.choice(["float", "long int", "int"]))
    width = p.WIDTH[dtype]
    size = int(draw.choice(_TINY_BYTES))
    return p.to_device(
        base, Tensor((max(1, size // width),), dtype), draw, pinned=pinned, wait=not pinned
    )


def cpu_tensor_to_device(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """``torch.zeros(...).to(device)``, where ``device=`` would do."""
    p.needs_device(base)
    name, inner, per_byte = _FACTORIES[p.pick(draw, _FACTORIES)]
    count = int(draw.choice([1, 2, 4, 8]))
    dtype = "long int" if "arange" in name else "float"
    site = frames.site(base, ("forward", "build_mask", "positions", "sample"), draw)
    ns, edits = p.typical(spans, strength) / count, list[Edit]()
    size = _bytes_for(base, ns, False, draw)
    tensor = p.shaped(max(512.0, size * ns / (ns + size * per_byte)), draw, dtype)
    slack = Slack(base)
    for span in spans:
        for at in p.bearable(base, span, slack, draw, count, 0.3 * ns):
            own = p.about(tensor.size * per_byte + 500, draw)
            filled = p.op(base, inner, tensor, draw=draw, own=own)
            made = p.op(
                base, name, draw=draw, inside=(p.op(base, "aten::empty", draw=draw), filled)
            )
            calls = frames.builtin(base, name.removeprefix("aten::"), (made,), "type object")
            calls += p.to_device(base, tensor, draw)
            edits.append(p.inserted(base, at, base.frame(site, calls, p.about(2_000, draw)), draw))
    return edits


# Op, the op inside it, ns a byte on one core.
_FACTORIES: Final = (
    ("aten::zeros", "aten::zero_", 0.05),
    ("aten::ones", "aten::fill_", 0.06),
    ("aten::full", "aten::fill_", 0.06),
    ("aten::arange", "aten::arange", 0.1),
    ("aten::randn", "aten::normal_", 0.9),
    ("aten::rand", "aten::uniform_", 0.6),
)

INJECTORS: Final = {
    "input-dataloader-sync": dataloader_sync,
    "input-dataloader-starved": dataloader_starved,
    "input-main-thread-preprocessing": main_thread_preprocessing,
    "input-pageable-copy": pageable_copy,
    "input-copy-not-overlapped": copy_not_overlapped,
    "input-tiny-copies": tiny_copies,
    "input-cpu-tensor-to-device": cpu_tensor_to_device,
}
