"""Perturbed traces: the same run, recorded with other ids, another clock or less detail.

What a person would say of the run stays true, so findings should stay, or go where the detail they
need is gone; none should appear. Those of ``SAME`` lose nothing that a reader may use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from random import Random
from typing import Any, Final

Event = dict[str, Any]
Document = Mapping[str, Any]
Edit = Callable[[Event], Event | None]

_HOST: Final = {"cpu_op", "operator", "user_annotation", "python_function", "cuda_runtime"}
_HOST_MORE: Final = {"cuda_driver", "runtime", "overhead", "cpu_instant_event"}
_FLOWS: Final = {"ac2g", "async", "async_cpu_to_gpu"}
_SHAPES: Final = re.compile(r"(?i)input[ _](dims|types?|strides?)|concrete inputs|output dims")
_FRAMES: Final = re.compile(r"(?i)python (id|parent id|module id)|call stack|module hierarchy")
_GRID: Final = re.compile(r"(?i)grid|block|occupancy|registers|shared memory|warps|blocks per")
_LAUNCHES: Final = re.compile(r"(?i)launch|memcpy|memset|synchronize|malloc|free|graph|hostalloc")
_STEP: Final = re.compile(r"ProfilerStep\*?#?\d*")
_TEMPLATE: Final = re.compile(r"<[^<>]*>")


def perturb(document: Document, kind: str) -> dict[str, Any] | None:
    """A copy of the document, perturbed; None where there is nothing to perturb in this way."""
    events = [e for e in document["traceEvents"] if isinstance(e, dict)]
    made = list(KINDS[kind](events))
    kept = {k: v for k, v in document.items() if k != "traceEvents"}
    if kind == "no-metadata":
        kept = {k: v for k, v in kept.items() if k in _CLOCK}
    changed = len(made) != len(events) or any(a is not b for a, b in zip(made, events, strict=True))
    if not changed and len(kept) == len(document) - 1:
        return None
    return {**kept, "traceEvents": made}


_IDS: Final = ("correlation", "External id", "external id")
_CLOCK: Final = ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds")


# -- nothing is lost -------------------------------------------------------------------------------


def _later(events: Iterable[Event]) -> Iterator[Event]:
    """All of it 1,000 s later."""
    for event in events:
        changed = {"ts": event["ts"] + 10**9} if _is_number(event.get("ts")) else {}
        args = event.get("args")
        if isinstance(args, dict) and _is_number(args.get("external ts")):
            changed["args"] = {**args, "external ts": args["external ts"] + 10**9}
        yield {**event, **changed} if changed else event


def _renumbered(events: list[Event]) -> Iterator[Event]:
    """Other process and thread numbers on the host, in another order."""
    device = {_place(e) for e in events if e.get("ph") == "X" and not _on_host(e)}
    places = {_place(e) for e in events if e.get("ph") == "X" and _on_host(e)} - device
    whole = sorted((p for p in places if type(p[0]) is int and type(p[1]) is int), reverse=True)
    thread = {place: 500_000 + 7 * i for i, place in enumerate(whole)}
    for event in events:
        number = thread.get(_place(event))
        yield event if number is None else {**event, "tid": number}


def _other_correlations(events: Iterable[Event]) -> Iterator[Event]:
    """Correlation ids as if the process had launched a million kernels before; an external id that
    only repeats the correlation (2022) goes along."""
    more = 1_000_000
    for event in events:
        args = event.get("args")
        if event.get("cat") in _FLOWS and type(event.get("id")) is int:
            yield {**event, "id": event["id"] + more}
        elif (
            isinstance(args, dict) and type(args.get("correlation")) is int and args["correlation"]
        ):
            same = [k for k in _IDS if args.get(k) == args["correlation"]]
            yield {**event, "args": {**args, **{k: args[k] + more for k in same}}}
        else:
            yield event


def _external_ids_as_text(events: Iterable[Event]) -> Iterator[Event]:
    for event in events:
        args = event.get("args")
        keys = [k for k in ("External id", "external id") if isinstance(args, dict) and k in args]
        if keys and all(type(args[k]) is int for k in keys):
            yield {**event, "args": {**args, **{k: str(args[k]) for k in keys}}}
        else:
            yield event


def _keys_reversed(events: Iterable[Event]) -> Iterator[Event]:
    for event in events:
        turned = dict(reversed(event.items()))
        if isinstance(event.get("args"), dict):
            turned["args"] = dict(reversed(event["args"].items()))
        yield turned


def _shuffled(events: list[Event]) -> Iterator[Event]:
    """Events of the file in another order; of one start and track they keep theirs, which says
    what lies in what."""
    groups: dict[tuple[Any, ...], list[Event]] = {}
    for event in events:
        groups.setdefault((_place(event), event.get("ts"), event.get("ph")), []).append(event)
    mixed = list(groups.values())
    Random(0).shuffle(mixed)
    return (event for group in mixed for event in group)


# -- less detail -----------------------------------------------------------------------------------


def _each(edit: Edit) -> Callable[[list[Event]], Iterator[Event]]:
    def edited(events: list[Event]) -> Iterator[Event]:
        return (made for event in events if (made := edit(event)) is not None)

    return edited


def _without(unwanted: Callable[[Event], bool]) -> Callable[[list[Event]], Iterator[Event]]:
    return _each(lambda event: None if unwanted(event) else event)


def _without_args(pattern: re.Pattern[str]) -> Edit:
    def edit(event: Event) -> Event:
        args = event.get("args")
        if not isinstance(args, dict) or not any(map(pattern.match, args)):
            return event
        return {**event, "args": {k: v for k, v in args.items() if not pattern.match(k)}}

    return edit


def _no_stacks(event: Event) -> Event | None:
    if event.get("cat") == "python_function":
        return None
    return _without_args(_FRAMES)(event)


def _is_step(event: Event) -> bool:
    return bool(_STEP.fullmatch(str(event.get("name"))))


def _is_annotation(event: Event) -> bool:
    return _cat(event).endswith("user_annotation") and not _is_step(event)


def _is_minor_call(event: Event) -> bool:
    """A query that some versions of the profiler record and others leave out."""
    minor = _cat(event) in ("cuda_runtime", "cuda_driver", "runtime")
    return minor and not _LAUNCHES.search(str(event.get("name")))


def _plain(events: list[Event]) -> Iterator[Event]:
    """What a profiler records that is asked for nothing: no stacks, shapes, marks or memory."""
    for event in events:
        unasked = _is_step(event) or _is_annotation(event) or event.get("ph") in ("i", "I")
        if not unasked and (kept := _no_stacks(event)) is not None:
            yield _without_args(_SHAPES)(kept)


def _whole_us(event: Event) -> Event:
    """Times cut to microseconds, as profilers wrote them until 2021."""
    start, dur = event.get("ts"), event.get("dur")
    if not _is_number(start) or (type(start) is int and type(dur) is int):
        return event
    first = int(start)
    if not _is_number(dur):
        return {**event, "ts": first}
    return {**event, "ts": first, "dur": int(Decimal(str(start)) + Decimal(str(dur))) - first}


def _short_kernel(event: Event) -> Event:
    """A kernel's name without template arguments, as some exporters and compilers write it."""
    name = event.get("name")
    if _cat(event) != "kernel" or not isinstance(name, str) or "<" not in name:
        return event
    while (shorter := _TEMPLATE.sub("", name)) != name:
        name = shorter
    name = name.removeprefix("void ").split("(")[0].split("<")[0].strip()
    return {**event, "name": name} if name else event


