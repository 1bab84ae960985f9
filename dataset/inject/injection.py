"""One fault (or several) into one base: where, how strong, what it costs, and the label."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final, Literal

import numpy as np

from dataset.inject import regions
from dataset.inject.apply import Replayed, replayed
from dataset.inject.base import Base, Span
from dataset.inject.document import write
from dataset.inject.edits import Edit, Insert, Remove, Unfit
from dataset.labels import Label, LabelRegion, Side, checked, clipped
from detector.intervals import Intervals
from detector.taxonomy import BY_ID
from detector.trace import NS_PER_US

Injector = Callable[[Base, Sequence[Span], float, np.random.Generator], list[Edit]]
Extent = Literal["every", "some", "once"]
Document = dict[str, Any]

MODULES: Final = ("input", "sync", "host", "memory", "compute", "comm", "compiled", "infer")
WEAKEST, STRONGEST = 0.04, 0.5  # wanted cost as a share of the spans where a fault acts
FAINT: Final = 0.01  # below this cost a fault is not labelled
TRIES: Final = 3
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
    cost: float  # added time as a share of the spans where it acts, with it


def inject(
    base: Base, pattern: str, seed: int, extent: Extent | None = None
) -> tuple[Document, Label]:
    """The base with one fault, and its label; equal arguments give equal results.

    Raises Unfit where the base cannot show the fault, TooFaint where it would cost nothing there.
    """
    return inject_many(base, [pattern], seed, extent)


def inject_many(
    base: Base, patterns: Sequence[str], seed: int, extent: Extent | None = None
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
    label = _label(base, result, found, seed, faults)
    document = write(base, result.outcome)
    return document, clipped(label, document["traceEvents"])


def untouched(base: Base, seed: int = 0) -> tuple[Document, Label]:
    """The base as it is, through the same writer: the twin of its faults with this seed."""
    result = replayed(base, [])
    document = write(base, result.outcome)
    return document, clipped(_label(base, result, [], seed, []), document["traceEvents"])


@lru_cache(maxsize=2)
def _own_problems(base: Base) -> dict[Side, Intervals]:
    return regions.own_problems(base)


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
        cost = _cost(base, replayed(base, edits), spans)
        if cost >= FAINT:
            return Fault(pattern, drawn, spans, strength, tuple(edits), cost)
        strength *= STRONGER
    raise TooFaint(f"{pattern} costs {cost:.1%} in {base.name}, seed {seed}")


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


def _cost(base: Base, result: Replayed, spans: Sequence[Span]) -> float:
    """Added time / time with the fault, over the spans where it acts."""
    added = result.added
    healthy = sum(span.length for span in spans)
    return added / max(healthy + added, 1)


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
) -> Label:
    places = {side: result.moved(spans, side) for side, spans in _own_problems(base).items()}
    everything = [*found, *regions.unknown_regions(places, found)]
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
    return checked(label)


def _acting(base: Base, faults: Sequence[Fault]) -> list[Span]:
    """The steps in which a fault acts; all steps of an untouched base."""
    spans = [span for fault in faults for span in fault.spans] or base.spans
    return [s for s in base.spans if any(f.start < s.end and s.start < f.end for f in spans)]


def _parameters(base: Base, faults: Sequence[Fault]) -> dict[str, Any]:
    return {
        "judged_by": base.judged.how,
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
