"""The events around a finding's place, few enough to be drawn."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.activity import Activity
from detector.evidence import excerpt as module
from detector.evidence import heaviest
from detector.evidence.excerpt import excerpt
from detector.patterns import Occurrences
from detector.report.events import Excerpt, TopEvent
from detector.trace import NS_PER_US
from detector.window import analyzed_time
from tests.traces import Event, kernel, launch, op, python, sync, trace_of

US = NS_PER_US


def excerpt_of(
    *events: Event, place: tuple[int, int] = (0, 1000), at_fault: str = "bad", **more: object
) -> Excerpt:
    """Of a place, µs; events of the name ``at_fault`` are its occurrences."""
    trace = trace_of(*events, **more)
    rows = np.flatnonzero([trace.names[i] == at_fault for i in trace.name])
    occurrences = Occurrences(rows, trace.start[rows], trace.end[rows])
    span = place[0] * US, place[1] * US
    whole = replace(analyzed_time(trace), start=int(trace.start[0]), end=int(trace.end.max()))
    return excerpt(Activity(trace), whole, span, occurrences)


def bars(shown: Excerpt, label: str) -> list[tuple[float, float, int, int, bool]]:
    """(start, end, level, events, at fault) of each bar, µs on the trace's axis."""
    (track,) = [track for track in shown.tracks if track.label == label]
    start = [round(shown.start_us + us, 3) for us in track.start_us]
    end = [round(a + us, 3) for a, us in zip(start, track.dur_us, strict=True)]
    at_fault = [i in track.at_fault for i in range(len(start))]
    return sorted(zip(start, end, track.depth, track.count, at_fault, strict=True))


def test_threads_and_streams_are_shown_with_what_is_at_fault():
    shown = excerpt_of(
        op("aten::item", 0, 900),
        sync(100, 700, name="bad"),
        op("aten::add", 910, 80),
        launch(920, 10, corr=1),
        kernel("k", 950, 40, corr=1),
    )
    assert [track.label for track in shown.tracks] == ["thread 1 (main)", "stream 7"]
    assert bars(shown, "thread 1 (main)") == [
        (0, 900, 0, 1, False),
        (100, 800, 1, 1, True),
        (910, 990, 0, 1, False),
        (920, 930, 1, 1, False),
    ]
    assert bars(shown, "stream 7") == [(950, 990, 0, 1, False)]
    assert shown.spans_us == ((100 - shown.start_us, 800 - shown.start_us),)
    assert (shown.events, shown.hidden) == (5, 0)


def test_what_began_before_the_place_is_shown_from_its_own_start():
    shown = excerpt_of(
        op("aten::mm", 0, 5000), op("bad", 4000, 100), op("later", 4900, 5), place=(4000, 4100)
    )
    assert bars(shown, "thread 1 (main)") == [(0, 5000, 0, 1, False), (4000, 4100, 1, 1, True)]
    assert (shown.start_us, shown.end_us) == (3996, 4104)


def test_frames_that_only_wrap_others_are_left_out():
    shown = excerpt_of(
        python("main.py(1): main", -100, 2000),
        python("main.py(2): train", -50, 1500),
        python("nn.py(3): wrapper", 0, 100),
        python("nn.py(4): forward", 1, 98),
        op("bad", 10, 50),
        op("aten::add", 900, 50),
    )
    assert bars(shown, "thread 1 (main)") == [
        (-50, 1450, 0, 1, False),
        (1, 99, 1, 1, False),
        (10, 60, 2, 1, True),
        (900, 950, 1, 1, False),
    ]
    assert (shown.events, shown.hidden) == (6, 2)


@pytest.fixture
def few(monkeypatch):
    """So few events fit that short traces are too many."""
    monkeypatch.setattr(module, "MOST_EVENTS", 40)
    monkeypatch.setattr(module, "WIDEST", 100)
    monkeypatch.setattr(module, "MOST_SPANS", 10)


def test_short_neighbors_are_joined_and_none_is_lost(few):
    events = [kernel("k", float(i), 0.5) for i in range(90)]
    shown = excerpt_of(*events, op("bad", 0, 90), place=(0, 90))
    (stream,) = [track for track in shown.tracks if track.is_device]
    assert len(stream.count) < module.MOST_EVENTS
    assert sum(stream.count) == 90
    assert sum(stream.busy_us) == pytest.approx(90 * 0.5)
    assert shown.hidden == 0