def _cloned_kernel(event: Event) -> Event:
    """A kernel's name with a compiler's mark behind it."""
    if _cat(event) != "kernel":
        return event
    return {**event, "name": f"{event.get('name')} [clone .kd]"}


SAME: Final[Mapping[str, Callable[[list[Event]], Iterable[Event]]]] = {
    "later": _later,
    "renumbered-threads": _renumbered,
    "other-correlations": _other_correlations,
    "external-ids-as-text": _external_ids_as_text,
    "keys-reversed": _keys_reversed,
    "shuffled": _shuffled,
    "no-flows": _without(lambda e: e.get("ph") in ("s", "t", "f") and _cat(e) in _FLOWS),
}
KINDS: Final[Mapping[str, Callable[[list[Event]], Iterable[Event]]]] = {
    **SAME,
    "no-names-of-threads": _without(lambda e: e.get("ph") == "M"),
    "no-stacks": _each(_no_stacks),
    "no-shapes": _each(_without_args(_SHAPES)),
    "no-grids": _each(_without_args(_GRID)),
    "no-steps": _without(_is_step),
    "no-annotations": _without(_is_annotation),
    "no-metadata": lambda events: events,
    "no-forward-links": _without(lambda e: _cat(e) == "fwdbwd"),
    "no-instants": _without(lambda e: e.get("ph") in ("i", "I")),
    "no-overhead": _without(lambda e: _cat(e) in ("overhead", "cuda_sync")),
    "no-minor-calls": _without(_is_minor_call),
    "plain": _plain,
    "whole-us": _each(_whole_us),
    "short-kernels": _each(_short_kernel),
    "cloned-kernels": _each(_cloned_kernel),
}


# -- a part of the run -----------------------------------------------------------------------------


def cut(document: Document, start_us: float, end_us: float) -> dict[str, Any]:
    """What a recording of this span would hold: calls and ops that begin in it, with the device
    work they launched, and what of longer frames and annotations lies in it."""
    events = [e for e in document["traceEvents"] if isinstance(e, dict)]
    called = {_correlation(e) for e in events if _is_call(e) and start_us <= e["ts"] < end_us}
    known = {_correlation(e) for e in events if _is_call(e)}
    kept = (_cut_event(e, start_us, end_us, called, known) for e in events)
    return {**document, "traceEvents": [e for e in kept if e is not None]}


def _cut_event(
    event: Event, start_us: float, end_us: float, called: set[Any], known: set[Any]
) -> Event | None:
    if not _is_number(event.get("ts")) or event.get("ph") == "M":
        return event
    begins = start_us <= event["ts"] < end_us
    if event.get("cat") in _FLOWS and event.get("id") in known:
        return event if event.get("id") in called else None
    if event.get("ph") == "X" and not _on_host(event) and _correlation(event) in known:
        return event if _correlation(event) in called else None
    if _cat(event) != "python_function":
        return event if begins else None
    first, last = max(event["ts"], start_us), min(event["ts"] + event.get("dur", 0), end_us)
    return {**event, "ts": first, "dur": last - first} if first < last else None


def _is_call(event: Event) -> bool:
    if event.get("ph") != "X" or not _on_host(event) or not _is_number(event.get("ts")):
        return False
    return _correlation(event) is not None


def _correlation(event: Event) -> Any:
    args = event.get("args")
    return args.get("correlation") if isinstance(args, dict) else None


def _cat(event: Event) -> str:
    return str(event.get("cat", "")).lower()


def _on_host(event: Event) -> bool:
    return _cat(event) in _HOST or _cat(event) in _HOST_MORE


def _place(event: Event) -> tuple[Any, Any]:
    return event.get("pid"), event.get("tid")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
