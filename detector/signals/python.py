"""Signals of the interpreter: time between calls, loops over rows, compiled regions, autograd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import CALLS
from detector.index_sets import difference, distinct, union
from detector.intervals import Intervals
from detector.signals.definition import Signal, Signals
from detector.signals.event_sets import cat_appends, needless_dropout, needless_graph
from detector.signals.frames import LIBRARY, NO_FRAME, OWN, climb
from detector.signals.host import LEAST_STEPS, waits_for_ranks
from detector.trace import Bool, Cat, Int8, Int64

ROUNDS: Final = 10  # this many rounds make a loop
MOST_ACCESSES: Final = 6  # of a round
MOST_OPS: Final = 40  # of a round: a longer one is a layer or a step
MOST_LAYERS: Final = 1  # products by weights, norms and attentions of a round
NEAR: Final = 8  # times the median distance: further apart, and the loop has ended
LEAST_NS: Final = 20_000  # ordinary interpreter time between two ops
FACTOR: Final = 4  # ... or so many times the median
LONGEST_NS: Final = 1_000_000  # a longer event does not get faster by launching in a graph
ARRAY_REACH: Final = 6  # ops in which a tensor is made from an array
# Without frames, gaps of this length count as the program's own Python. Shorter ones are mostly
# torch's and other libraries' (in recordings with frames six times as much time as the program's
# own); the cause of longer ones is unknown.
SILENT_NS: Final = (400_000, 5_000_000)


@dataclass(frozen=True, eq=False)
class Gaps:
    """Stretches of one thread in no op, call or loader, ascending.

    ``after``: the event that ends each; ``owner``: the innermost Python frame or annotation for
    most of it, -1 where none is recorded; ``usual``: the median of all such gaps, ns.
    """

    start: Int64
    end: Int64
    after: Int64
    owner: Int64
    usual: int

    def where(self, chosen: Bool) -> Gaps:
        """The chosen gaps."""
        return Gaps(
            self.start[chosen], self.end[chosen], self.after[chosen], self.owner[chosen], self.usual
        )


def gaps(s: Signals) -> Gaps:
    """The main thread's stretches in no op, call or loader that are longer than ordinary."""
    return s.once(_gaps)


def _gaps(s: Signals) -> Gaps:
    start, end, after = _between(s)
    usual = int(np.median(end - start)) if len(start) else 0
    long = end - start > _longest_ordinary(usual)
    start, end, after = start[long], end[long], after[long]
    return Gaps(start, end, after, _owners(s, start, end), usual)


def ordinary_gap(s: Signals) -> int:
    """What the interpreter takes at most between two ops of this program, ns."""
    return _longest_ordinary(gaps(s).usual)


def _longest_ordinary(usual: int) -> int:
    return max(LEAST_NS, FACTOR * usual)


def _between(s: Signals) -> tuple[Int64, Int64, Int64]:
    """The main thread's stretches in no op, call or loader, and the event that ends each."""
    a, trace = s.activity, s.trace
    other = [a.loader_rows, s["compilation"], a.host("unused_parameters"), s["collection"]]
    rows = union(a.aten, a.of(*CALLS), *other)
    rows = s.on(rows, s.main_thread)
    if len(rows) < 2:
        return rows[:0], rows[:0], rows[:0]
    done = np.maximum.accumulate(trace.end[rows])
    start, end, after = done[:-1], trace.start[rows[1:]], rows[1:]
    keep = end > start
    return start[keep], end[keep], after[keep]


def _owners(s: Signals, start: Int64, end: Int64) -> Int64:
    """The innermost event of the longest piece of each gap."""
    line = s.timeline(s.main_thread)
    lo, hi, of, segment = line.during(start, end)
    length, owner = hi - lo, np.full(len(start), -1, np.int64)
    if len(of):
        first = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
        longest = np.flatnonzero(length == np.maximum.reduceat(length, first)[of])
        owner[of[longest]] = line.row[segment[longest]]  # of equally long ones the last
    return owner


def python_gaps(s: Signals) -> Int64:
    """Events before which the program's own Python ran for long: over four times the median.

    Where stacks are recorded: mostly in frames of the program's own files, and in what they call of
    the standard library. Else 0.4 to 5 ms without any event; on a CPU run before the same event in
    two steps and more. Waits for the backward engine and sleeps are none, nor what torch's own
    annotations (an optimizer's step, a look into the compiler's cache) hold: the ledger calls that
    framework.
    """
    found = gaps(s)
    return distinct(found.after[is_python(s, found)])


