"""How fast the machine was in one recording of a program, beside another recording of it.

Two recordings of one healthy program differ by a tenth and more, because clocks, caches and other
programs do. A fault is priced by the difference of two recordings, so that noise would be its cost.
But most ops of the faulty program are those of its healthy twin: what all of them take more is
the machine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from detector import kineto
from detector.activity import Activity
from detector.signals import signals_of
from detector.trace import Cat
from detector.window import analyzed_time

OwnTimes = Mapping[str, tuple[int, float]]


@lru_cache(maxsize=8)
def own_times(file: str) -> OwnTimes:
    """By the name of an op that each step of a trace has as often: how often, and the median of its
    own time in a step, ns. Empty without steps. Raises TraceError."""
    trace = kineto.read(file)
    signals = signals_of(trace, Activity(trace))
    ops = trace.rows(Cat.CPU_OP)
    start = [step.start for step in analyzed_time(trace).steps]
    if not start:
        return {}
    step = np.searchsorted(start, trace.start[ops], side="right") - 1
    shape = len(start), len(trace.names)
    count, own = np.zeros(shape, np.int64), np.zeros(shape)
    inside = step >= 0
    np.add.at(count, (step[inside], trace.name[ops[inside]]), 1)
    np.add.at(own, (step[inside], trace.name[ops[inside]]), signals.own_time[ops[inside]])
    even = np.flatnonzero((count > 0).all(axis=0) & (count == count[:1]).all(axis=0))
    median = np.median(own, axis=0)
    return {trace.names[i]: (int(count[0, i]), float(median[i])) for i in even if median[i] > 0}


def pace(one: OwnTimes, other: OwnTimes) -> float:
    """How many times as long the ops of one recording take as the same ops of another: the median
    ratio, weighted by the root of their time, so that neither a few long ops nor many tiny ones
    decide alone. 1 where they share no op."""
    shared = [name for name in one if name in other and one[name][0] == other[name][0]]
    if not shared:
        return 1.0
    ratio = np.array([one[name][1] / other[name][1] for name in shared])
    weight = np.sqrt([other[name][1] for name in shared])
    order = np.argsort(ratio, kind="stable")
    reached = np.cumsum(weight[order])
    return float(ratio[order][np.searchsorted(reached, reached[-1] / 2)])
