"""Salvaged dicts -> the groups of typed events that fast decoding makes, value by value."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

import msgspec
import numpy as np

from detector.kineto.arguments import ARGUMENTS, Kind
from detector.kineto.categories import OTHER_CATEGORIES, OTHER_PHASES
from detector.kineto.decode import Decoded, decimal_ns, keep
from detector.kineto.events import AnyArgs, AnyEvent, tidy
from detector.kineto.repair import Fraction

_ARGUMENTS = {argument.key: argument for argument in ARGUMENTS}


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
        elif phase == "X" and _word(event.get("cat")) in OTHER_CATEGORIES:
            decoded.other[OTHER_CATEGORIES[event["cat"]]] += 1
        elif phase == "X":
            row = _row(event, repaired, dropped)
            if row is not None:
                rows[row[0].cat].append(row)
        elif isinstance(phase, str):
            decoded.other[OTHER_PHASES.get(phase, "unknown phase")] += 1
        else:
            dropped["not an event"] += 1
    for cat, members in rows.items():
        start = np.array([row[1] for row in members], np.int64)
        dur = np.array([row[2] for row in members], np.int64)
        keep(decoded, cat, [row[0] for row in members], start, dur)
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


def _args(args: dict[str, Any]) -> Any:
    fields: dict[str, Any] = {}
    for key, value in args.items():
        argument = _ARGUMENTS.get(key)
        if argument is None:
            continue
        is_text = argument.kind is Kind.TEXT
        fields[argument.field] = msgspec.Raw(_text(value).encode()) if is_text else value
    typed = AnyArgs(**fields)
    tidy(typed)
    return typed


def _text(value: Any) -> str:
    """JSON, with fractions as the file writes them; "" where it is nested too deeply."""
    try:
        return _nested(value)
    except RecursionError:
        return ""


def _nested(value: Any) -> str:
    if isinstance(value, Fraction):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)}: {_nested(v)}' for k, v in value.items())}}}"
    return json.dumps(value)
