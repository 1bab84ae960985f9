"""What holds of every report, whatever the trace, the scores and the verdicts are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector import pipeline
from detector.analysis import analyzable
from detector.evidence import Evidence
from detector.findings import Settings
from detector.flagger import Float32, Scores
from detector.judge import Answers, Named, Serve, Verdict
from detector.patterns import BY_ID, IDS
from detector.report import Report, from_json, occurrences, to_json
from detector.taxonomy import NONE, UNCLEAR, severity
from detector.trace import Step, Trace
from detector.window import ByStep, analyzed_time
from tests.random_traces import SEEDS, random_trace


class AnyFlagger:
    """Scores at random."""

    name = "any"

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.threshold = {"cpu": 0.4, "gpu": 0.4}

    def score(self, matrix: Float32) -> Scores:
        n = len(matrix)
        cpu, gpu = self.random.random((2, n)).astype(np.float32)
        return Scores(cpu, gpu)

    def top_features(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        return [()] * len(matrix)


class AnyConfidence:
    """Says anything."""

    name = "any"

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def score(self, matrix: Float32) -> npt.NDArray[np.float64]:
        return self.random.random(len(matrix))


class AnyJudge:
    """Names patterns at random, those that the trace cannot show too, and others."""

    name = "any"
    names_more = True

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.words = (*IDS, *IDS, NONE, UNCLEAR, UNCLEAR, "made-up")

    def judge(self, evidence: Sequence[Evidence], serve: Serve | None = None) -> Answers:
        return Answers(tuple(self.one() for _ in evidence))

    def one(self) -> Verdict:
        r = self.random
        others = tuple((r.choice(self.words), round(r.random(), 3)) for _ in range(3))
        named = Named(r.choice(self.words), r.random(), "Because.", r.choice(("", "Fix.")))
        return Verdict((named,), others)


def stepped(trace: Trace, steps: int) -> Trace:
    """The trace with its span cut in marked steps."""
    edges = np.linspace(0, int(trace.end.max()), steps + 1).astype(int).tolist()
    pairs = zip(edges, edges[1:], strict=False)
    return replace(
        trace, steps=tuple(Step(f"ProfilerStep#{i}", a, b) for i, (a, b) in enumerate(pairs))
    )


def any_report(
    seed: int, steps: int, *, as_it_is: bool = False, **chosen: float
) -> tuple[Report, Trace]:
    """The report of a random trace. These last well under a millisecond, too short to analyze; they
    are analyzed all the same, unless ``as_it_is``."""
    trace = random_trace(seed)
    trace = stepped(trace, steps) if steps else trace
    with pytest.MonkeyPatch.context() as patch:
        if not as_it_is:
            patch.setattr(analyzable, "why_not", lambda *_: None)
        report = pipeline.detect(
            trace,
            windower=ByStep(parts=4, fallback=12),
            flagger=AnyFlagger(seed),
            confidence=AnyConfidence(seed),
            judge=AnyJudge(seed),
            settings=Settings(**chosen),  # type: ignore[arg-type]
        )
    return report, trace


STEPS = st.sampled_from((0, 0, 1, 2, 5))


@given(SEEDS, STEPS)
def test_what_holds_of_every_report(seed: int, steps: int) -> None:
    report, trace = any_report(seed, steps)
    findings_add_up(report)
    findings_lie_in_their_spans_and_steps(report)
    the_ledger_adds_up_to_the_analyzed_time(report, trace)
    what_was_not_checked_is_no_finding(report)
    shares_of_the_summary_add_up(report)
    assert from_json(to_json(report)) == report


def findings_add_up(report: Report) -> None:
    shown = (*report.findings, *report.leads)
    assert sum(f.share for f in shown) <= 1 + 1e-9
    assert len({f.pattern for f in shown}) == len(shown)
    assert len({f.id for f in shown}) == len(shown)
    for finding in shown:
        assert finding.severity == severity(finding.share)
        analyzed = report.summary.analyzed_us
        assert finding.estimated_savings_us == pytest.approx(finding.share * analyzed)
        low, high = finding.savings_range_us
        assert 0 <= low <= finding.estimated_savings_us <= high
        assert finding.side == BY_ID[finding.pattern].side
        assert finding.explanation
        assert finding.fix.summary
    total = sum(f.estimated_savings_us for f in report.findings)
    assert report.summary.estimated_savings_us == pytest.approx(total)
    savings = [f.estimated_savings_us for f in report.findings]
    assert savings == sorted(savings, reverse=True)


def findings_lie_in_their_spans_and_steps(report: Report) -> None:
    for finding in report.findings:
        spans = occurrences(finding)
        assert finding.start_us == min(a for a, _ in spans)
        assert finding.end_us == max(b for _, b in spans)
        assert all(a < b for a, b in spans)
        assert set(finding.steps) <= set(range(len(report.source.steps)))


def the_ledger_adds_up_to_the_analyzed_time(report: Report, trace: Trace) -> None:
    analyzed = analyzed_time(trace)
    assert sum(round(row.us * 1_000) for row in report.ledger) == analyzed.end - analyzed.start


def what_was_not_checked_is_no_finding(report: Report) -> None:
    blind = {row.pattern for row in report.not_checked}
    assert blind <= set(IDS)
    assert not blind & {f.pattern for f in (*report.findings, *report.leads)}


def shares_of_the_summary_add_up(report: Report) -> None:
    summary = report.summary
    assert summary.gpu_busy + summary.gpu_idle == pytest.approx(1)
    assert summary.exposed_copy + summary.exposed_comm <= summary.gpu_busy + 1e-9
    assert all(w.score == max(w.cpu_score, w.gpu_score) for w in report.windows)


# A whole scan each; the fuzz profile runs more.
FEW = settings(max_examples=max(settings().max_examples // 2, 1))


@FEW
@given(SEEDS, STEPS, st.floats(0, 1))
def test_leads_are_what_is_less_likely(seed: int, steps: int, lead: float) -> None:
    report, _ = any_report(seed, steps, lead=lead)
    assert all(f.confidence >= lead for f in report.findings)
    assert all(f.confidence < lead for f in report.leads)


@FEW
@given(SEEDS, STEPS)
def test_what_cannot_be_analyzed_has_no_findings(seed: int, steps: int) -> None:
    report, _ = any_report(seed, steps, as_it_is=True)
    assert report.analyzable == (report.why_not is None) == (report.record_instead is None)
    assert report.analyzable or not (report.findings or report.leads)
