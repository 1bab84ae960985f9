"""Injected faults beside their untouched base, by hand."""

from __future__ import annotations

import math

import pytest

from detector.lab.scoring import Prediction, Problem, Truth, paired_figures
from detector.lab.scoring.table import paired_part

GC, SYNC, COPY = "host-gc-pause", "sync-explicit", "memory-redundant-copy"


def base(name: str = "b", analyzed: float = 1000) -> Truth:
    return Truth(f"injected/{name}/000", "injected", "p", name, analyzed, False)


def faulty(number: int, name: str = "b", **costs: float) -> Truth:
    """A fault adds to the 1,000 µs of its base."""
    names = {"gc": GC, "sync": SYNC, "copy": COPY}
    problems = tuple(Problem(names[k], "cpu", ((0, 9),), cost) for k, cost in costs.items())
    analyzed = 1000 + sum(costs.values())
    return Truth(f"injected/{name}/{number:03d}", "injected", "p", name, analyzed, False, problems)


def predicted(trace: Truth, **savings: float) -> list[Prediction]:
    names = {"gc": GC, "sync": SYNC, "copy": COPY}
    return [Prediction(trace.trace, names[k], ((0, 1),), 0.5, s) for k, s in savings.items()]


def scored(trace: Truth, before: dict[str, float], after: dict[str, float]):  # type: ignore[no-untyped-def]
    whole = base()
    truths = {t.trace: t for t in (whole, trace)}
    predictions = {whole.trace: predicted(whole, **before), trace.trace: predicted(trace, **after)}
    return paired_figures(truths, predictions, rounds=5)


@pytest.mark.parametrize(
    ("before", "after", "expected"),  # named, new, within 2×; the fault adds 100 of 1,100 µs
    [
        (0, 100, (1, 1, 1)),
        (0, 0, (0, 0, 0)),
        (0, 22, (1, 0, 0)),
        (0, 21.9, (0, 0, 0)),
        (0, 30, (1, 1, 0)),
        (0, 29.9, (1, 0, 0)),
        (0, 50, (1, 1, 1)),
        (0, 200, (1, 1, 1)),
        (0, 201, (1, 1, 0)),
        (90, 90, (1, 0, 0)),  # the base has as much of it
        (90, 190, (1, 1, 1)),
        (90, 10, (0, 0, 0)),
    ],
)
def test_only_what_rises_is_new(
    before: float, after: float, expected: tuple[int, int, int]
) -> None:
    found = scored(faulty(1, gc=100), {"gc": before}, {"gc": after}).all
    assert (found.named.value, found.new.value, found.within_2x.value) == expected
    assert found.rise[1] == pytest.approx((after - before) / 100)


@pytest.mark.parametrize(("after", "alarms"), [(33, 1), (32.9, 0), (500, 1)])
def test_other_patterns_that_rise_are_false_alarms(after: float, alarms: int) -> None:
    found = scored(faulty(1, gc=100), {"sync": 0}, {"sync": after, "gc": 100})
    assert found.alarms.value == alarms
    assert scored(faulty(1, gc=100), {"sync": after}, {"sync": after}).alarms.value == 0


def test_a_fault_that_adds_too_little_is_left_out() -> None:
    found = scored(faulty(1, gc=29.9), {}, {"gc": 29.9, "sync": 900})
    assert (found.traces, found.faint, found.all) == (0, 1, None)
    assert math.isnan(found.alarms.value)
    assert scored(faulty(1, gc=30), {}, {}).traces == 1


def test_of_two_faults_each_is_scored_and_neither_is_an_alarm() -> None:
    found = scored(faulty(1, gc=100, copy=20), {}, {"gc": 100, "copy": 80})
    assert (found.all.faults, found.faint, found.alarms.value) == (1, 1, 0)
    both = scored(faulty(1, gc=100, copy=50), {}, {"gc": 100})
    assert (both.all.faults, both.all.named.value) == (2, 0.5)
    assert {name: row.named.value for name, row in both.families.items()} == {
        "host": 1,
        "memory": 0,
    }
    assert list(both.patterns) == [GC, COPY]


def test_without_the_scanned_base_there_is_no_pair() -> None:
    mine, whole = faulty(1, gc=100), base()
    truths = {t.trace: t for t in (mine, whole)}
    found = paired_figures(truths, {mine.trace: predicted(mine, gc=100)}, rounds=2)
    assert (found.traces, found.unpaired, found.all) == (0, 1, None)
    assert paired_figures(truths, {whole.trace: []}, rounds=2).unpaired == 0


def test_bases_are_drawn() -> None:
    """Of two bases one has all faults named: the shares of a resample are 0, a half or 1."""
    truths = [base("a"), base("b"), *(faulty(i, n, gc=100) for n in "ab" for i in range(1, 9))]
    predictions = {t.trace: predicted(t, gc=100) if t.base == "a" else [] for t in truths}
    predictions["injected/a/000"] = []
    found = paired_figures({t.trace: t for t in truths}, predictions, rounds=100)
    assert (found.all.named.value, found.all.named.low, found.all.named.high) == (0.5, 0, 1)
    assert (found.all.faults, found.all.bases) == (16, 2)
    text = "\n".join(paired_part(found))
    assert "16 traces with a fault" in text
    assert "| host " in text
