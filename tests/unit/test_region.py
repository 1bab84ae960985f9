"""Suspicious windows become regions: which are merged, where they are cut, how edges move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from detector.flagger import Float32, Scores
from detector.intervals import EMPTY, Intervals
from detector.patterns import BY_ID, CLASSES
from detector.region import CANDIDATES, Region, merge
from detector.taxonomy import NONE
from detector.window import Window

HOST, SYNC, FP32 = "host-launch-bound", "sync-explicit", "compute-fp32-matmul"


class Fake:
    """Drivers name the window they were asked for: the matrix holds its index."""

    name = "fake"

    def __init__(self) -> None:
        self.threshold = {"cpu": 0.5, "gpu": 0.7}

    def score(self, matrix: Float32) -> Scores:
        raise AssertionError("merging scores nothing")

    def drivers(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        return [(f"{side} {row[0]:.0f}",) for row in matrix]


Likely = dict[str, float]


def scores(cpu: Sequence[float], gpu: Sequence[float], likely: Sequence[Likely]) -> Scores:
    classes = np.zeros((len(likely), len(CLASSES)), np.float32)
    for i, row in enumerate(likely):
        for name, probability in row.items():
            classes[i, CLASSES.index(name)] = probability
    return Scores(np.array(cpu, np.float32), np.array(gpu, np.float32), classes)


def regions(
    cpu: Sequence[float],
    likely: Sequence[Likely] | None = None,
    steps: Sequence[int | None] | None = None,
    edges: Intervals = EMPTY,
    gpu: Sequence[float] | None = None,
) -> tuple[Region, ...]:
    """Regions of windows of 100 ns in a row."""
    n = len(cpu)
    windows = tuple(
        Window(100 * i, 100 * (i + 1), steps[i] if steps else None, 0, 100 * n) for i in range(n)
    )
    given = scores(cpu, gpu or [0.0] * n, likely or [{HOST: 0.9}] * n)
    return merge(windows, given, Fake(), np.arange(n, dtype=np.float32)[:, None], edges)


def spans(found: Sequence[Region]) -> list[tuple[int, int]]:
    return [(region.start, region.end) for region in found]


def test_neighbours_become_one_region() -> None:
    (region,) = regions([0.1, 0.6, 0.9, 0.5, 0.4])
    assert (region.start, region.end, region.windows) == (100, 400, (1, 2, 3))
    assert region.score == pytest.approx(0.9)
    assert region.drivers == ("cpu 2",)  # of its highest window
    assert region.dur == 300


def test_the_threshold_itself_is_suspicious_and_each_side_has_its_own() -> None:
    assert spans(regions([0.5, 0.49])) == [(0, 100)]
    assert regions([0.0, 0.0], gpu=[0.69, 0.6]) == ()
    (region,) = regions([0.0, 0.0], gpu=[0.71, 0.6])
    assert (region.side, region.start) == ("gpu", 0)


def test_a_calm_window_between_cuts() -> None:
    assert spans(regions([0.9, 0.1, 0.9])) == [(0, 100), (200, 300)]


def test_nothing_suspicious_and_no_windows() -> None:
    assert regions([0.1, 0.2]) == ()
    assert regions([]) == ()


def test_a_change_of_step_cuts() -> None:
    assert spans(regions([0.9] * 4, steps=[0, 0, 1, 1])) == [(0, 200), (200, 400)]
    assert spans(regions([0.9] * 4, steps=[None, None, 0, 0])) == [(0, 200), (200, 400)]


def test_a_change_of_the_likeliest_pattern_cuts() -> None:
    found = regions([0.9] * 3, [{HOST: 0.6, SYNC: 0.2}, {HOST: 0.3, SYNC: 0.4}, {SYNC: 0.8}])
    assert spans(found) == [(0, 100), (100, 300)]
    assert [region.candidates[0][0] for region in found] == [HOST, SYNC]


def test_patterns_of_the_other_side_and_none_cut_nothing() -> None:
    found = regions([0.9] * 3, [{HOST: 0.3, FP32: 0.6}, {HOST: 0.3, NONE: 0.7}, {HOST: 0.9}])
    assert spans(found) == [(0, 300)]


def test_candidates_are_of_the_side_or_none_best_first() -> None:
    likely = {FP32: 0.5, NONE: 0.2, HOST: 0.2, SYNC: 0.1}
    (cpu,) = regions([0.9], [likely])
    assert {name for name, _ in cpu.candidates[:3]} == {NONE, HOST, SYNC}
    (gpu,) = regions([0.0], [likely], gpu=[0.9])
    assert [name for name, _ in gpu.candidates[:2]] == [FP32, NONE]
    for region in (cpu, gpu):
        names, probabilities = zip(*region.candidates, strict=True)
        assert len(names) == CANDIDATES
        assert all(name == NONE or BY_ID[name].side == region.side for name in names)
        assert list(probabilities) == sorted(probabilities, reverse=True)


def test_none_is_as_likely_as_the_score_leaves_it_and_the_patterns_share_the_rest() -> None:
    (region,) = regions([0.9, 0.5], [{HOST: 0.9}, {HOST: 0.3, FP32: 0.7}])
    assert region.candidates[:2] == ((HOST, 0.7), (NONE, 0.3))  # the mean of both windows
    (region,) = regions([0.8], [{HOST: 0.3, SYNC: 0.1, FP32: 0.6}])
    assert region.candidates[:3] == ((HOST, 0.6), (SYNC, 0.2), (NONE, 0.2))
    (region,) = regions([0.8], [{FP32: 1.0}])  # nothing of this side
    assert dict(region.candidates)[NONE] == pytest.approx(0.2)


def test_both_sides_may_suspect_the_same_time() -> None:
    found = regions([0.9, 0.1], [{HOST: 0.5, FP32: 0.5}] * 2, gpu=[0.9, 0.9])
    assert [(r.side, r.start, r.end) for r in found] == [("cpu", 0, 100), ("gpu", 0, 200)]


# -- edges ---------------------------------------------------------------------------------------


def intervals(*pairs: tuple[int, int]) -> Intervals:
    start, end = np.array(pairs, np.int64).T
    return Intervals(start, end)


@pytest.mark.parametrize(
    ("edges", "span"),
    [
        (intervals((130, 260)), (130, 260)),  # both move inwards
        (intervals((90, 310)), (100, 300)),  # never outwards
        (intervals((0, 151), (249, 400)), (100, 300)),  # more than half a window away
        (intervals((0, 150), (250, 400)), (150, 250)),  # half a window
        (intervals((100, 300)), (100, 300)),
        (intervals((0, 10)), (100, 300)),
        (EMPTY, (100, 300)),
    ],
)
def test_edges_move_inwards_to_a_near_event(edges: Intervals, span: tuple[int, int]) -> None:
    (region,) = regions([0.1, 0.9, 0.9, 0.1], edges=edges)
    assert (region.start, region.end) == span
    assert region.windows == (1, 2)


def test_a_region_never_vanishes() -> None:
    (region,) = regions([0.0, 0.9], edges=intervals((150, 150 + 1_000)))  # both edges would meet
    assert (region.start, region.end) in [(150, 200), (100, 200), (100, 150)]
    assert region.end > region.start
