"""What the machine records: rows, the spans where faults acted, and what a host is like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

QUEUE_LIMIT = 1024  # launches that CUDA accepts before a launch call blocks
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(slots=True)
class Row:
    """One duration event. ``lane`` is a thread id for host rows, a stream id for device rows."""

    cat: str
    name: str
    start: float
    end: float
    lane: int
    correlation: int = -1
    external: int = -1
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Act:
    """Where a fault acted: its host span and the hull of the device rows that it launched."""

    pattern: str
    step: int
    host: tuple[float, float]
    device: tuple[float, float] | None


@dataclass(frozen=True)
class Habits:
    """What one trace's host is like."""

    host: float = 1.0  # multiplies every host cost; 1 is a fast current server
    noise: float = 0.04  # sigma of log-normal kernel durations
    queue: int = QUEUE_LIMIT
    stacks: bool = False
    leafy: int = 1  # multiplies the short python frames
    sync_rows: bool = False  # cuda_sync rows on the device
    main: int = 4711
    backward: int = 4790
