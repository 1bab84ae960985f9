"""What holds of every replay; and a replay against a small machine that ran the edited program."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset.replay import Alter, Edit, EditableGraph, EditedTimes, Insert, Issue, Remove, Task
from detector.replay import Condensed, Graph, Repair, Savings, Stuck, Times, joined, solve
from detector.trace import Cat, Int64, Trace
from tests.random_traces import SEEDS, random_trace
from tests.traces import Event, call, kernel, launch, memcpy, op, sync, trace_of

LATENCY, GAP, DELAY, CALL = 5, 1, 3, 5  # µs: what a replay takes where a trace shows nothing else
STREAMS = (7, 20)


# -- a machine -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What the only host thread does next, ``gap`` after the last. Times in µs."""

    kind: str  # op, launch, copy (blocking), sync (of the device)
    dur: int  # of an op, of a kernel, of a copy
    gap: int
    stream: int = STREAMS[0]


STEPS = st.builds(
    Step,
    st.sampled_from(("op", "launch", "launch", "launch", "copy", "sync")),
    st.integers(1, 200),
    st.integers(0, 60),
    st.sampled_from(STREAMS),
)
PROGRAMS = st.lists(STEPS, min_size=1, max_size=20).map(lambda steps: [Step("op", 1, 0), *steps])


def run(program: Sequence[Step]) -> list[tuple[Event, ...]]:
    """By step its events, when a host thread and two streams run them."""
    now, busy, out = 0, dict.fromkeys(STREAMS, -1_000), []
    for i, step in enumerate(program, 1):
        begin = now + step.gap
        at = max(begin + LATENCY, busy[step.stream] + GAP)
        if step.kind in ("launch", "copy"):
            busy[step.stream] = at + step.dur
        now = begin + (step.dur if step.kind == "op" else CALL)
        if step.kind == "copy":
            now = max(now, busy[step.stream] + DELAY)
        if step.kind == "sync":
            now = max(now, max(busy.values()) + DELAY)
        out.append(_events(step, i, begin, now - begin, at))
    return out


def _events(step: Step, number: int, begin: int, took: int, at: int) -> tuple[Event, ...]:
    if step.kind == "op":
        return (op("aten::add", begin, took),)
    if step.kind == "sync":
        return (sync(begin, took, "cudaDeviceSynchronize"),)
    if step.kind == "launch":
        return launch(begin, took, number), kernel("k", at, step.dur, number, step.stream)
    name = "Memcpy HtoD (Pageable -> Device)"
    copy = memcpy(name, at, step.dur, 4, number, step.stream)
    return call("cudaMemcpyAsync", begin, took, corr=number), copy


def flat(events: Sequence[tuple[Event, ...]]) -> tuple[Event, ...]:
    return tuple(event for group in events for event in group)


def row_of(trace: Trace, event: Event) -> int:
    """The row of an event of a machine's run: no two begin together on one track."""
    track = trace.tracks.index(event.place)
    return int(np.flatnonzero((trace.track == track) & (trace.start == event.start_ns))[0])


def assert_close(
    trace: Trace,
    times: Times,
    before: Sequence[tuple[Event, ...]],
    after: Sequence[tuple[Event, ...]],
    slack: int = 0,
) -> None:
    """The replay of ``before`` lies where the machine ran ``after``."""
    for old, new in zip(flat(before), flat(after), strict=True):
        row = row_of(trace, old)
        assert abs(int(times.start[row]) - new.start_ns) <= slack, (old, new)
        assert abs(int(times.end[row]) - new.end_ns) <= slack, (old, new)


@given(PROGRAMS, st.booleans())
def test_a_machine_s_run_is_reproduced(program: list[Step], typical: bool) -> None:
    before = run(program)
    trace = trace_of(*flat(before))
    times = Graph(trace, typical=typical).solve()
    assert_close(trace, times, before, before)


