"""What a file may cost before the reader refuses it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of one read; going past one raises TraceError that names the field.

    They stop hostile and broken files (a gz of spaces), not large traces: the defaults admit
    64 GiB.
    """

    max_bytes: int = 64 << 30  # of JSON, after decompression
    max_events: int = 250_000_000  # of any phase
    max_event_bytes: int = 64 << 20  # one event, the header, or any stretch without an event
