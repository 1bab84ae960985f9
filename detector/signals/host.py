"""Signals of the host's own work: loader, compilation, collections, preprocessing, stalls."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from detector import vocabulary
from detector.index_sets import intersection
from detector.signals.definition import Signal, Signals
from detector.signals.timeline import FOREVER
from detector.trace import Bool, Cat, Int64

LONG_OP_NS: Final = 200_000  # ops that only dispatch are shorter
COMPILE_NS: Final = 1_000_000  # a compilation takes longer than a look into the cache
STALL_NS: Final = 300_000  # a stopped op has this much own time ...
STALL_FACTOR: Final = 20  # ... and this many times the median of ops of its name
PAUSE_NS: Final = 1_000_000  # ordinary interpreter time between two calls is shorter
PAUSE_APART: Final = 40  # launches; pauses that are nearer belong to the program's own rhythm
LEAST_STEPS: Final = 3  # this many stretches between steps show what is usual there
USUAL: Final = 4  # times the median: an ordinary stretch takes no longer
OFTEN: Final = 4  # times, after all kernels have been used
SEEN: Final = 0.95  # of the kernels by name
# To fetch a worker's batch that is there, and for each of its tensors: as recorded on CPU runs 2
# take 0.9 to 1.8 ms, 12 take 2.1 to 3.5.
FETCH_NS: Final = 850_000
FETCH_TENSOR_NS: Final = 250_000
FIELDS: Final = 2  # tensors of an ordinary batch
ORDINARY_FETCH_NS: Final = FETCH_NS + FETCH_TENSOR_NS * FIELDS


# -- compilation ---------------------------------------------------------------------------------


def compilation(s: Signals) -> Int64:
    """Events of torch.compile's compiling, not of running what it compiled.

    Wrappers around compiled code have the compiler's file names, too, but work is launched inside
    them. What is nested in such a wrapper is run time as well, unless an event in between can only
    be compilation. A compilation takes a millisecond or more.
    """
    a, trace = s.activity, s.trace
    rows = a.host("compile")
    if not len(rows):
        return rows
    certain = np.isin(rows, a.named(rows, vocabulary.COMPILES), assume_unique=True)
    compiles = certain | (s.count_inside(rows, a.launches) == 0)
    kept = np.zeros(len(rows), np.bool_)
    for track in np.unique(trace.track[rows]):
        here = trace.track[rows] == track
        running = a.spans(rows[here & ~compiles])
        compiling = a.spans(rows[here & certain])
        candidate = here & compiles & ~(running - compiling).contain(trace.start[rows])
        long = a.spans(rows[candidate]).lasting(COMPILE_NS)
        kept |= candidate & long.contain(trace.start[rows])
    return rows[kept]


# -- preprocessing -------------------------------------------------------------------------------


def preprocessing_frames(s: Signals) -> Int64:
    """Frames of image, audio, video, text and array work in which nothing is launched."""
    rows = s.activity.of(Cat.PYTHON_FUNCTION)
    rows = s.activity.named(rows, vocabulary.PREPROCESSES, Cat.PYTHON_FUNCTION)
    silent: Int64 = rows[s.count_inside(rows, s.activity.launches) == 0]
    return silent


def host_only_ops(s: Signals) -> Int64:
    """cpu_ops that compute on the host: long, mostly by themselves, and nothing is launched inside.

    Ops that were stopped, and ops that mostly call others, are left out.
    """
    ops = s.activity.aten
    own = s.own_time[ops]
    ops = ops[(own >= LONG_OP_NS) & (2 * own >= s.trace.dur[ops])]
    ops = ops[s.count_inside(ops, s.activity.launches) == 0]
    return np.setdiff1d(ops, s["op-stall"], assume_unique=True)


def preprocessing(s: Signals) -> Int64:
    """Frames and ops that prepare data on the threads that should feed the device.

    Not the loader's work, nor the model's ops that fall back to the CPU. A CPU run computes on the
    host: there only frames show preprocessing.
    """
    rows = s["preprocessing-frame"]
    if s.activity.has_device:
        rows = np.union1d(rows, np.setdiff1d(s["host-only-op"], s["fallback-op"]))
    tracks = np.union1d(s.trace.track[s.activity.launches], [s.main_thread])
    rows = rows[np.isin(s.trace.track[rows], tracks)]
    inside = np.isin(rows, s.inside(s.activity.loader_rows))
    found: Int64 = rows[~inside]
    return found


# -- stops ---------------------------------------------------------------------------------------


def op_stalls(s: Signals) -> Int64:
    """Ops whose own time is 300 us and more and over 20 times the median of their name.

    The host was stopped in them: by the operating system, a lock, or a collection.
    """
    trace, ops = s.trace, s.activity.aten
    own = s.own_time[ops]
    long = ops[own >= STALL_NS]
    if not len(long):
        return long
    limit = np.full(len(trace.names), np.inf)
    for name in np.unique(trace.name[long]).tolist():
        limit[name] = STALL_FACTOR * float(np.median(own[trace.name[ops] == name]))
    found: Int64 = long[s.own_time[long] > limit[trace.name[long]]]
    return found


def pauses(s: Signals) -> Int64:
    """Calls and ops of the main thread before which nothing, or only Python, ran for 1 ms or more.

    Only isolated ones: where the next such stretch is fewer than 40 launches (on a CPU run: ops)
    away, the program itself does something there. Between two steps only where most other steps
    follow each other without: the program has the same to do there each time. Where stacks are
    recorded only those that mostly pass without any frame's begin or end: a stopped interpreter
    calls nothing. A row is the event that ends the pause.
    """
    a, trace = s.activity, s.trace
    rows = s.on(np.sort(np.concatenate([a.aten, s.calls, a.loader_rows])), s.main_thread)
    work = a.launches if a.has_device else s.on(a.top_ops, s.main_thread)
    launches = np.sort(trace.start[work])
    if len(rows) < 2 or len(launches) < 2 * PAUSE_APART:
        return rows[:0]
    places = np.arange(len(rows) - 1)
    done = np.maximum.accumulate(trace.end[rows])[:-1]
    before = rows[np.maximum.accumulate(np.where(trace.end[rows[:-1]] == done, places, 0))]
    start = trace.start[rows[1:]]
    long = start - done >= PAUSE_NS
    long &= ~waits_for_ranks(s, done, np.maximum(start, done))
    if trace.has_stacks:
        long[long] = _silent(s, done[long], start[long])
    after = rows[1:][long]
    place = np.searchsorted(launches, start[long])
    if len(after) < 1:
        return after
    apart = np.diff(place, prepend=-PAUSE_APART, append=len(launches) + PAUSE_APART)
    alone = (apart[:-1] >= PAUSE_APART) & (apart[1:] >= PAUSE_APART)
    # The first launches of a trace come after whatever stands before the program.
    inside = (place > 0) & (place < len(launches))
    found: Int64 = after[alone & inside & ~_usual_between_steps(s, before, rows[1:])[long]]
    return found


def _silent(s: Signals, start: Int64, end: Int64) -> Bool:
    """Of which stretches of the main thread, ascending, one piece without any event is half."""
    lo, hi, of, _ = s.timeline(s.main_thread).during(start, end)
    longest = np.zeros(len(start), np.int64)
    np.maximum.at(longest, of, hi - lo)
    found: Bool = 2 * longest >= end - start
    return found


def _usual_between_steps(s: Signals, before: Int64, after: Int64) -> Bool:
    """Which stretches, from the end of one event to the begin of the next, lie between two marked
    steps, and are usual there: no longer than four times what half of the steps take at most that
    follow the same event by the same one."""
    trace = s.trace
    edges = np.array([step.start for step in trace.steps], np.int64)
    start, end = trace.end[before], trace.start[after]
    usual = np.searchsorted(edges, start) < np.searchsorted(edges, end, side="right")
    crossing = np.flatnonzero(usual)
    pair = np.stack([trace.name[before[crossing]], trace.name[after[crossing]]])
    _, which = np.unique(pair, axis=1, return_inverse=True)
    for group in np.unique(which).tolist():
        same = crossing[which.reshape(-1) == group]
        took = (end - start)[same]
        if len(same) >= LEAST_STEPS:
            usual[same] = took <= USUAL * np.quantile(took, 0.5, method="lower")
    return usual


def waits_for_ranks(s: Signals, start: Int64, end: Int64) -> Bool:
    """During which stretches of the main thread, for most of each, another thread of the host runs
    a collective: there the main one waits for it."""
    runs = s.activity.host("collective_run")
    found: Bool = 2 * s.activity.spans(runs).covered(start, end) > end - start
    return found


# -- allocation ----------------------------------------------------------------------------------


def allocations(s: Signals) -> Int64:
    """Driver calls that allocate, map or free memory, where steady state repeats them."""
    rows = s.activity.calls("alloc")
    return rows[_repeats(s, rows)]


def first_use_allocations(s: Signals) -> Int64:
    """Driver calls that allocate or free memory for the first time."""
    rows = s.activity.calls("alloc")
    return rows[~_repeats(s, rows)]


def _repeats(s: Signals, rows: Int64) -> Bool:
    """Which of these calls belong to a churn: all or none.

    First use goes on as long as new kernels appear, and keeps what it gets. Churn goes on after
    that, or in a marked step that does not warm up: memory is given back and asked for again (or
    pinned again and again). Where neither is known, in all of the trace: what is given back
    and asked for several times is no first use.
    """
    steady = [step for step in s.trace.steps if not step.warmup]
    at = s.trace.start[rows]
    if steady:
        settled = rows[(at >= steady[0].start) & (at < steady[-1].end)]
    else:
        since = _settled(s)
        settled = rows[at >= since] if since < FOREVER else rows
    names = [s.trace.names[i] for i in s.trace.name[settled].tolist()]
    frees = [("Free" in name or "Release" in name or "Unmap" in name) for name in names]
    again = sum(a and not b for a, b in pairwise(frees))  # memory given back and asked for again
    pins = sum("Host" in name and not free for name, free in zip(names, frees, strict=True))
    given_back = sum(frees) if steady else 0
    goes_on = again >= (1 if steady else OFTEN) or max(pins, given_back) >= OFTEN
    return np.full(len(rows), goes_on)


def _settled(s: Signals) -> int:
    """When nearly all kernels of the trace have been launched once, ns; never, if that is not
    before half of its device work: then it holds no second iteration."""
    a, trace = s.activity, s.trace
    work = a.device_work
    if not len(work):
        return 0
    _, first = np.unique(trace.name[work], return_index=True)
    last = int(np.quantile(first, SEEN, method="lower"))
    if 2 * last > len(work):
        return FOREVER
    return int(a.called(work[[last]])[0])


# -- the rest ------------------------------------------------------------------------------------


def _loader_calls(s: Signals, kind: str) -> Int64:
    return s.activity.named(s.activity.loader_rows, vocabulary.HOST[kind])


def worker_waits(s: Signals) -> Int64:
    """Waits for a worker's batch. On a CPU run not those in which the batch was ready: the time to
    fetch it cannot be hidden."""
    rows = _loader_calls(s, "loader_workers")
    return rows if s.activity.has_device else rows[waited(s, rows) > 0]


def waited(s: Signals, rows: Int64) -> Int64:
    """How long each of these waits for a worker's batch lasts beyond what it takes to fetch one
    that is there, ns: what its frames rest, else all beyond the usual."""
    trace = s.trace
    if len(rest := resting(s, rows)):
        return s.activity.spans(rest).covered(trace.start[rows], trace.end[rows])
    found: Int64 = np.maximum(trace.dur[rows] - fetch_ns(tensors_in(s, rows)), 0)
    return found


def tensors_in(s: Signals, rows: Int64) -> Int64:
    """How many tensors each of these waits for a worker's batch receives."""
    ops = s.activity.named(s.cpu_ops, vocabulary.RECEIVES, Cat.CPU_OP)
    return s.count_during(rows, s.on(ops, s.main_thread))


