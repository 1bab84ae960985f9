"""Faulty communication between ranks: nothing hides it, it comes in crumbs, or it need not be.

Collectives are made after the base's own: same calls, same stream, the speed of its own messages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dataset.inject import pieces as p
from dataset.inject import rounds as r
from dataset.inject import tensors as ts
from dataset.inject.base import Base, Span
from dataset.inject.edits import Alter, Call, Edit, Insert, Unfit, Work
from dataset.inject.rounds import Round
from detector.trace import Cat, Int64

_CALLS: Final = r"^c10d::(allreduce_|_allgather_base_|_reduce_scatter_base_|alltoall_base_)$"
_REDUCE: Final = r"^c10d::allreduce_$"
_FORWARD: Final = re.compile(r"^DistributedDataParallel\.forward$")
_SEARCH: Final = "torch.distributed.ddp.reducer::search_unused_parameters"
_CRUMBS: Final = (1, 2, 64, 256, 1_024, 4_096, 16_384, 65_536)  # values of a small message
_OWN_CRUMBS: Final = 60  # small collectives of a step that make a base have the fault itself
_SLOWEST: Final = 20.0  # times as long as its own: what a bad network does


@dataclass(frozen=True)
class Link:
    """How this trace's collectives run: a model call, and their speed."""

    base: Base
    model: int  # row of a c10d op that launched a kernel
    kernel: int  # that kernel
    latency: float  # ns
    rate: float  # values per ns

    def lasting(self, elems: float, draw: np.random.Generator) -> int:
        """ns of a collective over so many values."""
        ns = (self.latency + elems / self.rate) * math.exp(abs(draw.normal(0, 0.15)))
        return self.base.lasting(ns)


def link_of(base: Base) -> Link:
    """Raises Unfit for a program of one rank."""
    p.needs_device(base)
    trace, rows = base.trace, base.activity.comm_rows
    calls = [int(c) for c in base.ops(_REDUCE) if _kernel_in(base, int(c)) >= 0]
    calls = calls or [int(c) for c in base.ops(_CALLS) if _kernel_in(base, int(c)) >= 0]
    if not len(rows) or not calls:
        raise Unfit(f"{base.name}: no collectives of a process group")
    latency = float(np.percentile(trace.dur[rows], 5))
    latency = min(max(latency, 8_000.0), 30_000.0)
    known = rows[trace.msg_elems[rows] > 65_536]
    if len(known):
        rate = float(np.median(trace.msg_elems[known] / trace.dur[known]))
    else:
        rate = base.device.link / 1_000 / 4 / 2
    return Link(base, calls[0], _kernel_in(base, calls[0]), latency, rate)


def _kernel_in(base: Base, call: int) -> int:
    works = base.works(call)
    works = works[np.isin(works, base.activity.comm_rows)]
    return int(works[0]) if len(works) else -1


def collective(
    link: Link, elems: int, draw: np.random.Generator, *, ns: int = 0, in_line: bool = False
) -> Call:
    """One more collective after the model; compute waits for it where it is ``in_line``."""
    base, trace = link.base, link.base.trace
    old = int(trace.msg_elems[link.kernel])
    args = {"In msg nelems": elems, "Out msg nelems": elems} if old >= 0 else {}
    if trace.collective[link.kernel] >= 0:
        args |= {"Collective name": trace.names[trace.collective[link.kernel]]}

    def change(row: int, call: Call) -> Call:
        if call.work and trace.launch[link.kernel] == row:
            return replace(call, work=_run(link, call.work, elems, ns, in_line, args, draw))
        given: dict[str, Any] = dict(call.args)
        if "Input Dims" in given:
            given["Input Dims"] = _sized(given["Input Dims"], elems)
        if call.name == "record_param_comms":
            given |= args
        return replace(call, args=given)

    return ts.mirrored(base, link.model, change, draw)


