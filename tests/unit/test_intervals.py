"""Interval sets, on cases one can see."""

from __future__ import annotations

import numpy as np

from detector.intervals import EMPTY, Intervals, count_within


def pieces(of: Intervals) -> list[tuple[int, int]]:
    return list(zip(of.start.tolist(), of.end.tolist(), strict=True))


def made(*pairs: tuple[int, int]) -> Intervals:
    return Intervals.union(
        np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)
    )


def test_union_joins_what_overlaps_or_touches() -> None:
    assert pieces(made((5, 9), (0, 3), (3, 4), (8, 12))) == [(0, 4), (5, 12)]


def test_union_drops_what_is_empty_or_inverted() -> None:
    assert pieces(made((5, 5), (9, 2))) == []


def test_a_long_interval_swallows_later_short_ones() -> None:
    assert pieces(made((0, 100), (10, 20), (30, 40))) == [(0, 100)]


def test_measure_is_the_total_length() -> None:
    assert made((0, 3), (10, 15)).measure == 8
    assert EMPTY.measure == 0


def test_intersection_with_several_pieces() -> None:
    assert pieces(made((0, 10), (20, 30)) & made((5, 25), (28, 40))) == [
        (5, 10),
        (20, 25),
        (28, 30),
    ]


def test_difference_leaves_both_ends() -> None:
    assert pieces(made((0, 10)) - made((3, 5))) == [(0, 3), (5, 10)]
    assert pieces(made((0, 10)) - EMPTY) == [(0, 10)]
    assert pieces(EMPTY - made((0, 10))) == []


def test_invert_of_nothing_is_everything() -> None:
    assert pieces(EMPTY.invert(3, 8)) == [(3, 8)]
    assert pieces(EMPTY.invert(8, 3)) == []


def test_covered_of_windows() -> None:
    of = made((0, 10), (20, 30))
    start, end = np.array([-5, 5, 12, 0]), np.array([5, 25, 18, 100])
    assert of.covered(start, end).tolist() == [5, 10, 0, 20]
    assert EMPTY.covered(start, end).tolist() == [0, 0, 0, 0]


def test_span_is_one_piece() -> None:
    assert pieces(Intervals.span(2, 7)) == [(2, 7)]


def test_bridging_joins_what_lies_close_but_not_across_a_border() -> None:
    spans = Intervals.union(np.array([0, 15, 40, 55]), np.array([10, 20, 50, 60]))
    none = np.zeros(0, np.int64)
    joined = spans.bridged(5, none)
    assert list(zip(joined.start.tolist(), joined.end.tolist(), strict=True)) == [(0, 20), (40, 60)]
    cut = spans.bridged(5, np.array([0, 52]))
    assert cut.start.tolist() == [0, 40, 55]
    assert len(spans.bridged(1_000, none)) == 1
    assert len(Intervals(none, none).bridged(5, none)) == 0


def test_times_inside_intervals() -> None:
    spans = Intervals.union(np.array([0, 10]), np.array([5, 20]))
    times = np.array([-1, 0, 4, 5, 10, 19, 20])
    assert spans.contain(times).tolist() == [False, True, True, False, True, True, False]
    assert not EMPTY.contain(times).any()


def test_times_are_counted_in_half_open_spans() -> None:
    times = np.array([7, 3, 5, 3])
    assert count_within(times, np.array([0, 3, 5]), np.array([3, 7, 5])).tolist() == [0, 3, 0]
