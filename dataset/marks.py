"""Raw trace with marks → clean trace and its regions.

A mark is an event whose name starts with ``PREFIX`` and goes on with a pattern. The marks, whatever
refers to them, the recorder's own stack frames and everything that tells where the recording ran
are taken out; frames of the recorded programs get neutral paths.
"""

from __future__ import annotations

import random
import re
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dataset.faults import FAULT_BY_ID, PROGRAMS, Fault
from dataset.labels import LabelRegion
from dataset.workloads.switch import PREFIX

Event = dict[str, Any]

STEP = re.compile(r"ProfilerStep#\d+")
FRAME = re.compile(r"^(?P<file>.*\.py)\((?P<line>\d+)\): (?P<function>.*)$")
HERE = "dataset/workloads/"
MAIN = ("running.py", "main")
# The recorded programs' files, as a project of its own would call them.
FILES = {
    "running.py": "main.py",
    "training.py": "train.py",
    "feeding.py": "data.py",
    "layers.py": "model/layers.py",
    "task.py": "model/base.py",
    "service.py": "serve.py",
    "processing.py": "processing.py",
    **{f"{workload}.py": "model/network.py" for workload in (*PROGRAMS, "matmul")},
}
ROOTS = ("/app/", "/workspace/project/", "/opt/code/", "src/", "/home/user/experiment/", "")
DENSE = 4  # more occurrences than this a step become one region for each run of them
NUMBERED = ("External id", "Python id")


# Details that no reader needs and that other traces lack as well; a quarter of a file.
UNUSED = ("Input Strides", "Concrete Inputs", "Ev Idx")


@dataclass(frozen=True)
class Span:
    """A stretch of time on a thread, µs."""

    start: float
    end: float
    pattern: str


def regions(events: Sequence[Event]) -> list[LabelRegion]:
    """The regions that the marks in ``events`` stand for, by start."""
    spans = _marks(events)
    found: list[LabelRegion] = []
    for pattern in dict.fromkeys(span.pattern for span in spans):
        fault = FAULT_BY_ID[pattern]
        mine = [span for span in spans if span.pattern == pattern]
        if fault.narrow:
            mine = _narrowed(mine, events, fault.narrow)
        if fault.backward:
            mine += _backward(mine, events)
        found += _regions_of(fault, mine, events)
    return sorted(found, key=lambda region: (region.start_us, region.end_us, region.pattern))


def clean(raw: dict[str, Any], seed: int) -> dict[str, Any]:
    """The trace without marks, the recorder's frames and the machine's names."""
    events: list[Event] = raw["traceEvents"]
    outer = _outer_frames(events)
    gone = [e for e in events if _is_mark(e) or id(e) in outer]
    dropped = {id(e) for e in gone}
    kept = [e for e in events if id(e) not in dropped]
    _renumber(kept, gone)
    rename = _renamer(seed)
    for event in kept:
        for key in UNUSED:
            event.get("args", {}).pop(key, None)
        if event.get("cat") == "python_function":
            event["name"] = rename(event["name"])
        if event.get("name") == "process_name":
            event["args"]["name"] = "python"
    hidden = {"host_name", "traceName", "traceEvents", "distributedInfo"}
    head = {key: value for key, value in raw.items() if key not in hidden}
    if "distributedInfo" in raw:
        head["distributedInfo"] = {
            key: raw["distributedInfo"][key]
            for key in ("backend", "rank", "world_size")
            if key in raw["distributedInfo"]
        }
    return {**head, "traceEvents": kept, "traceName": "trace.json"}


def step_times(events: Iterable[Event]) -> list[float]:
    """Wall time of each marked step, µs, in order."""
    return [end - start for start, end in _steps(events)]


def acting(events: Iterable[Event], found: Sequence[LabelRegion]) -> list[bool]:
    """For each step, whether a region lies in it."""
    return [
        any(region.start_us < end and region.end_us > start for region in found)
        for start, end in _steps(events)
    ]


def waiting_share(events: Iterable[Event]) -> float:
    """Share of the steps' time that the program spends in its data loader."""
    events = list(events)
    waited = sum(e["dur"] for e in events if str(e["name"]).startswith("enumerate(DataLoader)"))
    return float(waited / max(1e-9, sum(step_times(events))))


def leaks(text: str, words: Iterable[str]) -> list[str]:
    """Which of ``words`` occur in the text of a trace file."""
    return sorted({word for word in words if word and word in text})


def _is_mark(event: Event) -> bool:
    return str(event.get("name", "")).startswith(PREFIX)


def _marks(events: Iterable[Event]) -> list[Span]:
    # A GPU annotation repeats the mark on the device's axis of streams; the host's copy counts.
    marks = [e for e in events if _is_mark(e) and e.get("cat") != "gpu_user_annotation"]
    return [
        Span(e["ts"], e["ts"] + e.get("dur", 0.0), e["name"][len(PREFIX) :])
        for e in sorted(marks, key=lambda e: e["ts"])
        if e.get("ph") == "X"
    ]


def _steps(events: Iterable[Event]) -> list[tuple[float, float]]:
    return sorted(
        (e["ts"], e["ts"] + e["dur"])
        for e in events
        if e.get("cat") == "user_annotation" and STEP.fullmatch(e["name"])
    )


