"""The ledger adds up: every nanosecond once, whatever the trace."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from detector.intervals import Intervals
from detector.ledger import BY_ID, Ledger, build
from detector.signals import signals_of
from detector.trace import Trace
from detector.window import analyzed_time
from tests.random_traces import TRACES


def ledger_of(trace: Trace) -> Ledger:
    analyzed = analyzed_time(trace)
    return build(signals_of(trace), analyzed.start, analyzed.end)


@given(TRACES)
def test_the_pieces_tile_the_analyzed_time(trace: Trace) -> None:
    ledger = ledger_of(trace)
    pieces = ledger.pieces
    edges = np.concatenate([[ledger.start], pieces.end])
    assert np.array_equal(edges[:-1], pieces.start)
    assert edges[-1] == ledger.end
    assert sum(ledger.total().values()) == ledger.end - ledger.start


@given(TRACES)
def test_any_cut_adds_up_and_the_parts_make_the_whole(trace: Trace) -> None:
    ledger = ledger_of(trace)
    edges = np.unique(np.linspace(ledger.start, ledger.end, 6).astype(np.int64))
    parts = ledger.by_span(edges[:-1], edges[1:])
    assert [sum(part.values()) for part in parts] == np.diff(edges).tolist()
    for cause, ns in ledger.total().items():
        assert sum(part.get(cause, 0) for part in parts) == ns


@given(TRACES)
def test_busy_and_exposed_time_is_what_the_activity_measures(trace: Trace) -> None:
    ledger = ledger_of(trace)
    a = ledger.signals.activity
    whole = Intervals.span(ledger.start, ledger.end)
    total = ledger.total()
    if not a.has_device:
        assert total.get("cpu-compute", 0) == (a.compute & whole).measure
        return
    exposed = total.get("communication", 0) + total.get("rank-wait", 0)
    assert total.get("compute", 0) == (a.compute & whole).measure
    assert exposed == (a.exposed_comm & whole).measure
    assert total.get("copy", 0) == (a.exposed_copy & whole).measure
    idle = sum(ns for cause, ns in total.items() if BY_ID[cause].group in _IDLE)
    assert idle == whole.measure - (a.busy & whole).measure


_IDLE = ("host", "device", "unexplained")


@given(TRACES)
def test_a_piece_is_charged_to_an_event_that_is_there(trace: Trace) -> None:
    pieces = ledger_of(trace).pieces
    charged = pieces.row >= 0
    row = pieces.row[charged]
    on_host = ~np.isin(row, np.flatnonzero(trace.is_device_work))
    start, end = pieces.start[charged][on_host], pieces.end[charged][on_host]
    assert (trace.start[row[on_host]] <= start).all()
    assert (end <= trace.end[row[on_host]] + 1_000).all()  # a child may outlive its parent
