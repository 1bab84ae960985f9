"""What a trace can show, said before any verdict: guards, in plain words.

A detector that answers from a trace that cannot answer is worse than none. Each pattern whose
needs are not met is *not checked*; each doubt about the trace as a whole is a warning.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from detector.activity import Activity
from detector.patterns import PATTERNS
from detector.signals.event_sets import multiprocessors
from detector.taxonomy import Need
from detector.trace import Cat
from detector.units import per_cent
from detector.window import AnalyzedTime

LEAST_LINKED: Final = 0.5  # below this share of launches, launch patterns cannot be checked
OVERHEAD_SHARE: Final = 0.05  # the profiler's own time that is worth a warning
UNLINKED_SHARE: Final = 0.02  # of the device's events that is worth one
STALLED_SHARE: Final = 0.05  # unexplained idle that is worth one
# What to record so that a need is met; "steps" is never missing: the whole trace is taken instead.
SETTINGS: Final[dict[Need, str]] = {
    "device": "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
    "host": "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
    "links": "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], started before the steps",
    "shapes": "record_shapes=True",
    "grids": "with PyTorch 1.9 or later, and keep deviceProperties and the kernels' arguments",
    "comm": "a run of several processes that communicate",
}
DENSE_PYTHON: Final = 20  # python_function events per op: recording them slows the host


def blind(activity: Activity, analyzed: AnalyzedTime) -> dict[str, str]:
    """Pattern id -> why this trace cannot show it."""
    unmet, with_device = _unmet(activity, analyzed), activity.has_device
    return {
        pattern.id: unmet[need]
        for pattern in PATTERNS
        for need in [next((n for n in pattern.needed(has_device=with_device) if n in unmet), None)]
        if need is not None
    }


def settings(activity: Activity, analyzed: AnalyzedTime) -> dict[str, str]:
    """Why a pattern cannot be shown, as ``blind`` says it -> what to record so that it can."""
    return {why: SETTINGS[need] for need, why in _unmet(activity, analyzed).items()}


def _unmet(activity: Activity, analyzed: AnalyzedTime) -> dict[Need, str]:
    trace = activity.trace
    unmet: dict[Need, str] = {}
    if not activity.has_device:
        unmet["device"] = "the trace has no device records"
    elif not _device_works(activity, analyzed):
        unmet["device"] = "no device work falls into the analyzed time"
    if not len(activity.of(Cat.CPU_OP)):
        unmet["host"] = "no ops were recorded"
    if activity.has_device and trace.coverage.kernels_with_launch < LEAST_LINKED:
        share = trace.coverage.kernels_with_launch
        unmet["links"] = f"only {per_cent(share)} of the device events link to a launch"
    if not trace.has_shapes:
        unmet["shapes"] = "recorded without shapes (record_shapes=True)"
    if len(activity.kernels) and not multiprocessors(activity):
        unmet["grids"] = "the trace does not say how many multiprocessors the device has"
    elif len(activity.kernels) and not (trace.blocks[activity.kernels] > 0).any():
        unmet["grids"] = "recorded without the grids of kernels"
    if not len(activity.comm_rows) and not len(activity.host("collective_op")):
        unmet["comm"] = "the trace has no collectives"
    return unmet


def _device_works(activity: Activity, analyzed: AnalyzedTime) -> bool:
    return activity.busy.clip(analyzed.start, analyzed.end).measure > 0


def warnings(
    activity: Activity, analyzed: AnalyzedTime, *, analyzable: bool = True
) -> tuple[str, ...]:
    """Doubts about the whole trace, in plain words; how it was analyzed only where it could be."""
    trace = activity.trace
    found = list(analyzed.warnings) if analyzable else []
    unsaid = analyzable and not any("device activity" in line for line in found)
    if not activity.has_device and unsaid:
        found.append("device activity unavailable: analyzed as a CPU run")
    elif activity.has_device and not _device_works(activity, analyzed):
        found.append("no device work falls into the analyzed time: device activity unavailable")
    if not len(activity.of(Cat.CPU_OP)):
        found.append("no ops were recorded: host activity unavailable")
    coverage = trace.coverage
    if "cut off event" in coverage.dropped:
        found.append("truncated file: it ends within an event, and what came after is missing")
    elif "truncated gz" in coverage.repaired:
        found.append("truncated file: the gz ends early, and what came after is missing")
    elif coverage.read_fraction < 1:
        read = math.floor(1000 * coverage.read_fraction) / 10  # never 100 %
        found.append(f"damaged file: {read:.1f} % of what it holds could be read")
    unlinked = 1 - coverage.kernels_with_launch
    if activity.has_device and unlinked >= UNLINKED_SHARE:
        found.append(
            f"{per_cent(unlinked)} of the GPU's events have no launch in the trace; their time "
            "counts as GPU time"
        )
    if len(activity.launches) == 0 and len(activity.calls("launch")) and not activity.has_device:
        found.append("launches without device records: kernels ran, but were not recorded")
    span = max(1, analyzed.end - analyzed.start)
    stalled = activity.stalled.clip(analyzed.start, analyzed.end).measure / span
    if stalled >= STALLED_SHARE:
        found.append(
            f"for {per_cent(stalled)} of the analyzed time the GPU is idle although work was "
            "launched: kernels load, or unrecorded work runs; no finding accounts for it"
        )
    found.extend(_profiler_cost(activity, analyzed))
    return tuple(dict.fromkeys(found))


def _profiler_cost(activity: Activity, analyzed: AnalyzedTime) -> list[str]:
    span = max(1, analyzed.end - analyzed.start)
    own = (
        activity.spans(activity.of(Cat.OVERHEAD)).clip(analyzed.start, analyzed.end).measure / span
    )
    found = []
    if own >= OVERHEAD_SHARE:
        found.append(f"profiler overhead is {per_cent(own)} of the analyzed time")
    frames, ops = len(activity.of(Cat.PYTHON_FUNCTION)), len(activity.of(Cat.CPU_OP))
    if ops and frames > DENSE_PYTHON * ops:
        found.append("Python stacks were recorded: Python takes longer here than without")
    devices = np.unique(activity.trace.device[activity.trace.is_device_work])
    if len(devices) > 1:
        found.append(
            f"{len(devices)} devices in one trace: analyzed for device {activity.main_device}, "
            "the busiest"
        )
    return found
