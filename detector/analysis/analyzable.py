"""Whether a trace can be analyzed at all; if not, why, and what to record instead.

A tool that answers from a trace that cannot answer is worse than none: such a trace gets this
verdict and no finding. What can be analyzed only in part is said by pattern, see ``blind``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.index_sets import groups
from detector.ledger import CODE, Ledger, build
from detector.patterns import PATTERNS
from detector.signals import Signals
from detector.units import per_cent
from detector.window import AnalyzedTime

LEAST_NS: Final = 1_000_000  # of recorded work; below, it is all start and end
DARK_SHARE: Final = 0.5  # of the launches without a device record
LEAST_LAUNCHES: Final = 20
SET_UP_SHARE: Final = 0.5  # of the whole trace spent on first use
UNEXPLAINED_SHARE: Final = 0.5  # of the analyzed time
FIRST_CALL_NS: Final = 1_000_000  # a runtime call takes so long on its first use only
ONE_KERNEL_SHARE: Final = 0.9  # of the device's time spent in one kernel: a micro test
FEW_KERNELS: Final = 4  # kernels by name in a micro test: set-up fills and copies beside it

_SET_UP: Final = ("blocked-launch", "allocation", "device-stall")


@dataclass(frozen=True)
class WhyNot:
    """The reason, and what to record instead, a sentence each."""

    reason: str
    record: str

    def __str__(self) -> str:
        return f"{self.reason}. {self.record}."


def why_not(ledger: Ledger, analyzed: AnalyzedTime) -> WhyNot | None:
    """Why nothing can be said of this trace; None where it can be analyzed."""
    s = ledger.signals
    return (
        _other_program(s)
        or _dark(s)
        or _unexplained(ledger)
        or _set_up_only(s, analyzed)
        or _too_short(ledger)
    )


def blind(signals: Signals) -> dict[str, str]:
    """Patterns that this trace, although it can be analyzed, cannot show: of a micro test all but
    what a kernel shows by itself."""
    if not is_micro_test(signals):
        return {}
    reason = "a micro-benchmark of one kernel: all around it is no program's"
    return {p.id: reason for p in PATTERNS if p.family != "compute" or "host" in p.needs}


def is_micro_test(signals: Signals) -> bool:
    """Whether the device runs one kernel again and again, and hardly any other."""
    a, trace = signals.activity, signals.trace
    (names,), which = groups(trace.name[a.kernels])
    if not len(names) or trace.steps or len(names) > FEW_KERNELS:
        return False
    spent = np.bincount(which, trace.dur[a.kernels])
    return bool(spent.max() >= ONE_KERNEL_SHARE * max(1, spent.sum()))


def _other_program(s: Signals) -> WhyNot | None:
    if s.trace.vendor != "mtia":
        return None
    return WhyNot(
        "Its device records no kernels on streams, but requests of an inference server",
        "Record with the CUDA, ROCm or CPU activities of the PyTorch profiler",
    )


def _dark(s: Signals) -> WhyNot | None:
    """Launches were called for, and the device's records of them are missing."""
    a, trace = s.activity, s.trace
    launches = a.calls("launch")
    if len(launches) < LEAST_LAUNCHES:
        return None
    records = int(trace.is_device_work.sum())  # a graph's launch has many
    if records >= DARK_SHARE * len(launches):
        return None
    missing = f"{len(launches)} launches, but only {records} device records"
    if len(a.calls("capture")):
        return WhyNot(
            f"Graphs are captured, not run: {missing}", "Record the steps that replay the graphs"
        )
    return WhyNot(missing, "Record with ProfilerActivity.CUDA and no other profiler attached")


def _unexplained(ledger: Ledger) -> WhyNot | None:
    wall = max(1, ledger.end - ledger.start)
    if ledger.unexplained < UNEXPLAINED_SHARE * wall:
        return None
    return WhyNot(
        f"For {per_cent(ledger.unexplained / wall)} of the analyzed time no record says what "
        "happens",
        "Record host and device activities together, with_stack=True, from before the first step",
    )


def _set_up_only(s: Signals, analyzed: AnalyzedTime) -> WhyNot | None:
    """No steady state, and most of the trace is the first use of kernels, memory and libraries."""
    trace = s.trace
    if analyzed.how != "whole" or not s.activity.has_device or len(s["allocation"]):
        return None
    first = int(trace.start[s.calls].min(initial=analyzed.start))
    whole = build(s, min(first, analyzed.start), analyzed.end)
    long = whole.pieces.end - whole.pieces.start >= FIRST_CALL_NS
    first_calls = np.isin(whole.pieces.cause, [CODE["call"], CODE["op-stall"]]) & long
    spent = int((whole.pieces.end - whole.pieces.start)[first_calls].sum())
    spent += sum(whole.total().get(cause, 0) for cause in _SET_UP)
    wall = max(1, whole.end - whole.start)
    if spent < SET_UP_SHARE * wall:
        return None
    return WhyNot(
        f"Only a first iteration: {per_cent(spent / wall)} of it loads kernels and sets up the "
        "device",
        "Record steady state: schedule(wait=1, warmup=3, active=3), with prof.step()",
    )


def _too_short(ledger: Ledger) -> WhyNot | None:
    known = ledger.end - ledger.start - ledger.unexplained
    if known >= LEAST_NS:
        return None
    return WhyNot(
        f"It holds {known / 1e6:.2g} ms of work; from 1 ms on a trace can be analyzed",
        "Record several whole steps",
    )
