"""A checker of the Trace Event Format: what its description asks of the events of a JSON file.

The phases are those of "Trace Event Format" (Chromium project); what Perfetto and chrome://tracing
refuse or drop silently is a complaint here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

NUMBER = (int, float)
NEEDS: dict[str, dict[str, Any]] = {
    "X": {"name": str, "ts": NUMBER, "dur": NUMBER},
    "B": {"name": str, "ts": NUMBER},
    "E": {"ts": NUMBER},
    "i": {"name": str, "ts": NUMBER},
    "I": {"name": str, "ts": NUMBER},
    "C": {"name": str, "ts": NUMBER, "args": dict},
    "M": {"name": str, "args": dict},
    **{phase: {"name": str, "ts": NUMBER, "id": (int, str)} for phase in "stfbne"},
    **{phase: {"name": str, "ts": NUMBER} for phase in "PNODRc"},
}
METADATA = {"process_name", "process_labels", "process_sort_index", "thread_name",
            "thread_sort_index"}  # fmt: skip


def complaints(trace: object) -> Iterator[str]:
    """What is wrong with a decoded file, a line each."""
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        yield "no object with a list of traceEvents"
        return
    for number, event in enumerate(trace["traceEvents"]):
        for complaint in _of_event(event):
            yield f"event {number}: {complaint}"


def _of_event(event: object) -> Iterator[str]:
    if not isinstance(event, dict):
        yield "no object"
        return
    phase = event.get("ph")
    if phase not in NEEDS:
        yield f"unknown phase {phase!r}"
        return
    for key, kind in NEEDS[phase].items():
        value = event.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            yield f"{phase} with {key} {value!r}"
    if phase == "X" and isinstance(event.get("dur"), NUMBER) and event["dur"] < 0:
        yield "a negative duration"
    if phase not in "MC" and not {"pid", "tid"} <= event.keys():
        yield "no pid or tid"
    if phase == "C" and "pid" not in event:  # counters are a process's
        yield "no pid"
    if phase == "M" and event.get("name") in METADATA and not event.get("args"):
        yield "metadata without a value"