@given(PROGRAMS, STEPS, st.data())
def test_an_inserted_step_does_what_it_would_have_done(
    program: list[Step], step: Step, data: st.DataObject
) -> None:
    place = data.draw(st.integers(1, len(program) - 1))
    before = run(program)
    after = run([*program[:place], step, *program[place:]])
    fresh = after.pop(place)
    trace = trace_of(*flat(before))
    end = before[place - 1][0].end_ns
    own = step.dur if step.kind == "op" else CALL
    stream = next((i for i, t in enumerate(trace.tracks) if t.stream == step.stream), -1)
    if step.kind in ("launch", "copy") and stream < 0:
        return  # a stream that the base does not have
    issue = Issue(step.dur * 1_000, stream) if step.kind in ("launch", "copy") else None
    wait = {"copy": "work", "sync": "device"}.get(step.kind, "")
    task = Task(own * 1_000, (), issue, wait)  # type: ignore[arg-type]
    thread = int(trace.track[row_of(trace, before[place][0])])
    times = EditableGraph(trace).replay([Insert(thread, end, (task,), step.gap * 1_000)])
    assert_close(trace, times, before, after)
    assert (times.task_start[0], times.task_end[0]) == (fresh[0].start_ns, fresh[0].end_ns)
    if issue:
        assert (times.issue_start[0], times.issue_end[0]) == (fresh[1].start_ns, fresh[1].end_ns)


@given(PROGRAMS, st.data())
def test_a_removed_step_takes_its_time_along(program: list[Step], data: st.DataObject) -> None:
    place = data.draw(st.integers(1, len(program) - 1))
    before = run(program)
    rest = program[:place] + program[place + 1 :]
    after = run(rest)
    trace = trace_of(*flat(before))
    row = row_of(trace, before[place][0])
    times = EditableGraph(trace).replay([Remove(row)])
    # The gap before it stays: idle time of the thread.
    slack = 1_000 * program[place].gap
    assert_close(trace, times, before[:place] + before[place + 1 :], after, slack)


@given(PROGRAMS, st.integers(1, 300), st.data())
def test_a_kernel_of_another_length(program: list[Step], dur: int, data: st.DataObject) -> None:
    works = [i for i, step in enumerate(program) if step.kind == "launch"]
    if not works:
        return
    place = data.draw(st.sampled_from(works))
    old = program[place]
    before = run(program)
    after = run([*program[:place], Step("launch", dur, old.gap, old.stream), *program[place + 1 :]])
    trace = trace_of(*flat(before))
    times = EditableGraph(trace).replay([Alter(row_of(trace, before[place][1]), dur=dur * 1_000)])
    assert_close(trace, times, before, after)


@given(PROGRAMS, st.data())
def test_without_a_step_the_program_is_what_a_machine_runs(
    program: list[Step], data: st.DataObject
) -> None:
    """Of the idle time around it 20 µs, a call's, go along."""
    place = data.draw(st.integers(1, len(program) - 1))
    before = run(program)
    rest = program[:place] + program[place + 1 :]
    if place < len(rest):
        before_it, behind = program[place].gap, rest[place].gap
        gap = before_it + behind - min(before_it, behind, 20)
        rest[place] = replace(rest[place], gap=gap)
    trace = trace_of(*flat(before))
    row = row_of(trace, before[place][0])
    times = Graph(trace).solve(Repair(remove=np.array([row])))
    assert_close(trace, times, before[:place] + before[place + 1 :], run(rest))


