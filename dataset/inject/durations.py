"""How long added device work takes, measured on the trace's own kernels.

Models learn from simulated traces and are scored on injected ones, so nothing of the simulator's
durations may be used here: what both draw alike would be learned, and scored, and be true of no
device. Public peak figures of the device stand in where the trace tells nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from dataset.simulate.devices import Device
from detector.activity import Activity
from detector.trace import Int64

HALF: Final = ("c10::BFloat16", "c10::Half")
FULL: Final = "float!"  # fp32 without matrix units
PER_THREAD: Final = 4  # values that a thread of a vectorized pointwise kernel handles
TENSORS: Final = 2  # that it reads or writes, at least
LARGE: Final = 1 << 20  # values; smaller kernels are made of latency, or stay in the cache
REACH: Final = 0.6  # of the peaks, where the trace tells nothing
SLOWEST: Final = 0.05  # of the peak bandwidth; below it a kernel waited for something else
SHORTEST: Final = 1_000.0  # ns


def latency(activity: Activity) -> float:
    """What a kernel with next to nothing to do takes, ns."""
    dur = activity.trace.dur[activity.compute_rows]
    return max(float(np.percentile(dur, 5)) if len(dur) else 1_500.0, SHORTEST)


def moving_rate(activity: Activity, device: Device, width: int) -> float:
    """Bytes/ns that this trace's large pointwise kernels move, by their grids; at most the peak.
    ``width``: bytes of a value."""
    trace, rows = activity.trace, activity.kernels_of("pointwise")
    values = trace.blocks[rows].astype(np.float64) * trace.threads[rows] * PER_THREAD
    large = values >= LARGE
    peak = device.bandwidth / 1_000
    if not large.any():
        return peak * REACH
    ns = np.maximum(trace.dur[rows][large] - latency(activity), 1)
    rate = float(np.median(values[large] * width * TENSORS / ns))
    return min(max(rate, SLOWEST * peak), peak)


def matrix_peak(device: Device, dtype: str) -> float:
    """Peak flop/ns of matrix work, by the public figures; ``FULL`` is fp32 without matrix units."""
    if dtype in HALF:
        return device.half / 1_000
    return (device.fp32 if dtype == FULL else device.tensor32) / 1_000


def matrix_reach(flop: npt.NDArray[np.float64], dur: Int64, peak: float) -> float:
    """Share of the peak that kernels of these sizes got, all in all; ``REACH`` without any."""
    known = (flop > 0) & (dur > 0)
    if not known.any():
        return REACH
    return float(np.clip(flop[known].sum() / dur[known].sum() / peak, SLOWEST, 1.0))
