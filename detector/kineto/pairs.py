"""B and E events (Chrome's other way to write a duration) -> X events."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any


def join(events: list[dict[str, Any]], repaired: Counter[str]) -> list[dict[str, Any]]:
    """X events from B and E events of one file, matched innermost first on each thread."""
    ordered = sorted((e for e in events if _time(e) is not None), key=lambda e: _time(e) or 0.0)
    repaired["begin or end without a time"] += len(events) - len(ordered)
    open_events: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    joined = []
    for event in ordered:
        stack = open_events[str(event.get("pid")), str(event.get("tid"))]
        if event["ph"] == "B":
            stack.append(event)
        elif stack:
            begin = stack.pop()
            length = (_time(event) or 0.0) - (_time(begin) or 0.0)
            joined.append({**begin, "ph": "X", "dur": round(length, 3)})
        else:
            repaired["end without a begin"] += 1
    repaired["begin without an end"] += sum(map(len, open_events.values()))
    return joined


def _time(event: dict[str, Any]) -> float | None:
    try:
        return float(event["ts"])
    except (KeyError, TypeError, ValueError):
        return None
