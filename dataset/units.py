"""The units of a build: each makes one labeled trace, and needs nothing from another.

A plan (``conf/benchmark/*.yaml``) becomes units in a fixed order; all that is drawn comes from the
plan's seeds and from names.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np

from dataset import labels
from dataset import natural as by_hand
from dataset.bases import Found, digest
from dataset.costs import Twin, against_twin, healthy_twins
from dataset.labels import Extent, Label, LabelError
from dataset.pace import own_times, pace
from detector.intervals import Intervals
from detector.patterns import BY_ID

if TYPE_CHECKING:
    from dataset.inject import Healthy
    from dataset.inject.base import Base

HERE: Final = Path(__file__).resolve().parent
OWN: Final = "Apache-2.0"  # of what this project recorded or simulated
SIMULATED: Final = 4  # traces that a worker takes at a time
INJECTED: Final = 12
TRIES: Final = 5  # seeds of a simulated trace
PARTLY: Final = 0.6  # of the faults that are not in every step; the others act once


class LeftOut(Exception):
    """This unit makes no trace: the message says why."""


class Unit(Protocol):
    """One trace to make. ``group``: units of one group are best made one after the other."""

    @property
    def name(self) -> str:
        """Its name in the benchmark, also below ``traces/``."""

    @property
    def group(self) -> str:
        """What it shares with its neighbors."""

    @property
    def licence(self) -> str:
        """That of the trace, or of the trace that it was made from."""

    def make(self) -> tuple[bytes, Label]:
        """The trace as JSON, packed or not, and its label. Raises LeftOut."""


@dataclass(frozen=True)
class Recorded:
    """A trace of this project. ``twin``: its healthy twin, if it has one."""

    name: str
    file: str
    twin: Twin | None = None
    group: str = "recorded"
    licence: str = OWN

    def make(self) -> tuple[bytes, Label]:
        """The file as it is, and its label with what the fault costs."""
        label = labels.read(labels.label_path(self.file))
        return Path(self.file).read_bytes(), against_twin(label, self._twin_us(label))

    def _twin_us(self, label: Label) -> float | None:
        """The twin's step as the machine would have run it when this trace was recorded."""
        if self.twin is None or label.quality == "good":
            return None
        return self.twin.step_us * pace(own_times(self.file), own_times(self.twin.file))


@dataclass(frozen=True)
class Natural:
    """A trace of others, labeled by hand."""

    name: str
    base: Found
    label: Label
    group: str = "natural"

    @property
    def licence(self) -> str:
        """That of its repository."""
        return self.base.licence

    def make(self) -> tuple[bytes, Label]:
        """The file as it is."""
        return self.base.file.read_bytes(), replace(self.label, **_about(self.base))


@dataclass(frozen=True)
class Simulated:
    """A program that never ran."""

    name: str
    pattern: str | None
    workload: str
    device: str
    seed: int
    group: str = "simulated"
    licence: str = OWN

    def make(self) -> tuple[bytes, Label]:
        """Simulate it, with the next seed where the program hides the fault."""
        from dataset.simulate import TooFaint, simulate

        why = ""
        for seed in range(self.seed, self.seed + TRIES):
            try:
                content, label = simulate(self.pattern, self.workload, self.device, seed)
            except TooFaint as error:
                why = str(error)
                continue
            return msgspec.json.encode(content), label
        raise LeftOut(why)


@dataclass(frozen=True)
class Injected:
    """A real trace with faults put in; without a pattern, the base as it is. ``hand``: what
    somebody said of the base."""

    name: str
    base: Found
    patterns: tuple[str, ...]
    seed: int
    extent: Extent
    hand: by_hand.Natural | None = None

    @property
    def group(self) -> str:
        """Its base, which is costly to open."""
        return f"injected/{self.base.name}"

    @property
    def licence(self) -> str:
        """That of the base's repository."""
        return self.base.licence

    def make(self) -> tuple[bytes, Label]:
        """Put the faults in."""
        from dataset.inject import TooFaint, Unfit, encode, inject_many, untouched

        try:
            base = _opened(self.base.file)
            healthy = self._healthy(base)
            if self.patterns:
                content, label = inject_many(base, self.patterns, self.seed, self.extent, healthy)
            else:
                content, label = untouched(base, healthy=healthy)
        except (Unfit, TooFaint) as error:
            raise LeftOut(str(error)) from error
        return encode(content), replace(label, **_about(self.base))

    def _healthy(self, base: Base) -> Healthy:
        """Where the base has no problem of its own: where somebody said so, and all of a run that
        was recorded as healthy."""
        from dataset.inject import NOWHERE

        if self.base.recorded:
            whole = Intervals.span(int(base.trace.start.min()), int(base.trace.end.max()))
            return dict.fromkeys(NOWHERE, whole)
        return NOWHERE if self.hand is None else self.hand.sound


def _about(base: Found) -> dict[str, str]:
    """What the label of a trace takes from its base. All that is made of one base is one pair."""
    about = {"workload": base.workload, "base": base.name, "pair": f"base/{base.name}"}
    return about | {"device": base.device} if base.device else about