def is_python(s: Signals, found: Gaps) -> Bool:
    """Which gaps the program's own Python fills."""
    trace = s.trace
    pauses = np.isin(found.after, s["pause"])
    frames = s.activity.of(Cat.PYTHON_FUNCTION)
    idle = [
        s.activity.named(frames, name, Cat.PYTHON_FUNCTION)
        for name in (vocabulary.WAITS_FOR_BACKWARD, vocabulary.RESTS)
    ]
    waits = np.isin(found.owner, np.concatenate(idle))
    length, (least, most) = found.end - found.start, SILENT_NS
    silent = ~np.bool_(trace.has_stacks) & (length >= least) & (length < most)
    if not s.activity.has_device:
        silent &= _again(s, found, silent)
    other = _busy_elsewhere(s, found) | waits_for_ranks(s, found.start, found.end)
    other |= _array_work(s, found) | _of_torch(s, found.owner)
    result: Bool = (_in_own_frames(s, found) | silent) & ~waits & ~pauses & ~other
    return result


def _again(s: Signals, found: Gaps, chosen: Bool) -> Bool:
    """Which gaps lie in marked steps that are not the only one with a chosen gap before an event of
    this name; all, with fewer than three steps."""
    starts = [step.start for step in s.trace.steps]
    if len(starts) < LEAST_STEPS:
        return np.ones(len(chosen), np.bool_)
    name = s.trace.name[found.after]
    step = np.searchsorted(starts, found.end, side="right")
    pairs = np.unique(np.stack([name[chosen], step[chosen]]), axis=1)
    often = np.bincount(pairs[0], minlength=len(s.trace.names)) > 1
    again: Bool = often[name]
    return again


def _in_own_frames(s: Signals, found: Gaps) -> Bool:
    """Of which gaps more than half passes in frames of the program's own files, or in what these
    call of the standard library."""
    trace, length = s.trace, found.end - found.start
    if not trace.has_stacks:
        return np.zeros(len(length), np.bool_)
    line = s.timeline(s.main_thread)
    frame = climb(trace, line.row, calling_frame(s), LIBRARY)
    own = np.flatnonzero((frame >= 0) & (s.frame_owner[trace.name[frame]] == OWN))
    spent = Intervals.union(line.edge[own], line.edge[own + 1]).covered(found.start, found.end)
    result: Bool = 2 * spent > length
    return result


def calling_frame(s: Signals) -> Int8:
    """``frame_owner`` without the frames of the standard library: their time is the caller's."""
    owner = s.frame_owner.copy()
    for i in np.flatnonzero(owner == LIBRARY).tolist():
        if vocabulary.STANDARD_FRAME.search(s.trace.names[i]):
            owner[i] = NO_FRAME
    return owner


def _of_torch(s: Signals, owner: Int64) -> Bool:
    """Which of these events are annotations that torch itself makes; neither steps nor the forward
    pass of a wrapper, in which the program's own model runs."""
    notes = distinct(owner[owner >= 0])
    notes = notes[np.isin(s.trace.cat[notes], (Cat.USER_ANNOTATION, Cat.CPU_OP))]
    torch = s.activity.named(notes, vocabulary.TORCH_ANNOTATION)
    around_program = (vocabulary.STEP_MARKER, vocabulary.WRAPS_MODEL)
    program = [s.activity.named(torch, pattern) for pattern in around_program]
    return np.isin(owner, difference(torch, union(*program)))


def array_gaps(s: Signals) -> Int64:
    """Events before which the program worked for long on an array that it took from a tensor
    (``Tensor.numpy()``), and that a new tensor is made from soon after."""
    found = gaps(s)
    return distinct(found.after[_array_work(s, found)])


def _array_work(s: Signals, found: Gaps) -> Bool:
    """Which gaps lie between taking an array from a tensor and making the next tensor."""
    a, trace = s.activity, s.trace
    ops = s.on(a.aten, s.main_thread)
    out = a.named(ops, vocabulary.ARRAY_OUT, Cat.CPU_OP)
    back = np.flatnonzero(np.isin(ops, a.named(ops, vocabulary.ARRAY_IN, Cat.CPU_OP)))
    if not len(out) or not len(back):
        return np.zeros(len(found.start), np.bool_)
    place = np.searchsorted(ops, found.after)
    following = back[np.minimum(np.searchsorted(back, place), len(back) - 1)]
    near = (following >= place) & (following - place < ARRAY_REACH)
    result: Bool = np.isin(found.start, trace.end[out]) & near
    return result