def _run(
    link: Link,
    work: Work,
    elems: int,
    ns: int,
    in_line: bool,
    args: dict[str, Any],
    draw: np.random.Generator,
) -> Work:
    compute = (link.base.stream,) if work.track != link.base.stream else ()
    noise = math.exp(draw.normal(0, 0.06))
    lasting = link.base.lasting(ns * noise) if ns else link.lasting(elems, draw)
    small = {"grid": [min(24, max(1, elems // 32_768)), 1, 1]} if elems < 1 << 19 else {}
    return replace(
        work,
        dur=lasting,
        args={**work.args, **args, **small},
        after=compute,
        holds=compute if in_line else (),
    )


def _sized(shape: Any, elems: int) -> Any:
    """The shapes of the model with the new size: lists of one number are the message's."""
    if isinstance(shape, list):
        if len(shape) == 1 and isinstance(shape[0], int) and shape[0] > 1:
            return [elems]
        return [_sized(s, elems) for s in shape]
    return shape


def _own(base: Base, span: Span) -> Int64:
    """Collectives' kernels of the span."""
    trace, rows = base.trace, base.activity.comm_rows
    found: Int64 = rows[(trace.start[rows] >= span.start) & (trace.start[rows] < span.end)]
    return found


def _updates(base: Base, span: Span) -> int:
    """Where the optimizer's step begins; else the last place between ops of the span."""
    trace, rows = base.trace, base.activity.host("optimizer_step")
    rows = rows[(trace.start[rows] >= span.start) & (trace.start[rows] < span.end)]
    if len(rows):
        return int(trace.start[rows[0]])
    found = base.gaps(span, np.random.default_rng(0), 1_000)
    if not found:
        raise Unfit(f"{base.name}: no place between ops")
    return found[-1]


# -- nothing hides it ------------------------------------------------------------------------------
def exposed(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """A network that cannot keep up, or collectives in line with compute."""
    link, slow = link_of(base), draw.random() < 0.5
    edits: list[Edit] = []
    for span in spans:
        found = _stretched(base, span, strength, draw) if slow else []
        edits += found or _in_line(link, span, strength, draw)
    return edits


def _stretched(base: Base, span: Span, strength: float, draw: np.random.Generator) -> list[Edit]:
    """The span's own collectives take longer: their transfers, which are what the network makes
    slow, and not what they wait for other ranks."""
    rows, trace = _own(base, span), base.trace
    if not len(rows):
        return []
    dur, sent = trace.dur[rows].astype(np.float64), _transfers(base, rows)
    free = r.Room(base).of_device(int(trace.start[rows[0]]), span)
    factor = 1 + (p.budget(span, strength) + 0.5 * free) / max(1.0, sent.sum())
    if factor > _SLOWEST:
        return []
    noise = np.exp(draw.normal(0, 0.1, len(rows)))
    return [
        Alter(int(row), dur=base.lasting(ns))
        for row, ns in zip(rows, dur + sent * (factor * noise - 1), strict=True)
    ]


def _transfers(base: Base, rows: Int64) -> npt.NDArray[np.float64]:
    """What each takes when it waits for no rank: the shortest of its name and size, ns."""
    trace, every = base.trace, base.activity.comm_rows
    key = {(trace.collective[r], trace.msg_elems[r]): float(trace.dur[r]) for r in every}
    for row in every.tolist():
        kind = trace.collective[row], trace.msg_elems[row]
        key[kind] = min(key[kind], float(trace.dur[row]))
    return np.array([key[trace.collective[row], trace.msg_elems[row]] for row in rows.tolist()])


def _in_line(link: Link, span: Span, strength: float, draw: np.random.Generator) -> list[Edit]:
    """The gradients, or the outputs of layers, reduced where compute waits for them."""
    base, room = link.base, r.Room(link.base)
    count = int(draw.choice([1, 2, 4, 8]))
    at = [_updates(base, span)]
    if draw.random() < 0.5:
        at = base.gaps(span, draw, count, "forward") or at
    need = p.budget(span, strength) + room.of_device(at[0], span)
    elems = max(300_000, round(need / count * link.rate))
    edits: list[Edit] = []
    for i in range(count):
        call = collective(link, elems, draw, ns=int(need / count), in_line=True)
        edits.append(Insert(base.main, at[i % len(at)], (call,), base.gap_ns(draw)))
    return edits


# -- in crumbs -------------------------------------------------------------------------------------
def small_collectives(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """Each parameter, or each statistic, reduced alone."""
    link = link_of(base)
    if len(base.activity.comm_rows) > _OWN_CRUMBS * len(base.spans):
        raise Unfit(f"{base.name}: its own collectives are many and small")
    if base.trace.msg_elems[link.kernel] < 0:
        raise Unfit(f"{base.name}: does not tell how large its messages are")
    rows = [int(row) for row in base.ops(_REDUCE) if _kernel_in(base, int(row)) >= 0]
    if rows and draw.random() < 0.4:
        edits = _split(link, spans, strength, draw)
        if edits:
            return edits
    sizes = draw.choice(_CRUMBS, 16)

    def unit(scale: float) -> Round:
        elems = int(sizes[draw.integers(len(sizes))])
        return Round((collective(link, elems, draw, in_line=True),))

    return r.filled(base, spans, strength, draw, unit, "main", most=200)


def _split(
    link: Link, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """In place of buckets of gradients their parameters."""
    base, edits, room = link.base, list[Edit](), r.Room(link.base)
    for span in spans:
        rows = [int(c) for c in base.ops(_REDUCE, span) if _kernel_in(base, int(c)) >= 0]
        if not rows:
            continue
        one, at = (collective(link, 8_192, draw),), int(base.trace.start[rows[0]])
        need, times = p.budget(span, strength), (r.called_ns(base, one), r.device_ns(one))
        count = max(8, round(room.rounds(at, span, need, *times) / len(rows)))
        for row in rows:
            elems = max(count * 16, int(base.trace.msg_elems[_kernel_in(base, row)]))
            parts = draw.dirichlet(np.full(min(count, 160), 0.5)) * min(elems, count * 60_000)
            calls = tuple(collective(link, int(np.clip(n, 1, 200_000)), draw) for n in parts)
            edits += r.instead(base, row, calls, draw)
    return edits


# -- DDP's search ----------------------------------------------------------------------------------
def unused_parameters(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """``find_unused_parameters=True``: the graph is walked at the end of the forward pass, and the
    ranks tell each other what they used."""
    link, edits = link_of(base), list[Edit]()
    if not r.trains(base) or len(base.activity.host("unused_parameters")):
        raise Unfit(f"{base.name}: no training that could search anew")
    slack = p.Slack(base)
    for span in spans:
        at = _after_forward(base, span, draw)
        own = int(slack.stall(at, p.budget(span, strength)) * draw.uniform(0.9, 1.1))
        search = Call(_SEARCH, "cpu_op", own)
        edits.append(Insert(base.main, at, (search,), 2_000))
        places = base.gaps(span, draw, 10_000, "backward")
        if places:
            used = max(8, len(base.ops(ts.ACCUMULATE, span)))
            params = collective(link, used, draw)
            edits.append(Insert(base.backward, places[-1], (params,), 1_000, faulty=False))
    return edits


def _after_forward(base: Base, span: Span, draw: np.random.Generator) -> int:
    start = base.trace.start
    marks = base.activity.of(Cat.USER_ANNOTATION, Cat.CPU_OP)
    marks = base.activity.named(marks, _FORWARD, Cat.USER_ANNOTATION, Cat.CPU_OP)
    marks = marks[(start[marks] >= span.start) & (start[marks] < span.end)]
    if len(marks):
        return r.inside_of(base, int(marks[0]))
    found = base.gaps(span, draw, 10_000, "forward")
    if not found:
        raise Unfit(f"{base.name}: no end of a forward pass")
    return found[-1]


# -- rounds that need not be -----------------------------------------------------------------------
def missing_no_sync(
    base: Base, spans: Sequence[Span], strength: float, draw: np.random.Generator
) -> list[Edit]:
    """Gradients of every micro-step reduced: the step's rounds of buckets more than once."""
    link = link_of(base)
    if not r.trains(base):
        raise Unfit(f"{base.name}: no backward pass")
    rounds, edits = int(draw.choice([1, 1, 2, 3])), list[Edit]()
    for span in spans:
        own = [int(row) for row in base.ops(_REDUCE, span) if _kernel_in(base, int(row)) >= 0]
        places = base.gaps(span, draw, max(1, len(own)) * rounds, "backward")
        if not own or not places:
            continue
        sizes = [int(base.trace.msg_elems[_kernel_in(base, row)]) for row in own]
        free = r.Room(base).of_device(places[0], span)
        need = (p.budget(span, strength) + 0.5 * free) / rounds
        share = np.maximum(np.array(sizes, np.float64), 1)
        share /= share.sum()
        for turn in range(rounds):
            for i, (size, part) in enumerate(zip(sizes, share, strict=True)):
                last = i == len(sizes) - 1
                ns = max(int(need * part), int(link.latency))
                call = collective(link, max(1, size), draw, ns=ns, in_line=last)
                at = places[min(len(places) - 1, turn * len(sizes) + i)]
                edits.append(Insert(base.backward, at, (call,), 1_000))
    if not edits:
        raise Unfit(f"{base.name}: no gradients reduced in these steps")
    return edits


INJECTORS: Final = {
    "comm-exposed": exposed,
    "comm-small-collectives": small_collectives,
    "comm-unused-parameters": unused_parameters,
    "comm-missing-no-sync": missing_no_sync,
}
