"""Signals of the device's own work: slow, small, needless and unfused kernels, collectives."""

from __future__ import annotations

from typing import Final

from detector.signals.signal import Signal

SIGNALS: Final = (
    Signal(
        "pageable-copy",
        "Host-to-device copies from pageable memory",
        "launches",
        ("device",),
        lambda s: s.activity.pageable_h2d,
    ),
)
