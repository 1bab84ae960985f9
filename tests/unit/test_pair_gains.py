"""Savings as stated beside gains as measured."""

from __future__ import annotations

import pytest

from scripts.pair_gains import RANGES, Pair, error, lines, rank_correlation, width, within

SHOWN = RANGES["as shown"]
FOUND = [
    Pair("a", "p", 0.10, 0.05, True, best=0.12, rest=0.1, alone=0.12, low=0.05, high=0.24),
    Pair("b", "p", 0.30, 0.15, True, best=0.20, rest=0.2, alone=0.20, low=0.10, high=0.27),
    Pair("c", "p", 0.50, 0.25, True, best=0.40, rest=0.4, alone=0.40, low=0.20, high=0.80),
]
MISSED = Pair("d", "q", 0.90, 0.04)


def test_a_gain_lies_within_a_range_or_beside_it_by_no_more_than_the_noise() -> None:
    assert within(FOUND, SHOWN) == pytest.approx(2 / 3)
    assert within(FOUND, SHOWN, 0.03) == 1.0
    assert within(FOUND, RANGES["[all others repaired, alone]"]) == pytest.approx(1 / 3)
    assert width(FOUND, SHOWN) == pytest.approx(0.19)


def test_what_has_no_candidate_counts_as_nothing_stated() -> None:
    assert error(FOUND) == pytest.approx(0.10)
    assert error([*FOUND, MISSED]) == pytest.approx(0.10)
    assert rank_correlation(FOUND) == pytest.approx(1.0)
    assert rank_correlation([*FOUND, MISSED]) == pytest.approx(-0.2)


def test_the_lines_say_what_is_missing() -> None:
    said = list(lines([*FOUND, MISSED], 0.03))
    assert "q d: gain 0.900, no candidate" in said
    assert "4 measurable faults, 1 without a candidate, 1 of these under 5 % of the trace" in said
    assert "range as shown: within 0.67, by 0.030 wider 1.00, width 0.190" in said
