"""How much faulty work makes a cost, and what rounds of it look like in training and inference.

A round is what a faulty line of code leaves each time it runs: calls of the training thread and,
where autograd records them, calls of its thread. Times are ns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dataset.inject import pieces as p
from dataset.inject import tensors as ts
from dataset.inject.base import Base, Span, Where
from dataset.inject.edits import Call, Edit, Insert, Remove, Unfit
from dataset.inject.pieces import Slack
from detector.trace import Cat, Int64

_EVALUATE: Final = "autograd::engine::evaluate_function: "
_PLACES: Final = (1, 2, 4, 6, 12, 24, 48)
_MOST: Final = 12  # rounds at one place
_LARGER: Final = 256  # times the program's own tensors at most
# Ops that only pass their call on, so that autograd sees the op inside as well.
_COMPOSITE: Final = re.compile(
    r"^aten::(linear|matmul|conv[123]d|batch_norm|layer_norm|dropout|softmax|log_softmax|to"
    r"|contiguous|reshape|scaled_dot_product_attention|_scaled_dot_product_attention_math|einsum)$"
)


@dataclass(frozen=True)
class Round:
    """What one run of a faulty line calls, and what autograd calls for it on the way back.
    ``instead``: what a repaired line calls; None for nothing."""

    forward: tuple[Call, ...]
    backward: tuple[Call, ...] = ()
    instead: Round | None = None


NOTHING: Final = Round(())

# A round whose tensors are so many times as large as the program's own.
Unit = Callable[[float], Round]


# -- cost ------------------------------------------------------------------------------------------
def host_ns(calls: Sequence[Call]) -> int:
    """Host time of the calls, without waits."""
    return sum(call.own + host_ns(call.inside) for call in calls)


def called_ns(base: Base, calls: Sequence[Call]) -> int:
    """Host time of the calls one after the other, the interpreter's before each included."""
    return host_ns(calls) + len(calls) * ts.remembered(base, "gap", lambda: _typical_gap(base))


def _typical_gap(base: Base) -> int:
    draw = np.random.default_rng(0)
    return int(np.median([base.gap_ns(draw) for _ in range(25)]))


def device_ns(calls: Sequence[Call]) -> int:
    """Time of the device work that the calls issue."""
    return sum((c.work.dur if c.work else 0) + device_ns(c.inside) for c in calls)


class Room:
    """What faulty work costs nothing up to: the queue for the host, idle for the device."""

    def __init__(self, base: Base) -> None:
        self._base, self.slack = base, Slack(base)
        waits = base.activity.sync_rows
        waits = waits[base.trace.track[waits] == base.main]
        self._waits, self._ends = base.trace.start[waits], base.trace.end[waits]

    def of_device(self, at: int, span: Span) -> int:
        """Idle of the device from what is queued at ``at`` to where the host waits for it next,
        or to the end of the span."""
        i = int(np.searchsorted(self._waits, at))
        until = min(int(self._ends[i]) if i < len(self._ends) else span.end, span.end)
        start = at + self.slack.backlog(at)
        if until <= start:
            return 0
        one, two = np.array([start]), np.array([until])
        return until - start - int(self._base.activity.busy.covered(one, two)[0])

    def rounds(self, at: int, span: Span, need: float, host: int, device: int) -> float:
        """How many rounds of so much host and device time from ``at`` on cost ``need``."""
        by_host = (need + self.slack.reserve(at)) / max(1, host)
        by_device = (need + self.of_device(at, span)) / max(1, device)
        return min(by_host, by_device)


