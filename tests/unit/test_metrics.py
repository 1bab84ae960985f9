"""Scores' quality: the area under the curve by its definition, bootstrap over whole traces."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.lab.metrics import Estimate, auc, by_cluster, difference, ece, reliability

ROWS = st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), max_size=30)


def pairwise(truth: list[bool], score: list[float]) -> float:
    """Over all pairs of a true and another row: how often the true one is higher."""
    pairs = [
        (a, b)
        for a, t in zip(score, truth, strict=True)
        if t
        for b, u in zip(score, truth, strict=True)
        if not u
    ]
    won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs)
    return won / len(pairs) if pairs else float("nan")


@given(ROWS)
def test_auc_is_the_share_of_pairs_in_order(rows: list[tuple[bool, int]]) -> None:
    truth, score = [t for t, _ in rows], [float(s) for _, s in rows]
    found = auc(np.array(truth, np.bool_), np.array(score, np.float64))
    assert found == pytest.approx(pairwise(truth, score), nan_ok=True)


def test_auc_by_hand() -> None:
    truth = np.array([True, False, True, False])
    assert auc(truth, np.array([0.9, 0.1, 0.8, 0.2])) == 1.0
    assert auc(truth, np.array([0.1, 0.9, 0.2, 0.8])) == 0.0
    assert auc(truth, np.array([0.5, 0.5, 0.5, 0.5])) == 0.5
    assert auc(truth, np.array([0.9, 0.5, 0.5, 0.1])) == 0.875  # three pairs of four and a tie
    assert math.isnan(auc(np.array([True]), np.array([0.5])))


def traces(*names: str) -> npt.NDArray[np.object_]:
    return np.array(names, np.object_)


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=20), st.integers(0, 9))
def test_whole_traces_are_drawn_as_many_as_there_are(names: list[str], seed: int) -> None:
    whole = {name: [i for i, n in enumerate(names) if n == name] for name in set(names)}
    draws: list[list[int]] = []

    def metric(rows: npt.NDArray[np.int64]) -> float:
        draws.append(rows.tolist())
        return 0.0

    by_cluster(metric, traces(*names), rounds=5, seed=seed)
    *resamples, everything = draws
    assert everything == list(range(len(names)))
    assert len(resamples) == 5
    for rows in resamples:
        times = {name: rows.count(at[0]) for name, at in whole.items()}
        assert sorted(rows) == sorted(i for n, at in whole.items() for i in at * times[n])
        assert sum(times.values()) == len(whole)


def test_the_interval_respects_that_rows_of_a_trace_are_alike() -> None:
    value = np.repeat([0.0, 1.0], 50)  # a hundred rows, but only two traces
    found = by_cluster(lambda rows: float(value[rows].mean()), traces(*"a" * 50, *"b" * 50))
    assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)


def test_one_trace_tells_nothing_of_others() -> None:
    found = by_cluster(lambda rows: float(len(rows)), traces("a", "a"))
    assert (found.value, found.low, found.high) == (2.0, 2.0, 2.0)


def test_the_same_seed_gives_the_same_interval() -> None:
    value = np.arange(6.0)
    runs = [by_cluster(lambda rows: float(value[rows].mean()), traces(*"abcdef")) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0].low < runs[0].value < runs[0].high


def test_what_some_resamples_lack_is_left_out_of_the_interval() -> None:
    truth, score = np.array([True, False]), np.array([0.9, 0.1])
    found = by_cluster(lambda rows: auc(truth[rows], score[rows]), traces("a", "b"))
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_what_is_defined_nowhere_is_nan_without_a_warning() -> None:
    found = by_cluster(lambda _: float("nan"), traces("a", "b"))
    assert all(map(math.isnan, (found.value, found.low, found.high)))


def test_a_difference_is_taken_on_the_same_resamples() -> None:
    """Apart each figure varies; in every trace one is higher by the same."""
    value = np.arange(6.0)
    one, other = (lambda rows, by=by: float(value[rows].mean() + by) for by in (0.5, 0.0))
    found = difference(one, other, traces(*"abcdef"), rounds=50)
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_reliability_by_hand() -> None:
    stated = np.array([0.05, 0.95, 0.95, 1.0, 0.1])
    right = np.array([False, True, False, True, True])
    bins = reliability(stated, right)
    assert [(b.low, b.count) for b in bins if b.count] == [(0.0, 1), (0.1, 1), (0.9, 3)]
    assert bins[9].stated == pytest.approx(2.9 / 3)
    assert bins[9].right == pytest.approx(2 / 3)
    assert math.isnan(bins[5].right)
    assert ece(stated, right) == pytest.approx((0.05 + 0.9 + 0.9) / 5)


def test_ece_counts_an_answer_as_often_as_it_is_drawn() -> None:
    stated, right = np.array([0.25, 0.75]), np.array([True, True])
    assert ece(stated, right, np.array([3.0, 1.0])) == pytest.approx((3 * 0.75 + 0.25) / 4)
    assert ece(stated, right, np.array([0.0, 1.0])) == pytest.approx(0.25)
    assert math.isnan(ece(np.empty(0), np.empty(0, bool)))


def test_an_estimate_reads_well() -> None:
    assert str(Estimate(0.9876, 0.91, 1.0)) == "0.988 [0.910, 1.000]"
