"""Events inside events: both ways through the loops, against the obvious walk up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.kineto import nesting
from tests.traces import annotation, op, python, trace_of

needs_loops = pytest.mark.skipif(not nesting.COMPILED, reason="the loops are not built here")
WAYS = [pytest.param(True, id="compiled", marks=needs_loops), pytest.param(False, id="pure")]


@pytest.fixture(params=WAYS, autouse=True, scope="module")
def _way(request: pytest.FixtureRequest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "COMPILED", request.param)
        yield


@st.composite
def parents(draw: st.DrawFn) -> list[int]:
    """A parent stands before its child."""
    links = draw(st.lists(st.integers(-1, 30), max_size=30))
    return [min(link, i - 1) for i, link in enumerate(links)]


def way_up(parent: list[int], row: int) -> list[int]:
    return [row, *way_up(parent, parent[row])] if row >= 0 else []


@given(parents(), st.data())
def test_the_nearest_of_a_kind_is_the_first_on_the_way_up(parent: list[int], data: st.DataObject):
    count = len(parent)
    key = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    wanted = data.draw(st.lists(st.booleans(), min_size=4, max_size=4))
    rows = data.draw(st.lists(st.integers(-1, count - 1)))
    found = nesting.climb(
        np.array(parent, np.int32),
        np.array(rows, np.int64),
        np.array(key, np.int32),
        np.array(wanted, np.bool_),
    )
    expected = [next((r for r in way_up(parent, row) if wanted[key[r]]), -1) for row in rows]
    assert found.tolist() == expected


@given(parents(), st.data())
def test_the_nearest_listed_row_has_its_position(parent: list[int], data: st.DataObject):
    listed = sorted(data.draw(st.sets(st.sampled_from(range(len(parent)))))) if parent else []
    found = nesting.nearest(np.array(parent, np.int32), np.array(listed, np.int64))
    places = {row: place for place, row in enumerate(listed)}
    expected = [
        next((places[r] for r in way_up(parent, row) if r in places), -1)
        for row in range(len(parent))
    ]
    assert found.tolist() == expected


def test_a_chain_without_end_is_given_up():
    depth = 1_500
    parent = np.arange(-1, depth - 1, dtype=np.int32)
    key = np.zeros(depth, np.int32)
    key[0] = 1
    wanted = np.array([False, True])
    found = nesting.climb(parent, np.array([999, 1_000]), key, wanted)
    assert found.tolist() == [0, -1]


times = st.tuples(st.integers(0, 20), st.integers(1, 10), st.sampled_from((op, python, annotation)))


@given(st.lists(times, max_size=12))
def test_the_innermost_is_the_last_to_begin_of_those_open_around(events):
    trace = trace_of(*(kind("a", at, dur) for at, dur, kind in events))
    rows = np.arange(len(trace))
    time, inside = nesting.innermost(trace.start, trace.end, trace.parent, rows)
    assert time.tolist() == sorted({*trace.start.tolist(), *trace.end.tolist()})
    parent, end = trace.parent.tolist(), trace.end.tolist()
    for at, row in zip(time.tolist(), inside.tolist(), strict=True):
        begun = [r for r in rows.tolist() if trace.start[r] == at]
        if begun:
            assert row == begun[-1]
        else:
            latest = max(r for r in rows.tolist() if trace.start[r] < at)
            assert row == next((r for r in way_up(parent, latest) if end[r] > at), -1)
