"""Salvaged dicts -> the same groups of typed events that fast decoding gives, value by value."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

import msgspec
import numpy as np

from detector.kineto.decode import Decoded, by_category, decimal_ns
from detector.kineto.events import OTHER_CATEGORIES, OTHER_PHASES, AnyArgs, AnyEvent

_NAMES = {f.encode_name: f.name for f in msgspec.structs.fields(AnyArgs)}
_TEXTS = ("dims", "dims_2022", "types")


def convert(
    events: list[Any], repaired: Counter[str], dropped: Counter[str]
) -> tuple[Decoded, list[dict[str, Any]]]:
    """Typed duration events, and the B and E events among the given ones."""
    decoded = Decoded([], len(events))
    pairs: list[dict[str, Any]] = []
    rows: defaultdict[str, list[tuple[AnyEvent, int, int]]] = defaultdict(list)
    for event in events:
        phase = event.get("ph") if isinstance(event, dict) else None
        if phase in ("B", "E"):
            pairs.append(event)
        elif phase == "X" and event.get("cat") not in OTHER_CATEGORIES:
            row = _row(event, repaired, dropped)
            if row is not None:
                rows[row[0].cat].append(row)
        elif phase == "X":
            decoded.other[OTHER_CATEGORIES[event["cat"]]] += 1
        elif isinstance(phase, str):
            decoded.other[OTHER_PHASES.get(phase, "unknown phase")] += 1
        else:
            dropped["not an event"] += 1
    for cat, members in rows.items():
        start = np.array([row[1] for row in members], np.int64)
        dur = np.array([row[2] for row in members], np.int64)
        decoded.groups += by_category(cat, [row[0] for row in members], start, dur)
    return decoded, pairs


def _row(
    event: dict[str, Any], repaired: Counter[str], dropped: Counter[str]
) -> tuple[AnyEvent, int, int] | None:
    times = [event.get("ts"), event.get("dur")]
    repaired["number as text"] += sum(type(t) is str for t in times)
    start, dur = map(_ns, times)
    if start is None:
        dropped["no time stamp"] += 1
        return None
    if dur is None:
        repaired["no duration"] += 1
        dur = 0
    args = event.get("args")
    typed = AnyEvent(
        name=_word(event.get("name", "")),
        cat=_word(event.get("cat", "")),
        pid=_id(event.get("pid", "")),
        tid=_id(event.get("tid", "")),
        args=_args(args) if isinstance(args, dict) else AnyArgs(),
    )
    return typed, start, dur


def _ns(value: Any) -> int | None:
    try:
        return decimal_ns(str(value))
    except (ArithmeticError, ValueError):
        return None


def _word(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _id(value: Any) -> int | str:
    return value if isinstance(value, (int, str)) else str(value)


def _args(args: dict[str, Any]) -> AnyArgs:
    fields: dict[str, Any] = {}
    for key, value in args.items():
        name = _NAMES.get(key)
        if name in _TEXTS:
            fields[name] = msgspec.Raw(json.dumps(value).encode())
        elif name is not None:
            fields[name] = value
    typed = AnyArgs(**fields)
    typed.tidy()
    return typed
