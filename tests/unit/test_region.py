"""Suspicious windows become regions: which are merged, where they are cut, how edges move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from detector.flagger import Float32, Scores
from detector.intervals import EMPTY, Intervals
from detector.region import Region, merge
from detector.window import Window


class Fake:
    """Drivers name the window they were asked for: the matrix holds its index."""

    name = "fake"

    def __init__(self) -> None:
        self.threshold = {"cpu": 0.5, "gpu": 0.7}

    def score(self, matrix: Float32) -> Scores:
        raise AssertionError("merging scores nothing")

    def top_features(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        return [(f"{side} {row[0]:.0f}",) for row in matrix]


def scores(cpu: Sequence[float], gpu: Sequence[float]) -> Scores:
    return Scores(np.array(cpu, np.float32), np.array(gpu, np.float32))


def regions(
    cpu: Sequence[float],
    steps: Sequence[int | None] | None = None,
    edges: Intervals = EMPTY,
    gpu: Sequence[float] | None = None,
) -> tuple[Region, ...]:
    """Regions of windows of 100 ns in a row."""
    n = len(cpu)
    windows = tuple(
        Window(100 * i, 100 * (i + 1), steps[i] if steps else None, 0, 100 * n) for i in range(n)
    )
    given = scores(cpu, gpu or [0.0] * n)
    return merge(windows, given, Fake(), np.arange(n, dtype=np.float32)[:, None], edges)


def spans(found: Sequence[Region]) -> list[tuple[int, int]]:
    return [(region.start, region.end) for region in found]


def test_neighbors_become_one_region() -> None:
    (region,) = regions([0.1, 0.6, 0.9, 0.5, 0.4])
    assert (region.start, region.end, region.windows) == (100, 400, (1, 2, 3))
    assert region.score == pytest.approx(0.9)
    assert region.top_features == ("cpu 2",)  # of its highest window
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


def test_both_sides_may_suspect_the_same_time() -> None:
    found = regions([0.9, 0.1], gpu=[0.9, 0.9])
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
