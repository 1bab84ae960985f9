"""Sets of events that mean something, each defined once.

``signals_of(trace)["scalar-readback-wait"]`` gives the rows of a signal, in time order, found on
first use. Patterns count them, the ledger charges time to them, and the evidence cites them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from detector.activity import Activity
from detector.signals import comm, copies, device, host, python, waits
from detector.signals.definition import Signal, Signals
from detector.signals.frames import Place
from detector.trace import Trace

SIGNALS: Final[dict[str, Signal]] = {
    signal.name: signal
    for family in (host, python, waits, copies, device, comm)
    for signal in family.SIGNALS
}

__all__ = ["SIGNALS", "Place", "Signal", "Signals", "signals_of"]


def signals_of(trace: Trace, activity: Activity | None = None) -> Signals:
    """The signals of a trace; ``activity`` where it has been read already, and then the same
    object for every caller, for the last trace."""
    return Signals(Activity(trace), SIGNALS) if activity is None else _last(activity)


@lru_cache(maxsize=1)
def _last(activity: Activity) -> Signals:
    return Signals(activity, SIGNALS)