def test_what_is_at_fault_is_never_joined_with_what_is_not(few):
    events = [op("bad" if i % 2 else "good", i + 0.1 * (i % 2), 0.9) for i in range(90)]
    shown = excerpt_of(*events, place=(0, 90))
    (track,) = shown.tracks
    assert sum(track.count[i] for i in track.at_fault) == 45
    assert sum(track.count) == 90
    assert len(track.count) <= module.MOST_EVENTS
    assert len(shown.spans_us) <= module.MOST_SPANS


def test_a_place_with_too_many_events_is_shown_where_most_occurrences_are(few):
    events = [op("good", float(i), 0.5) for i in range(300)]
    events += [op("bad", 200.6 + i, 0.3) for i in range(20)]
    shown = excerpt_of(*events, place=(0, 300))
    assert shown.place_us == (0, 300)
    assert shown.start_us < 201 < 220 < shown.end_us
    assert shown.end_us - shown.start_us < 120
    assert shown.events <= 1.3 * module.WIDEST


def test_tracks_beyond_the_most_are_counted():
    events = [op("bad" if t == 9 else "good", 10, 50 + t, thread=t) for t in range(1, 10)]
    shown = excerpt_of(*events)
    assert len(shown.tracks) == module.MOST_TRACKS
    assert any(track.label.startswith("thread 9") for track in shown.tracks)
    assert shown.hidden == 9 - module.MOST_TRACKS


def test_streams_of_several_devices_are_distinguished():
    events = [kernel("bad", 10, 50, device=d, stream=7) for d in (0, 1)]
    labels = [track.label for track in excerpt_of(*events).tracks]
    assert sorted(labels) == ["GPU 0 stream 7", "GPU 1 stream 7"]


times = st.tuples(st.integers(0, 900), st.integers(1, 300), st.booleans(), st.integers(1, 3))


@given(st.lists(times, min_size=1, max_size=60))
def test_every_event_of_the_place_is_drawn_or_counted(listed):
    events = [
        kernel("bad" if bad else "good", start, length, stream=stream)
        for start, length, bad, stream in listed
    ]
    shown = excerpt_of(*events, op("program", 0, 1200))
    assert sum(sum(track.count) for track in shown.tracks) + shown.hidden == shown.events
    for track in shown.tracks:
        assert all(us >= 0 for us in track.dur_us)
        assert all(us < shown.end_us - shown.start_us for us in track.start_us)
        assert all(a + us > 0 for a, us in zip(track.start_us, track.dur_us, strict=True))
    assert all(a < b for (a, _), (b, _) in pairwise(shown.spans_us))


# -- the heaviest ------------------------------------------------------------------------------


def heavy(*events: Event) -> tuple[tuple[TopEvent, ...], tuple[TopEvent, ...]]:
    trace = trace_of(*events)
    activity, analyzed = Activity(trace), analyzed_time(trace)
    return heaviest.kernels(activity, analyzed), heaviest.ops(activity, analyzed)


def test_kernels_and_ops_are_ranked_by_their_time_with_shapes():
    kernels, ops = heavy(
        op("aten::linear", 0, 100),
        op("aten::mm", 10, 40, dims="[[8, 4], [4, 2]]"),
        launch(20, 5, corr=1),
        op("aten::mm", 60, 30, dims="[[8, 8], [8, 8]]"),
        launch(70, 5, corr=2),
        kernel("void gemm<float>(int)", 30, 50, corr=1),
        kernel("void gemm<float>(long)", 90, 400, corr=2),
        kernel("fill", 600, 10),
    )
    assert kernels == (
        TopEvent("gemm<float>", 2, 450, 0, "[[8, 8], [8, 8]]"),
        TopEvent("fill", 1, 10),
    )
    assert ops == (
        TopEvent("aten::mm", 2, 70, 450, "[[8, 8], [8, 8]]"),
        TopEvent("aten::linear", 1, 30),
    )


def test_no_more_than_the_heaviest_are_listed():
    _, ops = heavy(*(op(f"aten::op{i}", 100 * i, i + 1) for i in range(40)))
    assert len(ops) == heaviest.MOST
    assert ops[0].name == "aten::op39"


@pytest.mark.parametrize("events", [(op("aten::add", 0, 5),), (kernel("k", 0, 5),)])
def test_a_trace_with_one_side_only_lists_that(events):
    assert sorted(map(len, heavy(*events))) == [0, 1]
