"""Traces written by hand, read as far as no model is needed."""

from __future__ import annotations

from detector import analyzable, candidates, guards, ledger
from detector.activity import Activity
from detector.analysis import Analysis
from detector.signals import signals_of
from detector.trace import Trace
from detector.window import Judged, judge_time


def analysis_of(trace: Trace, judged: Judged | None = None) -> Analysis:
    """As ``analysis.analyze``, of an analyzed time that may be given; candidates are found however
    short it is."""
    activity, judged = Activity(trace), judged or judge_time(trace)
    signals = signals_of(trace, activity)
    times = ledger.build(signals, judged.start, judged.end)
    blind = guards.blind(activity, judged) | analyzable.blind(signals)
    found = candidates.find(signals, times, None, blind)
    return Analysis(trace, activity, judged, signals, times, None, blind, found)
