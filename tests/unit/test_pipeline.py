"""From scores and verdicts to findings, with a flagger and a judge with scripted answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from detector.candidates import Candidate
from detector.evidence import Evidence
from detector.findings import Settings, joined
from detector.flagger import Float32, Scores
from detector.flagger.confidence import ConstantConfidence
from detector.judge import Answers, Named, Serve, Verdict
from detector.judge.embedded import EmbeddedJudge
from detector.patterns import BY_ID, IDS, Occurrences
from detector.patterns import BY_ID as PATTERN_BY_ID
from detector.pipeline import detect
from detector.report import Finding, Report, from_json, occurrences, to_json
from detector.taxonomy import NONE, UNCLEAR
from detector.trace import Trace
from detector.window import ByStep, analyzed_time
from tests.traces import annotation, call, kernel, launch, op, python, repeat, trace_of

PYTHON, LAUNCH, FP32 = "host-python-overhead", "host-launch-bound", "compute-fp32-matmul"
LAYOUT = "memory-layout-transform"

# A step of 1 ms: an op, 400 us of one fp32 product, nothing at all for 490 us, an op.
BODY = (
    op("aten::mm", 0, 100),
    launch(20, 10, 1),
    kernel("sgemm_128x64_tn", 100, 400, 1),
    op("aten::detach", 990, 10),
)
TRACE = trace_of(*repeat(BODY, 4, 1_000), steps=[(i * 1e3, (i + 1) * 1e3) for i in range(4)])
SPAN = 5, 10  # the tenths of a step in which the host is in Python

Flagged = Mapping[int, tuple[str, str]]


class Flags:
    """Suspects the given windows."""

    name = "fake flagger"

    def __init__(self, flagged: Flagged, score: float = 0.9) -> None:
        self.flagged, self.high = flagged, score
        self.threshold = {"cpu": 0.5, "gpu": 0.5}

    def score(self, matrix: Float32) -> Scores:
        sides = {side: np.zeros(len(matrix), np.float32) for side in ("cpu", "gpu")}
        for i, (side, _) in self.flagged.items():
            sides[side][i] = self.high
        return Scores(sides["cpu"], sides["gpu"])

    def top_features(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        return [("idle_op",)] * len(matrix)


Says = Callable[[Evidence], Verdict]


class Answering:
    """Answers by a function and remembers what it was asked."""

    name = "fake judge"
    names_more = True

    def __init__(self, says: Says, *warnings: str) -> None:
        self.says, self.warnings = says, warnings
        self.asked: list[Evidence] = []

    def judge(self, evidence: Sequence[Evidence], serve: Serve | None = None) -> Answers:
        self.asked += evidence
        return Answers(tuple(map(self.says, evidence)), self.warnings)


def verdict(
    pattern: str, confidence: float = 0.8, *candidates: tuple[str, float], says: str = "Because."
) -> Verdict:
    return Verdict((Named(pattern, confidence, says, "Do this."),), candidates)


def always(pattern: str, confidence: float = 0.8, *candidates: tuple[str, float]) -> Says:
    return lambda _: verdict(pattern, confidence, *candidates)


def every_step(side: str, pattern: str, span: tuple[int, int] = (0, 10), steps: int = 4) -> Flagged:
    """Those tenths of each step."""
    return {10 * s + i: (side, pattern) for s in range(steps) for i in range(*span)}


SURE, UNSURE = ConstantConfidence(0.8, 0.8), ConstantConfidence(0.4, 0.4)


def report_of(
    trace: Trace,
    flagged: Flagged,
    says: Says,
    settings: Settings | None = None,
    parts: int = 10,
    confidence: ConstantConfidence = SURE,
) -> Report:
    report = detect(
        trace,
        windower=ByStep(parts),
        flagger=Flags(flagged),
        confidence=confidence,
        judge=Answering(says),
        settings=settings or Settings(),
    )
    assert from_json(to_json(report)) == report
    return report


def only(report: Report, pattern: str = LAUNCH) -> Finding:
    (finding,) = [f for f in report.findings if f.pattern == pattern]
    return finding


# -- a finding -------------------------------------------------------------------------------------


def test_a_candidate_that_the_judge_confirms_is_a_finding() -> None:
    finding = only(report_of(TRACE, every_step("cpu", LAUNCH, SPAN), always(LAUNCH)))
    assert (finding.pattern, finding.side, finding.kind) == (LAUNCH, "cpu", "opportunity")
    assert finding.steps == (0, 1, 2, 3)
    # The host takes a tenth of its time between kernels: 4 steps of 1 ms, 400 us of them compute.
    assert 0.5 < finding.share < 0.6
    assert finding.estimated_savings_us == pytest.approx(finding.share * 4_000)
    low, high = finding.savings_range_us
    assert low <= finding.estimated_savings_us <= high
    assert (finding.severity, finding.confidence) == ("critical", pytest.approx(0.8))
    assert finding.score == pytest.approx(0.9)
    assert (finding.explanation, finding.fix.summary) == ("Because.", "Do this.")
    assert finding.fix.code == BY_ID[LAUNCH].code
    assert finding.assumes
    assert finding.evidence["top_features"] == [
        "the device idles while the host is in an op or another call"
    ]


def test_occurrences_that_lie_close_together_are_one_place_but_not_across_steps() -> None:
    finding = only(report_of(converting(300), every_step("gpu", LAYOUT), always(LAYOUT)), LAYOUT)
    assert occurrences(finding) == tuple((600 + s, 900 + s) for s in (0, 1_000, 2_000, 3_000))
    assert (finding.start_us, finding.end_us, finding.occurrences) == (600, 3_900, 4)


def test_occurrences_without_a_length_have_a_place() -> None:
    where = Occurrences(
        *(np.array(times, np.int64) for times in ([3, 7], [10, 5_000], [10, 5_000]))
    )
    candidate = Candidate(PATTERN_BY_ID[LAUNCH], where, 0, 0, 0, 0.1)
    spans = joined(candidate, analyzed_time(TRACE))
    assert list(zip(spans.start.tolist(), spans.end.tolist(), strict=True)) == [(10, 5_001)]


def test_a_candidate_that_nobody_flagged_is_a_finding_all_the_same() -> None:
    judge = Answering(always(LAUNCH))
    report = detect(TRACE, windower=ByStep(10), flagger=Flags({}), confidence=SURE, judge=judge)
    assert only(report).score == 0
    (asked,) = judge.asked  # about the candidate's own place
    assert asked.region.candidates == ((LAUNCH, 0.8),)
    assert len(report.windows) == 40


@pytest.mark.parametrize(
    ("says", "confidence"),
    [
        (always(LAUNCH, 0.6), 0.7),
        (always(NONE, 0.9, (NONE, 0.9)), 0.4),
        (always(LAYOUT, 0.9, (LAYOUT, 0.9), (LAUNCH, 0.4)), 0.6),
        (always(UNCLEAR, 0.0, (LAUNCH, 0.8)), 0.8),
    ],
    ids=["named", "not named", "a second thought", "unclear"],
)
def test_the_confidence_is_the_mean_of_the_models_and_the_judges(
    says: Says, confidence: float
) -> None:
    report = report_of(TRACE, {}, says)
    (found,) = (f for f in (*report.findings, *report.leads) if f.pattern == LAUNCH)
    assert found.confidence == pytest.approx(confidence)
    assert (found in report.leads) == (confidence < 0.5)


def test_a_candidate_of_less_than_even_confidence_is_a_lead() -> None:
    report = report_of(TRACE, {}, always(LAUNCH, 0.5), confidence=UNSURE)
    assert report.findings == ()
    assert [f.pattern for f in report.leads] == [LAUNCH]


def test_the_embedded_judge_adds_nothing_to_the_confidence() -> None:
    stages = {"windower": ByStep(10), "flagger": Flags({}), "judge": EmbeddedJudge()}
    finding = only(detect(TRACE, **stages, confidence=SURE))
    assert finding.confidence == pytest.approx(0.8)
    assert finding.explanation.startswith(BY_ID[LAUNCH].what)
    assert only(detect(TRACE, **stages, confidence=SURE)) == finding


def test_what_saves_nothing_is_no_finding_whatever_the_judge_says() -> None:
    report = report_of(TRACE, every_step("gpu", LAYOUT), always(LAYOUT, 1.0))
    assert [f.pattern for f in (*report.findings, *report.leads)] == [LAUNCH]


def test_the_same_trace_gives_the_same_report() -> None:
    runs = [report_of(TRACE, every_step("cpu", LAUNCH), always(LAUNCH)) for _ in range(2)]
    assert to_json(runs[0]) == to_json(runs[1])


def test_where_the_time_went() -> None:
    report = report_of(TRACE, every_step("cpu", LAUNCH, SPAN), always(LAUNCH))
    summary = report.summary
    assert (summary.analyzed_us, summary.trace_us) == (4_000, 4_000)
    assert (summary.gpu_busy, summary.gpu_idle) == pytest.approx((0.4, 0.6))
    assert (summary.exposed_copy, summary.exposed_comm) == (0, 0)
    assert summary.estimated_savings_us == only(report).estimated_savings_us
    window = report.windows[25]
    assert (window.start_us, window.end_us, window.step) == (2_500, 2_600, 2)
    assert (window.score, window.cpu_score, window.gpu_score) == pytest.approx((0.9, 0.9, 0))
    assert (report.tool.flagger, report.tool.judge) == ("fake flagger", "fake judge")
    assert len(report.source.steps) == 4


def test_the_ledger_adds_up_to_the_analyzed_time() -> None:
    report = report_of(TRACE, {}, always(NONE))
    assert sum(row.us for row in report.ledger) == pytest.approx(4_000)
    assert sum(row.share for row in report.ledger) == pytest.approx(1)
    assert {row.cause: row.us for row in report.ledger}["compute"] == 1_600
    assert [row.us for row in report.ledger] == sorted((r.us for r in report.ledger), reverse=True)


# -- several patterns ------------------------------------------------------------------------------


def by_side(cpu: str, gpu: str) -> Says:
    return lambda evidence: verdict(cpu if evidence.region.side == "cpu" else gpu)


def test_savings_of_all_findings_are_disjoint() -> None:
    report = report_of(converting(300), {}, by_side(LAUNCH, LAYOUT))
    assert {f.pattern for f in report.findings} == {LAUNCH, LAYOUT}
    assert sum(f.share for f in report.findings) < 1
    savings = [f.estimated_savings_us for f in report.findings]
    assert savings == sorted(savings, reverse=True)


def test_what_the_judge_says_of_another_pattern_does_not_explain_a_finding() -> None:
    says = always(LAYOUT, 0.9, (LAYOUT, 0.9), (LAUNCH, 0.7))
    finding = only(report_of(TRACE, every_step("cpu", LAUNCH), says))
    assert finding.explanation.startswith(BY_ID[LAUNCH].what)
    assert finding.fix.summary.startswith(BY_ID[LAUNCH].fix)


def test_the_place_where_the_judge_was_surest_explains_the_finding() -> None:
    def says(evidence: Evidence) -> Verdict:
        step = evidence.region.start // 1_000_000
        return verdict(LAUNCH, 0.5 + 0.1 * (step == 2), says=f"step {step}")

    finding = only(report_of(TRACE, every_step("cpu", LAUNCH, SPAN), says))
    assert (finding.explanation, finding.confidence) == ("step 2", pytest.approx(0.7))


# -- what is never a finding -----------------------------------------------------------------------


def converting(length: float) -> Trace:
    """Steps of 1 ms with a layout kernel of this length."""
    launched = (launch(35, 10, 2), kernel("nchwToNhwcKernel", 600, length, 2))
    body = (*BODY[:3], *launched, BODY[3])
    return trace_of(*repeat(body, 4, 1_000), steps=[(i * 1e3, (i + 1) * 1e3) for i in range(4)])


@pytest.mark.parametrize("pattern", IDS)
def test_a_pattern_without_occurrences_is_no_finding(pattern: str) -> None:
    """A trace in which the device is always busy with half-precision products."""
    body = (op("aten::mm", 0, 50), launch(10, 5, 1), kernel("ampere_bf16_s16816gemm", 0, 1_000, 1))
    trace = trace_of(*repeat(body, 3, 1_000), steps=[(i * 1e3, (i + 1) * 1e3) for i in range(3)])
    flagged = every_step(BY_ID[pattern].side, pattern, steps=3)
    assert report_of(trace, flagged, always(pattern)).findings == ()


def test_a_pattern_that_no_one_knows_is_no_finding() -> None:
    report = report_of(TRACE, every_step("cpu", PYTHON), always("made-up"))
    assert [f.pattern for f in (*report.findings, *report.leads)] == [LAUNCH]


CPU_RUN = trace_of(
    *repeat([op("aten::mm", 0, 400), op("aten::cat", 400, 600)], 4, 1_000),
    steps=[(i * 1e3, (i + 1) * 1e3) for i in range(4)],
)


def test_a_blind_pattern_is_not_checked_and_never_a_finding() -> None:
    report = report_of(
        CPU_RUN, every_step("gpu", "infer-kv-cat"), always("infer-kv-cat", 0.9, (FP32, 0.9))
    )
    assert "infer-kv-cat" not in {f.pattern for f in report.findings}
    because = {row.pattern: row.because for row in report.not_checked}
    assert "record_shapes" in because["infer-kv-cat"]
    assert "device records" in because[FP32]


def test_a_trace_that_cannot_be_analyzed_has_a_reason_and_no_findings() -> None:
    short = trace_of(op("aten::mm", 0, 40), launch(10, 5, 1), kernel("gemm", 20, 30, 1))
    judge = Answering(always(LAUNCH))
    report = detect(short, windower=ByStep(10), flagger=Flags({}), confidence=SURE, judge=judge)
    assert not report.analyzable
    assert "1 ms" in (report.why_not or "")
    assert report.record_instead
    assert (report.findings, report.leads, judge.asked) == ((), (), [])
    assert sum(row.share for row in report.ledger) == pytest.approx(1)  # what it shows is shown


# -- many places -----------------------------------------------------------------------------------


def test_candidates_are_asked_about_before_flagged_regions() -> None:
    judge = Answering(always(LAUNCH))
    detect(
        TRACE,
        windower=ByStep(10),
        flagger=Flags(every_step("gpu", FP32, (1, 5))),
        confidence=SURE,
        judge=judge,
        settings=Settings(max_regions=2),
    )
    assert [e.region.side for e in judge.asked] == ["cpu", "gpu"]


def test_occurrences_are_counted_beyond_those_listed() -> None:
    settings = Settings(max_occurrences=2)
    report = report_of(converting(300), {}, always(LAYOUT), settings)
    finding = only(report, LAYOUT)
    assert (finding.occurrences, len(occurrences(finding))) == (4, 2)


# -- warnings and odd traces -----------------------------------------------------------------------


def test_the_judges_warnings_are_the_reports() -> None:
    judge = Answering(always(PYTHON), "the server is down")
    report = detect(
        TRACE, windower=ByStep(), flagger=Flags({}), confidence=SURE, judge=judge, config={"a": 1}
    )
    assert report.warnings == ("the server is down",)
    assert report.tool.config == {"a": 1}


STEPPED = [(0.0, 10.0), (10.0, 20.0)]


@pytest.mark.parametrize("pattern", [NONE, UNCLEAR, PYTHON, FP32, "input-tiny-copies"])
@pytest.mark.parametrize(
    "trace",
    [
        trace_of(),
        trace_of(steps=STEPPED),
        trace_of(kernel("k", 0, 10)),
        trace_of(kernel("k", 0, 0)),
        trace_of(op("aten::mm", 5, 10)),
        trace_of(python("train.py(3): step", 0, 10)),
        trace_of(annotation("my note", 0, 10)),
        trace_of(*(kernel("k", 20 * i, 10) for i in range(3)), steps=[(0, 30), (30, 60)]),
        trace_of(call("cudaDeviceSynchronize", 0, 10)),
        trace_of(*repeat(BODY, 3, 1_000)),
        trace_of(kernel("k", 500, 10), steps=STEPPED),
    ],
    ids="empty stepped kernel instant op python note no-host sync no-steps outside".split(),
)
def test_every_trace_gives_a_valid_report(trace: Trace, pattern: str) -> None:
    class All(Flags):
        def score(self, matrix: Float32) -> Scores:
            ones = np.ones(len(matrix), np.float32)
            return Scores(ones, ones)

    report = detect(
        trace, windower=ByStep(), flagger=All({}), confidence=SURE, judge=Answering(always(pattern))
    )
    assert from_json(to_json(report)) == report
    assert sum(f.share for f in report.findings) <= 1 + 1e-9
    assert 0 <= report.summary.gpu_busy <= 1
    assert 0 <= report.summary.gpu_idle <= 1