def filled(
    base: Base,
    spans: Sequence[Span],
    strength: float,
    draw: np.random.Generator,
    unit: Unit,
    where: Where = "main",
    most: int = _MOST,
) -> list[Edit]:
    """Rounds at one or many places of each span, as many and as large as the strength asks for;
    ``most`` are at one place."""
    p.needs_device(base)
    room, edits = Room(base), list[Edit]()

    def made(scale: float) -> Round:
        return _settled(base, unit(scale), draw)

    count, recorded = int(draw.choice(_PLACES)), trains(base) and draw.random() < 0.6
    for span in spans:
        at = base.gaps(span, draw, count, where) or [p.place(base, span, draw)]
        need = p.budget(span, strength)
        wanted = room.rounds(at[0], span, need, *_times(base, made(1.0), recorded))
        scale = _scale(wanted, most * len(at))
        total = room.rounds(at[0], span, need, *_times(base, made(scale), recorded))
        at = at[: max(1, round(total))]
        each = max(1, round(min(total, most * len(at)) / len(at)))
        for place in at:
            edits += forward(base, place, [made(scale) for _ in range(each)], draw, recorded)
        if recorded:
            edits += _returns(base, span, draw, [made(scale) for _ in range(each)], len(at))
    return edits


def _settled(base: Base, one: Round, draw: np.random.Generator) -> Round:
    ahead, back = (
        tuple(ts.settled(base, call, draw) for call in calls)
        for calls in (one.forward, one.backward)
    )
    return Round(ahead, back, one.instead and _settled(base, one.instead, draw))


def _scale(wanted: float, most: int) -> float:
    """How much larger than the program's own the tensors of ``wanted`` rounds have to be for
    ``most`` to do; smaller ones where less than one is wanted."""
    if wanted < 1:
        return float(2.0 ** math.floor(math.log2(max(wanted, 1e-3))))
    return float(min(_LARGER, 2 ** max(0, math.ceil(math.log2(wanted / most)))))


def _times(base: Base, made: Round, recorded: bool) -> tuple[int, int]:
    """Host time of the training thread, and device time."""
    back = device_ns(made.backward) if recorded else 0
    return called_ns(base, made.forward), device_ns(made.forward) + back


def forward(
    base: Base, at: int, rounds: Sequence[Round], draw: np.random.Generator, recorded: bool
) -> list[Edit]:
    """Rounds on the training thread; ``recorded``: with autograd's numbers."""
    number = sequence_at(base, at) if recorded else -1
    edits: list[Edit] = []
    for one in rounds:
        calls, instead = (
            numbered(of.forward, number) if number >= 0 else of.forward
            for of in (one, one.instead or NOTHING)
        )
        first, *rest = in_turn(base, base.main, at, calls, draw)
        edits += [replace(first, instead=instead), *rest]
    return edits


def in_turn(
    base: Base, track: int, at: int, calls: Sequence[Call], draw: np.random.Generator
) -> list[Insert]:
    """The calls one after the other, with the interpreter's time before each."""
    return [Insert(track, at, (call,), base.gap_ns(draw)) for call in calls]


def _returns(
    base: Base, span: Span, draw: np.random.Generator, rounds: Sequence[Round], count: int
) -> list[Edit]:
    """The backward calls of the rounds, at as many places of autograd's thread."""
    calls, instead = (
        tuple(c for one in of for c in reversed(one.backward))
        for of in (rounds, [one.instead or NOTHING for one in rounds])
    )
    found = base.gaps(span, draw, count, "backward")
    return [Insert(base.backward, at, calls, 1_000, instead=instead) for at in found if calls]


# -- autograd --------------------------------------------------------------------------------------
def trains(base: Base) -> bool:
    """Whether the program has a backward pass."""
    return base.backward >= 0 and len(base.activity.ops("backward")) > 0


def sequence_at(base: Base, at: int) -> int:
    """Autograd's number at this time of the training thread; -1 where it records nothing."""
    starts, numbers = _sequences(base)
    i = int(np.searchsorted(starts, at)) - 1
    return int(numbers[i]) if i >= 0 else -1


def _sequences(base: Base) -> tuple[Int64, Int64]:
    trace = base.trace
    rows = np.flatnonzero((trace.sequence >= 0) & (trace.track == base.main))
    return trace.start[rows], trace.sequence[rows]


def numbered(calls: Sequence[Call], number: int) -> tuple[Call, ...]:
    """The calls as grad mode records them: ops carry the number, and those inside a composite."""
    return tuple(_numbered(call, number) for call in calls)


def _numbered(call: Call, number: int) -> Call:
    if call.cat != "cpu_op":
        return replace(call, inside=numbered(call.inside, number))
    inside = numbered(call.inside, number) if _COMPOSITE.match(call.name) else call.inside
    return replace(call, inside=inside, args={**call.args, "Sequence number": number})


