"""Step markers: what the profiler, vLLM and SGLang write around each iteration."""

from __future__ import annotations

import re

import numpy as np

from detector.kineto.columns import Columns
from detector.trace import Bool, Cat, Int32, Step

_MARKERS = (
    re.compile(r"ProfilerStep#?\d*"),
    re.compile(r"execute_(?:new_|context_|\d+_context|generation_).*|execute_model.*"),  # vLLM
    re.compile(r"step\[.*"),  # SGLang
)
# What a first step does that no later one does.
_WARMUP_CALLS = re.compile(
    r"(?:cuda|hip)(?:Malloc|HostAlloc|HostMalloc|MallocAsync)$|c[nu]ModuleLoad|cuLibraryLoad"
    r"|hipModuleLoad|.*(?:Module|Function) Loading|cuda\w*Load\w*Module|triton_compile|.*inductor"
    r"|CompiledFxGraph|.*compile_fx|_compile"
)
_LOOKED_AT = 1_000  # characters of a name: real ones are shorter, hostile ones are not
_LONGER = 1.5


def find_steps(c: Columns, names: tuple[str, ...]) -> tuple[Step, ...]:
    """The marked steps in time order; () where the file has none. Rows must be sorted by start."""
    rows = np.flatnonzero(c["cat"] == Cat.USER_ANNOTATION)
    used = np.flatnonzero(np.bincount(c["name"][rows])).tolist()  # np.unique imports numpy.ma
    for marker in _MARKERS:
        ids = [i for i in used if marker.fullmatch(names[i])]
        if ids:
            chosen = rows[_among(c["name"][rows], ids, len(names))]
            return _mark_warmup(_distinct(c, chosen, names), c, names)
    return ()


def _among(name: Int32, ids: list[int], names: int) -> Bool:
    wanted = np.zeros(names, np.bool_)
    wanted[ids] = True
    return wanted[name]


def _distinct(c: Columns, rows: np.ndarray, names: tuple[str, ...]) -> list[Step]:
    """One step where several threads carry the same marker at the same time."""
    steps: list[Step] = []
    last: dict[str, int] = {}
    for row in rows.tolist():
        name, start = names[c["name"][row]], int(c["start"][row])
        end = start + int(c["dur"][row])
        if start < last.get(name, start):
            continue
        last[name] = end
        steps.append(Step(name, start, end))
    return steps


def _mark_warmup(steps: list[Step], c: Columns, names: tuple[str, ...]) -> tuple[Step, ...]:
    """Leading steps far longer than the median of the rest, in which something was set up."""
    if len(steps) < 3:
        return tuple(steps)
    calls = [i for i, name in enumerate(names) if _WARMUP_CALLS.match(name[:_LOOKED_AT])]
    when = c["start"][_among(c["name"], calls, len(names))]
    for i, step in enumerate(steps[: len(steps) // 2]):
        rest = float(np.median([s.end - s.start for s in steps[i + 1 :]]))
        loads = np.searchsorted(when, [step.start, step.end])
        if step.end - step.start < _LONGER * rest or loads[0] == loads[1]:
            break
        steps[i] = Step(step.name, step.start, step.end, warmup=True)
    return tuple(steps)
