"""One fault (or several) into one base: where, how strong, what it costs, and the label."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any, Final, Literal

import msgspec
import numpy as np

from dataset.costs import Cost, with_costs
from dataset.inject import regions
from dataset.inject.apply import Replayed, replayed
from dataset.inject.base import Base, Span
from dataset.inject.document import write
from dataset.inject.edits import Edit, Insert, Remove, Replace, Unfit
from dataset.labels import Label, LabelRegion, Side, check, clip
from detector import kineto
from detector.intervals import EMPTY, Intervals
from detector.patterns import BY_ID
from detector.trace import NS_PER_US
from detector.window import analyzed_time

Injector = Callable[[Base, Sequence[Span], float, np.random.Generator], list[Edit]]
Extent = Literal["every", "some", "once"]
Document = dict[str, Any]
Healthy = Mapping[Side, Intervals]  # by side, ns of the base

MODULES: Final = ("input", "sync", "host", "memory", "compute", "comm", "compiled", "infer")
WEAKEST, STRONGEST = 0.04, 0.5  # wanted cost as a share of the spans where a fault acts
LEAST_ANALYZED: Final = 0.25  # of the added time
FAINT: Final = 0.01  # below this cost a fault is not labeled
TRIES: Final = 3
NOWHERE: Final[Healthy] = {"cpu": EMPTY, "gpu": EMPTY}
STRONGER: Final = 2.5


class TooFaint(ValueError):
    """The fault costs next to nothing in this base: the message says how much."""


@cache
def injectors() -> dict[str, Injector]:
    """The injector of each pattern that can be injected."""
    tables = [import_module(f"dataset.inject.{name}").INJECTORS for name in MODULES]
    return {pattern: table[pattern] for table in tables for pattern in table}


@dataclass(frozen=True)
class Fault:
    """One fault as drawn for one base."""

    pattern: str
    extent: Extent
    spans: tuple[Span, ...]
    strength: float
    edits: tuple[Edit, ...]
    cost: float  # what it costs as a share of the spans where it acts, with it
    added: int  # ns, by this fault alone
    costs: int  # ns of them that a repaired program spares


def inject(
    base: Base,
    pattern: str,
    seed: int,
    extent: Extent | None = None,
    healthy: Healthy = NOWHERE,
) -> tuple[Document, Label]:
    """The base with one fault, and its label; equal arguments give equal results. ``healthy``:
    where the base is known to have no problem, ns by side; all the rest of it is unknown.

    Raises Unfit where the base cannot show the fault, TooFaint where it would cost nothing there.
    """
    return inject_many(base, [pattern], seed, extent, healthy)


def inject_many(
    base: Base,
    patterns: Sequence[str],
    seed: int,
    extent: Extent | None = None,
    healthy: Healthy = NOWHERE,
) -> tuple[Document, Label]:
    """The base with a fault of each of these patterns, each worth its label on its own.

    Raises Unfit, also where two of them want to change the same event, and TooFaint.
    """
    faults = [_fault(base, pattern, seed, extent) for pattern in patterns]
    edits = [edit for fault in faults for edit in fault.edits]
    _check_apart(edits)
    result = replayed(base, edits)
    found: list[LabelRegion] = []
    first = 0
    for fault in faults:
        found += _regions(base, result, fault, range(first, first + len(fault.edits)))
        first += len(fault.edits)
    label = _label(base, result, found, seed, faults, healthy)
    document = write(base, result.outcome)
    label = clip(label, document["traceEvents"])
    share = _analyzed_share(base, document, result.added)
    return document, with_costs(label, [_cost_of(base, fault, share) for fault in faults])


def _analyzed_share(base: Base, document: Document, added: int) -> float:
    """Which share of the added time lies in the analyzed time, where costs count: what only puts
    off the begin, as long as a device still does what was issued before, costs nothing there.

    Raises TooFaint where hardly any does.
    """
    trace = kineto.read(BytesIO(msgspec.json.encode(document)))
    before, after = base.analyzed, analyzed_time(trace)
    grown = (after.end - after.start) - (before.end - before.start)
    if grown < LEAST_ANALYZED * added:
        raise TooFaint(f"{base.name}: what is added lies outside of the analyzed time")
    return min(1.0, grown / added)


def untouched(base: Base, seed: int = 0, healthy: Healthy = NOWHERE) -> tuple[Document, Label]:
    """The base as it is, through the same writer: the twin of its faults with this seed."""
    result = replayed(base, [])
    document = write(base, result.outcome)
    label = _label(base, result, [], seed, [], healthy)
    return document, clip(label, document["traceEvents"])


# -- drawing -------------------------------------------------------------------------------------
def _fault(base: Base, pattern: str, seed: int, extent: Extent | None) -> Fault:
    if pattern not in injectors():
        raise Unfit(f"{pattern} has no injector")
    words = f"{base.name}/{pattern}/{seed}/{extent}"
    draw = np.random.default_rng([seed, zlib.crc32(words.encode())])
    drawn, spans = _spans(base, extent, draw)
    strength = float(np.exp(draw.uniform(np.log(WEAKEST), np.log(STRONGEST))))
    state = draw.bit_generator.state
    cost = 0.0
    for _ in range(TRIES):
        draw.bit_generator.state = state  # the same fault, only stronger
        edits = injectors()[pattern](base, spans, strength, draw)
        if not edits:
            raise Unfit(f"{base.name}: no place for {pattern}")
        added = replayed(base, edits).added
        costs = added - _needed(base, edits)
        cost = costs / max(sum(span.length for span in spans) + added, 1)
        if cost >= FAINT:
            return Fault(pattern, drawn, spans, strength, tuple(edits), cost, added, costs)
        strength *= STRONGER
    raise TooFaint(f"{pattern} costs {cost:.1%} in {base.name}, seed {seed}")


def _needed(base: Base, edits: Sequence[Edit]) -> int:
    """ns that what a repaired program calls in their place adds to the base."""
    calls = [e for e in edits if isinstance(e, (Insert, Replace)) and e.instead]
    return replayed(base, [replace(e, calls=e.instead) for e in calls]).added if calls else 0


def _spans(
    base: Base, extent: Extent | None, draw: np.random.Generator
) -> tuple[Extent, tuple[Span, ...]]:
    """In every step (half of the time), in some of them, or once."""
    drawn: Extent = extent or ("every" if draw.random() < 0.5 else _partly(draw))
    parts = base.parts
    if drawn == "every":
        return drawn, base.spans
    count = 1 if drawn == "once" else int(draw.integers(1, max(len(parts) - 1, 1) + 1))
    chosen = sorted(draw.choice(len(parts), min(count, len(parts)), replace=False).tolist())
    return drawn, tuple(parts[i] for i in chosen)


def _partly(draw: np.random.Generator) -> Extent:
    return "some" if draw.random() < 0.6 else "once"


def _check_apart(edits: Sequence[Edit]) -> None:
    rows = [edit.row for edit in edits if not isinstance(edit, Insert)]
    if len(set(rows)) < len(rows):
        raise Unfit("two faults change the same event")


# -- labels --------------------------------------------------------------------------------------
def _regions(base: Base, result: Replayed, fault: Fault, edits: range) -> list[LabelRegion]:
    side = BY_ID[fault.pattern].side
    first, second = (result.host, result.device)[:: 1 if side == "cpu" else -1]
    spans = [span for k in edits for span in first.get(k, ())]
    spans = spans or [span for k in edits for span in second.get(k, ())]
    if not spans:
        raise Unfit(f"{fault.pattern}: nothing of it is left in {base.name}")
    return regions.fault_regions(spans, fault.pattern, side, result.steps)


def _label(
    base: Base,
    result: Replayed,
    found: Sequence[LabelRegion],
    seed: int,
    faults: Sequence[Fault],
    sound: Healthy,
) -> Label:
    places = {side: result.moved(spans, side) for side, spans in sound.items()}
    everything = [*found, *regions.unknown_regions(places, _whole(result), found)]
    names = base.trace.device_names or ("unknown",)
    acting = _acting(base, faults)
    steps, healthy = len(acting), float(np.mean([step.length for step in acting]))
    label = Label(
        origin="injected",
        pair=f"injected/{base.name}/{seed}",
        workload=base.name,
        device="cpu" if base.vendor == "cpu" else f"{base.vendor}:{names[0]}",
        framework=f"torch {base.torch}".strip(),
        seed=seed,
        step_us=round((healthy + result.added / steps) / NS_PER_US, 3),
        quality="bad" if faults else "good",
        regions=tuple(sorted(everything, key=lambda r: (r.start_us, r.end_us, r.pattern))),
        parameters=_parameters(base, faults),
        base=base.name,
        extent=faults[0].extent if faults else "",
        healthy_step_us=round(healthy / NS_PER_US, 3),
    )
    return check(label)


def _whole(result: Replayed) -> Intervals:
    """From the first event to the last, ns."""
    outcome = result.outcome
    ends = [int(outcome.end[outcome.keep].max()), *(p.event.end for p in outcome.fresh)]
    return Intervals.span(int(outcome.start[outcome.keep].min()), max(ends))


def _cost_of(base: Base, fault: Fault, share: float) -> Cost:
    """What the replay of this fault alone added and a repair spares, as far as it lies in the
    analyzed time, and the steps in which it acts."""
    acting = _acting(base, [fault])
    step = (sum(s.length for s in acting) + fault.added) / len(acting)
    return Cost(fault.pattern, share * fault.costs / NS_PER_US, len(acting), step / NS_PER_US)


def _acting(base: Base, faults: Sequence[Fault]) -> list[Span]:
    """The steps in which a fault acts; all steps of an untouched base."""
    spans = [span for fault in faults for span in fault.spans] or base.spans
    return [s for s in base.spans if any(f.start < s.end and s.start < f.end for f in spans)]


def _parameters(base: Base, faults: Sequence[Fault]) -> dict[str, Any]:
    return {
        "judged_by": base.analyzed.how,
        "steps": len(base.spans),
        "faults": [
            {
                "pattern": fault.pattern,
                "extent": fault.extent,
                "spans": len(fault.spans),
                "strength": round(fault.strength, 4),
                "edits": len(fault.edits),
                "removed": sum(isinstance(edit, Remove) for edit in fault.edits),
                "added_share": round(fault.cost, 4),
            }
            for fault in faults
        ],
    }