def fetch_ns(tensors: Int64) -> Int64:
    """What it takes to fetch a batch that is there, of so many tensors, but at least of two."""
    found: Int64 = FETCH_NS + FETCH_TENSOR_NS * np.maximum(tensors, FIELDS)
    return found


def resting(s: Signals, rows: Int64) -> Int64:
    """The frames inside these events in which nothing is done but to wait, or to sleep."""
    frames = s.activity.of(Cat.PYTHON_FUNCTION)
    rests = s.activity.named(frames, vocabulary.RESTS, Cat.PYTHON_FUNCTION)
    return intersection(rests, s.inside(rows))


def step_markers(s: Signals) -> Int64:
    """The annotations that mark steps."""
    cats = (Cat.USER_ANNOTATION, Cat.CPU_OP)
    return s.activity.named(s.activity.of(*cats), vocabulary.STEP_MARKER, *cats)


SIGNALS: Final = (
    Signal("loader", "Calls for the next batch", lambda s: s.activity.loader_rows),
    Signal(
        "loader-sync",
        "Batches made on the training thread",
        lambda s: _loader_calls(s, "loader_sync"),
    ),
    Signal("loader-workers", "Waits for loader workers", worker_waits),
    Signal("compilation", "Compilation", compilation),
    Signal("collection", "Garbage collections", lambda s: s.activity.host("gc")),
    Signal("preprocessing-frame", "Image, audio, video and array frames", preprocessing_frames),
    Signal("host-only-op", "Ops that compute on the host", host_only_ops),
    Signal("preprocessing", "Preprocessing", preprocessing),
    Signal("op-stall", "Ops in which the host was stopped", op_stalls),
    Signal("pause", "Isolated pauses of the main thread", pauses, is_gap=True),
    Signal("allocation", "Allocator calls in steady state", allocations),
    Signal("first-use-allocation", "Allocator calls of the first use", first_use_allocations),
    Signal("step-marker", "Step markers", step_markers),
)
