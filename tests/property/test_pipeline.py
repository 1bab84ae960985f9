"""What holds of every report, whatever the trace, the scores and the verdicts are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector import cost, pipeline
from detector.activity import Activity
from detector.evidence import Evidence
from detector.flagger import Float32, Scores
from detector.judge import Answers, Verdict
from detector.report import Report, from_json, occurrences, to_json
from detector.taxonomy import BY_ID, CLASSES, IDS, NONE, UNCLEAR, severity
from detector.trace import Step, Trace
from detector.window import ByStep, judge_time
from tests.random_traces import SEEDS, random_trace


class AnyFlagger:
    """Scores at random."""

    name = "any"

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.threshold = {"cpu": 0.4, "gpu": 0.4}

    def score(self, matrix: Float32) -> Scores:
        n = len(matrix)
        classes = self.random.random((n, len(CLASSES))) ** 8
        share = classes / classes.sum(axis=1, keepdims=True)
        cpu, gpu = self.random.random((2, n)).astype(np.float32)
        return Scores(cpu, gpu, share.astype(np.float32))

    def drivers(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        return [()] * len(matrix)


class AnyJudge:
    """Names patterns at random, those that the trace cannot show too, and others."""

    name = "any"

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.words = (*IDS, *IDS, NONE, UNCLEAR, UNCLEAR, "made-up")

    def judge(self, evidence: Sequence[Evidence]) -> Answers:
        return Answers(tuple(self.one() for _ in evidence))

    def one(self) -> Verdict:
        r = self.random
        others = tuple((r.choice(self.words), round(r.random(), 3)) for _ in range(3))
        return Verdict(
            r.choice(self.words), r.random(), "Because.", r.choice(("", "Fix.")), (), others
        )


def stepped(trace: Trace, steps: int) -> Trace:
    """The trace with its span cut in marked steps."""
    edges = np.linspace(0, int(trace.end.max()), steps + 1).astype(int).tolist()
    pairs = zip(edges, edges[1:], strict=False)
    return replace(
        trace, steps=tuple(Step(f"ProfilerStep#{i}", a, b) for i, (a, b) in enumerate(pairs))
    )


def any_report(seed: int, steps: int, **chosen: float) -> tuple[Report, Trace]:
    trace = random_trace(seed)
    trace = stepped(trace, steps) if steps else trace
    report = pipeline.detect(
        trace,
        windower=ByStep(parts=4, fallback=12),
        flagger=AnyFlagger(seed),
        judge=AnyJudge(seed),
        settings=pipeline.Settings(**chosen),  # type: ignore[arg-type]
    )
    return report, trace


STEPS = st.sampled_from((0, 0, 1, 2, 5))
# A whole scan each; the fuzz profile runs more.
FEW = settings(max_examples=max(settings().max_examples // 2, 1))


@FEW
@given(SEEDS, STEPS)
def test_findings_add_up(seed: int, steps: int) -> None:
    report, _ = any_report(seed, steps)
    named = [f for f in report.findings if f.pattern != UNCLEAR]
    assert sum(f.share for f in named) <= 1 + 1e-9
    assert len({f.pattern for f in report.findings}) == len(report.findings)
    assert len({f.id for f in report.findings}) == len(report.findings)
    for finding in named:
        assert finding.share >= 0.01
        assert finding.severity == severity(finding.share)
        judged = report.summary.judged_us
        assert finding.recoverable_us == pytest.approx(finding.share * judged)
        assert finding.side == BY_ID[finding.pattern].side
        assert finding.confidence >= 0.3
        assert finding.explanation
        assert finding.fix.summary
    total = sum(f.recoverable_us for f in report.findings)
    assert report.summary.recoverable_us == pytest.approx(total)
    costs = [f.recoverable_us for f in report.findings]
    assert costs == sorted(costs, reverse=True)


@FEW
@given(SEEDS, STEPS)
def test_a_finding_lies_in_the_judged_time_and_in_its_steps(seed: int, steps: int) -> None:
    report, trace = any_report(seed, steps)
    judged = judge_time(trace)
    for finding in report.findings:
        spans = occurrences(finding)
        assert len(spans) == finding.occurrences
        assert (min(a for a, _ in spans), max(b for _, b in spans)) == (
            finding.start_us,
            finding.end_us,
        )
        assert all(judged.start <= a * 1_000 < b * 1_000 <= judged.end + 1e-6 for a, b in spans)
        assert set(finding.steps) <= set(range(len(report.source.steps)))
        assert bool(finding.steps) == bool(report.source.steps)


@FEW
@given(SEEDS, STEPS)
def test_what_was_not_checked_is_no_finding(seed: int, steps: int) -> None:
    report, _ = any_report(seed, steps, min_share=0.0, min_confidence=0.0, also=0.0)
    blind = {row.pattern for row in report.not_checked}
    assert blind <= set(IDS)
    assert not blind & {f.pattern for f in report.findings}
    assert {f.pattern for f in report.findings} <= {*IDS, UNCLEAR}
    assert sum(f.share for f in report.findings) <= 1 + 1e-9


@FEW
@given(SEEDS, STEPS)
def test_any_report_survives_its_file(seed: int, steps: int) -> None:
    report, _ = any_report(seed, steps)
    assert from_json(to_json(report)) == report
    summary = report.summary
    assert summary.device_busy + summary.device_idle == pytest.approx(1)
    assert summary.exposed_copy + summary.exposed_comm <= summary.device_busy + 1e-9
    assert all(w.score == max(w.cpu_score, w.gpu_score) for w in report.windows)


@FEW
@given(SEEDS, STEPS)
def test_no_instant_is_claimed_twice(seed: int, steps: int) -> None:
    """The claims behind the findings, as the pipeline made them."""
    claims: list[tuple[str, cost.Claim]] = []
    finding = pipeline._finding

    def watched(pattern: str, cases: object, claim: cost.Claim, *rest: object) -> object:
        claims.append((pattern, claim))
        return finding(pattern, cases, claim, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_finding", watched)
        report, trace = any_report(seed, steps)
    assert {p for p, _ in claims} == {f.pattern for f in report.findings} - {UNCLEAR}
    judged, activity = judge_time(trace), Activity(trace)
    seen = np.zeros(judged.end - judged.start, np.int8)  # one place for each ns: 300 us at most
    for pattern, claim in claims:
        for a, b in zip(claim.intervals.start, claim.intervals.end, strict=True):
            assert judged.start <= a < b <= judged.end
            seen[a - judged.start : b - judged.start] += 1
        assert (claim.intervals - cost.claim(activity, pattern).intervals).measure == 0
    assert seen.max(initial=0) <= 1
