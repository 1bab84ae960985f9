"""What every flagger keeps, and what the shipped kind refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detector.errors import ModelError
from detector.features import COLUMNS
from detector.flagger import Flagger, Float32, calibration
from detector.flagger import lightgbm as shipped
from detector.flagger.lightgbm import LightGBMFlagger, save
from detector.flagger.rules import RULES, RuleFlagger
from detector.flagger.trees import Trees
from detector.lab.training import Training, fit
from detector.patterns import BY_ID
from detector.taxonomy import NONE
from tests.windows import SAVINGS

pd = pytest.importorskip("pandas")

SEEN = COLUMNS.index("idle_op")  # what the tiny model learns the host's side from
QUICK = Training(rounds=8, parameters={"feature_fraction": 1.0})


def random_matrix(rows: int, seed: int = 0) -> Float32:
    """Shares, with NaN where a feature is not defined; nothing saves anything."""
    random = np.random.default_rng(seed)
    matrix = random.random((rows, len(COLUMNS))).astype(np.float32)
    matrix[:, SAVINGS] = 0
    return np.where(random.random(matrix.shape) < 0.2, np.nan, matrix).astype(np.float32)


def table(rows: int = 200) -> Any:
    """Windows of ten traces: where ``idle_op`` is high the host is at fault."""
    matrix = random_matrix(rows)
    matrix[:, SEEN] = np.random.default_rng(1).random(rows)
    faulty = matrix[:, SEEN] > 0.5
    about = pd.DataFrame(
        {
            "cpu": faulty.astype(float),
            "unknown_cpu": 0.0,
            "unknown_gpu": 0.0,
            "gpu": (np.arange(rows) % 2).astype(float),
            "pattern": np.where(faulty, "host-launch-bound", NONE),
            "trace": np.arange(rows) % 10,
            "origin": "recorded",
        }
    )
    return pd.concat([pd.DataFrame(matrix, columns=list(COLUMNS)), about], axis=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model on disk, as ``train`` leaves it."""
    folder = tmp_path_factory.mktemp("flagger")
    raw = dict.fromkeys(("cpu", "gpu"), calibration.IDENTITY)
    card = {"version": "1.2", "threshold": {"cpu": 0.4, "gpu": 0.6}, "calibration": raw}
    save(folder, fit(table(), QUICK), card)
    return folder


@pytest.fixture(scope="module", params=["rules", "lightgbm"])
def flagger(request: pytest.FixtureRequest, folder: Path) -> Flagger:
    return RuleFlagger() if request.param == "rules" else LightGBMFlagger(str(folder))


def test_the_library_alone_predicts_what_the_package_does(folder: Path) -> None:
    import lightgbm

    seen = LightGBMFlagger(str(folder))._heads.seen(random_matrix(50))
    for head in ("cpu", "gpu"):
        text = (folder / f"{head}.txt").read_text()
        mine, its = Trees(text), lightgbm.Booster(model_str=text)
        assert mine.num_feature() == its.num_feature()
        np.testing.assert_array_equal(mine.predict(seen), its.predict(seen))
        share = its.predict(seen, pred_contrib=True)
        np.testing.assert_array_equal(mine.predict(seen, pred_contrib=True), share)


def test_a_text_that_is_no_model_is_one_line() -> None:
    with pytest.raises(ModelError, match=r"^LightGBM: "):
        Trees("tree\nnothing of the kind\n")


# -- the contract ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_row_of_scores_for_each_window(flagger: Flagger, rows: int) -> None:
    matrix = random_matrix(rows)
    scores = flagger.score(matrix)
    assert scores.cpu.shape == scores.gpu.shape == (rows,)
    for values in (scores.cpu, scores.gpu):
        assert values.dtype == np.float32
        assert ((values >= 0) & (values <= 1)).all()


def test_undefined_features_are_no_trouble(flagger: Flagger) -> None:
    nothing = np.full((2, len(COLUMNS)), np.nan, np.float32)
    scores = flagger.score(nothing)
    assert np.isfinite(scores.cpu).all()
    assert np.isfinite(scores.gpu).all()


def test_the_same_window_scores_the_same_in_any_company(flagger: Flagger) -> None:
    matrix = random_matrix(9)
    before = matrix.copy()
    together, alone = flagger.score(matrix), flagger.score(matrix[4:5])
    assert (together.cpu[4], together.gpu[4]) == (alone.cpu[0], alone.gpu[0])
    np.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize("side", ["cpu", "gpu"])
@pytest.mark.parametrize("rows", [0, 5])
def test_drivers_are_a_few_columns_for_each_window(flagger: Flagger, side: str, rows: int) -> None:
    top_features = flagger.top_features(random_matrix(rows), side)
    assert len(top_features) == rows
    assert all(len(names) <= 3 and set(names) <= set(COLUMNS) for names in top_features)


def test_thresholds_and_a_name(flagger: Flagger) -> None:
    assert flagger.name
    assert set(flagger.threshold) == {"cpu", "gpu"}
    assert all(0 < limit < 1 for limit in flagger.threshold.values())


