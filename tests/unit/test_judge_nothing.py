"""No judge at all."""

from __future__ import annotations

from dataclasses import replace

from detector.judge.nothing import REMARK, NoJudge
from tests.judging import readback


def test_without_a_judge_the_flagger_speaks():
    (verdict,) = NoJudge().judge([readback()]).verdicts
    assert verdict.first.pattern == "sync-scalar-readback"
    assert verdict.first.confidence == 0.6
    assert REMARK in verdict.first.explanation


def test_without_a_judge_what_cannot_be_shown_is_passed_over():
    evidence = readback()
    patterns = (("comm-straggler", 0.5), ("none", 0.3), ("sync-explicit", 0.2))
    region = replace(evidence.region, candidates=patterns)
    (verdict,) = NoJudge().judge([replace(evidence, region=region)]).verdicts
    assert (verdict.first.pattern, verdict.first.confidence) == ("sync-explicit", 0.2)
    region = replace(region, candidates=patterns[:2])
    (verdict,) = NoJudge().judge([replace(evidence, region=region)]).verdicts
    assert verdict.first.pattern == "unclear"
