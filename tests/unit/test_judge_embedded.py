"""The embedded judge: reading, the network in numpy and torch, training, model files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import ModelError
from detector.judge import dense, embedded, network, tokens
from detector.judge.embedded import EmbeddedJudge
from detector.patterns import CLASSES, IDS
from detector.taxonomy import NONE
from tests.judging import STEP, evidence_of, loader, readback, readback_trace

training = pytest.importorskip("detector.judge.training")
torch = pytest.importorskip("torch")

SMALL = training.Settings(
    vocabulary=512, width=16, heads=2, inner=32, numbers=16, epochs=20, batch=4, validation=0.25
)


def examples():
    """Two kinds of regions in eight groups."""
    made = []
    for group in range(8):
        shift = 20.0 * group
        waits = evidence_of(readback_trace(), STEP + shift, 2 * STEP, "cpu")
        made.append(training.example(waits, "sync-scalar-readback", str(group)))
        made.append(training.example(loader(), "input-dataloader-sync", str(group)))
    return made


@pytest.fixture(scope="module")
def trained():
    return training.train_embedded(examples(), SMALL, seed=3)


@pytest.fixture(scope="module")
def model_file(trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "judge.safetensors"
    training.save_model(trained, path, {"data_sha256": "0" * 64})
    return path


@pytest.fixture
def copied(model_file: Path, tmp_path: Path) -> Path:
    path = tmp_path / "judge.safetensors"
    path.write_bytes(model_file.read_bytes())
    embedded.card_path(path).write_text(embedded.card_path(model_file).read_text())
    return path


# -- reading ---------------------------------------------------------------------------------------


def pieces(line: str, section: str = "Ops by own host time (outermost op > op):") -> list[str]:
    """How one line of a section reads."""
    return next(tokens._lines(f"{section}\n{line}"))


def test_a_line_reads_as_section_numbers_and_words():
    assert pieces('"aten::item > aten::_local_scalar_dense" x12 31.2% [2.0%], each 402 µs') == [
        "s:Ops by own host time",
        "c:8",
        "v:%:10",
        "r:%:4",
        "v:µs:18",
        "n:aten::item > aten::_local_scalar_dense",
        "w:aten",
        "w:item",
        "w:local",
        "w:scalar",
        "w:dense",
    ]


def test_a_measure_is_one_piece_with_its_bins():
    assert pieces("device busy: 40.2% [99.0%]", "Shares:") == [
        "l:device busy",
        "v:%:11",
        "r:%:17",
        "l:device busy|v:%:11",
    ]


def test_like_numbers_read_alike_and_unlike_do_not():
    assert pieces("loader calls: 100 [0]") == pieces("loader calls: 110 [0]")
    assert pieces("loader calls: 100 [0]") != pieces("loader calls: 400 [0]")


def test_words_of_kernel_names_are_found_whatever_their_style():
    assert "w:sgemm" in tokens.name_pieces("ampere_sgemm_128x64_tn")
    assert "w:batch" in tokens.name_pieces("BatchNorm2dBackward")
    assert "w:nchw" in tokens.name_pieces("nchwToNhwcKernel")


@given(st.text(max_size=500))
def test_any_text_reads(text: str):
    ids = tokens.encode(text, 512)
    assert ids.shape == (tokens.LINES, tokens.PIECES)
    assert ids.min() >= 0
    assert ids.max() < 512
    filled = (ids != 0).any(axis=1)
    assert not (np.diff(filled.astype(int)) > 0).any()  # no gaps: the network trims the end


def test_the_evidence_of_a_region_fits():
    ids = tokens.encode(embedded.text_of(readback()), 6_144)
    assert 20 < (ids != 0).any(axis=1).sum() < tokens.LINES


def test_the_numbers_are_finite_and_named():
    vector = dense.vector(readback())
    assert vector.shape == (len(dense.NAMES),)
    assert np.isfinite(vector).all()
    named = dict(zip(dense.NAMES, vector.tolist(), strict=True))
    assert named["sync_scalar"] == pytest.approx(0.33)
    assert named["sync_scalar_excess"] == pytest.approx(0, abs=1e-6)
    assert named["steps"] == pytest.approx(1)


def test_the_numbers_tell_what_each_pattern_could_give_back():
    evidence = readback()
    named = dict(zip(dense.NAMES, dense.vector(evidence).tolist(), strict=True))
    assert evidence.claims["sync-scalar-readback"] > 0.1
    for pattern in IDS:
        share = evidence.claims.get(pattern, 0.0)
        assert 0 <= share <= 1
        assert named[f"claim_{pattern}"] ** 2 == pytest.approx(share, abs=1e-6)


def test_what_the_trace_cannot_show_claims_nothing():
    evidence = loader()
    assert set(evidence.claims) <= evidence.visible
    assert evidence.visible < set(IDS)


def test_the_learnt_text_holds_no_user_names():
    assert "train" not in embedded.text_of(readback())


# -- the network -----------------------------------------------------------------------------------


def test_numpy_computes_what_torch_trained(trained):
    random = np.random.default_rng(0)
    ids = random.integers(0, SMALL.vocabulary, (11, tokens.LINES, tokens.PIECES), np.int32)
    ids[:, 40:] = 0
    ids[0, 5:] = 0
    ids[1, :] = 0  # nothing to read at all
    numbers = 3 * random.normal(size=(11, len(dense.NAMES))).astype(np.float32)
    model = training.Network(SMALL, torch.zeros(len(dense.NAMES)), torch.ones(len(dense.NAMES)))
    model.load_state_dict({k: torch.from_numpy(v) for k, v in trained.weights.items()})
    model.eval()
    with torch.no_grad():
        wanted = model(torch.from_numpy(ids).long(), torch.from_numpy(numbers)).numpy()
    got = network.logits(trained.weights, ids, numbers, layers=SMALL.layers, heads=SMALL.heads)
    assert np.abs(got - wanted).max() < 1e-4


def test_a_region_is_judged_alike_alone_and_in_company(model_file: Path):
    judge = EmbeddedJudge(model_file)
    many = [readback(), loader(), *[readback()] * 9]
    together = judge.judge(many).verdicts
    for one, verdict in zip(many, together, strict=True):
        (alone,) = judge.judge([one]).verdicts
        assert alone.pattern == verdict.pattern
        assert alone.confidence == pytest.approx(verdict.confidence, abs=1e-5)


# -- training --------------------------------------------------------------------------------------


def test_it_learns_what_it_was_shown(model_file: Path):
    verdicts = EmbeddedJudge(model_file).judge([readback(), loader()]).verdicts
    assert [v.pattern for v in verdicts] == ["sync-scalar-readback", "input-dataloader-sync"]
    assert verdicts[0].confidence > 0.5


def test_training_is_deterministic(trained):
    again = training.train_embedded(examples(), SMALL, seed=3)
    assert all((again.weights[k] == v).all() for k, v in trained.weights.items())
    other = training.train_embedded(examples(), SMALL, seed=4)
    assert any((other.weights[k] != v).any() for k, v in trained.weights.items())


def test_training_leaves_torch_as_it_was():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    training.train_embedded(examples(), replace(SMALL, epochs=1), seed=0)
    assert torch.get_num_threads() == threads
    assert (torch.get_rng_state() == state).all()


def test_groups_never_stand_on_both_sides():
    train, held = training._split(examples(), SMALL, seed=1)
    assert len(train) == 12
    assert len(held) == 4


def test_some_lines_of_a_text_are_drawn():
    ids = torch.zeros(2, 6, 3, dtype=torch.long)
    ids[0, :5, 0] = torch.arange(1, 6)
    ids[1, :2, 0] = torch.tensor([7, 8])
    drawn = training._drawn(ids, 3)
    assert drawn.shape == (2, 3, 3)
    assert len(set(drawn[0, :, 0].tolist()) & {1, 2, 3, 4, 5}) == 3
    assert sorted(drawn[1, :, 0].tolist()) == [0, 7, 8]  # a filled line before an empty one


def test_validation_is_reported(trained):
    assert set(trained.metrics) >= {"accuracy", "balanced_accuracy", "log_loss", "recall", "top3"}
    assert trained.metrics["validation_examples"] == 4


@pytest.mark.parametrize(
    ("labels", "says"),
    [(["none"] * 4, "two classes"), (["none", "none", "none", "bogus"], "bogus")],
)
def test_too_little_or_unknown_to_learn_is_told(labels: list[str], says: str):
    given = [replace(e, label=label) for e, label in zip(examples(), labels, strict=False)]
    with pytest.raises(ModelError, match=says):
        training.train_embedded(given, SMALL)


# -- verdicts --------------------------------------------------------------------------------------


def test_what_the_trace_cannot_show_is_never_named(model_file: Path):
    blind = replace(readback(), visible=frozenset({"sync-explicit"}))
    (verdict,) = EmbeddedJudge(model_file).judge([blind]).verdicts
    assert {name for name, _ in verdict.candidates} == {"sync-explicit", "none"}
    assert sum(p for _, p in verdict.candidates) == pytest.approx(1)


# -- the flagger's opinion -------------------------------------------------------------------------

A, B, C = (CLASSES.index(p) for p in ("sync-scalar-readback", "input-dataloader-sync", NONE))


def opinion(**shares: float) -> np.ndarray:
    row = np.zeros((1, len(CLASSES)))
    for name, share in shares.items():
        row[0, {"a": A, "b": B, "none": C}[name]] = share
    return row


def test_two_opinions_are_multiplied_by_their_weights():
    shown = np.ones((1, len(CLASSES)), np.bool_)
    weight = {"judge": 1.0, "flagger": 0.5}
    both = embedded.pooled(opinion(a=0.6, b=0.4), opinion(a=0.09, b=0.81), shown, weight)
    assert both[0, B] / both[0, A] == pytest.approx(0.4 * 0.9 / (0.6 * 0.3))
    assert both.sum() == pytest.approx(1)


def test_a_flagger_without_candidates_changes_nothing():
    shown = np.ones((1, len(CLASSES)), np.bool_)
    own = opinion(a=0.5, b=0.3, none=0.2)
    pool = embedded.pooled(own, opinion(), shown, {"judge": 0.4, "flagger": 0.6})
    assert pool == pytest.approx(own, abs=1e-6)


def test_what_is_not_shown_gets_nothing_from_the_pool():
    shown = np.ones((1, len(CLASSES)), np.bool_)
    shown[0, A] = False
    pool = embedded.pooled(opinion(a=0.9, b=0.1), opinion(a=1.0), shown, embedded.POOL)
    assert pool[0, A] == 0
    assert pool.argmax() == B


def test_the_candidates_of_the_region_are_heard(model_file: Path):
    judge = EmbeddedJudge(model_file)
    alone = readback()
    seen = replace(alone.region, candidates=(("input-dataloader-sync", 0.99), (NONE, 0.01)))
    (before, after) = judge.judge([alone, replace(alone, region=seen)]).verdicts
    unlike = dict(before.candidates), dict(after.candidates)
    assert unlike[1]["input-dataloader-sync"] > unlike[0].get("input-dataloader-sync", 0.0)


@pytest.mark.parametrize(
    "pool", [{}, {"judge": 1.0}, {"judge": 0, "flagger": 0}, {"judge": -1.0, "flagger": 2.0}]
)
def test_weights_that_are_none_are_refused(trained, tmp_path: Path, pool: dict[str, float]):
    with pytest.raises(ModelError, match="pool must hold the weights of judge and flagger"):
        training.save_model(trained, tmp_path / "judge.safetensors", pool=pool)
    assert not list(tmp_path.iterdir())


def test_nothing_to_judge(model_file: Path):
    assert EmbeddedJudge(model_file).judge([]).verdicts == ()


# -- model files -----------------------------------------------------------------------------------


def test_the_card_tells_the_model(model_file: Path):
    card = json.loads(embedded.card_path(model_file).read_text())
    assert card["sha256"] == hashlib.sha256(model_file.read_bytes()).hexdigest()
    assert card["classes"] == list(CLASSES)
    assert card["trained_on"] == {"data_sha256": "0" * 64}
    assert EmbeddedJudge(model_file).name == f"embedded {card['sha256'][:12]}"


Damage = Callable[[Path, dict], None]


def _other_weights(path: Path, card: dict) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")


def _no_safetensors(path: Path, card: dict) -> None:
    path.write_bytes(b"pickle")
    card["sha256"] = hashlib.sha256(b"pickle").hexdigest()


def _other_classes(path: Path, card: dict) -> None:
    card["classes"] = card["classes"][::-1]


def _other_rule(path: Path, card: dict) -> None:
    card["tokens"]["rule"] = "lines-0"


def _no_tokens(path: Path, card: dict) -> None:
    del card["tokens"]


def _other_vocabulary(path: Path, card: dict) -> None:
    card["tokens"]["vocabulary"] = 1_024


def _no_temperature(path: Path, card: dict) -> None:
    card["temperature"] = 0


def _no_pool(path: Path, card: dict) -> None:
    del card["pool"]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_other_weights, "sha256"),
        (_no_safetensors, "not a safetensors file"),
        (_other_classes, "classes does not match"),
        (_other_rule, "tokens does not match"),
        (_no_tokens, "not a model card"),
        (_other_vocabulary, "1024 rows"),
        (_no_temperature, "temperature"),
        (_no_pool, "pool"),
    ],
)
def test_a_model_that_does_not_match_its_card_is_refused(copied: Path, damage: Damage, says: str):
    card = json.loads(embedded.card_path(copied).read_text())
    damage(copied, card)
    embedded.card_path(copied).write_text(json.dumps(card))
    with pytest.raises(ModelError, match=says) as caught:
        EmbeddedJudge(copied)
    assert "\n" not in str(caught.value)


def test_missing_files_are_named(copied: Path, tmp_path: Path):
    with pytest.raises(ModelError, match=r"nowhere\.safetensors: No such file"):
        EmbeddedJudge(tmp_path / "nowhere.safetensors")
    embedded.card_path(copied).unlink()
    with pytest.raises(ModelError, match=r"judge\.json: No such file"):
        EmbeddedJudge(copied)
    embedded.card_path(copied).write_text("not json")
    with pytest.raises(ModelError, match="not a model card"):
        EmbeddedJudge(copied)