# -- the rules -------------------------------------------------------------------------------------


def window(**values: float) -> Float32:
    matrix = np.zeros((1, len(COLUMNS)), np.float32)
    for name, value in values.items():
        matrix[0, COLUMNS.index(name)] = value
    return matrix


@pytest.mark.parametrize("rule", RULES, ids=[f"{rule[0]}-{rule[3]}" for rule in RULES])
def test_a_rule_scores_a_half_at_its_threshold(rule: tuple[str, float, str, str]) -> None:
    column, threshold, side, _ = rule
    rules = RuleFlagger()
    for factor, expected in ((1.0, 0.5), (0.5, 1 / 3), (3.0, 0.75)):
        scores = rules.score(window(**{column: factor * threshold}))
        both = {"cpu": scores.cpu, "gpu": scores.gpu}
        assert both.pop(side)[0] == pytest.approx(expected)
        assert next(iter(both.values()))[0] == 0  # the other side is not accused
    assert rules.top_features(window(**{column: 2 * threshold}), side) == [(column,)]
    assert rules.top_features(window(**{column: 0.9 * threshold}), side) == [()]


def test_a_rule_accuses_the_side_of_its_pattern() -> None:
    assert [side for *_, side, _ in RULES] == [BY_ID[pattern].side for *_, pattern in RULES]


def test_nothing_wrong_scores_nothing() -> None:
    scores = RuleFlagger().score(window())
    assert (scores.cpu[0], scores.gpu[0]) == (0, 0)


def test_the_strongest_rule_speaks_first() -> None:
    matrix = window(idle_op=0.15, idle_python=0.6, loop=0.2)
    rules = RuleFlagger()
    assert rules.top_features(matrix, "cpu") == [("idle_python", "loop", "idle_op")]
    assert rules.score(matrix).cpu[0] == pytest.approx(0.8)


@given(st.lists(st.floats(-1, 1, width=32) | st.just(float("nan")), min_size=3, max_size=3))
def test_rules_stay_below_one(values: list[float]) -> None:
    matrix = np.zeros((3, len(COLUMNS)), np.float32)
    matrix[:] = np.array(values, np.float32)[:, None]
    scores = RuleFlagger().score(matrix)
    for side in (scores.cpu, scores.gpu):
        assert ((side >= 0) & (side < 1)).all()


# -- the trees -------------------------------------------------------------------------------------


def test_the_trees_learned_what_the_table_shows(folder: Path) -> None:
    model = LightGBMFlagger(str(folder))
    matrix = random_matrix(2, seed=9)
    matrix[:, SEEN] = 0.1, 0.9
    scores = model.score(matrix)
    assert scores.cpu[1] > scores.cpu[0] + 0.3
    assert model.top_features(matrix, "cpu")[1][0] == "idle_op"
    assert model.name == "lightgbm 1.2"
    assert model.threshold == {"cpu": 0.4, "gpu": 0.6}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(seed=st.integers(0, 999))
def test_loading_twice_scores_the_same(folder: Path, seed: int) -> None:
    matrix = random_matrix(3, seed)
    first, second = (LightGBMFlagger(str(folder)).score(matrix) for _ in range(2))
    np.testing.assert_array_equal(first.cpu, second.cpu)
    np.testing.assert_array_equal(first.gpu, second.gpu)


def test_the_card_holds_the_hashes_of_the_texts(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text())
    for head in shipped.SIDES:
        assert card["sha256"][head] == shipped.sha256((folder / f"{head}.txt").read_text())
    assert tuple(card["features"]) == COLUMNS