def _narrowed(spans: Sequence[Span], events: Iterable[Event], name: str) -> list[Span]:
    pattern = re.compile(name)
    inner = [
        (e["ts"], e["ts"] + e["dur"])
        for e in events
        if e.get("ph") == "X"
        and e.get("cat") in ("cpu_op", "user_annotation")
        and not _is_mark(e)
        and pattern.search(e["name"])
    ]
    result = []
    for span in spans:
        inside = [(a, b) for a, b in inner if a >= span.start and a < span.end]
        if inside:
            start, end = min(a for a, _ in inside), min(max(b for _, b in inside), span.end)
            result.append(Span(start, end, span.pattern))
    return result


def _backward(spans: Sequence[Span], events: Sequence[Event]) -> list[Span]:
    """The autograd nodes of the forward ops inside the spans, along the fwdbwd flows."""
    flows = [e for e in events if e.get("cat") == "fwdbwd"]
    starts = sorted(spans, key=lambda span: span.start)
    begins = [span.start for span in starts]

    def pattern_at(ts: float) -> str | None:
        place = bisect_left(begins, ts + 1e-9) - 1
        return starts[place].pattern if place >= 0 and ts < starts[place].end else None

    wanted = {e["id"]: pattern_at(e["ts"]) for e in flows if e["ph"] == "s"}
    nodes: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    for e in events:
        if e.get("ph") == "X" and e["name"].startswith("autograd::engine::evaluate_function"):
            nodes[e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for found in nodes.values():
        found.sort()
    result = []
    for e in flows:
        if e["ph"] != "f" or wanted.get(e["id"]) is None:
            continue
        place = bisect_left(nodes[e["tid"]], (e["ts"] + 1e-9,)) - 1
        if place >= 0 and e["ts"] < nodes[e["tid"]][place][1]:
            result.append(Span(*nodes[e["tid"]][place], str(wanted[e["id"]])))
    return result


def _regions_of(fault: Fault, spans: list[Span], events: Sequence[Event]) -> list[LabelRegion]:
    longest = max((span.end - span.start for span in spans), default=0.0)
    spans = [span for span in spans if span.end - span.start >= fault.least * longest]
    steps = _steps(events)
    borders = [start for start, _ in steps]
    merged = _merged(spans, borders, 50.0)
    if steps and len(merged) > DENSE * len(steps):
        typical = statistics.median(end - start for start, end in steps)
        merged = _merged(spans, borders, 0.1 * typical)
    side: Any = fault.side
    return [
        LabelRegion(round(s.start, 3), round(s.end, 3), fault.pattern, side)
        for s in merged
        if s.end > s.start
    ]


def _merged(spans: Iterable[Span], borders: Sequence[float], least: float) -> list[Span]:
    """Spans of one pattern joined where they are one occurrence."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda s: s.start):
        if merged and _belong(merged[-1], span, borders, least):
            end = max(merged[-1].end, span.end)
            merged[-1] = Span(merged[-1].start, end, span.pattern)
        else:
            merged.append(span)
    return merged


def _belong(left: Span, right: Span, borders: Sequence[float], least: float) -> bool:
    """Whether two spans are one occurrence: close to each other (``least`` µs), in one step."""
    gap = right.start - left.end
    if gap <= 0:
        return True
    same_step = bisect_right(borders, left.start) == bisect_right(borders, right.start)
    return same_step and gap <= max(least, 0.25 * (right.end - left.start))


def _outer_frames(events: Iterable[Event]) -> set[int]:
    """``id()`` of the stack frames around the program's main loop: the recorder's own."""
    frames = [e for e in events if e.get("cat") == "python_function"]
    by_number = {e["args"]["Python id"]: e for e in frames}
    mains = [e for e in frames if _own(e["name"]) == MAIN]
    outer: set[int] = set()
    for event in mains:
        parent = by_number.get(event["args"].get("Python parent id"))
        event["args"]["Python parent id"] = None
        while parent is not None:
            outer.add(id(parent))
            parent = by_number.get(parent["args"].get("Python parent id"))
    return outer


def _own(name: str) -> tuple[str, str] | None:
    """(file, function) of a frame of the recorded programs."""
    match = FRAME.match(name)
    if not match or HERE not in match["file"]:
        return None
    return match["file"].rsplit(HERE, 1)[1], match["function"]


def _renamer(seed: int) -> Callable[[str], str]:
    """Frame names with neutral paths; lines move by a constant per file, so they tell nothing."""
    rng = random.Random(seed)
    root = rng.choice(ROOTS)
    moved = {file: rng.randrange(0, 60) for file in FILES}

    def rename(name: str) -> str:
        match = FRAME.match(name)
        if not match:
            return name
        own = _own(name)
        if own is not None:
            line = int(match["line"]) + moved[own[0]]
            return f"{root}{FILES[own[0]]}({line}): {match['function']}"
        file = re.sub(r"^.*/(?:site-packages|python3\.\d+)/", "", match["file"])
        if file.startswith("/"):
            file = file.rsplit("/", 1)[1]
        return f"{file}({match['line']}): {match['function']}"

    return rename


def _renumber(kept: Iterable[Event], gone: Sequence[Event]) -> None:
    """Close the gaps that removed events leave in the running numbers."""
    holes = {
        key: sorted(e["args"][key] for e in gone if e.get("args", {}).get(key) is not None)
        for key in NUMBERED
    }
    holes["Python parent id"] = holes["Python id"]
    for event in kept:
        args = event.get("args", {})
        for key, numbers in holes.items():
            if numbers and args.get(key) is not None:
                args[key] -= bisect_left(numbers, args[key])