def node(
    base: Base, name: str, inside: tuple[Call, ...], draw: np.random.Generator
) -> tuple[Call, ...]:
    """A node of the graph as autograd's thread runs it, named as this PyTorch names them."""
    if not runs(base, r"Backward0$"):
        name = name.removesuffix("0")
    called = base.op(name, None, inside, draw=draw)
    if not runs(base, f"^{_EVALUATE}"):
        return (called,)
    return (base.op(_EVALUATE + name, None, (called,), draw=draw),)


def runs(base: Base, pattern: str) -> bool:
    """Whether the program runs ops whose name matches."""
    return ts.remembered(base, ("runs", pattern), lambda: len(base.ops(pattern)) > 0)


# -- places ----------------------------------------------------------------------------------------
def inside_of(base: Base, row: int) -> int:
    """A time inside a host event, after all that is in it. Raises Unfit where it has no room."""
    trace, children = base.trace, base.children(row)
    start, end = int(trace.start[row]), int(trace.end[row])
    last = int(trace.end[children[-1]]) if len(children) else (start + end) // 2
    if start < last < end:
        return last
    if len(children) and trace.cat[children[-1]] == Cat.PYTHON_FUNCTION:
        return inside_of(base, int(children[-1]))
    raise Unfit(f"{base.name}: no room inside {trace.names[trace.name[row]]!r}")


def launches_of(base: Base, row: int) -> Int64:
    """Runtime calls inside host event ``row`` that issued kernels, in order."""
    trace, works = base.trace, base.works(row)
    works = works[trace.cat[works] == Cat.KERNEL]
    return np.unique(trace.launch[works]).astype(np.int64)


def outermost(base: Base, row: int) -> int:
    """The op that the program called, of which op ``row`` is a part."""
    trace, top = base.trace, row
    parent = int(trace.parent[row])
    while parent >= 0 and trace.cat[parent] == Cat.CPU_OP:
        if not trace.names[trace.name[parent]].startswith("aten::"):
            break
        top, parent = parent, int(trace.parent[parent])
    return top


# -- in place of the program's own calls -----------------------------------------------------------
def instead(base: Base, row: int, calls: tuple[Call, ...], draw: np.random.Generator) -> list[Edit]:
    """The calls in place of host event ``row``, with the interpreter's time before each."""
    at, track = int(base.trace.start[row]), int(base.trace.track[row])
    return [Remove(row), *in_turn(base, track, at, calls, draw)]


def replaced(
    base: Base,
    spans: Sequence[Span],
    strength: float,
    draw: np.random.Generator,
    pattern: str,
    make: Callable[[int], tuple[Call, ...]],
    called: Callable[[int], int] = lambda row: row,
) -> list[Edit]:
    """``make(row)`` in place of ops whose name matches, or of the event ``called(row)`` around each
    (-1: leave it), of as many as the strength asks for; empty where the spans have none that issue
    work. Neighbors first: a faulty module, not a sample."""
    edits: list[Edit] = []
    room = Room(base)
    for span in spans:
        rows = [int(row) for row in base.ops(pattern, span) if len(base.works(int(row)))]
        rows = [row for row in rows if called(row) >= 0]
        if not rows:
            continue
        first = int(draw.integers(len(rows)))
        rows = rows[first:] + rows[:first]
        host, device = 0.0, 0.0
        need = p.budget(span, strength)
        at = int(base.trace.start[min(rows)])
        by_host, by_device = need + room.slack.reserve(at), need + room.of_device(at, span)
        for row in rows:
            calls = tuple(ts.settled(base, call, draw) for call in make(row))
            edits += instead(base, called(row), calls, draw)
            host += called_ns(base, calls) - int(base.trace.dur[called(row)])
            device += device_ns(calls) - int(base.trace.dur[base.works(row)].sum())
            if host >= by_host or device >= by_device:
                break
    return edits


def is_composite(name: str) -> bool:
    """Whether autograd sees the ops inside this op."""
    return _COMPOSITE.match(name) is not None
