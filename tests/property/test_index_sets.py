"""Sets of rows by tables: what numpy's general functions give."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detector.index_sets import among, difference, distinct, groups, union

FEW = st.lists(st.integers(0, 12), max_size=40)
WIDE = st.lists(st.integers(0, 2**40), max_size=12)  # too far apart for a table
NUMBERS = FEW | st.lists(st.integers(-1, 40), max_size=40)


def array(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


@given(NUMBERS | WIDE)
def test_distinct_numbers_ascend(values: list[int]) -> None:
    np.testing.assert_array_equal(distinct(array(values)), np.unique(array(values)))


@given(NUMBERS, NUMBERS)
def test_rows_that_are_among_others(rows: list[int], other: list[int]) -> None:
    expected = np.isin(array(rows), array(other))
    np.testing.assert_array_equal(among(array(rows), array(other)), expected)
    assert not among(array(rows), []).any()


@given(FEW, FEW)
def test_union_and_difference(rows: list[int], other: list[int]) -> None:
    assert union(rows, other).tolist() == sorted({*rows, *other})
    assert difference(array(rows), other).tolist() == sorted({*rows} - {*other})


@given(st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 2**40), st.integers(0, 3))))
def test_groups_are_the_distinct_tuples_in_order(tuples: list[tuple[int, int, int]]) -> None:
    keys = [array(list(key)) for key in zip(*tuples, strict=True)] or [array([])] * 3
    found, which = groups(*keys)
    expected = sorted(set(tuples))
    assert list(zip(*(key.tolist() for key in found), strict=True)) == expected
    assert [expected[i] for i in which.tolist()] == tuples