@given(PROGRAMS, st.data())
def test_a_repair_is_what_the_same_edits_make(program: list[Step], data: st.DataObject) -> None:
    trace = trace_of(*flat(run(program)))
    graph = EditableGraph(trace)
    host, work = np.flatnonzero(graph.is_host), np.flatnonzero(graph.is_work)
    own, less, most = some_of(data.draw, host), some_of(data.draw, work), data.draw(NS)
    now = graph.gap[2 * host + 1]  # of an event that holds none, without its wait
    shorter = dict(zip(host.tolist(), np.minimum(now, most).tolist(), strict=True))
    edits: list[Edit] = [Alter(row, dur=shorter[row]) for row in np.unique(own).tolist()]
    edits += [Alter(row, dur=min(most, int(trace.dur[row]))) for row in np.unique(less).tolist()]
    cap = np.array([most])
    times = graph.solve(Repair(own=(own, cap), work=(less, cap)))
    same = graph.replay(edits)
    np.testing.assert_array_equal(times.start, same.start)
    np.testing.assert_array_equal(times.end, same.end)


# -- any trace -------------------------------------------------------------------------------------


@given(SEEDS)
def test_any_trace_is_reproduced(seed: int) -> None:
    trace = random_trace(seed)
    times = Graph(trace).solve()
    np.testing.assert_array_equal(times.start, trace.start)
    np.testing.assert_array_equal(times.end, trace.end)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 90)), min_size=1), st.data())
def test_on_a_lone_thread_a_call_shifts_all_behind_it(
    ops: list[tuple[int, int]], data: st.DataObject
) -> None:
    events, now = [], 0
    for gap, dur in ops:
        events.append(op("aten::add", now + gap, dur))
        now += gap + dur
    trace = trace_of(*events)
    at = data.draw(st.integers(int(trace.end[0]), now * 1_000))
    own, gap = (data.draw(st.integers(0, most)) for most in (10**6, 10**4))
    times = EditableGraph(trace).replay([Insert(0, at, (Task(own),), gap)])
    later = trace.start >= at
    earlier = trace.end <= at
    np.testing.assert_array_equal(
        times.start[later & ~earlier] - trace.start[later & ~earlier], own + gap
    )
    np.testing.assert_array_equal(times.end[earlier], trace.end[earlier])


@st.composite
def edits(draw: st.DrawFn, trace: Trace) -> list[Edit]:
    """A few edits that need not make sense."""
    host = [i for i, t in enumerate(trace.tracks) if not t.is_device]
    streams = [i for i, t in enumerate(trace.tracks) if t.is_device]
    calls = np.flatnonzero(~np.array([t.is_device for t in trace.tracks])[trace.track]).tolist()
    works = np.flatnonzero(trace.is_device_work).tolist()
    issues = st.none()
    if streams:
        tracks = st.lists(st.sampled_from(streams), max_size=2).map(tuple)
        issues |= st.builds(Issue, NS, st.sampled_from(streams), tracks, tracks)
    waits = st.sampled_from(("", "", "work", "stream", "device"))
    leaves = st.builds(Task, NS, st.just(()), issues, waits)
    tasks = st.builds(Task, NS, st.lists(leaves, max_size=2).map(tuple), issues, waits)
    times = st.integers(int(trace.start.min()), int(trace.end.max()))
    kinds = [
        st.builds(Insert, st.sampled_from(host), times, st.lists(tasks, max_size=2).map(tuple), NS),
        st.builds(Remove, st.sampled_from(calls)),
        st.builds(Alter, st.sampled_from(calls), st.none() | NS, st.none() | waits),
    ]
    if works:
        kinds.append(st.builds(Alter, st.sampled_from(works), NS))
    return draw(st.lists(st.one_of(kinds), min_size=1, max_size=4))


NS = st.integers(0, 50_000)


def overlaps(start: Int64, end: Int64) -> int:
    """How many works begin before one ahead of them on their stream has ended."""
    order = np.lexsort((end, start))
    ends = np.maximum.accumulate(end[order])
    return int((start[order][1:] < ends[:-1]).sum())


