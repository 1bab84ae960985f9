"""The label beside a trace: what is wrong in it, where, and how the trace was made.

``NAME.json.gz`` (the trace) and ``NAME.label.json`` (its label) lie in one folder. Times are µs on
the trace file's own ``ts`` axis.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from detector.kineto.categories import OTHER_CATEGORIES

Origin = Literal["recorded", "simulated", "injected", "natural"]
Quality = Literal["good", "bad"]
Side = Literal["cpu", "gpu"]
Extent = Literal["every", "some", "once", ""]
CostFrom = Literal["", "twin", "injection", "simulation", "hand"]

# "1" had neither base, extent nor healthy_step_us; "2" no costs
GENERATOR = "3"
UNKNOWN = "unknown"  # nobody knows whether something is wrong there
TRACE_SUFFIX = ".json.gz"
LABEL_SUFFIX = ".label.json"


class LabelError(ValueError):
    """A label that is not one: the message names the file and the field."""


@dataclass(frozen=True)
class LabelRegion:
    """One span in which a pattern acts (or ``UNKNOWN``); ``end_us`` is exclusive.

    ``cost_us``: analyzed time that the region adds; None where it is unknown. ``harmless``: the
    pattern costs next to nothing in this trace (``dataset.costs``).
    """

    start_us: float
    end_us: float
    pattern: str
    side: Side
    cost_us: float | None = None
    cost_from: CostFrom = ""
    harmless: bool = False


@dataclass(frozen=True)
class Label:
    """Everything known about one trace. Traces with the same ``pair`` are twins.

    ``step_us`` is the median wall time of the recorded steps; in an injected trace the mean over
    the steps in which its faults act, and ``healthy_step_us`` the mean of the same before. A good
    trace has no region but unknown ones, a bad one has at least one of a pattern.
    """

    origin: Origin
    pair: str
    workload: str
    device: str  # "cpu", "cuda:NVIDIA H200", "simulated:A100"
    framework: str  # "torch 2.13.0"
    seed: int
    step_us: float
    quality: Quality
    regions: tuple[LabelRegion, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    generator: str = GENERATOR
    base: str = ""  # the real trace that a fault was put into, by name
    extent: Extent = ""  # of the fault: in every step, in some, in one
    healthy_step_us: float | None = None  # step time without the fault, where it is known

    @property
    def patterns(self) -> tuple[str, ...]:
        """The distinct patterns of the regions, in order of first appearance."""
        return tuple(dict.fromkeys(r.pattern for r in self.regions if r.pattern != UNKNOWN))


def label_path(trace: str | Path) -> Path:
    """The label file that belongs to a trace file (``.json.gz`` or ``.json``)."""
    path = Path(trace)
    for suffix in (TRACE_SUFFIX, ".json"):
        if path.name.endswith(suffix):
            return path.with_name(path.name[: -len(suffix)] + LABEL_SUFFIX)
    raise LabelError(f"{path}: not a trace file name (.json or .json.gz)")


def trace_path(label: str | Path) -> Path:
    """The trace file that belongs to a label file."""
    path = Path(label)
    if not path.name.endswith(LABEL_SUFFIX):
        raise LabelError(f"{path}: not a label file name ({LABEL_SUFFIX})")
    return path.with_name(path.name[: -len(LABEL_SUFFIX)] + TRACE_SUFFIX)


def labeled(folder: str | Path) -> Iterator[tuple[Path, Label]]:
    """All (trace file, label) below a folder, by path. A label without its trace is an error."""
    for path in sorted(Path(folder).rglob(f"*{LABEL_SUFFIX}")):
        trace = trace_path(path)
        if not trace.is_file():
            raise LabelError(f"{path}: its trace {trace.name} is missing")
        yield trace, read(path)


def read(path: str | Path) -> Label:
    """Read and check a label file; raises LabelError."""
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
        regions = tuple(LabelRegion(**region) for region in raw.pop("regions"))
        label = Label(**raw, regions=regions)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise LabelError(f"{path}: {error}") from error
    return check(label, str(path))


def write(label: Label, path: str | Path) -> Path:
    """Write a checked label; keys in a fixed order, so equal labels give equal bytes."""
    data = asdict(check(label, str(path)))
    target = Path(path)
    target.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return target


def check(label: Label, where: str = "label") -> Label:
    """The label itself, if it holds what it must; else LabelError naming ``where``."""
    for fault in _faults(label):
        raise LabelError(f"{where}: {fault}")
    return label


def clip(label: Label, events: Iterable[Mapping[str, Any]]) -> Label:
    """The label with its regions cut to where a trace's events lie; what lies outside goes."""
    # Not by the span of the whole recording, which outlasts the program.
    whole = [e for e in events if e.get("ph") == "X" and e.get("cat") not in OTHER_CATEGORIES]
    first = min((float(e["ts"]) for e in whole), default=0.0)
    last = max((float(e["ts"]) + float(e.get("dur", 0)) for e in whole), default=0.0)
    cut = [
        replace(r, start_us=max(r.start_us, first), end_us=min(r.end_us, last))
        for r in label.regions
    ]
    return replace(label, regions=tuple(r for r in cut if r.end_us > r.start_us))


def _faults(label: Label) -> Iterator[str]:
    for name in ("pair", "workload", "device", "framework", "generator"):
        if not isinstance(getattr(label, name), str) or not getattr(label, name):
            yield f"{name} must be text"
    if label.origin not in get_args(Origin):
        yield f"origin {label.origin!r} is unknown"
    if label.quality not in get_args(Quality):
        yield f"quality {label.quality!r} is unknown"
    elif (label.quality == "bad") != bool(label.patterns):
        yield f"quality {label.quality} with {len(label.patterns)} patterns in its regions"
    if not isinstance(label.base, str):
        yield "base must be text"
    if label.extent not in get_args(Extent):
        yield f"extent {label.extent!r} is unknown"
    for name in ("step_us", "healthy_step_us"):
        value = getattr(label, name)
        optional = name == "healthy_step_us" and value is None
        if not (optional or (_is_number(value) and value >= 0)):
            yield f"{name} must be a number of at least 0"
    for i, region in enumerate(label.regions):
        if not (_is_number(region.start_us) and _is_number(region.end_us)):
            yield f"regions[{i}]: times must be finite numbers"
        elif region.end_us <= region.start_us:
            yield f"regions[{i}]: ends before it starts"
        if region.side not in get_args(Side):
            yield f"regions[{i}]: side {region.side!r} is unknown"
        if not isinstance(region.pattern, str) or not region.pattern:
            yield f"regions[{i}]: pattern must be text"
        yield from (f"regions[{i}]: {fault}" for fault in _cost_faults(region))


def _cost_faults(region: LabelRegion) -> Iterator[str]:
    cost = region.cost_us
    if cost is not None and not (_is_number(cost) and cost >= 0):
        yield "cost_us must be a number of at least 0, or none"
    if region.cost_from not in get_args(CostFrom):
        yield f"cost_from {region.cost_from!r} is unknown"
    elif (cost is None) != (region.cost_from == ""):
        yield "a cost needs its source, and a source its cost"
    if region.pattern == UNKNOWN and (cost is not None or region.harmless):
        yield "an unknown region has no cost"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