def gap_before(s: Signals, rows: Int64) -> tuple[Int64, Int64]:
    """Begin and end of the stretch before each of these events, ns.

    Collections and preprocessing that were seen, and an event right after another, have their own
    time.
    """
    found = gaps(s)
    start, end = s.trace.start[rows].copy(), s.trace.end[rows].copy()
    if len(found.after):
        place = np.minimum(np.searchsorted(found.after, rows), len(found.after) - 1)
        seen = union(s["collection"], s["preprocessing"])
        known = (found.after[place] == rows) & ~np.isin(rows, seen)
        start[known], end[known] = found.start[place[known]], found.end[place[known]]
    return start, end


def _busy_elsewhere(s: Signals, found: Gaps) -> Bool:
    """During which gaps another thread runs ops most of the time: the main thread waits for it."""
    a, trace = s.activity, s.trace
    rows = a.aten[trace.track[a.aten] != s.main_thread]
    busy = a.spans(rows).covered(found.start, found.end)
    result: Bool = 2 * busy > found.end - found.start
    return result


def loops(s: Signals) -> Int64:
    """Row accesses that a Python loop makes: ten rounds and more of the same few ops."""
    first, _, last = loop_rounds(s)
    selects = _accesses(s)
    kept = [selects[(selects >= a) & (selects <= b)] for a, b in zip(first, last, strict=True)]
    return np.concatenate(kept) if kept else selects[:0]


def _accesses(s: Signals) -> Int64:
    """Row accesses of the program itself, not the loader's over the samples of a batch."""
    a = s.activity
    selects = np.intersect1d(a.top_ops, a.ops("select"), assume_unique=True)
    return difference(s.on(selects, s.main_thread), s.inside(a.loader_rows))


def loop_rounds(s: Signals) -> tuple[list[int], list[int], list[int]]:
    """First row access of each loop, first access of its second round, and the last access.

    A round begins with an access and has up to six: ``x[i, j]`` is two in a row, and a body may use
    several rows. Rounds have the same ops, by name, between their accesses. The layers of a network
    look like that, too: a round with several of them is not the work of one row.
    """
    selects = _accesses(s)
    ops = s.on(s.activity.top_ops, s.main_thread)
    # The view that an access makes lies beside it where the clock is coarse.
    ops = difference(ops, s.activity.named(ops, vocabulary.VIEW, Cat.CPU_OP))
    place = np.searchsorted(ops, selects)
    begins = np.append(True, np.diff(place) > 1)[: len(selects)]
    selects, place = selects[begins], place[begins]
    taken = np.zeros(len(selects), np.bool_)
    found: list[tuple[int, int, int]] = []
    for size in range(1, MOST_ACCESSES + 1):
        for first, last in _runs(s, ops, selects, place, size):
            if not taken[first : last + 1].any():
                taken[first : last + 1] = True
                found.append((int(selects[first]), int(selects[first + size]), int(selects[last])))
    found.sort()
    return [x[0] for x in found], [x[1] for x in found], [x[2] for x in found]


def _runs(s: Signals, ops: Int64, selects: Int64, place: Int64, size: int) -> list[tuple[int, int]]:
    """First and last of the accesses, by number, of each run of rounds of ``size`` accesses."""
    if len(selects) < ROUNDS * size:
        return []
    between = np.diff(place)
    gap = np.diff(s.trace.start[selects])
    near = gap <= NEAR * max(1, int(np.median(gap)))
    same = np.zeros(len(between), np.bool_)  # for each way to the next access: as a round before
    same[size:] = (between[size:] == between[:-size]) & _alike(s, ops, place, between, size)
    run = np.cumsum(~(same & near))  # a run begins where a way differs from the one a round before
    found = []
    for number in np.flatnonzero(np.bincount(run) >= (ROUNDS - 1) * size).tolist():
        ways = np.flatnonzero(run == number)
        first = max(0, int(ways[0]) - size + 1)
        one = ops[place[first] : place[first + size]]
        layers = len(s.activity.named(one, vocabulary.LAYER, Cat.CPU_OP))
        if len(one) <= MOST_OPS and layers <= MOST_LAYERS:
            found.append((first, int(ways[-1]) + 1))
    return found


