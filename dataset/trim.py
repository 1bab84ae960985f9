"""A long base cut down to its last steps, as a profiler that ran for a shorter time would have it.

A fault needs a few steps to show, and every trace that is made of a base is as long as the base.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from dataset.bases import Found, read
from dataset.labels import TRACE_SUFFIX
from detector import kineto
from detector.trace import NS_PER_US, Trace
from detector.window import analyzed_time

Event = dict[str, Any]

LEAST_STEPS: Final = 2
FLOWS: Final = frozenset("stf")  # phases
ISSUED: Final = frozenset(  # by a call, with its correlation; in 2021's words too
    ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "Kernel", "Memcpy", "Memset")
)
CALLS: Final = frozenset(("cuda_runtime", "cuda_driver", "Runtime"))
FRAMES: Final = frozenset(("python_function", "Python", "Trace"))  # go on beyond a step


def trim_long(bases: list[Found], most: int, folder: Path) -> list[Found]:
    """The bases; those with more than ``most`` events cut, and their files put into ``folder``.

    A base keeps at least two steps, and one without steps stays as it is.
    """
    return [_shorter(base, most, folder) for base in bases]


def _shorter(base: Found, most: int, folder: Path) -> Found:
    trace = kineto.read(base.file)
    span = last_steps(trace, most)
    if span is None:
        return base
    document = trim(json.loads(read(base.file)), *(ns / NS_PER_US for ns in span))
    file = folder / f"{base.name}{TRACE_SUFFIX}"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(msgspec.json.encode(document), 1, mtime=0))
    return replace(base, file=file)


def last_steps(trace: Trace, most: int) -> tuple[int, int] | None:
    """[start, end) ns of so many of the last steps as ``most`` rows allow; None for all of them."""
    steps = analyzed_time(trace).steps
    if len(trace) <= most or len(steps) <= LEAST_STEPS:
        return None
    starts = np.array([step.start for step in steps], np.int64)
    rows = len(trace) - np.searchsorted(trace.start, starts)  # from each step on
    first = int(np.flatnonzero(rows <= most)[0]) if rows[-1] <= most else len(steps)
    first = min(first, len(steps) - LEAST_STEPS)
    return steps[first].start, steps[-1].end


def trim(document: dict[str, Any], start_us: float, end_us: float) -> dict[str, Any]:
    """A Kineto object with what began in [start_us, end_us), and what that issued on the device.

    Of a device that lags behind, what was issued before and runs inside stays, too, without its
    call, as in a recording that began then: else the device would seem to wait.
    """
    events = document["traceEvents"]
    calls = {
        _correlation(e)
        for e in events
        if e.get("cat") in CALLS and start_us <= float(e["ts"]) < end_us
    }
    all_calls = {_correlation(e) for e in events if e.get("cat") in CALLS}
    flows = _flows(events, start_us, end_us, calls, all_calls)
    kept = list(_kept(events, start_us, end_us, calls, all_calls, flows))
    return {**document, "traceEvents": kept}


def _correlation(event: Event) -> Any:
    return event.get("args", {}).get("correlation")


def _kept(
    events: list[Event],
    start: float,
    end: float,
    calls: set[Any],
    all_calls: set[Any],
    flows: set[tuple[Any, Any]],
) -> Iterator[Event]:
    for event in events:
        cat, phase = event.get("cat"), event.get("ph")
        if phase == "M" or "ts" not in event:
            yield event
        elif phase in FLOWS:
            if (cat, event.get("id")) in flows:
                yield event
        elif cat in ISSUED and _correlation(event) in all_calls:
            if _correlation(event) in calls or start <= float(event["ts"]) < end:
                yield event
        elif cat in FRAMES and phase == "X":
            yield from _clipped(event, start, end)
        elif start <= float(event["ts"]) < end:
            yield event


def _clipped(event: Event, start: float, end: float) -> Iterator[Event]:
    """A frame, as far as it lies inside: a profiler begins in the midst of the outer ones."""
    first, last = float(event["ts"]), float(event["ts"]) + float(event["dur"])
    if start <= first and last <= end:
        yield event
    elif first < end and last > start:
        kind = type(event["ts"]) if type(event["ts"]) in (int, float) else float
        at, until = max(first, start), min(last, end)
        yield {**event, "ts": kind(at), "dur": kind(round(until - at, 3))}


def _flows(
    events: list[Event], start: float, end: float, calls: set[Any], all_calls: set[Any]
) -> set[tuple[Any, Any]]:
    """(cat, id) of flows whose ends both stay: launches by their call, others by their times."""
    found: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    for event in events:
        if event.get("ph") in FLOWS:
            found[event.get("cat"), event.get("id")].append(float(event["ts"]))
    return {
        (cat, number)
        for (cat, number), times in found.items()
        if (
            number in calls
            if cat != "fwdbwd" and number in all_calls
            else _inside(times, start, end)
        )
    }


def _inside(times: list[float], start: float, end: float) -> bool:
    return all(start <= t < end for t in times)
