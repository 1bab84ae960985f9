"""judge=transformers on a tiny random model: it scores every allowed id, prompt read once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from detector.errors import JudgeError
from detector.judge import feedback, schema
from detector.judge.embedded import EmbeddedJudge
from detector.judge.nothing import NoJudge
from detector.judge.transformers import TransformersJudge
from detector.taxonomy import UNCLEAR
from tests.bad_servers import answer
from tests.judging import loader, readback
from tests.tiny_language_model import CHAT_TEMPLATE, NO_SYSTEM_TEMPLATE, make, make_parrot

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

BUDGET = 150  # tokens of evidence: the tiny model reads byte by byte


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("tiny"), chat_template=CHAT_TEMPLATE)


@pytest.fixture(scope="module")
def judge(folder: Path) -> TransformersJudge:
    return TransformersJudge(str(folder), budget_tokens=BUDGET)


def slow_scores(judge: TransformersJudge, prompt: list[int], answers: list[str]) -> np.ndarray:
    """Log-likelihoods the obvious way: everything read anew for each answer."""
    scores = []
    for one in answers:
        coded = judge._tokenizer(one, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([prompt + coded])
        with torch.no_grad():
            chance = torch.log_softmax(judge._model(ids).logits[0].float(), dim=-1)
        at = range(len(prompt) - 1, len(prompt) + len(coded) - 1)
        scores.append(sum(float(chance[i, token]) for i, token in zip(at, coded, strict=True)))
    return np.array(scores)


def test_scores_are_the_likelihoods_of_the_ids(judge: TransformersJudge):
    answers = ["none", "sync-scalar-readback", *[f"host-{i}" for i in range(20)]]
    prompt = judge._tokenizer("The id of the pattern is: ")["input_ids"]
    assert judge.scores(prompt, answers) == pytest.approx(
        slow_scores(judge, prompt, answers), abs=1e-3
    )


def test_a_prompt_of_one_token_is_scored(judge: TransformersJudge):
    assert judge.scores([5], ["none"]) == pytest.approx(slow_scores(judge, [5], ["none"]), abs=1e-4)


def test_verdicts_stay_in_the_taxonomy(judge: TransformersJudge):
    answers = judge.judge([readback(), loader()])
    assert answers.warnings == ()
    for evidence, verdict in zip([readback(), loader()], answers.verdicts, strict=True):
        assert verdict.first.pattern in schema.allowed(evidence)
        assert verdict.first.pattern != UNCLEAR
        assert 0 < verdict.first.confidence <= 1
        assert verdict.first.explanation


def test_the_chat_template_frames_the_prompt(judge: TransformersJudge):
    text = judge._tokenizer.decode(judge._prompt(["none"], "evidence here"))
    assert text.startswith("<|system|>You diagnose")
    assert "<|user|>evidence here" in text
    assert text.endswith("<|assistant|>The id of the pattern is: ")


def test_a_template_without_a_system_role_gets_one_message(tmp_path: Path):
    judge = TransformersJudge(str(make(tmp_path, chat_template=NO_SYSTEM_TEMPLATE)))
    text = judge._tokenizer.decode(judge._prompt(["none"], "evidence here"))
    assert text.startswith("<|user|>You diagnose")


def test_without_a_template_the_prompt_is_plain_and_a_too_long_one_is_reported(tmp_path: Path):
    judge = TransformersJudge(str(make(tmp_path, positions=256)), budget_tokens=BUDGET)
    answers = judge.judge([loader()])
    assert answers.verdicts[0].first.pattern in schema.allowed(loader())
    assert "256 tokens" in answers.warnings[0]


def test_calibration_takes_off_what_is_thought_without_evidence(folder: Path):
    plain = TransformersJudge(str(folder), budget_tokens=BUDGET, calibrate=False)
    ids = tuple(i for i in schema.allowed(loader()) if i != UNCLEAR)
    prompt = plain._prompt(ids, schema.user_prompt(loader(), BUDGET))
    scores = plain.scores(prompt, ids)
    (verdict,) = plain.judge([loader()]).verdicts
    assert verdict.first.pattern == ids[int(np.argmax(scores))]
    wanted = scores - np.array([plain._prior[i] for i in ids])
    calibrated = TransformersJudge(str(folder), budget_tokens=BUDGET)
    (verdict,) = calibrated.judge([loader()]).verdicts
    assert verdict.first.pattern == ids[int(np.argmax(wanted))]


def test_no_finite_score_leaves_the_embedded_verdict(folder: Path, monkeypatch):
    judge = TransformersJudge(str(folder), budget_tokens=BUDGET, fallback=NoJudge())
    monkeypatch.setattr(judge, "scores", lambda _, ids: np.full(len(ids), np.nan))
    (verdict,) = judge.judge([readback()]).verdicts
    (own,) = NoJudge().judge([readback()]).verdicts
    assert replace(verdict, fallback="") == own
    assert verdict.fallback == "no finite score"


def test_what_the_embedded_judge_holds_likely_stays_likely(folder: Path):
    judge = TransformersJudge(str(folder), budget_tokens=BUDGET, fallback=NoJudge())
    (verdict,) = judge.judge([readback()]).verdicts
    assert dict(verdict.candidates)["sync-scalar-readback"] >= 0.6


LOADER = "input-dataloader-sync"
SAID = "The host makes a batch itself 50.0% of the time."


def writes(folder: Path, **answered: object) -> TransformersJudge:
    """A judge whose model answers this, again and again."""
    make_parrot(folder, answer(**{"pattern": LOADER, "explanation": SAID, **answered}))
    return TransformersJudge(str(folder), budget_tokens=BUDGET, generate=True, max_tokens=3)


def test_it_writes_answers_of_its_own(tmp_path: Path):
    found = writes(tmp_path).judge([loader()])
    (verdict,) = found.verdicts
    assert (verdict.first.pattern, verdict.first.explanation, verdict.fallback) == (
        LOADER,
        SAID,
        "",
    )
    assert found.warnings == ()
    (asked,) = found.judging.rounds
    assert asked.outcome == "answered"
    assert asked.input_tokens > 1_000  # of a byte each
    assert 1 <= asked.output_tokens <= 3


def test_what_the_evidence_does_not_hold_is_struck(tmp_path: Path):
    found = writes(tmp_path, explanation="It wastes 8765.4 µs.").judge([loader()])
    assert found.verdicts[0].first.explanation == feedback.explain(loader(), LOADER)
    assert found.judging.struck == 1


def test_an_answer_that_is_none_leaves_the_embedded_verdict(folder: Path):
    judge = TransformersJudge(str(folder), budget_tokens=BUDGET, generate=True, max_tokens=4)
    found = judge.judge([loader()])
    assert (
        found.verdicts[0].first.pattern
        == EmbeddedJudge().judge([loader()]).verdicts[0].first.pattern
    )
    assert found.verdicts[0].fallback
    assert "no valid answer for 1 of 1 places" in found.warnings[0]


def test_an_answer_is_kept_to_its_schema(tmp_path: Path):
    """Left alone, the model would say its answer three times."""
    pytest.importorskip("xgrammar", reason="the extra `constrained`")
    found = writes(tmp_path).judge([loader()])
    assert found.judging.rounds[0].output_tokens == 2  # the answer, and its end


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"dtype": "float31"}, "float31"),
        ({"dtype": "nn"}, "no type of torch"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_reported_in_one_line(
    folder: Path, settings: dict[str, str], says: str
):
    with pytest.raises(JudgeError, match=says) as caught:
        TransformersJudge(**{"model": str(folder), **settings})
    assert "\n" not in str(caught.value)