@given(PROGRAMS, st.data())
def test_edited_traces_are_consistent(program: list[Step], data: st.DataObject) -> None:
    trace = trace_of(*flat(run(program)))
    changes = data.draw(edits(trace))
    try:
        times = EditableGraph(trace).replay(changes)
    except Stuck:
        return  # two edits of the same events
    kept = times.keep
    assert (times.end >= times.start)[kept].all()
    assert (times.task_end >= times.task_start).all()
    assert (times.issue_end >= times.issue_start).all()
    issued = times.issue_start >= 0
    assert (times.issue_start[issued] >= times.task_start[issued]).all()
    works = np.flatnonzero(kept & trace.is_device_work)
    assert (times.start[works] >= times.start[trace.launch[works]]).all()
    assert kept[trace.launch[works]].all()
    by_stream(trace, changes, times)


def by_stream(trace: Trace, changes: Sequence[Edit], times: EditedTimes) -> None:
    fresh = [t.issue.track if t.issue else -1 for e in changes for t in all_tasks(e)]
    track = np.array(fresh, np.int64)
    assert len(track) == len(times.issue_start)
    for stream in range(len(trace.tracks)):
        rows = np.flatnonzero(times.keep & trace.is_device_work & (trace.track == stream))
        start = np.concatenate([times.start[rows], times.issue_start[track == stream]])
        end = np.concatenate([times.end[rows], times.issue_end[track == stream]])
        assert overlaps(start, end) == 0


def all_tasks(edit: Edit) -> list[Task]:
    """Parents before what is inside them."""
    found: list[Task] = []
    left = list(getattr(edit, "tasks", ()))
    while left:
        found.append(left.pop(0))
        left = [*found[-1].inside, *left]
    return found


@pytest.mark.parametrize("typical", [False, True])
@given(SEEDS)
def test_any_trace_can_be_edited(typical: bool, seed: int) -> None:
    """Whatever the trace holds, lost time on a thread loses no event and turns none around."""
    trace = random_trace(seed)
    graph = EditableGraph(trace, typical=typical)
    track = int(trace.track[trace.rows(Cat.CPU_OP)[0]])
    times = graph.replay([Insert(track, int(np.median(trace.start)), gap=40_000)])
    assert times.keep.all()
    assert (times.end >= times.start).all()
    assert np.abs(times.start - trace.start).max() < 10**9


# -- savings ---------------------------------------------------------------------------------------


def some_of(draw: st.DrawFn, rows: Int64) -> Int64:
    """Any few of these rows."""
    chosen = st.lists(st.sampled_from(rows.tolist()), max_size=6) if len(rows) else st.just([])
    return np.array(draw(chosen), np.int64)


@st.composite
def repairs(draw: st.DrawFn, graph: Graph, pure: bool = False) -> Repair:
    """A few changes anywhere; ``pure``: nothing but removals of events and of waits."""
    trace = graph.trace
    host, work = np.flatnonzero(graph.is_host), np.flatnonzero(graph.is_work)
    calls = trace.rows(Cat.RUNTIME, Cat.DRIVER)
    gone = [some_of(draw, rows) for rows in (host, calls, work)]
    if pure:
        return Repair(remove=gone[0], unwait=gone[1], drop=gone[2])
    own, idle, less = ((rows, draw(NS)) for rows in (some_of(draw, r) for r in (host, host, work)))
    return Repair(gone[0], own, gone[1], idle, gone[2], less)


@given(SEEDS)
def test_without_a_repair_nothing_is_saved(seed: int) -> None:
    graph = Graph(random_trace(seed))
    times = graph.solve(Repair())
    np.testing.assert_array_equal(times.start, graph.trace.start)
    np.testing.assert_array_equal(times.end, graph.trace.end)
    assert graph.saved(Repair()) == 0
    assert graph.saved(Repair(), (0, int(graph.trace.end.max()))) == 0


