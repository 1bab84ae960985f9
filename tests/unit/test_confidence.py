"""How sure a candidate is: what the model sees, what it refuses, and what it learns from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from detector.analysis import Analysis, analyze
from detector.errors import DetectorError, ModelError
from detector.features import candidate
from detector.features.candidate import COLUMNS
from detector.flagger.calibration import IDENTITY
from detector.flagger.confidence import (
    GUESS,
    SHIPPED,
    ConstantConfidence,
    LightGBMConfidence,
    calibrated,
    kind_of,
    read_card,
    save,
)
from detector.lab import confidence as training
from detector.lab.confidence import Candidates, ConfidenceTraining
from detector.lab.scoring import Prediction
from detector.patterns import IDS, PATTERNS
from tests.traces import kernel, launch, op, repeat, trace_of

# A step of 1 ms: an op, 400 us of a product, and nothing at all for 490 us.
BODY = (
    op("aten::mm", 0, 100),
    launch(20, 10, 1),
    kernel("ampere_sgemm_128x64_tn", 100, 400, 1),
    op("aten::detach", 990, 10),
)


def analysis(steps: int = 4) -> Analysis:
    edges = [(i * 1e3, (i + 1) * 1e3) for i in range(steps)]
    return analyze(trace_of(*repeat(BODY, steps, 1_000), steps=edges))


def number(found: Analysis, column: str) -> float:
    """Of the first candidate."""
    return float(candidate.matrix(found)[0, COLUMNS.index(column)])


# -- what the model sees -----------------------------------------------------------------------


def test_a_row_for_each_candidate_in_their_order() -> None:
    found = analysis()
    matrix = candidate.matrix(found)
    assert matrix.shape == (len(found.candidates.found), len(COLUMNS))
    of = [PATTERNS[int(i)] for i in matrix[:, COLUMNS.index("pattern")]]
    assert of == [c.pattern for c in found.candidates.found]


def test_the_numbers_are_those_of_the_candidate_and_its_trace() -> None:
    found = analysis()
    first = found.candidates.found[0]
    assert number(found, "share") == pytest.approx(first.share)
    assert number(found, "share_alone") == pytest.approx(first.alone_ns / 4e6)
    assert number(found, "steps_with") == 1
    assert number(found, "gain_of_one_step") == pytest.approx(0.25, abs=0.05)
    assert number(found, "device") == 1
    assert number(found, "ledger_compute") == pytest.approx(0.4)
    assert number(found, "steps") == 4


def test_the_same_program_for_longer_looks_the_same() -> None:
    short, long = analysis(4), analysis(8)
    for column in ("share", "covered", "ledger_compute", "log_occurrences_a_step", "rest_of_alone"):
        assert number(short, column) == pytest.approx(number(long, column), abs=0.02)


def test_without_candidates_there_is_no_row() -> None:
    empty = analyze(trace_of(kernel("k", 0, 2_000)))
    assert candidate.matrix(empty).shape == (0, len(COLUMNS))


# -- the models --------------------------------------------------------------------------------


def test_the_constant_tells_traces_with_a_device_from_cpu_runs() -> None:
    matrix = np.zeros((2, len(COLUMNS)), np.float32)
    matrix[0, COLUMNS.index("device")] = 1
    assert kind_of(matrix).tolist() == [1, 0]
    assert ConstantConfidence(0.7, 0.2).score(matrix).tolist() == [0.7, 0.2]


def test_the_shipped_model_gives_a_probability_for_each_candidate() -> None:
    model = LightGBMConfidence()
    sure = model.score(candidate.matrix(analysis()))
    assert len(sure)
    assert ((sure >= 0) & (sure <= 1)).all()
    assert model.score(np.zeros((0, len(COLUMNS)), np.float32)).tolist() == []


def test_a_pause_is_a_collection_only_where_one_was_seen() -> None:
    matrix = np.zeros((3, len(COLUMNS)), np.float32)
    matrix[:, COLUMNS.index("pattern")] = [IDS.index("host-gc-pause")] * 2 + [0]
    matrix[1, COLUMNS.index("ledger_collection")] = 0.01
    sure = calibrated(np.full(3, 0.9), matrix, [IDENTITY, IDENTITY])
    assert sure.tolist() == [GUESS, 0.9, 0.9]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("features", ["x"], "other features"),
        ("patterns", ["x"], "other patterns"),
        ("calibration", {"cpu": [[0, 1]]}, "calibration of cpu"),
        ("calibration", None, "calibration of cpu"),
        ("sha256", "0", "does not match the hash"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(
    tmp_path: Path, key: str, value: object, says: str
) -> None:
    card = read_card(SHIPPED) | {key: value}
    (tmp_path / "card.json").write_text(json.dumps(card))
    (tmp_path / "trees.txt").write_text((SHIPPED / "trees.txt").read_text())
    with pytest.raises(ModelError, match=says):
        LightGBMConfidence(str(tmp_path))


def test_no_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no readable model card"):
        LightGBMConfidence(str(tmp_path))


# -- training ----------------------------------------------------------------------------------


def made(count: int = 240) -> Candidates:
    """Candidates of six programs; those with a large share are right."""
    random = np.random.default_rng(0)
    matrix = random.random((count, len(COLUMNS))).astype(np.float32)
    matrix[:, COLUMNS.index("pattern")] = random.integers(0, 5, count)
    matrix[:, COLUMNS.index("device")] = 1
    share = matrix[:, COLUMNS.index("share")].astype(np.float64)
    names = np.array([f"t{i // 2}" for i in range(count)])
    findings = tuple(
        Prediction(str(n), PATTERNS[0].id, ((0.0, 1.0),), 1.0, float(s))
        for n, s in zip(names, share, strict=True)
    )
    return Candidates(
        matrix,
        names,
        np.full(count, "recorded"),
        np.array([f"p{i % 6}" for i in range(count)]),
        np.where(share > 0.5, "right", "wrong"),
        share,
        findings,
    )


QUICK = ConfidenceTraining(rounds=20, folds=3)


def test_what_is_learned_holds_on_programs_never_seen() -> None:
    rows = made()
    sure = training.strangers(rows, QUICK)
    right = rows.kind == "right"
    assert sure[right].mean() > 0.9
    assert sure[~right].mean() < 0.1


def test_no_fold_learns_from_the_programs_that_it_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, seen = made(), []
    fit, curves = training.fit, training.curves

    def spied_fit(learned: Candidates, settings: ConfidenceTraining) -> object:
        seen.append(set(learned.program))
        return fit(learned, settings)

    def spied_curves(learned: Candidates, *rest: object) -> object:
        seen.append(set(learned.program))
        return curves(learned, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "fit", spied_fit)
    monkeypatch.setattr(training, "curves", spied_curves)
    training.strangers(rows, QUICK)
    turns = [seen[i : i + 5] for i in range(0, len(seen), 5)]  # three inner fits, a curve, a fit
    assert len(turns) == 3
    for *inner, curve, outer in turns:
        assert curve == outer
        assert len(outer) == 4  # of six: two are scored
        assert all(learned < outer for learned in inner)


def test_a_larger_saving_never_lowers_the_score() -> None:
    trees = training.fit(made(), QUICK)
    row = np.tile(made().matrix[:1], (20, 1))
    row[:, COLUMNS.index("share")] = np.linspace(0, 1, 20)
    assert (np.diff(trees.predict(row)) >= 0).all()


def test_training_is_deterministic() -> None:
    one, two = (training.fit(made(), QUICK).model_to_string() for _ in range(2))
    assert one == two


def test_what_nobody_knows_teaches_nothing() -> None:
    rows = made()
    kept = np.arange(len(rows)) % 3 > 0
    some = replace(rows, kind=np.where(kept, rows.kind, "unknown"))
    assert training._weights(some, QUICK)[~kept].tolist() == [0.0] * int((~kept).sum())
    assert (training._weights(some, QUICK)[kept] > 0).all()


def test_candidates_of_one_kind_teach_nothing() -> None:
    rows = made()
    with pytest.raises(DetectorError, match="nothing to learn from"):
        training.fit(replace(rows, kind=np.full(len(rows), "right")), QUICK)


def test_a_rest_that_is_all_right_tells_no_candidates_apart() -> None:
    rows = made()
    alone = rows.program == rows.program[0]  # the only program with wrong ones, then left out
    one = replace(rows, kind=np.where(alone, rows.kind, "right"))
    raw = training.held_out(one, replace(QUICK, folds=len(set(rows.program))))
    assert set(raw[alone]) == {1.0}
    assert len(set(raw[~alone])) > 1


def test_one_program_cannot_be_held_out() -> None:
    rows = made()
    with pytest.raises(DetectorError, match="two and more"):
        training.held_out(replace(rows, program=np.full(len(rows), "p")), QUICK)


def test_what_is_saved_scores_as_it_was_trained(tmp_path: Path) -> None:
    rows = made()
    trees = training.fit(rows, QUICK)
    curves = training.curves(rows, training.held_out(rows, QUICK), QUICK)
    card = {"version": "1", "calibration": dict(zip(("cpu", "device"), curves, strict=True))}
    save(tmp_path, trees.model_to_string(), card)
    model = LightGBMConfidence(str(tmp_path))
    assert model.name == "lightgbm 1"
    sure = model.score(rows.matrix)
    assert np.corrcoef(sure, trees.predict(rows.matrix))[0, 1] > 0.9