def _alike(s: Signals, ops: Int64, place: Int64, between: Int64, size: int) -> Bool:
    """For each way to the next access, from the second round on, whether its access and the op
    after it have the names of the round before."""
    name = s.trace.name[ops]
    second = name[np.minimum(place[:-1] + 1, len(ops) - 1)]
    access = name[place[:-1]]
    found: Bool = (second[size:] == second[:-size]) & (access[size:] == access[:-size])
    return found | (between[size:] <= 1)


def compiled_regions(s: Signals) -> Int64:
    """Numbered calls of compiled code in the forward pass, on the thread that has most of them."""
    a = s.activity
    notes = a.of(Cat.USER_ANNOTATION, Cat.CPU_OP, Cat.PYTHON_FUNCTION)
    rows = a.named(notes, vocabulary.COMPILED_FRAME)
    if not len(rows):
        return rows
    track = s.trace.track[rows]
    return s.on(rows, int(np.bincount(track).argmax()))


def graph_breaks(s: Signals) -> Int64:
    """Compiled regions that go on where the one before broke off.

    Frames are numbered as they are first met, so what follows a break has a higher number; the
    same or a lower one is a new call. No pass goes on after backward, an update or a new batch.
    Old versions number none: there a second region may be another model as well as a break.
    """
    a, trace, rows = s.activity, s.trace, s["compiled-region"]
    if len(rows) < 2:
        return rows[:0]
    number = np.array([_frame(trace.names[i]) for i in trace.name[rows]], np.int64)
    step = np.searchsorted([x.start for x in trace.steps], trace.start[rows], side="right")
    borders = [a.host("backward"), a.host("optimizer_step"), a.loader_rows]
    border = np.searchsorted(np.sort(trace.start[np.concatenate(borders)]), trace.start[rows])
    goes_on = (np.diff(number) > 0) & (np.diff(step) == 0) & (np.diff(border) == 0)
    found: Int64 = rows[1:][goes_on]
    return found


def _frame(name: str) -> int:
    found = vocabulary.COMPILED_FRAME.search(name)
    return int(found[1]) if found else -1


def launching(s: Signals) -> Int64:
    """What the host does to launch: ops, calls and frames of the threads that launch.

    Not events that wait, allocate, load, compile or compute on the host, nor anything inside them;
    nor events with a millisecond or more of their own time, which has another cause.
    """
    a, trace = s.activity, s.trace
    tracks = distinct(trace.track[a.launches])
    rows = s.host_program[np.isin(trace.track[s.host_program], tracks)]
    other = [s["loader"], s["compilation"], s["preprocessing"], s["collection"], s["op-stall"]]
    calls = [a.calls("sync"), a.calls("alloc"), calls_of(s, a.pageable_h2d)]
    out = union(s.inside(union(*other)), *calls)
    rows = np.setdiff1d(rows, out, assume_unique=True)
    found: Int64 = rows[s.own_time[rows] < LONGEST_NS]
    return found


def calls_of(s: Signals, work: Int64) -> Int64:
    """The calls that launched this work, each once."""
    calls = s.trace.launch[work]
    return distinct(calls[calls >= 0])


SIGNALS: Final = (
    Signal("launching", "Host work between launches", launching),
    Signal(
        "gc-pause",
        "Collections and isolated pauses",
        lambda s: union(s["collection"], difference(s["pause"], s["array-gap"])),
        is_gap=True,
    ),
    Signal(
        "needless-autograd",
        "Autograd without backward",
        lambda s: union(s["needless-graph"], s["needless-dropout"]),
    ),
    Signal("array-gap", "Array work between a tensor and the next", array_gaps, is_gap=True),
    Signal(
        "preparation",
        "Preprocessing, seen or between array and tensor",
        lambda s: union(s["preprocessing"], s["array-gap"]),
    ),
    Signal("python-gap", "CPU time in plain Python", python_gaps, is_gap=True),
    Signal("row-loop", "Row accesses in a loop", loops),
    Signal("compiled-region", "Calls of compiled code", compiled_regions),
    Signal("graph-break", "Compiled regions after a break", graph_breaks),
    Signal(
        "needless-graph",
        "Ops that record a graph without backward",
        lambda s: needless_graph(s.activity),
    ),
    Signal("needless-dropout", "Dropout without backward", lambda s: needless_dropout(s.activity)),
    Signal(
        "cat-append",
        "torch.cat appending to a growing tensor",
        lambda s: cat_appends(s.activity),
    ),
)
