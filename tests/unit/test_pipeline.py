"""From scores and verdicts to findings, with a flagger and a judge that say what they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from detector.evidence import Evidence
from detector.flagger import Float32, Scores
from detector.judge import Answers, Verdict
from detector.pipeline import Settings, detect
from detector.report import Finding, Report, from_json, occurrences, to_json
from detector.taxonomy import BY_ID, CLASSES, IDS, NONE, UNCLEAR
from detector.trace import Trace
from detector.window import ByStep
from tests.traces import annotation, call, kernel, launch, op, python, repeat, trace_of

PYTHON, LAUNCH, FP32 = "host-python-overhead", "host-launch-bound", "compute-fp32-matmul"
LAYOUT = "memory-layout-transform"

# A step of 1 ms: an op, 400 us of one fp32 product, nothing at all for 490 us, an op.
BODY = (
    op("aten::mm", 0, 100),
    launch(20, 10, 1),
    kernel("ampere_sgemm_128x64_tn", 100, 400, 1),
    op("aten::detach", 990, 10),
)
TRACE = trace_of(*repeat(BODY, 4, 1_000), steps=[(i * 1e3, (i + 1) * 1e3) for i in range(4)])
SPAN = 5, 10  # the tenths of a step in which the host is in Python

Hot = Mapping[int, tuple[str, str]]


class Flags:
    """Suspects the windows it is told to, for the pattern it is told."""

    name = "fake flagger"

    def __init__(self, hot: Hot, score: float = 0.9) -> None:
        self.hot, self.high = hot, score
        self.threshold = {"cpu": 0.5, "gpu": 0.5}

    def score(self, matrix: Float32) -> Scores:
        sides = {side: np.zeros(len(matrix), np.float32) for side in ("cpu", "gpu")}
        classes = np.zeros((len(matrix), len(CLASSES)), np.float32)
        classes[:, CLASSES.index(NONE)] = 0.25
        for i, (side, pattern) in self.hot.items():
            sides[side][i] = self.high
            classes[i, CLASSES.index(pattern)] = 0.75
        return Scores(sides["cpu"], sides["gpu"], classes)

    def drivers(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        return [("idle_op",)] * len(matrix)


Says = Callable[[Evidence], Verdict]


class Answering:
    """Answers by a function and remembers what it was asked."""

    name = "fake judge"

    def __init__(self, says: Says, *warnings: str) -> None:
        self.says, self.warnings = says, warnings
        self.asked: list[Evidence] = []

    def judge(self, evidence: Sequence[Evidence]) -> Answers:
        self.asked += evidence
        return Answers(tuple(map(self.says, evidence)), self.warnings)


def verdict(
    pattern: str, confidence: float = 0.8, *candidates: tuple[str, float], says: str = "Because."
) -> Verdict:
    return Verdict(pattern, confidence, says, "Do this.", (), candidates)


def always(pattern: str, confidence: float = 0.8, *candidates: tuple[str, float]) -> Says:
    return lambda _: verdict(pattern, confidence, *candidates)


def every_step(side: str, pattern: str, span: tuple[int, int] = (0, 10), steps: int = 4) -> Hot:
    """Those tenths of each step."""
    return {10 * s + i: (side, pattern) for s in range(steps) for i in range(*span)}


def report_of(
    trace: Trace, hot: Hot, says: Says, settings: Settings | None = None, parts: int = 10
) -> Report:
    report = detect(
        trace,
        windower=ByStep(parts),
        flagger=Flags(hot),
        judge=Answering(says),
        settings=settings or Settings(),
    )
    assert from_json(to_json(report)) == report
    return report


def only(report: Report) -> Finding:
    (finding,) = report.findings
    return finding


# -- a finding -------------------------------------------------------------------------------------


def test_regions_of_one_pattern_become_one_finding() -> None:
    finding = only(report_of(TRACE, every_step("cpu", PYTHON, SPAN), always(PYTHON)))
    assert (finding.pattern, finding.side, finding.occurrences) == (PYTHON, "cpu", 4)
    assert finding.steps == (0, 1, 2, 3)
    assert (finding.start_us, finding.end_us) == (500, 4_000)
    assert finding.recoverable_us == pytest.approx(4 * 490)
    assert finding.share == pytest.approx(0.49)
    assert (finding.severity, finding.confidence) == ("critical", 0.8)
    assert finding.score == pytest.approx(0.9)
    assert occurrences(finding) == tuple((500 + s, 1_000 + s) for s in (0, 1_000, 2_000, 3_000))
    assert (finding.explanation, finding.fix.summary) == ("Because.", "Do this.")
    assert finding.fix.code == BY_ID[PYTHON].code
    assert finding.evidence["drivers"] == [
        "the device idles while the host is in an op or another call"
    ]
    assert finding.evidence["idle_python"]["value"] == pytest.approx(0.98)  # type: ignore[index]


def test_only_the_time_inside_the_regions_is_claimed() -> None:
    two_steps = {i: hot for i, hot in every_step("cpu", PYTHON, SPAN).items() if i < 20}
    finding = only(report_of(TRACE, two_steps, always(PYTHON)))
    assert finding.share == pytest.approx(2 * 490 / 4_000)
    assert finding.steps == (0, 1)


def test_a_region_in_which_nothing_is_claimed_is_no_occurrence() -> None:
    busy = {10 + i: ("cpu", PYTHON) for i in range(1, 5)}  # the second step's kernel
    idle = dict.fromkeys(range(*SPAN), ("cpu", PYTHON))
    finding = only(report_of(TRACE, {**busy, **idle}, always(PYTHON)))
    assert (finding.occurrences, finding.steps, finding.end_us) == (1, (0,), 1_000)


def test_no_flag_no_finding() -> None:
    judge = Answering(always(PYTHON))
    report = detect(TRACE, windower=ByStep(10), flagger=Flags({}), judge=judge)
    assert (report.findings, judge.asked) == ((), [])
    assert len(report.windows) == 40


def test_a_verdict_of_none_is_no_finding() -> None:
    report = report_of(TRACE, every_step("cpu", PYTHON), always(NONE, 0.9, (NONE, 0.9)))
    assert report.findings == ()


def test_the_same_trace_gives_the_same_report() -> None:
    runs = [report_of(TRACE, every_step("cpu", PYTHON), always(PYTHON)) for _ in range(2)]
    assert to_json(runs[0]) == to_json(runs[1])


def test_where_the_time_went() -> None:
    report = report_of(TRACE, every_step("cpu", PYTHON, SPAN), always(PYTHON))
    summary = report.summary
    assert summary.judged_us == 4_000
    assert (summary.device_busy, summary.device_idle) == pytest.approx((0.4, 0.6))
    assert (summary.exposed_copy, summary.exposed_comm) == (0, 0)
    assert summary.recoverable_us == pytest.approx(1_960)
    window = report.windows[25]
    assert (window.start_us, window.end_us, window.step) == (2_500, 2_600, 2)
    assert (window.score, window.cpu_score, window.gpu_score) == pytest.approx((0.9, 0.9, 0))
    assert (report.tool.flagger, report.tool.judge) == ("fake flagger", "fake judge")
    assert len(report.source.steps) == 4


# -- several patterns ------------------------------------------------------------------------------


def by_side(cpu: str, gpu: str) -> Says:
    return lambda evidence: verdict(cpu if evidence.region.side == "cpu" else gpu)


def test_what_one_finding_claims_another_cannot() -> None:
    says = always(PYTHON, 0.8, (PYTHON, 0.8), (LAUNCH, 0.5))
    report = report_of(TRACE, every_step("cpu", PYTHON), says)
    found = {f.pattern: f for f in report.findings}
    assert found[PYTHON].recoverable_us == pytest.approx(4 * 490)
    assert found[LAUNCH].recoverable_us == pytest.approx(4 * 0.8 * (100 + 10))  # what is left
    assert [f.pattern for f in report.findings] == [PYTHON, LAUNCH]  # the costliest first


def test_both_sides_of_the_same_time() -> None:
    hot = {**every_step("cpu", PYTHON, SPAN), **every_step("gpu", FP32, (1, 5))}
    found = {f.pattern: f for f in report_of(TRACE, hot, by_side(PYTHON, FP32)).findings}
    assert {f.side for f in found.values()} == {"cpu", "gpu"}
    assert found[FP32].recoverable_us == pytest.approx(4 * 0.67 * 400)
    assert sum(f.share for f in found.values()) == pytest.approx(0.49 + 0.268)


@pytest.mark.parametrize(("probability", "named"), [(0.4, True), (0.2, False)])
def test_a_second_thought_is_weighed_where_it_is_likely(probability: float, named: bool) -> None:
    says = always(LAYOUT, 0.5, (LAYOUT, 0.5), (FP32, probability))
    report = report_of(TRACE, every_step("gpu", LAYOUT), says)
    if not named:
        assert report.findings == ()
        return
    finding = only(report)
    assert (finding.pattern, finding.confidence) == (FP32, probability)
    assert finding.explanation == BY_ID[FP32].what  # the verdict's words were about another
    assert finding.fix.summary == BY_ID[FP32].fix


@pytest.mark.parametrize(("confidence", "count"), [(0.3, 1), (0.29, 0)])
def test_what_the_judge_holds_for_unlikely_is_no_finding(confidence: float, count: int) -> None:
    report = report_of(TRACE, every_step("cpu", PYTHON), always(PYTHON, confidence))
    assert len(report.findings) == count


def test_the_region_where_the_judge_was_surest_tells_the_finding() -> None:
    def says(evidence: Evidence) -> Verdict:
        step = evidence.region.start // 1_000_000
        return verdict(PYTHON, 0.5 + 0.1 * (step == 2), says=f"step {step}")

    finding = only(report_of(TRACE, every_step("cpu", PYTHON, SPAN), says))
    assert (finding.explanation, finding.confidence) == ("step 2", 0.6)


# -- what is never a finding -----------------------------------------------------------------------


def converting(length: float) -> Trace:
    """Steps of 1 ms with a layout kernel of this length."""
    body = (*BODY[:3], kernel("nchwToNhwcKernel", 600, length), BODY[3])
    return trace_of(*repeat(body, 4, 1_000), steps=[(i * 1e3, (i + 1) * 1e3) for i in range(4)])


@pytest.mark.parametrize(
    ("length", "severity"),
    [(9.9, None), (10, "info"), (49, "info"), (50, "low"), (100, "warning"), (200, "critical")],
)
def test_under_one_per_cent_nothing_is_a_finding(length: float, severity: str | None) -> None:
    report = report_of(converting(length), every_step("gpu", LAYOUT), always(LAYOUT))
    assert [f.severity for f in report.findings] == ([severity] if severity else [])


@pytest.mark.parametrize("pattern", IDS)
def test_a_pattern_without_a_claim_is_no_finding(pattern: str) -> None:
    """A trace in which the device is always busy with half-precision products."""
    body = (op("aten::mm", 0, 50), launch(10, 5, 1), kernel("ampere_bf16_s16816gemm", 0, 1_000, 1))
    trace = trace_of(*repeat(body, 3, 1_000), steps=[(i * 1e3, (i + 1) * 1e3) for i in range(3)])
    hot = every_step(BY_ID[pattern].side, pattern, steps=3)
    assert report_of(trace, hot, always(pattern), Settings(min_share=0.0)).findings == ()


def test_a_pattern_that_no_one_knows_is_no_finding() -> None:
    assert report_of(TRACE, every_step("cpu", PYTHON), always("made-up")).findings == ()


CPU_RUN = trace_of(
    *repeat([op("aten::mm", 0, 400), op("aten::cat", 400, 600)], 4, 1_000),
    steps=[(i * 1e3, (i + 1) * 1e3) for i in range(4)],
)


def test_a_blind_pattern_is_not_checked_and_never_a_finding() -> None:
    report = report_of(
        CPU_RUN, every_step("gpu", "infer-kv-cat"), always("infer-kv-cat", 0.9, (FP32, 0.9))
    )
    assert report.findings == ()  # it would claim 54 %, but shapes were not recorded
    because = {row.pattern: row.because for row in report.not_checked}
    assert "record_shapes" in because["infer-kv-cat"]
    assert "device records" in because[FP32]
    redundant = report_of(
        CPU_RUN, every_step("gpu", "infer-kv-cat"), always("memory-redundant-copy")
    )
    assert only(redundant).share == pytest.approx(0.8 * 0.6)


# -- unclear ---------------------------------------------------------------------------------------


def test_unclear_verdicts_become_one_finding_with_candidates() -> None:
    flagged = ((PYTHON, 0.9), (NONE, 0.1))
    says = always(UNCLEAR, 0.0, *flagged)
    finding = only(report_of(TRACE, every_step("cpu", PYTHON, SPAN), says))
    assert (finding.pattern, finding.occurrences, finding.steps) == (UNCLEAR, 4, (0, 1, 2, 3))
    assert [(c.pattern, c.probability) for c in finding.candidates[:2]] == list(flagged)
    assert (finding.recoverable_us, finding.share, finding.severity) == (0, 0, "info")
    assert (finding.start_us, finding.end_us) == (500, 4_000)
    assert len(occurrences(finding)) == 4


def test_unclear_beside_a_named_one() -> None:
    hot = {**every_step("cpu", PYTHON, SPAN), **every_step("gpu", FP32, (1, 5))}
    report = report_of(TRACE, hot, by_side(PYTHON, UNCLEAR))
    assert [f.pattern for f in report.findings] == [PYTHON, UNCLEAR]


# -- many regions ----------------------------------------------------------------------------------


def test_regions_beyond_the_limit_go_by_their_like() -> None:
    hot = {**every_step("cpu", PYTHON, SPAN), **every_step("gpu", FP32, (1, 5))}
    judge = Answering(by_side(PYTHON, FP32))
    report = detect(
        TRACE,
        windower=ByStep(10),
        flagger=Flags(hot),
        judge=judge,
        settings=Settings(max_regions=2),
    )
    assert sorted(e.region.side for e in judge.asked) == ["cpu", "gpu"]  # one of each kind
    assert {f.pattern: f.occurrences for f in report.findings} == {PYTHON: 4, FP32: 4}
    assert sum(f.share for f in report.findings) == pytest.approx(0.49 + 0.268)


def test_a_kind_that_nobody_judged_is_left_out() -> None:
    hot = {**every_step("cpu", PYTHON, SPAN), **every_step("gpu", FP32, (1, 5))}
    report = report_of(TRACE, hot, by_side(PYTHON, FP32), Settings(max_regions=1))
    assert [f.pattern for f in report.findings] == [PYTHON]  # the costliest kind


def test_occurrences_are_counted_beyond_those_listed() -> None:
    settings = Settings(max_occurrences=2)
    finding = only(report_of(TRACE, every_step("cpu", PYTHON, SPAN), always(PYTHON), settings))
    assert (finding.occurrences, len(occurrences(finding))) == (4, 2)


# -- warnings and odd traces -----------------------------------------------------------------------


def test_the_judges_warnings_are_the_reports() -> None:
    judge = Answering(always(PYTHON), "the server is down")
    report = detect(TRACE, windower=ByStep(), flagger=Flags({}), judge=judge, config={"a": 1})
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
            even = np.full((len(matrix), len(CLASSES)), 1 / len(CLASSES), np.float32)
            return Scores(ones, ones, even)

    report = detect(trace, windower=ByStep(), flagger=All({}), judge=Answering(always(pattern)))
    assert from_json(to_json(report)) == report
    assert sum(f.share for f in report.findings) <= 1 + 1e-9
    assert 0 <= report.summary.device_busy <= 1
    assert 0 <= report.summary.device_idle <= 1
