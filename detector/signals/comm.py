"""Signals of collectives: small ones, repeated ones, exposed ones, and those that wait."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from detector import vocabulary
from detector.index_sets import groups
from detector.signals.definition import Signal, Signals
from detector.signals.waits import called
from detector.trace import Bool, Int64

SMALL_BYTES: Final = 1 << 20
WIDEST: Final = 4  # bytes of an element, where the type is not known
SHORT_NS: Final = 1_000_000  # on a CPU backend, whose spans carry no sizes
MANY: Final = 16  # small collectives within a step, or in a trace without steps
ALIKE: Final = 3


def extra_rounds(s: Signals) -> Int64:
    """Reductions called for again before the optimizer's step: in the same size, or, where sizes
    are not recorded (a CPU backend's spans carry none), after an earlier pass of the model."""
    a, trace = s.activity, s.trace
    rows = _reductions(s)
    updates = np.sort(trace.start[a.host("optimizer_step")])
    if not len(rows) or not len(updates):
        return rows[:0]
    at = called(s, rows) if a.has_device else trace.start[rows]
    step = np.searchsorted(updates, at)
    sized = np.flatnonzero(trace.msg_elems[rows] >= 0)
    if not len(sized):
        return rows[_before_the_last_pass(s, at, step)]
    key = np.stack([step, trace.msg_elems[rows], trace.collective[rows].astype(np.int64)])
    # Buckets of one backward may be equal: a second round repeats the whole sequence.
    return rows[sized[_second_rounds(key[:, sized])]]


def _before_the_last_pass(s: Signals, at: Int64, step: Int64) -> Bool:
    """Which reductions, called for at ``at``, come after one pass of a model under DDP, and before
    another that reduces in the same step."""
    passes = s.activity.named(s.host_events, vocabulary.DDP_PASS)
    number = np.searchsorted(s.trace.start[passes], at)
    last = np.zeros(int(step.max()) + 1, np.int64)
    np.maximum.at(last, step, number)
    return (number > 0) & (number < last[step])


def _second_rounds(key: Int64) -> Int64:
    """Of reductions by (step, size, name), in time order: all but the last of each size.

    Only in steps that reduce each of several sizes equally often: that is the number of rounds.
    Where all sizes are equal, rounds cannot be distinguished from buckets.
    """
    found = [np.empty(0, np.int64)]
    for step in np.unique(key[0]).tolist():
        mine = np.flatnonzero(key[0] == step)
        which = groups(*key[1:, mine])[1]
        count = np.bincount(which)
        if len(count) > 1 and count.min() == count.max() > 1:
            last = np.zeros(len(count), np.int64)
            last[which] = np.arange(len(mine))
            found.append(np.setdiff1d(mine, mine[last]))
    return np.sort(np.concatenate(found))


def _reductions(s: Signals) -> Int64:
    trace, rows = s.trace, s.activity.comm_rows
    name = np.where(trace.collective[rows] >= 0, trace.collective[rows], trace.name[rows])
    reduces = [i for i in np.unique(name).tolist() if vocabulary.REDUCES.search(trace.names[i])]
    found: Int64 = rows[np.isin(name, reduces)]
    return found


def small_collectives(s: Signals) -> Int64:
    """Collectives under 1 MB, where a step has sixteen of them and more."""
    a, trace, rows = s.activity, s.trace, s.activity.comm_rows
    small = (trace.msg_elems[rows] >= 0) & (trace.msg_elems[rows] * WIDEST < SMALL_BYTES)
    if not a.has_device:
        small = trace.dur[rows] < SHORT_NS
    elif len(rows) and trace.msg_elems[rows].max() < 0:
        # No sizes: by how long they take when none waits.
        fastest, known = s.once(_fastest_alike)
        small = np.where(known, fastest, trace.dur[rows]) < SHORT_NS // 10
    rows = np.setdiff1d(rows[small], s["extra-round"], assume_unique=True)
    return rows if len(rows) >= MANY * max(1, len(_steps(s))) else rows[:0]


def _steps(s: Signals) -> Int64:
    """Where steps begin, ns: the marked ones, else after each update of the parameters."""
    marked = np.array([step.start for step in s.trace.steps], np.int64)
    return marked if len(marked) else np.sort(s.trace.end[s.activity.host("optimizer_step")])


def exposed(s: Signals) -> Int64:
    """Other collectives that compute does not hide all the time, mostly transfer."""
    found: Int64 = np.setdiff1d(_uncovered(s), s["straggler"], assume_unique=True)
    return found


def late_ranks(s: Signals) -> Int64:
    """Collectives that are mostly waiting: one begins when the last rank has arrived."""
    if not s.activity.has_device:
        return s.activity.comm_rows[:0]
    rows = _uncovered(s)
    found: Int64 = rows[2 * transfer_ns(s, rows) < s.trace.dur[rows]]
    return found


def _uncovered(s: Signals) -> Int64:
    """Collectives of no other signal that compute does not hide all the time."""
    a, trace = s.activity, s.trace
    taken = np.union1d(s["extra-round"], s["small-collective"])
    rows = np.setdiff1d(a.comm_rows, taken, assume_unique=True)
    shown = a.exposed_comm.covered(trace.start[rows], trace.end[rows])
    found: Int64 = rows[shown > 0]
    return found


def transfer_ns(s: Signals, rows: Int64) -> Int64:
    """An estimate of these collectives' transfer, ns: the rest is waiting for other ranks."""
    found: Int64 = s.once(_transfer)[np.searchsorted(s.activity.comm_rows, rows)]
    return found


def _transfer(s: Signals) -> Int64:
    """Of all collectives, among each other.

    The duration of the fastest alike. Where fewer than three are alike: what its size takes at the
    best rate of its kind, but no less than the fastest of its kind; where neither size nor place is
    known, the fastest of its kind. Its own duration where there are fewer than three of its kind:
    then waiting cannot be distinguished from transfer.
    """
    trace, rows = s.trace, s.activity.comm_rows
    if not len(rows):
        return rows
    dur, size, kind = trace.dur[rows], trace.msg_elems[rows], _kind(s)
    of_kind, kinds = _fastest(kind, dur)
    known = size > 0
    rate = np.where(known, dur / np.maximum(size, 1), np.inf)
    best_rate = _fastest(kind, rate)[0]
    by_size = np.where(known, np.where(known, size, 0) * np.where(known, best_rate, 0.0), 0.0)
    by_kind = np.minimum(dur, np.maximum(of_kind, by_size.astype(np.int64)))
    fastest, alike = s.once(_fastest_alike)
    estimate = np.where(alike, fastest, by_kind)
    return np.where(kinds >= ALIKE, estimate, dur).astype(np.int64)


def _fastest_alike(s: Signals) -> tuple[Int64, Bool]:
    """For each collective the duration of the fastest of its kind and size, and whether three or
    more are alike.

    Without sizes, of its kind and place in the step: each step sends the same in the same order.
    """
    rows, kind = s.activity.comm_rows, _kind(s)
    size = s.trace.msg_elems[rows].astype(np.int64)
    place = np.where(size < 0, _place_in_step(s, rows, kind), -1)
    fastest, count = _fastest(np.concatenate([kind, [size, place]]), s.trace.dur[rows])
    return fastest, (count >= ALIKE) & ((size >= 0) | (place >= 0))


def _kind(s: Signals) -> Int64:
    t, rows = s.trace, s.activity.comm_rows
    return np.stack([t.name[rows], t.collective[rows], t.group[rows]]).astype(np.int64)


def _place_in_step(s: Signals, rows: Int64, kind: Int64) -> Int64:
    """The index of each among its kind in its step; -1 outside of steps, and in steps with an
    unusual number of the kind."""
    place = np.full(len(rows), -1, np.int64)
    step = np.searchsorted(_steps(s), called(s, rows), side="right") - 1
    which = groups(*kind)[1]
    for number in np.unique(which).tolist():
        mine = np.flatnonzero((which == number) & (step >= 0))
        mine = mine[np.argsort(step[mine], kind="stable")]
        _, first, count = np.unique(step[mine], return_index=True, return_counts=True)
        usual = int(np.median(count)) if len(count) else 0
        for begin, many in zip(first.tolist(), count.tolist(), strict=True):
            if many == usual:
                place[mine[begin : begin + many]] = np.arange(many)
    return place


def _fastest(key: Int64, value: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Int64]:
    """For each value the least of those with the same key (a column), and how many these are."""
    which = groups(*key)[1]
    count = np.bincount(which)
    least = np.full(len(count), value.max(), value.dtype)
    np.minimum.at(least, which, value)
    return least[which], count[which]


SIGNALS: Final = (
    Signal("extra-round", "Reductions of micro-steps", extra_rounds),
    Signal("small-collective", "Collectives under 1 MB", small_collectives),
    Signal("exposed-collective", "Collectives beside no compute", exposed),
    Signal("straggler", "Collectives that wait for a late rank", late_ranks),
    Signal(
        "unused-parameters",
        "Searches for unused parameters",
        lambda s: s.activity.host("unused_parameters"),
    ),
)
