"""A trace, read as far as no model is needed: analyzed time, signals, ledger and candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from detector import candidates, ledger
from detector.activity import Activity
from detector.analysis import analyzable, guards
from detector.analysis.analyzable import WhyNot
from detector.candidates import Candidates
from detector.ledger import Ledger
from detector.signals import Signals, signals_of
from detector.trace import Int64, Trace
from detector.window import AnalyzedTime, analyzed_time


@dataclass(frozen=True, eq=False)
class Analysis:
    """``why_not``: why nothing can be said of the trace, then there are no candidates; ``blind``:
    by pattern, why this trace cannot show it."""

    trace: Trace
    activity: Activity
    analyzed: AnalyzedTime
    signals: Signals
    ledger: Ledger
    why_not: WhyNot | None
    blind: Mapping[str, str]
    candidates: Candidates


def analyze(trace: Trace) -> Analysis:
    """Raises TraceError where its events lie too far apart to be analyzed."""
    activity = Activity(trace)
    analyzed = analyzed_time(trace, activity)
    signals = signals_of(trace, activity)
    times = ledger.build(signals, analyzed.start, analyzed.end)
    why_not = analyzable.why_not(times, analyzed)
    blind = guards.blind(activity, analyzed) | analyzable.blind(signals)
    found = Candidates((), 0, ())
    if why_not is None:
        found = candidates.find(signals, times, _edges(analyzed), blind)
    return Analysis(trace, activity, analyzed, signals, times, why_not, blind, found)


def _edges(analyzed: AnalyzedTime) -> Int64 | None:
    """Where the steps begin, and the end of the last."""
    starts = [step.start for step in analyzed.steps]
    return np.array([*starts, analyzed.end], np.int64) if starts else None
