"""Windows and regions of a flagger: what counts as found, as right, and as unknown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from detector.flagger import Scores
from detector.lab.baselines.untrained import Constant
from detector.lab.comparison.figures import all_figures, window_figures
from detector.lab.comparison.regions import region_figures
from detector.lab.comparison.resample import Ranking, Resamples
from detector.lab.comparison.scored import Scored
from detector.lab.comparison.thresholds import flags, thresholds
from detector.lab.metrics import auc, average_precision
from detector.lab.training import matrix
from tests.windows import ROWS, perfect, table

HALF = {"cpu": 0.5, "gpu": 0.5}


def scored_of(frame: pd.DataFrame, scores: Scores) -> Scored:
    return Scored(frame, scores, flags(scores, HALF))


def regions_of(scored: Scored, masked: bool = False) -> dict[str, float]:
    """Region figures and counts without intervals."""
    resamples = Resamples.of(scored.frame["cluster"].to_numpy(), rounds=10)
    figures, counts = region_figures(scored, resamples, masked)
    return {name: drawn.value for name, drawn in figures.items()} | counts


def test_weighted_figures_are_those_of_repeated_rows() -> None:
    random = np.random.default_rng(0)
    truth, score = random.random(60) < 0.3, np.round(random.random(60), 1)
    weight = random.integers(0, 4, 60)
    rows = np.repeat(np.arange(60), weight)
    ranking = Ranking(truth, score)
    assert ranking.auc(weight) == pytest.approx(auc(truth[rows], score[rows]))
    assert ranking.average_precision(weight) == pytest.approx(
        average_precision(truth[rows], score[rows])
    )
    assert np.isnan(ranking.auc(weight * truth))


def test_a_resample_draws_whole_clusters_and_the_same_ones_for_all_figures() -> None:
    clusters = np.array(["a", "a", "b"], object)
    resamples = Resamples.of(clusters, rounds=50)
    assert (resamples.counts.sum(axis=1) == 2).all()
    one = resamples.ratio(np.array([1, 1, 0]), np.ones(3), clusters)
    assert one.value == pytest.approx(2 / 3)
    assert set(np.round(one.draws, 3)) <= {0.0, 0.667, 1.0}
    nothing = one - one
    assert (nothing.value, nothing.draws.any()) == (0, False)
    assert (one.estimate.low, one.estimate.high) == (0, 1)


def test_a_perfect_flagger_gets_perfect_figures() -> None:
    frame = table()
    found = regions_of(scored_of(frame, perfect(frame)))
    assert found["labeled"] == found["predicted"] == 6
    assert (found["recall 0.5"], found["precision 0.5"]) == (1, 1)
    assert (found["alarms per healthy trace"], found["healthy traces"]) == (0, 6)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("unknown", [0.0, 1.0])
def test_a_constant_flagger_gets_next_to_nothing(masked: bool, unknown: float) -> None:
    frame = table()
    free = (frame["cpu"] + frame["gpu"] == 0) & (frame["quality"] == "bad")
    frame.loc[free, ["unknown_cpu", "unknown_gpu"]] = unknown
    frame.loc[(frame["cpu"] > 0) & (frame["start_us"] >= 110), ["cpu", "pattern"]] = [0.0, "none"]
    frame.loc[(frame["gpu"] > 0) & (frame["start_us"] >= 110), ["gpu", "pattern"]] = [0.0, "none"]
    found = regions_of(scored_of(frame, Constant().score(matrix(frame))), masked)
    assert found["recall 0.3"] <= 0.2
    assert found["precision 0.3"] <= 0.2


def test_a_predicted_region_is_never_cut_where_nobody_knows() -> None:
    frame = table(2)  # t1 is faulty from 80 to 160 µs
    frame.loc[(frame["trace"] == "t1") & (frame["cpu"] == 0), "unknown_cpu"] = 1.0
    scores = perfect(frame)
    scored = scored_of(frame, replace(scores, cpu=np.ones(len(frame), np.float32)))
    assert [(run.start, run.end) for run in scored.predicted("cpu")] == [(0, 240), (0, 240)]
    for masked in (True, False):
        found = regions_of(scored, masked)
        assert found["precision 0.3"] == pytest.approx(1 / 2)  # 80 of 240 µs; the healthy t0
        assert found["precision 0.5"] == 0


def alarm_at(frame: pd.DataFrame, rows: list[int]) -> Scored:
    """The labels, and alarms on the cpu side in some rows."""
    cpu = perfect(frame).cpu.copy()
    cpu[rows] = 1
    return scored_of(frame, replace(perfect(frame), cpu=cpu))


def test_unknown_places_are_ignored_when_masked_and_wrong_when_not() -> None:
    frame = table(2)
    frame.loc[ROWS : ROWS + 3, "unknown_cpu"] = 1.0
    scored = alarm_at(frame, [ROWS + 1, ROWS + 2])
    assert regions_of(scored, masked=True)["precision 0.3"] == 1
    assert regions_of(scored, masked=False)["precision 0.3"] == 1 / 2
    frame.loc[ROWS + 2, "unknown_cpu"] = 0.0
    assert regions_of(alarm_at(frame, [ROWS + 1, ROWS + 2]), masked=True)["precision 0.3"] == 1 / 2


def test_what_overlaps_a_label_is_not_unknown() -> None:
    frame = table(4)  # t3 is faulty on the gpu side, in rows 8 to 15
    frame.loc[frame["trace"] == "t3", "unknown_cpu"] = 1.0
    away, over = 3 * ROWS + 2, 3 * ROWS + 9
    assert regions_of(alarm_at(frame, [away]), masked=True)["precision 0.3"] == 1
    assert regions_of(alarm_at(frame, [over]), masked=True)["precision 0.3"] == 2 / 3


def test_regions_end_with_the_trace_and_not_with_the_pattern() -> None:
    frame = table(4)
    scores = perfect(frame)
    scored = scored_of(frame, replace(scores, cpu=np.ones(len(frame), np.float32)))
    assert [scored.trace_of(run) for run in scored.predicted("cpu")] == ["t0", "t1", "t2", "t3"]


def test_false_alarms_are_counted_in_healthy_traces_only() -> None:
    frame = table(4)
    found = regions_of(alarm_at(frame, [3, ROWS + 2]))  # in the healthy t0, beside t1's fault
    assert found["alarms per healthy trace"] == 0.5
    assert found["precision 0.3"] == pytest.approx(2 / 4)


def test_scores_that_only_tell_traces_apart_are_a_half_within_them() -> None:
    frame = table()
    faulty = frame.groupby("trace")["cpu"].transform("max").to_numpy(np.float32)
    scored = scored_of(frame, replace(perfect(frame), cpu=faulty))
    resamples = Resamples.of(frame["cluster"].to_numpy(), rounds=10)
    found = window_figures(scored, "cpu", resamples, masked=True)
    assert found["AUC"].value > 0.9
    assert found["within"].value == 0.5


def test_unknown_windows_count_as_healthy_when_unmasked() -> None:
    frame = table()
    lost = (frame["cpu"] == 0) & (frame.index % 7 == 0)
    frame.loc[lost, "unknown_cpu"] = 1.0
    scores = perfect(frame)
    scored = scored_of(frame, replace(scores, cpu=np.where(lost, 1, scores.cpu).astype(np.float32)))
    resamples = Resamples.of(frame["cluster"].to_numpy(), rounds=10)
    masked, unmasked = (
        window_figures(scored, "cpu", resamples, m)["AP"].value for m in (True, False)
    )
    assert masked == 1 > unmasked


def test_all_figures_are_there_both_ways() -> None:
    frame = table()
    resamples = Resamples.of(frame["cluster"].to_numpy(), rounds=10)
    found = all_figures(scored_of(frame, perfect(frame)), resamples)
    for way in ("masked", "unmasked"):
        assert {"cpu AUC", "gpu within", "recall 0.3", "precision 0.5"} <= found["figures"][
            way
        ].keys()


def test_thresholds_are_those_that_suit_the_regions_best() -> None:
    frame = table()
    noise = np.random.default_rng(0).random(len(frame)).astype(np.float32)
    scores = perfect(frame)
    scores = replace(scores, cpu=np.maximum(scores.cpu, 0.4 * noise), gpu=0.5 * scores.gpu + 0.1)
    limits = thresholds(frame, scores)
    assert limits == pytest.approx({"cpu": 1.0, "gpu": 0.6})
    assert regions_of(Scored(frame, scores, flags(scores, limits)))["precision 0.5"] == 1