@given(SEEDS, st.data())
def test_what_goes_saves_time_and_the_more_the_more(seed: int, data: st.DataObject) -> None:
    graph = Graph(random_trace(seed))
    one, other = data.draw(repairs(graph, pure=True)), data.draw(repairs(graph, pure=True))
    middle = int(np.median(graph.trace.end))
    for span in (None, (int(graph.trace.start[0]), middle), (middle, int(graph.trace.end.max()))):
        alone, its, both = (graph.saved(r, span) for r in (one, other, one | other))
        assert 0 <= max(alone, its) <= both <= int(graph.trace.end.max())
    first, joint = graph.solve(one), graph.solve(one | other)
    kept = joint.keep & joint.timed
    assert not (kept & ~first.keep).any()
    assert (joint.end <= first.end)[kept].all()
    assert (first.end <= graph.trace.end)[kept].all()


@given(SEEDS, st.data())
def test_what_is_saved_between_edges_adds_up(seed: int, data: st.DataObject) -> None:
    graph = Graph(random_trace(seed))
    several = [data.draw(repairs(graph)) for _ in range(3)]
    joint = several[0] | several[1] | several[2]
    edges = np.linspace(graph.trace.start.min(), graph.trace.end.max(), 5).astype(np.int64)
    assert graph.saved_between(joint, edges).sum() == graph.saved(joint)


@given(SEEDS, st.booleans(), st.data())
def test_a_condensed_program_saves_the_same(seed: int, whole: bool, data: st.DataObject) -> None:
    """Any of several repairs together, since some time and between any times."""
    graph = Graph(random_trace(seed))
    trace, several = graph.trace, [data.draw(repairs(graph)) for _ in range(3)]
    start = 0 if whole else int(np.median(trace.start))
    edges = np.linspace(trace.start.min(), trace.end.max(), 4).astype(np.int64)
    small = Condensed(graph.columns, several, start, edges)
    savings, span = Savings(small.columns), (start, int(edges[2]))
    for count in (1, 2, 3):
        for some in itertools.combinations(range(3), count):
            repair, its = (joined([r[i] for i in some]) for r in (several, small.repairs))
            assert savings.saved(its, span) == graph.saved(repair, span)
            found = savings.between(its, edges)
            np.testing.assert_array_equal(found, graph.saved_between(repair, edges))


def test_what_nothing_asks_for_is_condensed() -> None:
    """Three launches with 50 ops between any two, one of which is repaired."""
    events = [op("aten::add", 10 + 20 * i, 10) for i in range(150)]
    for i in range(3):
        events += launch(9_000 + 1_000 * i, 10, i + 1), kernel("k", 9_100 + 1_000 * i, 5, i + 1)
    graph = Graph(trace_of(*events))
    every, one = np.flatnonzero(graph.is_host), np.array([70])
    pace, removal = Repair(own=(every, 1_000), idle=(every, 2_000)), Repair(remove=one)
    small = Condensed(graph.columns, [pace, removal], 0, np.array([12_000_000]))
    assert len(small.columns.order) < 30 < 300 < len(graph.order)
    savings = Savings(small.columns)
    for one, other in zip(small.repairs, (pace, removal), strict=True):
        assert savings.saved(one, None) == graph.saved(other) > 0


@pytest.mark.skipif(solve.LOOPS is None, reason="the compiled loops are not built here")
@given(SEEDS, st.data())
def test_the_compiled_loops_find_what_those_in_python_find(seed: int, data: st.DataObject) -> None:
    trace = random_trace(seed)
    found = []
    repair = data.draw(repairs(Graph(trace)))
    for loops in (solve.LOOPS, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(solve, "LOOPS", loops)
            graph = Graph(trace)
            times = graph.solve(repair)
            saved = graph.saved(repair)
            found.append((times, saved, graph.sequences.nodes, graph.order))
    (times, saved, *orders), (pure, pure_saved, *pure_orders) = found
    assert saved == pure_saved
    np.testing.assert_array_equal(times.start, pure.start)
    np.testing.assert_array_equal(times.end, pure.end)
    for order, other in zip(orders, pure_orders, strict=True):
        np.testing.assert_array_equal(order, other)
