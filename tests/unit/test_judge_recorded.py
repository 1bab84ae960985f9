"""Recorded answers, and no judge at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from detector.errors import JudgeError
from detector.judge import Answers, feedback
from detector.judge.nothing import REMARK, NoJudge
from detector.judge.recorded import RecordedJudge, key
from tests.judging import loader, readback


class Counting:
    """A judge that counts what it is asked, and may be ill."""

    name = "counting"

    def __init__(self, *warnings: str) -> None:
        self.asked, self.warnings = 0, warnings

    def judge(self, evidence) -> Answers:
        self.asked += len(evidence)
        verdicts = [feedback.verdict(e, "none", 0.5, (("none", 0.5),)) for e in evidence]
        return Answers(tuple(verdicts), self.warnings)


def test_what_was_recorded_is_answered_again(tmp_path: Path):
    path, source = tmp_path / "answers.json", Counting()
    first = RecordedJudge(path, source).judge([readback(), loader()])
    again = RecordedJudge(path).judge([loader(), readback()])
    assert again.verdicts == first.verdicts[::-1]
    assert RecordedJudge(path, source).judge([loader()]).verdicts == first.verdicts[1:]
    assert source.asked == 2


def test_what_was_not_recorded_is_unclear(tmp_path: Path):
    path = tmp_path / "answers.json"
    RecordedJudge(path, Counting()).judge([readback()])
    answers = RecordedJudge(path).judge([readback(), loader()])
    assert [v.pattern for v in answers.verdicts] == ["none", "unclear"]
    assert answers.verdicts[1].candidates == loader().region.candidates
    assert answers.warnings == ("answers.json holds no answer for 1 regions",)


def test_a_broken_source_is_not_recorded(tmp_path: Path):
    path = tmp_path / "answers.json"
    answers = RecordedJudge(path, Counting("server is down")).judge([readback()])
    assert answers.warnings == ("server is down",)
    assert [v.pattern for v in answers.verdicts] == ["none"]
    assert not path.exists()


def test_an_answer_the_trace_cannot_show_is_not_repeated(tmp_path: Path):
    path = tmp_path / "answers.json"
    bogus = {"pattern": "bogus", "confidence": 1, "explanation": "", "fix": ""}
    path.write_text(json.dumps({key(readback()): bogus}))
    (verdict,) = RecordedJudge(path).judge([readback()]).verdicts
    assert verdict.pattern == "unclear"


@pytest.mark.parametrize("text", ["not json", "[]", '{"a": {"pattern": 3}}'])
def test_files_that_hold_no_answers_are_named(tmp_path: Path, text: str):
    path = tmp_path / "answers.json"
    path.write_text(text)
    with pytest.raises(JudgeError, match=r"answers\.json: not a record of answers"):
        RecordedJudge(path)
    with pytest.raises(JudgeError, match="No such file"):
        RecordedJudge(tmp_path / "nowhere.json")


def test_the_key_is_of_what_is_seen():
    assert key(readback()) == key(readback())
    assert key(readback()) != key(loader())


def test_without_a_judge_the_flagger_speaks():
    (verdict,) = NoJudge().judge([readback()]).verdicts
    assert verdict.pattern == "sync-scalar-readback"
    assert verdict.confidence == 0.6
    assert REMARK in verdict.explanation


def test_without_a_judge_what_cannot_be_shown_is_passed_over():
    evidence = readback()
    told = (("comm-straggler", 0.5), ("none", 0.3), ("sync-explicit", 0.2))
    region = replace(evidence.region, candidates=told)
    (verdict,) = NoJudge().judge([replace(evidence, region=region)]).verdicts
    assert (verdict.pattern, verdict.confidence) == ("sync-explicit", 0.2)
    region = replace(region, candidates=told[:2])
    (verdict,) = NoJudge().judge([replace(evidence, region=region)]).verdicts
    assert verdict.pattern == "unclear"