@lru_cache(maxsize=1)
def _opened(file: Path) -> Any:
    """The base that this process opened last."""
    from dataset.inject.base import Base

    return Base.open(file)


# -- a plan's units --------------------------------------------------------------------------------


def recorded(folders: Sequence[str], every: int = 1) -> Iterator[Recorded]:
    """The labeled traces of this checkout, or one in so many. Raises FileNotFoundError."""
    for folder in folders:
        root = HERE.parent / folder
        if not root.is_dir():
            raise FileNotFoundError(f"{root}: no recorded traces")
        found = list(labels.labeled(root))
        twins = healthy_twins((str(trace), label) for trace, label in found)
        for trace, label in found[::every]:
            name = str(trace.relative_to(root))[: -len(labels.TRACE_SUFFIX)]
            yield Recorded(f"recorded/{name}", str(trace), twins.get(label.pair))


def simulated(plan: dict[str, Any]) -> Iterator[Simulated]:
    """``per_pattern`` traces of each pattern and ``healthy`` ones, over workloads and devices."""
    from dataset.simulate import DEVICES, FAULTS, WORKLOADS, workloads_for

    random = np.random.default_rng(plan["seed"])
    wanted: list[str | None] = [p for p in FAULTS for _ in range(plan["per_pattern"])]
    wanted += [None] * plan["healthy"]
    for i, pattern in enumerate(wanted):
        workloads = workloads_for(pattern) if pattern else tuple(WORKLOADS)
        workload = workloads[int(random.integers(len(workloads)))]
        device = list(DEVICES)[int(random.integers(len(DEVICES)))]
        seed = int(random.integers(2**31))
        yield Simulated(f"simulated/{i:05d}", pattern, workload, device, seed)


def own_bases(files: list[str]) -> Iterator[Found]:
    """Healthy traces of this checkout, to put faults into. Raises LabelError."""
    for name in files:
        file = HERE.parent / name
        label = labels.read(labels.label_path(file))
        if label.quality != "good":
            raise LabelError(f"{file}: no base, as it has a fault of its own")
        stem = file.name[: -len(labels.TRACE_SUFFIX)]
        yield Found(stem, file, label.workload, label.device, OWN, digest(file), True)


def injected(plan: dict[str, Any], bases: list[Found]) -> Iterator[Injected]:
    """Each base as it is, ``tries`` faults of each pattern in it, and ``several`` traces with two
    faults of different sides. Every other fault sits in every step."""
    from dataset.inject import injectors

    known, hands = sorted(injectors()), by_hand.by_base(bases)
    for base in bases:
        hand = hands.get(base.name)
        draw = np.random.default_rng([plan["seed"], zlib.crc32(base.name.encode())])
        yield Injected(f"injected/{base.name}/000", base, (), 0, "", hand)
        faults = [(pattern,) for pattern in known for _ in range(plan["tries"])]
        faults += [_two(known, draw) for _ in range(plan["several"])]
        first = int(draw.integers(2))
        for n, patterns in enumerate(faults, 1):
            partly: Extent = "some" if draw.random() < PARTLY else "once"
            extent: Extent = "every" if (first + n) % 2 else partly
            seed = int(draw.integers(2**31))
            yield Injected(f"injected/{base.name}/{n:03d}", base, patterns, seed, extent, hand)


def _two(patterns: Sequence[str], draw: np.random.Generator) -> tuple[str, ...]:
    """A pattern of each side."""
    sides = [[p for p in patterns if BY_ID[p].side == side] for side in ("cpu", "gpu")]
    return tuple(str(draw.choice(side)) for side in sides)


def natural(bases: list[Found]) -> Iterator[Natural]:
    """Those of the bases that were labeled by hand. Raises LabelError where a labeled trace is
    not among them."""
    found, there = by_hand.by_base(bases), {base.name: base for base in bases}
    if missing := [known.base for known in by_hand.read_all() if known.base not in there]:
        raise LabelError(f"labeled by hand but not among the bases: {', '.join(missing)}")
    for name in sorted(found):
        yield Natural(f"natural/{name}", there[name], found[name].label)


def chunks(work: list[Unit]) -> Iterator[list[Unit]]:
    """Units for one worker at a time; those of a large base first, so that none is waited for."""
    groups: dict[str, list[Unit]] = {}
    for unit in work:
        groups.setdefault(unit.group, []).append(unit)

    def size(group: str) -> int:
        first = groups[group][0]
        return first.base.file.stat().st_size if isinstance(first, Injected) else 0

    for group in sorted(groups, key=size, reverse=True):
        length = INJECTED if group.startswith("injected/") else SIMULATED
        mine = groups[group]
        yield from (mine[i : i + length] for i in range(0, len(mine), length))


def check_names(work: list[Unit]) -> None:
    """Tables tell traces apart by their names. Raises LabelError."""
    if not work:
        raise LabelError("a benchmark without traces")
    seen: set[str] = set()
    for unit in work:
        if unit.name in seen:
            raise LabelError(f"several traces are called {unit.name}")
        seen.add(unit.name)
