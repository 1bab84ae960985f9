"""Traces written by hand, read as far as no model is needed."""

from __future__ import annotations

from detector import candidates, ledger
from detector.activity import Activity
from detector.analysis import Analysis, analyzable, guards
from detector.signals import signals_of
from detector.trace import Trace
from detector.window import AnalyzedTime, analyzed_time


def analysis_of(trace: Trace, analyzed: AnalyzedTime | None = None) -> Analysis:
    """As ``analysis.analyze``, of an analyzed time that may be given; candidates are found however
    short it is."""
    activity, analyzed = Activity(trace), analyzed or analyzed_time(trace)
    signals = signals_of(trace, activity)
    times = ledger.build(signals, analyzed.start, analyzed.end)
    blind = guards.blind(activity, analyzed) | analyzable.blind(signals)
    found = candidates.find(signals, times, None, blind)
    return Analysis(trace, activity, analyzed, signals, times, None, blind, found)