def spoilt(folder: Path, tmp_path: Path, **changes: object) -> Path:
    """A copy whose card says something else; None takes the key away."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    card = json.loads((folder / "card.json").read_text())
    card.update(changes)
    card = {key: value for key, value in card.items() if value is not None}
    (tmp_path / "card.json").write_text(json.dumps(card))
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as error:
        LightGBMFlagger(str(folder))
    message = str(error.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def test_no_model_there(tmp_path: Path) -> None:
    assert "card.json: no readable model card" in refusal(tmp_path)
    assert "no readable model card" in refusal(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "{", "\x00", '{"features": ', "[", '"'])
def test_a_card_that_is_no_json(folder: Path, tmp_path: Path, text: str) -> None:
    spoilt(folder, tmp_path)
    (tmp_path / "card.json").write_text(text)
    assert "no readable model card" in refusal(tmp_path)


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", '"card"'])
def test_json_that_is_no_card(folder: Path, tmp_path: Path, text: str) -> None:
    spoilt(folder, tmp_path)
    (tmp_path / "card.json").write_text(text)
    assert "not a model card" in refusal(tmp_path)


@pytest.mark.parametrize("columns", [3, ["no feature"], [["busy"]], "busy"])
def test_a_card_of_columns_that_are_none(folder: Path, tmp_path: Path, columns: object) -> None:
    assert "columns that are no features" in refusal(spoilt(folder, tmp_path, columns=columns))


def test_a_card_of_fewer_columns_than_its_trees_use(folder: Path, tmp_path: Path) -> None:
    assert "columns, its card 1" in refusal(spoilt(folder, tmp_path, columns=["busy"]))


REQUIRED = ["version", "beginning", "threshold", "sha256", "features", "columns", "calibration"]


@pytest.mark.parametrize("key", REQUIRED)
def test_a_card_that_lacks_something(folder: Path, tmp_path: Path, key: str) -> None:
    assert "not a model card" in refusal(spoilt(folder, tmp_path, **{key: None}))


@pytest.mark.parametrize("features", [list(COLUMNS[:-1]), list(reversed(COLUMNS)), []])
def test_a_model_of_other_features(folder: Path, tmp_path: Path, features: list[str]) -> None:
    assert "other features" in refusal(spoilt(folder, tmp_path, features=features))


@pytest.mark.parametrize("head", shipped.SIDES)
def test_a_head_that_is_missing_or_changed(folder: Path, tmp_path: Path, head: str) -> None:
    spoilt(folder, tmp_path)
    file = tmp_path / f"{head}.txt"
    file.write_text(file.read_text().replace("tree", "shrub", 1))
    assert f"{head}.txt: does not match the hash" in refusal(tmp_path)
    file.write_bytes(b"\xff\xfe\x00")
    assert f"{head}.txt: not a text" in refusal(tmp_path)
    file.unlink()
    assert f"{head}.txt: No such file" in refusal(tmp_path)


CURVE = [[0.0, 0.01], [0.5, 0.2], [1.0, 0.9]]


def test_probabilities_follow_the_card_s_curves(folder: Path, tmp_path: Path) -> None:
    matrix = random_matrix(20)
    raw = LightGBMFlagger(str(folder)).score(matrix)  # its card has no curves
    flat = [[0.0, 0.0], [1.0, 1.0]]
    calibrated = LightGBMFlagger(
        str(spoilt(folder, tmp_path, calibration={"cpu": CURVE, "gpu": flat}))
    ).score(matrix)
    by_hand = np.where(raw.cpu < 0.5, 0.01 + 0.38 * raw.cpu, 0.2 + 1.4 * (raw.cpu - 0.5))
    assert calibrated.cpu == pytest.approx(by_hand, abs=1e-6)
    assert (np.argsort(calibrated.cpu, kind="stable") == np.argsort(raw.cpu, kind="stable")).all()
    np.testing.assert_array_equal(calibrated.gpu, raw.gpu)


@pytest.mark.parametrize(
    ("curve", "cause"),
    [
        ([], "no list of"),
        (None, "no list of"),
        (3, "no list of"),
        ([[0, 0], [1, 10**400]], "no list of"),
        ("rising", "no list of"),
        ([[0.0, 0.0]], "no list of"),
        ([0.0, 1.0], "no list of"),
        ([[0.0, 0.0], [1.0]], "no list of"),
        ([[0, 0, 0], [1, 1, 1]], "no list of"),
        ([["a", 0.0], [1.0, 1.0]], "no list of"),
        ([[0.0, 0.0], [1.0, 1.5]], r"outside \[0, 1\]"),
        ([[-0.5, 0.0], [1.0, 1.0]], r"outside \[0, 1\]"),
        ([[0.0, float("nan")], [1.0, 1.0]], r"outside \[0, 1\]"),
        ([[0.0, 0.5], [1.0, 0.5]], "does not rise"),
        ([[0.0, 0.9], [1.0, 0.1]], "does not rise"),
        ([[0.5, 0.1], [0.5, 0.2]], "does not rise"),
        ([[1.0, 0.1], [0.0, 0.2]], "does not rise"),
    ],
)
def test_a_curve_that_is_none(folder: Path, tmp_path: Path, curve: object, cause: str) -> None:
    message = refusal(spoilt(folder, tmp_path, calibration={"cpu": CURVE, "gpu": curve}))
    assert re.search(f"calibration of the gpu side: .*{cause}", message)


@pytest.mark.parametrize(
    "calibrated", [[], "raw", {}, {"cpu": CURVE}, {"cpu": CURVE, "gqu": CURVE}]
)
def test_a_calibration_lacks_a_side(folder: Path, tmp_path: Path, calibrated: object) -> None:
    assert "one curve for each of" in refusal(spoilt(folder, tmp_path, calibration=calibrated))


def test_a_window_of_which_nothing_is_known_has_scores_all_the_same(folder: Path) -> None:
    odd = np.stack([np.full(len(COLUMNS), v, np.float32) for v in (np.nan, 0, np.inf, -np.inf)])
    calibrated = LightGBMFlagger(str(folder)).score(odd)
    assert np.isfinite(calibrated.cpu).all()
    assert np.isfinite(calibrated.gpu).all()


def test_a_card_without_a_head_vouches_for_nothing(folder: Path, tmp_path: Path) -> None:
    assert "does not match the hash" in refusal(spoilt(folder, tmp_path, sha256={}))
