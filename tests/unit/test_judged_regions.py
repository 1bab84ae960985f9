"""The judge on told regions: which are held against labels, and what is counted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from detector.comparison.judged import Handed, Told, _figures, _region, fitted, handed
from detector.comparison.scored import Run, Scored
from detector.flagger import Scores
from detector.taxonomy import CLASSES, NONE

CPU, OTHER, GPU = "host-gc-pause", "host-loop-indexing", "memory-dtype-churn"
LIMITS = {"cpu": 0.5, "gpu": 0.5}
ROWS = 12
POOL = {"judge": 0.6, "flagger": 0.6}
ANYTHING = Run(0, 1, 0.0, 10.0, 0)


def scored(hot: slice, faulty: slice = slice(4, 8), unknown: slice = slice(0, 0)) -> Scored:
    """One trace of windows of 10 µs with a fault of the host; the flagger suspects ``hot``."""
    rows = np.arange(ROWS)
    frame = pd.DataFrame({"trace": "t", "start_us": 10.0 * rows, "end_us": 10.0 * rows + 10})
    for column in ("cpu", "gpu", "unknown_cpu", "unknown_gpu"):
        frame[column] = 0.0
    frame["pattern"] = NONE
    frame.loc[rows[faulty], ["cpu", "pattern"]] = [1.0, CPU]
    frame.loc[rows[unknown], "unknown_gpu"] = 1.0
    cpu = np.zeros(ROWS, np.float32)
    cpu[hot] = 0.9
    classes = np.zeros((ROWS, len(CLASSES)), np.float32)
    classes[:, [CLASSES.index(name) for name in (CPU, GPU, NONE)]] = [0.5, 0.3, 0.2]
    return Scored(frame, Scores(cpu, np.zeros(ROWS, np.float32), classes))


def chances(*names: str) -> np.ndarray:
    """Each row nearly sure of one class."""
    sure = np.full((len(names), len(CLASSES)), 0.001)
    for row, name in zip(sure, names, strict=True):
        row[CLASSES.index(name)] = 0.9
    return sure


def told(labels: list[str], judge: list[str], flagger: list[str]) -> Told:
    classes = [CLASSES.index(name) for name in labels]
    regions = [Handed(f"t{i}", "cpu", ANYTHING, k, frozenset({k})) for i, k in enumerate(classes)]
    shown = np.ones((len(labels), len(CLASSES)), np.bool_)
    return Told(regions, chances(*judge), chances(*flagger), shown)


@pytest.mark.parametrize(
    ("hot", "main"),
    [
        (slice(4, 8), [CPU]),
        (slice(5, 9), [CPU]),  # IoU 0.6
        (slice(7, 11), []),  # IoU 1/7: neither found nor a false alarm
        (slice(9, 11), [NONE]),
        (slice(0, 0), []),
    ],
)
def test_told_regions_are_right_places_or_false_alarms(hot: slice, main: list[str]) -> None:
    assert [CLASSES[one.main] for one in handed(scored(hot), LIMITS)] == main


def test_a_region_in_which_something_is_unknown_is_no_false_alarm() -> None:
    assert not list(handed(scored(slice(9, 11), unknown=slice(10, 11)), LIMITS))


def test_a_region_is_handed_on_with_candidates_of_its_side() -> None:
    place = scored(slice(4, 8))
    (one,) = handed(place, LIMITS)
    region = _region(place, one)
    assert (region.start, region.end, region.side) == (40_000, 80_000, "cpu")
    likely = [(name, share) for name, share in region.candidates if share > 0]
    assert likely == [(CPU, pytest.approx(0.9)), (NONE, pytest.approx(0.1))]


def test_each_opinion_is_counted_by_its_own() -> None:
    labels = [CPU, CPU, OTHER, NONE]
    found = _figures(told(labels, [CPU, OTHER, OTHER, NONE], [CPU, CPU, CPU, CPU]), POOL)
    assert found["class accuracy, flagger alone (3)"].value == pytest.approx(2 / 3)
    assert found["class accuracy, judge alone (3)"].value == pytest.approx(2 / 3)
    assert found['false alarms told "none", judge alone (1)'].value == 1
    assert found['false alarms told "none", flagger alone (1)'].value == 0


def test_a_told_class_is_right_where_any_label_is() -> None:
    made = told([CPU], [OTHER], [OTHER])
    both = frozenset({CLASSES.index(CPU), CLASSES.index(OTHER)})
    made.regions[0] = Handed("t0", "cpu", ANYTHING, CLASSES.index(CPU), both)
    assert _figures(made, POOL)["class accuracy, pooled (1)"].value == 1


def test_the_pool_follows_whoever_is_right() -> None:
    labels, wrong = [CPU, OTHER, CPU, OTHER], [OTHER, CPU, OTHER, CPU]
    assert fitted(told(labels, labels, wrong)) == "judge 1.0, flagger 0.0"
    assert fitted(told(labels, wrong, labels)) == "judge 0.0, flagger 1.0"


def test_without_a_region_nothing_is_defined() -> None:
    nothing = np.zeros((0, len(CLASSES)))
    empty = Told([], nothing, nothing, nothing > 0)
    assert all(np.isnan(figure.value) for figure in _figures(empty, POOL).values())
    assert fitted(empty) == "not known: no region fits"
