"""Signals of the host's waits: which op asks for a synchronization, and what it waits for."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector.index_sets import difference, distinct
from detector.intervals import Intervals
from detector.signals.definition import Signal, Signals
from detector.trace import Bool, Int64

LEAST_LAUNCHES: Final = 20  # with fewer it is unknown whether each one waits
BLOCKING_SHARE: Final = 0.2  # of the kernels end before their launch returns; usual is 0.02
STALL_NS: Final = 1_000_000  # a launch reaches an idle device within microseconds

# Signal, its label, and who asks, of ``activity.SYNC_CAUSES``.
CAUSES: Final = (
    ("scalar-readback-wait", "Waits for a single value", "scalar"),
    ("dynamic-shape-wait", "Waits for the size of a result", "dynamic_shape"),
    ("input-copy-wait", "Waits for a copy to the device", "h2d"),
    ("tensor-readback-wait", "Waits for a tensor", "d2h"),
)


def called(s: Signals, work: Int64) -> Int64:
    """When the host called for this device work, ns: the start of its caller; else its own."""
    start, caller = s.trace.start[work], s.caller(work)
    return np.where(caller >= 0, np.minimum(s.trace.start[caller], start), start)


def is_linked(s: Signals, work: Int64) -> Bool:
    """Which device work the trace joins to the host, by its launch or by its op."""
    return s.caller(work) >= 0


def pending(s: Signals) -> Intervals:
    """Time in which recorded work is under way: called for, and not done."""
    work = np.flatnonzero(s.trace.is_device_work)
    return Intervals.union(called(s, work), s.trace.end[work])


def unrecorded_waits(s: Signals) -> Int64:
    """Synchronizations of 1 ms and more for most of which all recorded work was done.

    What they wait for began before the recording, or was not recorded.
    """
    a, trace = s.activity, s.trace
    rows = difference(a.calls("sync"), trace.launch)
    rows = rows[trace.dur[rows] >= STALL_NS]
    busy = pending(s).covered(trace.start[rows], trace.end[rows])
    found: Int64 = rows[2 * busy < trace.dur[rows]]
    return found


def blocking_launches(s: Signals) -> Int64:
    """Launch calls that return when their kernel is done, where many do: other launches return
    before their kernel begins.

    Else synchronizations, where one stands after every second launch.
    """
    a, trace = s.activity, s.trace
    kernels = a.kernels[trace.launch[a.kernels] >= 0]
    call = trace.launch[kernels].astype(np.int64)
    done = trace.end[kernels] <= trace.end[call]
    if len(kernels) >= LEAST_LAUNCHES and np.mean(done) >= BLOCKING_SHARE:
        return distinct(call[done])
    explicit = difference(a.syncs_of("explicit"), s["unrecorded-wait"])
    after = np.unique(np.searchsorted(a.launches, explicit))  # several behind one launch are one
    many = len(a.launches) >= LEAST_LAUNCHES and 2 * len(after) >= len(a.launches)
    return explicit if many else explicit[:0]


def explicit_waits(s: Signals) -> Int64:
    """Synchronizations that no read-back explains, where not every launch waits."""
    rows = difference(s.activity.syncs_of("explicit"), s["unrecorded-wait"])
    return difference(rows, s["blocking-launch"])


def _of_cause(name: str, label: str, cause: str) -> Signal:
    return Signal(
        name, label, lambda s: difference(s.activity.syncs_of(cause), s["unrecorded-wait"])
    )


SIGNALS: Final = (
    *(_of_cause(*wait) for wait in CAUSES),
    Signal("explicit-wait", "Explicit synchronizations", explicit_waits),
    Signal("blocking-launch", "Launches that wait for their kernel", blocking_launches),
    Signal("unrecorded-wait", "Waits for work that was not recorded", unrecorded_waits),
    Signal(
        "unlinked-work",
        "Device work without a recorded launch",
        lambda s: s.activity.device_work[~is_linked(s, s.activity.device_work)],
    ),
)
