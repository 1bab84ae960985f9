"""When everything would have happened after an edit, in hand-written traces. Times in µs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dataset.replay import (
    Alter,
    Edit,
    EditableGraph,
    EditedTimes,
    Insert,
    Issue,
    Remove,
    Replace,
    Task,
)
from detector.kineto import read
from detector.replay import Graph, Repair, Stuck, Times
from detector.trace import Cat, Int64, Trace
from tests.traces import (
    Event,
    annotation,
    call,
    kernel,
    launch,
    memcpy,
    op,
    python,
    repeat,
    sync,
    trace_of,
)

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
SMALL = (
    "a100_alexnet a100_cuda_event_sync copy_pageable_1 copy_pinned gp100_gpu_user_annotation "
    "h100_transformer_block mi210_gpu_only mi250_minitoy_train mi300_vit_classifier_infer "
    "v100_dlrm_rank0 v100_dlrm_rank6"
).split()

# The device outruns the host: each kernel starts 5 µs after its launch.
HOST_BOUND = repeat((op("aten::add", 0, 20), launch(5, 5, 1), kernel("k", 10, 10, 1)), 5, 100)
# The host outruns the device: kernels of 100 µs, 1 µs apart, launched 20 µs apart.
DEVICE_BOUND = tuple(
    event
    for i in range(6)
    for event in (
        op("aten::mm", 20 * i, 15),
        launch(20 * i + 2, 5, i + 1),
        kernel("gemm", 7 + 101 * i, 100, i + 1),
    )
)
# A kernel of 100 µs that the host waits for before it goes on.
WAITING = (
    launch(0, 5, 1),
    kernel("k", 5, 100, 1),
    sync(10, 98),
    op("aten::add", 120, 10),
    launch(122, 5, 2),
    kernel("k2", 127, 10, 2),
)


def us(value: float) -> int:
    return round(value * 1_000)


def replay(trace: Trace, *edits: Edit) -> EditedTimes:
    """A replay that holds what any replay must."""
    times = EditableGraph(trace).replay(edits)
    kept = times.keep & times.timed
    assert (times.end >= times.start)[kept].all()
    assert (times.task_end >= times.task_start).all()
    launched = np.flatnonzero(kept & (trace.launch >= 0) & trace.is_device_work)
    assert (times.start[launched] >= times.start[trace.launch[launched]]).all()
    return times


def rows_of(trace: Trace, name: str) -> list[int]:
    return [i for i, n in enumerate(trace.name.tolist()) if trace.names[n] == name]


def shifts(trace: Trace, times: Times, name: str) -> list[float]:
    """By how much the events of this name begin later, µs."""
    return [(int(times.start[i]) - int(trace.start[i])) / 1_000 for i in rows_of(trace, name)]


def span(trace: Trace, times: Times, name: str, which: int = 0) -> tuple[float, float]:
    i = rows_of(trace, name)[which]
    return int(times.start[i]) / 1_000, int(times.end[i]) / 1_000


def idle(at: float, gap: float) -> Insert:
    """Idle time on the thread of row 0."""
    return Insert(0, us(at), gap=us(gap))


# -- nothing edited --------------------------------------------------------------------------------


@pytest.mark.parametrize("typical", [False, True])
@pytest.mark.parametrize("events", [HOST_BOUND, DEVICE_BOUND, WAITING])
def test_a_trace_with_usual_delays_is_reproduced(events: tuple[Event, ...], typical: bool) -> None:
    trace = trace_of(*events)
    times = Graph(trace, typical=typical).solve()
    np.testing.assert_array_equal(times.start, trace.start)
    np.testing.assert_array_equal(times.end, trace.end)
    assert times.keep.all()


def test_delays_of_any_length_are_reproduced() -> None:
    trace = trace_of(
        launch(0, 5, 1),
        kernel("late", 90, 10, 1),
        launch(20, 5, 2),
        kernel("queued", 113, 40, 2),
        sync(30, 160),
        launch(200, 5, 3),
        kernel("early", 140, 90, 3),  # in the stream's time, before its launch: clocks differ
    )
    times = Graph(trace).solve()
    np.testing.assert_array_equal(times.start, trace.start)
    np.testing.assert_array_equal(times.end, trace.end)


def test_usual_delays_come_near_what_varies() -> None:
    varied = [
        e
        for i in range(20)
        for e in (launch(100 * i, 5, i + 1), kernel("k", 100 * i + 5 + i % 4, 30, i + 1))
    ]
    trace = trace_of(*varied, sync(1_950, 60))
    times = Graph(trace, typical=True).solve()
    assert np.abs(times.end - trace.end).max() <= us(4)
    assert (times.end != trace.end).any()


def test_clocks_that_disagree_into_a_circle_are_reproduced() -> None:
    """The wait is for the second kernel, which follows the first, which is launched after it."""
    trace = trace_of(
        launch(5, 4, 1),
        sync(10, 90),
        launch(200, 5, 2),
        kernel("early", 20, 10, 2),
        kernel("waited for", 40, 50, 1),
    )
    times = Graph(trace).solve()
    np.testing.assert_array_equal(times.start, trace.start)
    np.testing.assert_array_equal(times.end, trace.end)


def test_an_empty_trace() -> None:
    assert len(Graph(trace_of()).solve().start) == 0


def test_rows_that_are_neither_program_nor_device_work_are_not_timed() -> None:
    trace = trace_of(
        op("aten::add", 0, 10),
        Event(Cat.OVERHEAD, "Buffer Flush", 2, 5),
        Event(Cat.GPU_USER_ANNOTATION, "step", 3, 9, device=0, stream=7),
        kernel("k", 4, 5),
    )
    assert replay(trace).timed.tolist() == [True, False, False, True]


@pytest.mark.parametrize("name", SMALL)
def test_published_traces_are_reproduced_to_the_ns(name: str) -> None:
    path = SHARED / f"{name}.json.gz"
    if not path.is_file():
        pytest.skip("the shared traces (../shared/traces beside the checkout) are not here")
    trace = read(path)
    times = Graph(trace).solve()
    np.testing.assert_array_equal(times.start, trace.start)
    np.testing.assert_array_equal(times.end, trace.end)


# -- who is ahead ----------------------------------------------------------------------------------


def test_where_the_device_waits_for_the_host_lost_host_time_is_lost() -> None:
    trace = trace_of(*HOST_BOUND)
    times = replay(trace, idle(150, 30))
    assert shifts(trace, times, "aten::add") == [0, 0, 30, 30, 30]
    assert shifts(trace, times, "k") == [0, 0, 30, 30, 30]


def test_where_the_host_is_ahead_its_lead_absorbs_lost_time() -> None:
    trace = trace_of(*DEVICE_BOUND)
    times = replay(trace, idle(38, 50))
    assert shifts(trace, times, "aten::mm") == [0, 0, 50, 50, 50, 50]
    assert shifts(trace, times, "gemm") == [0] * 6


def test_what_the_lead_cannot_absorb_the_device_waits() -> None:
    trace = trace_of(*DEVICE_BOUND)
    times = replay(trace, idle(38, 300))
    # The third launch was at 42; now at 342, and 5 µs later its kernel: recorded at 209.
    assert shifts(trace, times, "gemm") == [0, 0, 138, 138, 138, 138]


def test_slower_kernels_delay_those_behind_them_but_not_the_host() -> None:
    trace = trace_of(*DEVICE_BOUND)
    second = rows_of(trace, "gemm")[1]
    times = replay(trace, Alter(second, dur=us(130)))
    assert shifts(trace, times, "gemm") == [0, 0, 30, 30, 30, 30]
    assert shifts(trace, times, "aten::mm") == [0] * 6


def test_a_slower_kernel_fits_where_the_device_was_idle() -> None:
    trace = trace_of(*HOST_BOUND)
    times = replay(trace, Alter(rows_of(trace, "k")[1], dur=us(80)))
    assert shifts(trace, times, "k") == [0] * 5
    assert span(trace, times, "k", 1) == (110, 190)


def test_faster_kernels_start_no_earlier_than_their_launches() -> None:
    trace = trace_of(*DEVICE_BOUND)
    times = replay(trace, *(Alter(row, dur=us(1)) for row in rows_of(trace, "gemm")))
    starts = [span(trace, times, "gemm", i)[0] for i in range(6)]
    assert starts == [20 * i + 7 for i in range(6)]


# -- waits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "cudaDeviceSynchronize"])
def test_a_wait_lasts_as_long_as_the_work(name: str) -> None:
    events = [e if e.name != "cudaStreamSynchronize" else sync(10, 98, name) for e in WAITING]
    trace = trace_of(*events)
    times = replay(trace, Alter(rows_of(trace, "k")[0], dur=us(140)))
    assert span(trace, times, name) == (10, 148)
    assert shifts(trace, times, "aten::add") == shifts(trace, times, "k2") == [40]


def test_a_wait_gives_its_time_back_when_the_work_is_shorter() -> None:
    trace = trace_of(*WAITING)
    times = replay(trace, Alter(rows_of(trace, "k")[0], dur=us(60)))
    assert span(trace, times, "cudaStreamSynchronize") == (10, 68)
    assert shifts(trace, times, "k2") == [-40]


def test_a_removed_wait_gives_its_time_back_and_the_device_catches_up() -> None:
    trace = trace_of(*WAITING)
    row = rows_of(trace, "cudaStreamSynchronize")[0]
    times = replay(trace, Remove(row))
    assert times.keep.tolist() == [i != row for i in range(len(trace))]
    # The op stood 12 µs behind the wait, which itself began 5 µs behind the launch.
    start, _ = span(trace, times, "aten::add")
    assert 10 <= start <= 27
    assert span(trace, times, "k2")[0] == 106  # behind the first kernel: it is still running


def test_a_late_host_waits_for_nothing() -> None:
    trace = trace_of(launch(0, 5, 1), kernel("k", 5, 10, 1), sync(100, 2), op("aten::add", 110, 5))
    times = replay(trace, Alter(rows_of(trace, "k")[0], dur=us(60)))
    assert shifts(trace, times, "aten::add") == [0]
    times = replay(trace, Alter(rows_of(trace, "k")[0], dur=us(150)))
    assert shifts(trace, times, "aten::add")[0] == pytest.approx(56, abs=4)


@pytest.mark.parametrize(
    ("copy", "name"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "cudaMemcpyAsync"),
        ("Memcpy DtoH (Device -> Pageable)", "cudaMemcpyAsync"),
        ("Memcpy HtoD (Host -> Device)", "hipMemcpyWithStream"),
    ],
)
def test_a_blocking_copy_returns_after_the_copy(copy: str, name: str) -> None:
    trace = trace_of(
        launch(0, 5, 1),
        kernel("k", 5, 100, 1),
        call(name, 10, 120, corr=2),
        memcpy(copy, 106, 20, 4, 2),
        op("aten::add", 140, 10),
    )
    times = replay(trace, Alter(rows_of(trace, "k")[0], dur=us(130)))
    assert shifts(trace, times, copy) == [30]
    assert span(trace, times, name) == (10, 160)
    assert shifts(trace, times, "aten::add") == [30]


def test_a_pinned_copy_holds_nobody_up() -> None:
    copy = "Memcpy HtoD (Pinned -> Device)"
    trace = trace_of(
        launch(0, 5, 1),
        kernel("k", 5, 100, 1),
        call("cudaMemcpyAsync", 10, 6, corr=2),
        memcpy(copy, 106, 20, 4, 2),
        op("aten::add", 20, 10),
    )
    times = replay(trace, Alter(rows_of(trace, "k")[0], dur=us(130)))
    assert shifts(trace, times, copy) == [30]
    assert shifts(trace, times, "aten::add") == [0]


def test_a_copy_within_the_device_holds_nobody_up() -> None:
    """Though its call happens to end later than the copy."""
    copy = "Memcpy DtoD (Device -> Device)"
    trace = trace_of(
        call("cudaMemcpyAsync", 0, 30, corr=1), memcpy(copy, 6, 4, 4, 1), op("aten::add", 40, 10)
    )
    times = replay(trace, Alter(rows_of(trace, copy)[0], dur=us(200)))
    assert shifts(trace, times, "aten::add") == [0]


def test_a_wait_covers_no_work_issued_later() -> None:
    trace = trace_of(
        launch(0, 5, 1),
        kernel("k", 5, 100, 1),
        sync(10, 98),
        launch(110, 5, 2),
        kernel("k2", 115, 10, 2),
    )
    stream = int(trace.track[rows_of(trace, "k")[0]])
    task = Task(us(4), issue=Issue(us(300), stream))
    times = replay(trace, Insert(0, us(109), (task,)))
    assert span(trace, times, "cudaStreamSynchronize") == (10, 108)
    assert span(trace, times, "k2")[0] == 415


@pytest.mark.parametrize("busy", [True, False])
def test_a_wait_covers_inserted_work_issued_before_it(busy: bool) -> None:
    """Also one that had nothing to wait for."""
    work = (launch(0, 5, 1), kernel("k", 5, 10, 1)) if busy else ()
    trace = trace_of(
        *work, op("first", 6, 2), sync(40, 2), launch(50, 5, 2), kernel("k2", 55, 10, 2)
    )
    stream = int(trace.track[rows_of(trace, "k2")[0]])
    task = Task(us(4), issue=Issue(us(300), stream))
    times = replay(trace, Insert(0, us(30), (task,)))
    assert times.issue_end.tolist() == [335_000]
    assert span(trace, times, "cudaStreamSynchronize") == (44, 338)


def test_a_wait_whose_work_is_gone_waits_for_the_work_before() -> None:
    trace = trace_of(*DEVICE_BOUND, sync(150, 466), op("after", 620, 5))
    times = replay(trace, Remove(rows_of(trace, "aten::mm")[5]))
    assert shifts(trace, times, "after") == [-101]


# -- streams ---------------------------------------------------------------------------------------

TWO_STREAMS = (
    launch(0, 5, 1),
    kernel("produce", 5, 50, 1),
    call("cudaEventRecord", 8, 1),
    call("cudaStreamWaitEvent", 10, 1),
    launch(12, 5, 2),
    kernel("consume", 56, 20, 2, stream=20),
)


def test_a_stream_that_waits_for_an_event_follows_it() -> None:
    trace = trace_of(*TWO_STREAMS)
    times = replay(trace, Alter(rows_of(trace, "produce")[0], dur=us(90)))
    assert shifts(trace, times, "consume") == [40]


@pytest.mark.parametrize(("behind", "shift"), [(20, 40), (60, 0)])
def test_a_long_wait_that_ends_soon_after_another_stream_s_work_was_for_it(
    behind: float, shift: float
) -> None:
    """No call says so."""
    trace = trace_of(
        launch(0, 5, 1),
        kernel("produce", 5, 500, 1),
        launch(12, 5, 2),
        kernel("consume", 505 + behind, 20, 2, stream=20),
    )
    times = replay(trace, Alter(rows_of(trace, "produce")[0], dur=us(540)))
    assert shifts(trace, times, "consume") == [shift]


def test_streams_that_share_nothing_do_not_wait() -> None:
    trace = trace_of(
        launch(0, 5, 1),
        kernel("one", 5, 50, 1),
        launch(12, 5, 2),
        kernel("other", 17, 20, 2, stream=20),
    )
    times = replay(trace, Alter(rows_of(trace, "one")[0], dur=us(90)))
    assert shifts(trace, times, "other") == [0]


def test_a_collective_keeps_its_length() -> None:
    """What other ranks do the file does not say."""
    trace = trace_of(
        *TWO_STREAMS[:4],
        launch(12, 5, 2),
        kernel("ncclDevKernel_AllReduce", 56, 200, 2, stream=20, collective="allreduce"),
    )
    times = replay(trace, Alter(rows_of(trace, "produce")[0], dur=us(90)))
    start, end = span(trace, times, "ncclDevKernel_AllReduce")
    assert (start, end) == (96, 296)


def test_a_stream_follows_what_replaces_the_work_it_waited_for() -> None:
    trace = trace_of(op("aten::mm", 0, 7), *TWO_STREAMS)
    stream = int(trace.track[rows_of(trace, "produce")[0]])
    task = Task(us(7), (Task(us(5), issue=Issue(us(80), stream)),))
    times = replay(trace, Replace(rows_of(trace, "aten::mm")[0], (task,)))
    assert times.issue_end.max() == 88_500
    assert span(trace, times, "consume")[0] == 89.5


# -- threads ---------------------------------------------------------------------------------------

BACKWARD = (
    op("aten::loss", 0, 50),
    # the first thread waits here while the engine's works
    annotation("Optimizer.step#SGD.step", 1_000, 100),
    launch(1_010, 5, 1),
    launch(20, 5, 2),
    launch(30, 5, 3),
    op("autograd::engine::evaluate_function: MmBackward0", 60, 900, thread=2),
    launch(100, 5, 4, thread=2),
    kernel("update", 1_015, 5, 1),
    kernel("f", 25, 5, 2),
    kernel("g", 35, 5, 3),
    kernel("grad", 105, 5, 4),
)


def test_the_first_thread_waits_for_the_backward() -> None:
    trace = trace_of(*BACKWARD)
    second = int(trace.track[rows_of(trace, "autograd::engine::evaluate_function: MmBackward0")[0]])
    times = replay(trace, Insert(second, us(500), gap=us(70)))
    assert shifts(trace, times, "Optimizer.step#SGD.step") == [70]
    assert shifts(trace, times, "update") == [70]


def test_the_backward_begins_after_the_forward() -> None:
    trace = trace_of(*BACKWARD)
    times = replay(trace, idle(45, 70))
    moved = ("autograd::engine::evaluate_function: MmBackward0", "grad", "update")
    assert [shifts(trace, times, name) for name in moved] == [[70], [70], [70]]


def test_the_thread_that_runs_the_backward_is_the_second_whoever_launches_more() -> None:
    more = [e for i in range(5) for e in (launch(200 + 20 * i, 5, 50 + i, thread=2),)]
    works = [kernel("grad2", 205 + 20 * i, 5, 50 + i) for i in range(5)]
    trace = trace_of(*BACKWARD, *more, *works)
    times = replay(trace, idle(45, 70))
    assert shifts(trace, times, "grad") == shifts(trace, times, "update") == [70]


def test_what_stands_before_the_backward_delays_it() -> None:
    trace = trace_of(*BACKWARD)
    name = "autograd::engine::evaluate_function: MmBackward0"
    times = replay(trace, Insert(0, us(50), (Task(us(70)),)))
    assert times.task_start.tolist() == [50_000]
    assert shifts(trace, times, name) == shifts(trace, times, "update") == [70]


def test_what_stands_after_the_backward_waits_for_it() -> None:
    trace = trace_of(*BACKWARD)
    engine = int(trace.track[rows_of(trace, "autograd::engine::evaluate_function: MmBackward0")[0]])
    slower = Insert(engine, us(500), gap=us(300))
    times = replay(trace, slower, Insert(0, us(1_000), (Task(us(70)),)))
    assert times.task_start.tolist() == [1_300_000]
    assert shifts(trace, times, "Optimizer.step#SGD.step") == [370]


@pytest.mark.parametrize("fresh", [(), (Task(50_000),)])
def test_the_backward_still_begins_after_the_forward_without_its_first_op(
    fresh: tuple[Task, ...],
) -> None:
    first = op("autograd::engine::evaluate_function: LossBackward0", 55, 4, thread=2)
    trace = trace_of(*BACKWARD, first)
    row = rows_of(trace, first.name)[0]
    times = replay(trace, Replace(row, fresh) if fresh else Remove(row))
    begin = 55 + (51 if fresh else 0)
    assert span(trace, times, "autograd::engine::evaluate_function: MmBackward0")[0] == begin


THIRD = (
    op("aten::loss", 0, 50),
    annotation("Optimizer.step#SGD.step", 1_000, 100),
    op("autograd::engine::evaluate_function: A", 60, 900, thread=2),
    op("before", 62, 200, thread=2),
    op("after", 700, 200, thread=2),
    op("helper", 270, 420, thread=3),
)


@pytest.mark.parametrize(
    ("thread", "at", "helper", "after"), [(3, 400, 0, 70), (2, 200, 70, 70), (1, 20, 70, 70)]
)
def test_a_second_thread_waits_for_a_third_that_it_set_off(
    thread: int, at: float, helper: float, after: float
) -> None:
    trace = trace_of(*THIRD)
    track = next(i for i, t in enumerate(trace.tracks) if t.tid == str(thread))
    times = replay(trace, Insert(track, us(at), gap=us(70)))
    assert shifts(trace, times, "helper") == [helper]
    assert shifts(trace, times, "after") == [after]
    assert shifts(trace, times, "Optimizer.step#SGD.step") == [70]


def test_a_thread_that_was_busy_before_and_after_is_not_waited_for() -> None:
    busy = op("other", 100, 165, thread=3), op("more", 692, 100, thread=3)
    trace = trace_of(*THIRD, *busy)
    track = next(i for i, t in enumerate(trace.tracks) if t.tid == "3")
    times = replay(trace, Insert(track, us(400), gap=us(70)))
    assert shifts(trace, times, "after") == [0]


def test_a_pause_of_the_second_thread_waits_for_nobody() -> None:
    """The first thread does nothing meanwhile, so it is not waited for."""
    trace = trace_of(
        op("aten::loss", 0, 50),
        annotation("Optimizer.step#SGD.step", 1_000, 100),
        op("autograd::engine::evaluate_function: A", 60, 300, thread=2),
        op("autograd::engine::evaluate_function: B", 600, 380, thread=2),
    )
    second = int(trace.track[rows_of(trace, "autograd::engine::evaluate_function: A")[0]])
    times = replay(trace, Insert(second, us(100), gap=us(70)))
    assert shifts(trace, times, "autograd::engine::evaluate_function: B") == [70]
    assert shifts(trace, times, "Optimizer.step#SGD.step") == [70]


def test_a_thread_that_was_woken_follows_the_one_that_woke_it() -> None:
    """What a loader's own thread sends holds the interpreter, and the main thread, for 150 us; but
    it comes 1 ms earlier where the main thread wakes it 1 ms earlier."""
    trace = trace_of(
        annotation(LOADER, 0, 1_000),
        op("aten::full", 1_010, 10),
        op("aten::slice", 1_200, 10),
        python("threading.py(327): wait", -100, 1_130, thread=9),
        python("send.py(1): dump", 1_035, 100, thread=9),
        python("send.py(2): write", 1_140, 45, thread=9),
    )
    assert saved(trace, Repair(remove=named(trace, LOADER))) >= 990


# -- inserted calls --------------------------------------------------------------------------------


def test_a_call_in_an_op_makes_the_op_longer() -> None:
    trace = trace_of(op("outer", 0, 30), op("inner", 5, 10), op("next", 40, 10))
    times = replay(trace, Insert(0, us(20), (Task(us(7)),)))
    assert (times.task_start.tolist(), times.task_end.tolist()) == ([20_000], [27_000])
    assert span(trace, times, "outer") == (0, 37)
    assert span(trace, times, "inner") == (5, 15)
    assert shifts(trace, times, "next") == [7]


def test_at_a_boundary_a_call_stands_between_what_ended_and_what_begins() -> None:
    trace = trace_of(op("first", 0, 10), op("second", 10, 10))
    times = replay(trace, Insert(0, us(10), (Task(us(3)),)), Insert(0, us(10), (Task(us(4)),)))
    assert times.task_start.tolist() == [10_000, 13_000]
    assert (span(trace, times, "first"), span(trace, times, "second")) == ((0, 10), (17, 27))


def test_before_the_first_event() -> None:
    trace = trace_of(op("first", 10, 10), op("second", 30, 10))
    times = replay(trace, Insert(0, us(10), (Task(us(3)),), gap=us(2)))
    assert times.task_start.tolist() == [12_000]
    assert (span(trace, times, "first"), span(trace, times, "second")) == ((15, 25), (35, 45))


def test_before_a_launch_of_the_same_moment() -> None:
    trace = trace_of(op("first", 0, 10), launch(10, 5, 1), kernel("k", 15, 10, 1))
    stream = int(trace.track[rows_of(trace, "k")[0]])
    times = replay(trace, Insert(0, us(10), (Task(us(4), issue=Issue(us(50), stream)),)))
    assert times.issue_start.tolist() == [15_000]
    assert span(trace, times, "k") == (66, 76)


def test_own_time_is_spread_around_what_is_inside() -> None:
    trace = trace_of(op("first", 0, 10))
    task = Task(us(6), (Task(us(2)), Task(us(4))))
    times = replay(trace, Insert(0, us(20), (task,), gap=us(1)))
    spans = list(zip(times.task_start.tolist(), times.task_end.tolist(), strict=True))
    start = spans[0][0]
    assert [(a - start, b - start) for a, b in spans] == [
        (0, 12_000),
        (2_000, 4_000),
        (6_000, 10_000),
    ]


def test_idle_time_is_reported() -> None:
    trace = trace_of(op("first", 0, 10), op("second", 20, 10))
    times = replay(trace, Insert(0, us(15), (Task(us(2)),)), idle(15, 50))
    assert times.idle == {1: (17_000, 67_000)}
    assert shifts(trace, times, "second") == [52]


def test_inserted_work_queues_on_its_stream() -> None:
    trace = trace_of(*DEVICE_BOUND)
    stream = int(trace.track[rows_of(trace, "gemm")[0]])
    times = replay(trace, Insert(0, us(38), (Task(us(4), issue=Issue(us(30), stream)),)))
    # Behind the second kernel, which ends at 208; the third comes 31 µs later than it did.
    assert (times.issue_start.tolist(), times.issue_end.tolist()) == ([209_000], [239_000])
    assert shifts(trace, times, "gemm") == [0, 0, 31, 31, 31, 31]
    assert shifts(trace, times, "aten::mm") == [0, 0, 4, 4, 4, 4]


def test_inserted_work_on_an_idle_stream_starts_after_the_usual_latency() -> None:
    trace = trace_of(*HOST_BOUND)
    stream = int(trace.track[rows_of(trace, "k")[0]])
    times = replay(trace, Insert(0, us(50), (Task(us(4), issue=Issue(us(30), stream)),)))
    assert times.issue_start.tolist() == [55_000]
    assert shifts(trace, times, "k") == [0, 4, 4, 4, 4]


@pytest.mark.parametrize("wait", ["work", "stream", "device"])
def test_an_inserted_wait_drains_the_queue(wait: str) -> None:
    trace = trace_of(*DEVICE_BOUND)
    stream = int(trace.track[rows_of(trace, "gemm")[0]])
    task = Task(us(4), issue=Issue(us(30), stream), wait=wait)  # type: ignore[arg-type]
    times = replay(trace, Insert(0, us(38), (task,)))
    assert times.issue_end.tolist() == [239_000]
    assert times.task_end.tolist() == [242_000]  # and 3 µs to return
    third = shifts(trace, times, "aten::mm")[2]
    assert third == 242 - 38
    # Its launch, 2 µs into the op, now sets the third kernel off.
    assert span(trace, times, "gemm", 2)[0] == 40 + third + 7


def test_a_wait_for_one_stream_leaves_the_others_alone() -> None:
    trace = trace_of(
        launch(0, 5, 1),
        kernel("main", 5, 50, 1),
        launch(8, 5, 2),
        kernel("more", 56, 50, 2),
        launch(14, 5, 3),
        kernel("long", 19, 500, 3, stream=20),
        op("after", 30, 5),
    )
    stream, device = (
        replay(trace, Insert(0, us(25), (Task(us(2), wait=wait),)))  # type: ignore[arg-type]
        for wait in ("stream", "device")
    )
    assert stream.task_end.tolist() == [109_000]
    assert device.task_end.tolist() == [522_000]


def test_inserted_work_waits_for_and_holds_other_streams() -> None:
    trace = trace_of(*DEVICE_BOUND, launch(200, 5, 90), kernel("side", 205, 5, 90, stream=20))
    main, side = (int(trace.track[rows_of(trace, name)[0]]) for name in ("gemm", "side"))
    joint = Issue(us(30), side, after=(main,), holds=(main,))
    times = replay(trace, Insert(0, us(38), (Task(us(1), issue=joint),)))
    # After the first two kernels (to 208); the third, issued later, after it.
    assert times.issue_start.tolist() == [209_000]
    assert span(trace, times, "gemm", 2)[0] == 240


# -- replaced and removed --------------------------------------------------------------------------


def test_a_removed_op_takes_its_calls_and_kernels_along() -> None:
    trace = trace_of(*HOST_BOUND)
    times = replay(trace, Remove(rows_of(trace, "aten::add")[1]))
    gone = np.flatnonzero(~times.keep).tolist()
    assert [trace.start[i] for i in gone] == [100_000, 105_000, 110_000]
    assert shifts(trace, times, "aten::add")[2:] == [-20, -20, -20]


def test_removed_work_frees_the_device() -> None:
    trace = trace_of(*DEVICE_BOUND)
    times = replay(trace, Remove(rows_of(trace, "aten::mm")[1]))
    assert shifts(trace, times, "gemm")[2:] == [-101] * 4


def test_a_replaced_op_stands_where_the_old_one_stood() -> None:
    trace = trace_of(*DEVICE_BOUND)
    stream = int(trace.track[rows_of(trace, "gemm")[0]])
    task = Task(us(10), (Task(us(5), issue=Issue(us(40), stream)),))
    times = replay(trace, Replace(rows_of(trace, "aten::mm")[1], (task,)))
    assert times.task_start.tolist() == [20_000, 25_000]
    assert times.issue_start.tolist() == [-1, 108_000]
    assert shifts(trace, times, "gemm")[2:] == [-60] * 4
    assert shifts(trace, times, "aten::mm")[2:] == [0] * 4


def test_a_launch_that_waits_for_its_kernel() -> None:
    trace = trace_of(*DEVICE_BOUND)
    calls = rows_of(trace, "cudaLaunchKernel")
    times = replay(trace, *(Alter(row, wait="work") for row in calls))
    ends = [span(trace, times, "gemm", i)[1] for i in range(6)]
    assert [span(trace, times, "cudaLaunchKernel", i)[1] for i in range(6)] == [e + 3 for e in ends]
    starts = [span(trace, times, "gemm", i)[0] for i in range(6)]
    issued = [span(trace, times, "cudaLaunchKernel", i)[0] for i in range(6)]
    assert starts == [at + 5 for at in issued]


def test_an_op_altered_keeps_what_is_inside() -> None:
    trace = trace_of(op("outer", 0, 30), op("inner", 5, 10), op("next", 40, 10))
    times = replay(trace, Alter(rows_of(trace, "outer")[0], dur=us(50)))
    start, end = span(trace, times, "outer")
    assert end - start == 60  # 50 of its own, 10 inside
    assert shifts(trace, times, "next") == [30]


def test_an_op_s_own_time_shrinks_everywhere() -> None:
    trace = trace_of(op("outer", 0, 30), op("inner", 5, 10), op("next", 40, 10))
    times = replay(trace, Alter(rows_of(trace, "outer")[0], dur=us(4)))
    assert span(trace, times, "outer") == (0, 14)
    assert span(trace, times, "inner") == (1, 11)
    assert shifts(trace, times, "next") == [-16]


@pytest.mark.parametrize("edit", [Insert(1, 0, gap=5), Insert(9, 0, gap=5), Remove(2), Alter(1)])
def test_edits_of_what_is_not_there_are_refused(edit: Edit) -> None:
    trace = trace_of(
        launch(0, 5, 1),
        Event(Cat.GPU_USER_ANNOTATION, "step", 1, 9, device=0, stream=7),
        kernel("k", 5, 10, 1),
    )
    with pytest.raises(Stuck, match="is n"):
        EditableGraph(trace).replay([edit])


def test_edits_of_the_same_events_are_refused() -> None:
    trace = trace_of(op("outer", 0, 30), op("inner", 5, 10))
    with pytest.raises(Stuck, match="same events"):
        EditableGraph(trace).replay([Remove(0), Remove(1)])


def test_a_replay_changes_nothing_in_its_graph() -> None:
    graph = EditableGraph(trace_of(*DEVICE_BOUND))
    graph.replay([idle(38, 300), Alter(2, dur=5)])
    np.testing.assert_array_equal(graph.replay().start, graph.trace.start)


# -- repairs ---------------------------------------------------------------------------------------


def saved(trace: Trace, repair: Repair, span: tuple[float, float] | None = None) -> float:
    """µs; and the replay behind it holds what any must."""
    graph = Graph(trace)
    times = graph.solve(repair)
    assert (times.end >= times.start)[times.keep & times.timed].all()
    whole = None if span is None else (us(span[0]), us(span[1]))
    return graph.saved(repair, whole) / 1_000


def named(trace: Trace, *names: str) -> Int64:
    return np.array([row for name in names for row in rows_of(trace, name)], np.int64)


def test_without_its_wait_a_host_runs_ahead() -> None:
    trace = trace_of(*WAITING)
    repair = Repair(unwait=named(trace, "cudaStreamSynchronize"))
    times = Graph(trace).solve(repair)
    assert span(trace, times, "cudaStreamSynchronize") == (10, 15)  # keeps a cost of its own
    assert span(trace, times, "aten::add") == (27, 37)
    assert span(trace, times, "k2") == (106, 116)  # behind the first kernel
    assert saved(trace, repair) == 137 - 116


def test_what_a_wait_costs_lies_behind_it() -> None:
    trace = trace_of(*WAITING)
    repair = Repair(unwait=named(trace, "cudaStreamSynchronize"))
    assert saved(trace, repair, (0, 108)) == 108 - 105  # the kernel ends as before
    edges = np.array([0, us(105), us(140)])
    assert Graph(trace).saved_between(repair, edges).tolist() == [0, us(21)]


def test_removed_with_all_inside_and_all_it_issued() -> None:
    trace = trace_of(*HOST_BOUND)
    row = rows_of(trace, "aten::add")[1]
    repair = Repair(remove=np.array([row]))
    times = Graph(trace).solve(repair)
    assert [trace.start[i] for i in np.flatnonzero(~times.keep)] == [100_000, 105_000, 110_000]
    assert shifts(trace, times, "k")[2:] == [-40] * 3  # and the interpreter's way to it
    assert saved(trace, repair) == 40
    inner = rows_of(trace, "cudaLaunchKernel")[1]
    assert saved(trace, Repair(remove=np.array([row, inner]))) == 40


def test_removed_from_an_op_the_op_s_own_time_stays() -> None:
    trace = trace_of(op("outer", 0, 30), op("inner", 5, 10), op("next", 40, 10))
    assert saved(trace, Repair(remove=named(trace, "inner"))) == 10


def test_the_call_of_a_built_in_goes_with_what_it_calls() -> None:
    frame = python("<built-in method clone of Tensor object>", 20, 20)
    events = (op("first", 0, 10), frame, op("aten::clone", 22, 15), op("next", 40, 10))
    trace = trace_of(*events)
    assert saved(trace, Repair(remove=named(trace, "aten::clone"))) == 20
    own = replace(frame, name="train.py(1): step")  # a frame that may do more than this
    trace = trace_of(*(own if e is frame else e for e in events))
    assert saved(trace, Repair(remove=named(trace, "aten::clone"))) == 17  # 2 us of its 5 stay
    trace = trace_of(*events, op("aten::add", 37, 2))
    assert saved(trace, Repair(remove=named(trace, "aten::clone"))) == 15


def test_work_that_goes_alone_leaves_its_launch() -> None:
    trace = trace_of(*DEVICE_BOUND)
    second = rows_of(trace, "gemm")[1]
    repair = Repair(drop=np.array([second]))
    times = Graph(trace).solve(repair)
    assert np.flatnonzero(~times.keep).tolist() == [second]
    assert shifts(trace, times, "aten::mm") == [0] * 6
    assert saved(trace, repair) == 101


def test_a_wait_for_work_that_goes_waits_for_the_work_before() -> None:
    trace = trace_of(*DEVICE_BOUND, sync(150, 466), op("after", 620, 5))
    repair = Repair(drop=np.array([rows_of(trace, "gemm")[5]]))
    assert shifts(trace, Graph(trace).solve(repair), "after") == [-101]


def test_the_first_work_of_a_stream_is_not_pinned_without_its_launch() -> None:
    trace = trace_of(op("before", 0, 1_000), *moved(DEVICE_BOUND, 1_000))
    first = rows_of(trace, "aten::mm")[0]
    repair = Repair(remove=np.array([first]), own=(named(trace, "before"), np.array([us(100)])))
    # The second launch follows 900 µs earlier; its kernel waits for nothing else.
    times = Graph(trace).solve(repair)
    assert span(trace, times, "cudaLaunchKernel", 1) == (107, 112)
    assert span(trace, times, "gemm", 1)[0] == 112


def moved(events: tuple[Event, ...], by: float) -> tuple[Event, ...]:
    return tuple(replace(event, start=event.start + by) for event in events)


def test_shorter_work_frees_the_device() -> None:
    trace = trace_of(*DEVICE_BOUND)
    rows = named(trace, "gemm")
    assert saved(trace, Repair(work=(rows, np.array([us(60)])))) == 6 * 40
    assert saved(trace, Repair(work=(rows, np.array([us(300)])))) == 0


def test_own_time_is_capped_and_what_is_inside_stays() -> None:
    trace = trace_of(op("outer", 0, 30), op("inner", 5, 10), op("next", 40, 10))
    repair = Repair(own=(named(trace, "outer"), np.array([us(4)])))
    times = Graph(trace).solve(repair)
    assert (span(trace, times, "outer"), span(trace, times, "inner")) == ((0, 14), (1, 11))
    assert saved(trace, repair) == 16
    assert saved(trace, Repair(own=(named(trace, "outer"), np.array([us(25)])))) == 0


LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def test_a_wait_for_a_thread_that_fetches_is_own_time() -> None:
    trace = trace_of(
        annotation(LOADER, 0, 1_000),
        op("aten::pin_memory", 100, 890, thread=3),
        *moved(HOST_BOUND, 1_000),
    )
    assert saved(trace, Repair(own=(named(trace, LOADER), np.array([0])))) == 1_000
    # That thread is waited for all the same, where nothing says that it need not be.
    fetching = named(trace, "aten::pin_memory")
    assert saved(trace, Repair(own=(fetching, np.array([us(490)])))) == 400


def test_a_wait_for_the_backward_is_not_own_time() -> None:
    frame = python("torch/autograd/graph.py(1): _engine_run_backward", 52, 944)
    trace = trace_of(*BACKWARD, frame)
    assert saved(trace, Repair(own=(named(trace, frame.name), np.array([0])))) == 0


def test_idle_time_before_an_event_is_capped() -> None:
    trace = trace_of(op("first", 0, 10), op("second", 40, 10), op("third", 60, 10))
    rows = named(trace, "second")
    assert saved(trace, Repair(idle=(rows, np.array([us(3)])))) == 27
    assert saved(trace, Repair(idle=(rows, np.array([us(50)])))) == 0


def test_joined_repairs_take_the_smaller_and_what_goes_is_gone() -> None:
    trace = trace_of(op("first", 0, 10), op("second", 40, 10), op("third", 60, 10))
    rows = named(trace, "second")
    some, more = (Repair(own=(rows, np.array([us(at)]))) for at in (6, 2))
    assert saved(trace, some | more) == saved(trace, more | some) == 8
    gone = Repair(remove=rows)
    assert saved(trace, gone | more) == saved(trace, gone) == 20


def test_one_figure_may_stand_for_all_rows() -> None:
    trace = trace_of(op("first", 0, 10), op("second", 40, 10))
    assert saved(trace, Repair(own=(np.arange(2), np.array([0])))) == 20


def test_of_a_span_only_what_begins_in_it_is_repaired() -> None:
    trace = trace_of(op("first", 0, 10), op("second", 40, 10), op("third", 60, 10))
    repair = Repair(remove=np.arange(3))
    assert saved(trace, repair, (30, 55)) == 20
    assert saved(trace, repair, (30, 70)) == 30


def test_threads_that_only_watch_do_not_count() -> None:
    watching = python("threading.py(1): wait", 0, 500, thread=9)
    trace = trace_of(*HOST_BOUND, watching)
    assert saved(trace, Repair(remove=np.array([rows_of(trace, "aten::add")[1]]))) == 40


@pytest.mark.parametrize("thread", [1, 2])
def test_the_main_thread_is_the_one_that_holds_the_loop(thread: int) -> None:
    """Not the one that launches more."""
    other = 3 - thread
    loop = [
        annotation("Optimizer.step#SGD.step", 0, 300, thread=thread),
        op("a", 10, 10, thread=thread),
    ]
    more = [
        e
        for i in range(5)
        for e in (launch(100 + 20 * i, 5, i + 1, thread=other), kernel("k", 106 + 20 * i, 5, i + 1))
    ]
    graph = Graph(trace_of(*loop, *more))
    assert graph.trace.tracks[graph.first].tid == str(thread)


@pytest.mark.parametrize(
    "repair",
    [
        Repair(remove=np.array([2])),
        Repair(unwait=np.array([9])),
        Repair(drop=np.array([0])),
        Repair(idle=(np.array([-1]), np.array([0]))),
    ],
)
def test_repairs_of_what_is_not_there_are_refused(repair: Repair) -> None:
    trace = trace_of(
        launch(0, 5, 1),
        Event(Cat.GPU_USER_ANNOTATION, "step", 1, 9, device=0, stream=7),
        kernel("k", 5, 10, 1),
    )
    with pytest.raises(Stuck, match="is no"):
        Graph(trace).saved(repair)
