"""Interval sets are sets of time: every operation equals the one on Python sets of ticks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detector.intervals import Intervals

PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(-3, 15)), max_size=12)
TIMES = st.tuples(st.integers(-5, 80), st.integers(-5, 80)).map(sorted)


def intervals(pairs: list[tuple[int, int]]) -> Intervals:
    start = np.array([start for start, _ in pairs], np.int64)
    return Intervals.union(start, start + np.array([dur for _, dur in pairs], np.int64))


def ticks_of(pairs: list[tuple[int, int]]) -> set[int]:
    return {tick for start, dur in pairs for tick in range(start, start + dur)}


def ticks(of: Intervals) -> set[int]:
    """The ticks, once it is certain that the pieces are sorted, disjoint and not empty."""
    assert of.start.dtype == of.end.dtype == np.int64
    assert (of.end > of.start).all()
    assert (of.start[1:] >= of.end[:-1]).all()
    return {t for a, b in zip(of.start, of.end, strict=True) for t in range(a, b)}


@given(PAIRS)
def test_a_union_holds_each_tick_once(pairs: list[tuple[int, int]]) -> None:
    union = intervals(pairs)
    assert ticks(union) == ticks_of(pairs)
    assert union.measure == len(ticks_of(pairs))
    assert (union.start[1:] > union.end[:-1]).all()  # neighbors are one


@given(PAIRS, PAIRS)
def test_operators_are_those_of_sets(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    one, two = intervals(a), intervals(b)
    assert ticks(one | two) == ticks_of(a) | ticks_of(b)
    assert ticks(one & two) == ticks_of(a) & ticks_of(b)
    assert ticks(one - two) == ticks_of(a) - ticks_of(b)


@given(PAIRS, TIMES)
def test_clip_and_invert_part_a_span_in_two(pairs: list[tuple[int, int]], span: list[int]) -> None:
    start, end = span
    inside = set(range(start, end))
    assert ticks(intervals(pairs).clip(start, end)) == ticks_of(pairs) & inside
    assert ticks(intervals(pairs).invert(start, end)) == inside - ticks_of(pairs)


@given(PAIRS, st.lists(TIMES, min_size=1, max_size=6))
def test_covered_counts_the_ticks_of_each_window(
    pairs: list[tuple[int, int]], windows: list[list[int]]
) -> None:
    edges = np.array(windows, np.int64)
    covered = intervals(pairs).covered(edges[:, 0], edges[:, 1])
    assert list(covered) == [len(ticks_of(pairs) & set(range(a, b))) for a, b in windows]


@given(PAIRS, PAIRS, st.integers(-(2 * 10**18), 2 * 10**18))
def test_the_time_of_day_does_not_matter(
    a: list[tuple[int, int]], b: list[tuple[int, int]], shift: int
) -> None:
    moved = intervals([(s + shift, d) for s, d in a]) & intervals([(s + shift, d) for s, d in b])
    here = intervals(a) & intervals(b)
    assert list(moved.start - shift) == list(here.start)
    assert list(moved.end - shift) == list(here.end)
