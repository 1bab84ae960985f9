"""Signals of copies: each copy to the device belongs to one signal, the most specific."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector import vocabulary
from detector.index_sets import difference
from detector.signals.definition import Signal, Signals
from detector.signals.event_sets import are_handles
from detector.trace import Int64

SMALL_BYTES: Final = 64 * 1024
SCALAR_BYTES: Final = 16  # one value, of the widest type there is
REACH_NS: Final = 1_000_000  # a tensor that is moved at once was made for it
FILL_BYTES_A_NS: Final = 200  # as the fastest hosts write memory
SHORT_OP_NS: Final = 20_000  # an op that computes nothing is shorter
FALLBACK_SHARE: Final = 0.2  # of a trip to the host and back, spent computing there


def factory_copies(s: Signals) -> Int64:
    """Copies of a tensor that a factory op made on the host right before, on the same thread."""
    copies, factory = made_for(s)
    return np.sort(copies[factory >= 0])


def made_for(s: Signals) -> tuple[Int64, Int64]:
    """Copies to the device, and for each the factory op that made its tensor; -1 for none."""
    a, trace = s.activity, s.trace
    copies = a.copies_of("h2d")
    copies = copies[trace.op[copies] >= 0]
    factory = np.full(len(copies), -1, np.int64)
    made = a.ops("factory")
    made = made[s.count_during(made, a.launches) == 0]
    made = made[~are_handles(s.activity, made)]
    made = made[np.argsort(trace.end[made], kind="stable")]  # they may nest
    if not len(made) or not len(copies):
        return copies, factory
    at = trace.start[s.enclosing(trace.op[copies].astype(np.int64), vocabulary.MOVES)]
    i = np.searchsorted(trace.end[made], at, side="right") - 1
    last = made[np.maximum(i, 0)]
    near = (i >= 0) & (at - trace.end[last] < REACH_NS)
    near &= trace.track[last] == trace.track[trace.op[copies]]
    # A larger tensor was made by something else, earlier.
    near &= trace.bytes[copies] <= FILL_BYTES_A_NS * trace.dur[last]
    # One tensor is moved once: of several copies after a factory the first.
    first = np.append(True, last[1:] != last[:-1])
    factory[near & first] = last[near & first]
    return copies, factory


def tiny_copies(s: Signals) -> Int64:
    """Copies to the device of less than 64 KB, whose tensor was not made for it."""
    rows = s.activity.copies_of("h2d")
    size = s.trace.bytes[rows]
    small = rows[(size >= 0) & (size < SMALL_BYTES)]
    return np.setdiff1d(small, s["factory-copy"], assume_unique=True)


def pageable_copies(s: Signals) -> Int64:
    """Other copies to the device from pageable memory."""
    other = np.union1d(s["factory-copy"], s["tiny-copy"])
    return np.setdiff1d(s.activity.pageable_h2d, other, assume_unique=True)


def inline_copies(s: Signals) -> Int64:
    """Other copies to the device, from pinned memory, with no kernel beside them."""
    rows = s.activity.copies_of("h2d")
    taken = [s["factory-copy"], s["tiny-copy"], s["pageable-copy"]]
    rows = np.setdiff1d(rows, np.concatenate(taken), assume_unique=True)
    alone = s.activity.kernel_busy.covered(s.trace.start[rows], s.trace.end[rows])
    return rows[alone < s.trace.dur[rows]]


def tensor_readbacks(s: Signals) -> Int64:
    """Copies to the host of more than one value."""
    rows = s.activity.copies_of("d2h")
    size = s.trace.bytes[rows]
    return rows[(size < 0) | (size > SCALAR_BYTES)]


def fallbacks(s: Signals) -> Int64:
    """Ops that compute on the host between a copy to it and the copy back, for much of the trip."""
    out, back = s.activity.copies_of("d2h"), s.activity.copies_of("h2d")
    trace, ops = s.trace, s["host-only-op"]
    if not len(out) or not len(back):
        return ops[:0]
    left = np.searchsorted(trace.end[out], trace.start[ops], side="right") - 1
    right = np.searchsorted(trace.start[back], trace.end[ops])
    both = (left >= 0) & (right < len(back))
    trip = trace.end[back[np.minimum(right, len(back) - 1)]] - trace.start[out[np.maximum(left, 0)]]
    long: Int64 = ops[both & (trace.dur[ops] > FALLBACK_SHARE * trip)]
    return np.union1d(long, _between_copies(s, out, back))


def _between_copies(s: Signals, out: Int64, back: Int64) -> Int64:
    """Ops that compute on the host, right after an op that copies to it and right before one that
    copies back: however short, nothing else is done there."""
    a, trace, tops = s.activity, s.trace, s.on(s.activity.top_ops, s.main_thread)
    if len(tops) < 3:
        return tops[:0]
    fetches, returns = (
        np.isin(tops, s.enclosing(trace.op[copies].astype(np.int64), vocabulary.MOVES))
        for copies in (out, back)
    )
    silent = s.count_during(tops, a.launches) == 0
    found = silent[1:-1] & fetches[:-2] & returns[2:] & (trace.dur[tops[1:-1]] >= SHORT_OP_NS)
    mid = tops[1:-1][found]
    return difference(mid, a.named(mid, vocabulary.HOST["factory"]))


SIGNALS: Final = (
    Signal("factory-copy", "Copies of tensors made on the host", factory_copies),
    Signal("tiny-copy", "Copies under 64 KB", tiny_copies),
    Signal("pageable-copy", "Copies from pageable memory", pageable_copies),
    Signal("inline-copy", "Pinned copies beside no kernel", inline_copies),
    Signal("tensor-readback", "Copies of tensors to the host", tensor_readbacks),
    Signal("fallback-op", "Ops that fall back to the CPU", fallbacks),
)
