"""What the device can do, as far as the trace shows it: the assumptions of repairs, in one place.

The figures are what programs reach, not those of data sheets.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from detector.activity import Activity
from detector.signals import Signals
from detector.trace import Cat, Int64
from detector.vocabulary import FROM_VOLTA

# Bytes a second of pinned memory, by the generation of the bus: PCIe 3, 4 and 5.
_PINNED: Final = {"cuda": ((9, 50e9), (8, 24e9), (0, 12e9)), "rocm": ((9, 24e9), (0, 12e9))}
LEAST_COPY_NS: Final = 5_000
MATRIX_RATIO: Final = 3.0  # speed of large products on tensor cores against full fp32
ROCM_RATIO: Final = 2.0


def properties(activity: Activity) -> dict[str, object]:
    """The trace's properties of the main device; empty where it has none."""
    devices = activity.trace.metadata.get("deviceProperties")
    rows = [row for row in devices if isinstance(row, dict)] if isinstance(devices, list) else []
    mine = [row for row in rows if row.get("id") == activity.main_device] or rows
    return dict(mine[0]) if mine else {}


def device_name(activity: Activity) -> str:
    """The trace's name of the main device; empty where it has none."""
    return str(properties(activity).get("name") or "")


def generation(s: Signals) -> float:
    """Compute capability, e.g. 7.5; 0 where it is unknown."""
    found = properties(s.activity)
    major, minor = found.get("computeMajor"), found.get("computeMinor")
    if not isinstance(major, int):
        return 0.0
    return major + (minor if isinstance(minor, int) else 0) / 10


def matrix_ratio(s: Signals) -> float:
    """How many times as fast products may be on tensor (matrix) cores; 1 where there are none.

    Where the trace does not name the device, its kernels show the generation: they run on no older
    device than they were built for.
    """
    if s.trace.vendor == "rocm":
        return ROCM_RATIO
    known = generation(s)
    if known:
        return MATRIX_RATIO if known >= 7 else 1.0
    return (
        MATRIX_RATIO if len(s.activity.named(s.activity.kernels, FROM_VOLTA, Cat.KERNEL)) else 1.0
    )


def pinned_copy_ns(s: Signals, copies: Int64) -> Int64:
    """What each copy would take from pinned memory, ns: never more than it took."""
    table = _PINNED.get(s.trace.vendor, _PINNED["cuda"])
    speed = next(rate for least, rate in table if generation(s) >= least)
    size = np.maximum(s.trace.bytes[copies], 0)
    ns = LEAST_COPY_NS + (size / speed * 1e9).astype(np.int64)
    return np.minimum(ns, s.trace.dur[copies])
