"""Every baseline keeps the flagger's contract, and learns what it says it learns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from detector.features import COLUMNS
from detector.features.savings import SAVED
from detector.lab.baselines import NAMES, Range, baseline, space
from detector.lab.comparison.contenders import Contenders, Trees, scores_of
from detector.lab.comparison.tuning import tune
from detector.lab.metrics import auc
from detector.lab.training import Training, fit, is_healthy, matrix
from tests.windows import ROWS, TINY, table

pytest.importorskip("torch", reason="the baselines need the train extra")
pytest.importorskip("sklearn", reason="the baselines need the train extra")


@pytest.mark.parametrize("name", NAMES)
def test_a_baseline_keeps_the_contract(name: str) -> None:
    flagger = baseline(name)(table(), 0)
    seen = matrix(table(seed=1))[:ROWS].copy()
    seen[3, :7] = np.nan
    scores = flagger.score(seen)
    for side in (scores.cpu, scores.gpu):
        assert side.shape == (ROWS,)
        assert np.isfinite(side).all()
        assert ((side >= 0) & (side <= 1)).all()
    assert len(flagger.top_features(seen, "cpu")) == ROWS


@pytest.mark.parametrize("name", [n for n in NAMES if space(n)])
def test_either_end_of_a_space_can_be_trained(name: str) -> None:
    for end in ("low", "high"):
        settings = {
            key: getattr(c, end) if isinstance(c, Range) else c[0] for key, c in space(name).items()
        }
        if "epochs" in settings:
            settings["epochs"] = 1
        scores = baseline(name)(table(4), 0, **settings).score(matrix(table(1)))
        assert np.isfinite(scores.cpu).all()


def scores_on(name: str, train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """The cpu side's scores, trace by trace."""
    return scores_of(baseline(name)(train, 0), test).cpu.astype(np.float64)


@pytest.mark.parametrize("name", ["isolation forest", "autoencoder"])
def test_without_labels_what_was_never_seen_is_strange(name: str) -> None:
    train, test = table(24), table(8, seed=5, prefix="u")
    score = scores_on(name, train[train["quality"] == "good"], test)
    assert auc((test["cpu"] + test["gpu"] > 0).to_numpy(), score) > 0.8


@pytest.mark.parametrize("name", ["multiple instances", "convolution"])
def test_from_labels_the_side_is_learned(name: str) -> None:
    test = table(8, seed=5, prefix="u")
    assert auc((test["cpu"] > 0).to_numpy(), scores_on(name, table(24), test)) > 0.8


def test_the_largest_saving_of_a_side_is_the_score() -> None:
    frame = table(1)
    frame[list(SAVED)] = 0.0
    frame.loc[3, "saved_host_gc_pause"] = 0.4
    frame.loc[3, "saved_sync_explicit"] = 0.1
    frame.loc[5, "saved_host_gc_pause"] = np.nan
    frame.loc[7, "saved_memory_dtype_churn"] = 1.7  # savings overlap at a window's edge
    scores = baseline("largest saving")(frame, 0).score(matrix(frame))
    assert np.flatnonzero(scores.cpu).tolist() == [3]
    assert scores.cpu[3] == pytest.approx(0.4)
    assert np.flatnonzero(scores.gpu).tolist() == [7]
    assert scores.gpu[7] == 1


def test_trees_can_be_blinded() -> None:
    frame = table()
    blind = Trees(frame, TINY, columns=[c for c in COLUMNS if c not in COLUMNS[:40]])
    seeing = Trees(frame, TINY)
    truth = (frame["cpu"] > 0).to_numpy()
    score = [f.score(matrix(table(seed=3))).cpu.astype(np.float64) for f in (blind, seeing)]
    assert auc(truth, score[1]) > 0.95 > 0.7 > auc(truth, score[0])


def test_unknown_windows_teach_only_where_a_weight_says_so() -> None:
    frame = table()
    strange = (frame["start_us"] < 40).to_numpy()
    frame.loc[strange, COLUMNS[50]] = 9.0
    frame.loc[~strange & (frame["cpu"] > 0), COLUMNS[50]] = 9.0
    frame.loc[strange, "unknown_cpu"] = 1.0
    columns = [COLUMNS[50]]

    def mean_score(weight: float) -> float:
        settings = Training(rounds=15, unknown_weight=weight, parameters={"num_threads": 1})
        heads = fit(frame, settings, ("cpu",), columns)
        return float(heads.raw("cpu", heads.seen(matrix(frame[strange]))).mean())

    assert mean_score(0.0) > 0.8
    assert mean_score(0.0) > mean_score(0.1) > mean_score(1.0)


def test_a_base_that_nobody_looked_at_is_no_healthy_trace() -> None:
    frame = table(4)
    frame.loc[frame["trace"] == "t0", "unknown_gpu"] = 0.2
    assert set(frame["trace"][is_healthy(frame)]) == {"t2"}


def test_tuning_spends_its_budget_and_keeps_the_untuned_settings_where_they_are_best() -> None:
    pytest.importorskip("optuna")
    contenders = Contenders(TINY)
    train, valid = table(12), table(4, seed=5, prefix="u")
    found = tune("isolation forest", contenders, train, valid, 3)
    assert found.trials == 3
    assert found.value >= found.untuned
    assert not found.settings or set(found.settings) == set(space("isolation forest"))
    assert found == tune("isolation forest", contenders, train, valid, 3)
    assert tune("rules", contenders, train, valid, 3).trials == 1
