"""Findings beside labels: what counts as right, what is left out, and the figures that follow."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from detector.errors import DetectorError
from detector.lab.scoring import (
    Prediction,
    Problem,
    Truth,
    constant,
    figures_by_origin,
    finding_differences,
    finding_figures,
    predictions_of,
)
from detector.lab.scoring.graded import grade, grade_trace, kind_of
from detector.lab.scoring.table import page, plain
from detector.report import Finding, Report

GC, SYNC, COPY = "host-gc-pause", "sync-explicit", "memory-redundant-copy"  # cpu, cpu, gpu


def problem(
    *spans: tuple[float, float], pattern: str = GC, cost: float = 100, harmless: bool = False
) -> Problem:
    return Problem(pattern, "cpu", spans, cost, harmless)


def truth(*problems: Problem, name: str = "t", base: str = "", **unknown: object) -> Truth:
    """A trace of 1,000 µs."""
    spans = (0.0, 1000.0)
    return Truth(name, "recorded", f"p-{name}", base, 1000, not problems, problems, unknown, spans)  # type: ignore[arg-type]


def finding(
    *spans: tuple[float, float], pattern: str = GC, savings: float = 100, confidence: float = 0.8
) -> Prediction:
    return Prediction("t", pattern, spans, confidence, savings)


FAULTY = truth(problem((100, 200)))


@pytest.mark.parametrize(
    ("spans", "savings", "kind"),
    [
        ([(100, 200)], 100, "right"),
        ([(100, 200)], 200, "right"),  # twice the cost
        ([(100, 200)], 201, "sized"),
        ([(100, 200)], 50, "right"),
        ([(100, 200)], 49, "sized"),
        ([(150, 900)], 100, "right"),  # half of the label
        ([(151, 900)], 100, "misplaced"),
        ([(170, 200)], 100, "right"),  # an IoU of 0.3
        ([(171, 200)], 100, "misplaced"),
        ([(100, 125), (150, 175)], 100, "right"),
        ([(300, 400)], 100, "misplaced"),
        ([(150, 150)], 100, "misplaced"),  # no time at all
    ],
)
def test_right_is_pattern_place_and_size(
    spans: list[tuple[float, float]], savings: float, kind: str
) -> None:
    assert kind_of(finding(*spans, savings=savings), FAULTY) == kind


def test_another_pattern_in_the_right_place_is_wrong() -> None:
    assert kind_of(finding((100, 200), pattern=SYNC), FAULTY) == "wrong"


def test_a_harmless_problem_is_neither_right_nor_wrong() -> None:
    harmless = truth(problem((100, 200), cost=1, harmless=True))
    assert kind_of(finding((100, 200)), harmless) == "harmless"
    assert kind_of(finding((700, 800)), harmless) == "harmless"
    for masked in (True, False):
        figures = finding_figures({"t": harmless}, {"t": [finding((0, 900))]}, masked, rounds=2)
        assert (figures.findings, figures.problems, figures.kinds) == (0, 0, {"harmless": 1})


@pytest.mark.parametrize(("end", "kind"), [(150, "wrong"), (151, "unknown")])
def test_over_half_in_unknown_time_nobody_knows(end: float, kind: str) -> None:
    assert kind_of(finding((100, 200), pattern=SYNC), truth(cpu=((100, end),))) == kind


def test_unknown_time_counts_on_the_pattern_s_own_side() -> None:
    doubt = truth(gpu=((0, 1000),))
    assert kind_of(finding((100, 200)), doubt) == "wrong"
    assert kind_of(finding((100, 200), pattern=COPY), doubt) == "unknown"


def test_unknown_time_is_never_cut_from_a_finding() -> None:
    """All of it but the label is unknown: without a cut it covers the label, and is too large."""
    doubt = replace(FAULTY, unknown={"cpu": ((0, 100), (200, 1000))})
    assert kind_of(finding((0, 1000), savings=900), doubt) == "sized"
    assert kind_of(finding((180, 1000)), doubt) == "unknown"  # matches nothing


def test_masked_figures_leave_out_what_unmasked_ones_call_wrong() -> None:
    doubt = replace(FAULTY, unknown={"cpu": ((200, 1000),)})
    predicted = {"t": [finding((100, 200)), finding((300, 400), pattern=SYNC)]}
    masked, unmasked = (
        finding_figures({"t": doubt}, predicted, m, rounds=2) for m in (True, False)
    )
    assert (masked.findings, masked.figures["precision"].value) == (1, 1.0)
    assert (unmasked.findings, unmasked.figures["precision"].value) == (2, 0.5)
    assert masked.kinds == unmasked.kinds == {"right": 1, "unknown": 1}


def test_findings_of_one_pattern_count_as_one() -> None:
    parts = [finding((100, 150), savings=60), finding((150, 200), savings=60, confidence=0.9)]
    (graded,) = grade_trace(FAULTY, parts).findings
    assert (graded.kind, graded.share, graded.prediction.confidence) == ("right", 0.12, 0.9)


@pytest.mark.parametrize(
    ("before", "savings", "kind"),
    [
        (None, 100, "wrong"),  # the base does not have it
        (100, 100, "unknown"),  # the base's own, of which nobody knows
        (300, 100, "unknown"),
        (75, 100, "unknown"),  # rises by less than 3 % of the trace
        (65, 100, "wrong"),  # rises by 3.5 % of the trace and a third of itself
        (350, 450, "unknown"),  # rises by 10 % of the trace, less than a third of itself
    ],
)
def test_what_the_untouched_base_has_as_well_nobody_knows(
    before: float | None, savings: float, kind: str
) -> None:
    base = replace(truth(name="b", base="x"), origin="injected")
    faulty = replace(truth(problem((100, 200)), base="x"), origin="injected")
    own = [finding((100, 200), pattern=SYNC, savings=before)] if before else []
    predicted = {"b": own, "t": [finding((100, 200), pattern=SYNC, savings=savings)]}
    _, graded = grade({"b": base, "t": faulty}, predicted)
    assert [f.kind for f in graded.findings] == [kind]


def test_a_trace_labeled_as_it_is_is_graded_by_its_own_label() -> None:
    base = replace(truth(name="b", base="x"), origin="injected")
    natural = replace(truth(problem((100, 200)), base="x"), origin="natural")
    predicted = {"b": [finding((100, 200), pattern=SYNC)], "t": [finding((100, 200), pattern=SYNC)]}
    assert grade({"b": base, "t": natural}, predicted)[1].findings[0].kind == "wrong"


@pytest.mark.parametrize(
    ("origin", "before", "savings", "kind"),
    [
        ("injected", 0, 100, "right"),
        ("injected", 500, 550, "right"),  # 450 us of them are the shorter base's own
        ("injected", 500, 460, "sized"),  # next to nothing is the fault's
        ("injected", 500, 800, "sized"),
        ("natural", 500, 550, "sized"),  # a hand label is of all there is
    ],
)
def test_of_a_fault_of_the_base_s_own_kind_the_label_knows_the_rise(
    origin: str, before: float, savings: float, kind: str
) -> None:
    base = replace(truth(name="b", base="x"), origin="injected")
    faulty = replace(truth(problem((100, 200)), base="x"), origin=origin)
    own = [finding((100, 200), savings=before)] if before else []
    predicted = {"b": own, "t": [finding((100, 200), savings=savings)]}
    assert grade({"b": base, "t": faulty}, predicted)[1].findings[0].kind == kind


def test_a_problem_is_all_regions_of_its_pattern() -> None:
    two = truth(problem((100, 200), (600, 700), cost=200))
    assert kind_of(finding((100, 200), savings=150), two) == "right"  # half of the label
    assert kind_of(finding((600, 690), savings=150), two) == "right"  # an IoU of 0.45
    assert kind_of(finding((600, 640), savings=150), two) == "misplaced"
    with pytest.raises(DetectorError, match="several problems of one pattern"):
        truth(problem((100, 200)), problem((600, 700)))


def test_small_findings_and_problems_are_not_in_the_primary_figures() -> None:
    small = truth(problem((100, 200), cost=49))
    found = finding_figures({"t": small}, {"t": [finding((100, 200), savings=49)]}, rounds=2)
    assert (found.findings, found.problems) == (0, 0)
    assert math.isnan(found.figures["precision"].value)
    found = finding_figures({"t": FAULTY}, {"t": [finding((100, 200), savings=50)]}, rounds=2)
    assert (found.findings, found.problems) == (1, 1)


def test_a_problem_is_recalled_in_its_place_at_any_size_and_strictly_at_its_size() -> None:
    truths = {n: replace(FAULTY, trace=n) for n in "abc"}
    predicted = {"a": [finding((100, 200))], "b": [finding((100, 200), savings=20)], "c": []}
    found = finding_figures(truths, predicted, rounds=2)
    assert found.figures["recall"].value == pytest.approx(2 / 3)
    assert found.figures["strict_recall"].value == pytest.approx(1 / 3)
    assert found.figures["within_2x"].value == 0.5
    assert found.savings_error == pytest.approx((-0.06, -0.04, -0.02))


def test_wrong_findings_of_any_size_count_in_healthy_traces() -> None:
    truths = {"a": truth(name="a"), "b": truth(name="b"), "c": replace(FAULTY, trace="c")}
    predicted = {
        "a": [finding((0, 90), savings=10), finding((0, 90), pattern=SYNC, savings=9.9)],
        "b": [],
        "c": [finding((0, 90), pattern=SYNC)],
    }
    found = finding_figures(truths, predicted, rounds=2)
    assert found.healthy == 2
    assert found.figures["wrong_per_healthy"].value == 0.5


def test_traces_without_a_prediction_are_counted_and_in_no_figure() -> None:
    truths = {n: replace(FAULTY, trace=n) for n in "ab"}
    found = finding_figures(truths, {"a": [finding((100, 200))]}, rounds=2)
    assert (found.traces, found.missing, found.problems) == (1, 1, 1)
    assert found.figures["recall"].value == 1.0
    nothing = finding_figures(truths, {}, rounds=2)
    assert (nothing.traces, nothing.missing) == (0, 2)
    assert math.isnan(nothing.figures["recall"].value)


def test_the_bootstrap_draws_bases_and_programs() -> None:
    """Ten traces of one base are one piece of evidence, whatever they were made of."""
    ten = {str(i): replace(FAULTY, trace=str(i), base="b", program=str(i)) for i in range(10)}
    predicted = {name: [finding((100, 200))] if int(name) < 5 else [] for name in ten}
    found = finding_figures(ten, predicted, rounds=50)
    recall = found.figures["recall"]
    assert (found.clusters, recall.value, recall.low, recall.high) == (1, 0.5, 0.5, 0.5)
    apart = {name: replace(t, base="") for name, t in ten.items()}
    recall = finding_figures(apart, predicted, rounds=50).figures["recall"]
    assert recall.low < 0.5 < recall.high


def test_classes_by_hand() -> None:
    """Two problems of GC (one right, one named as another pattern), one of copies (missed)."""
    truths = {
        "a": replace(FAULTY, trace="a"),
        "b": replace(FAULTY, trace="b"),
        "c": truth(problem((0, 100), pattern=COPY), name="c"),
    }
    predicted = {"a": [finding((100, 200))], "b": [finding((100, 200), pattern=SYNC)], "c": []}
    found = finding_figures(truths, predicted, rounds=2)
    assert found.figures["class_accuracy"].value == 0.5
    assert found.figures["macro_f1"].value == pytest.approx((2 / 3 + 0) / 2)
    assert found.patterns[GC].named == found.patterns[GC].right == 1
    assert (found.patterns[SYNC].problems, found.patterns[SYNC].not_right) == (0, 1)


def test_confidence_is_compared_with_what_is_right() -> None:
    truths = {n: replace(FAULTY, trace=n) for n in "abcd"}
    right, missed = finding((100, 200), confidence=0.95), finding((600, 700), confidence=0.95)
    predicted = {"a": [right], "b": [missed], "c": [replace(missed, confidence=0.15)], "d": []}
    found = finding_figures(truths, predicted, rounds=2)
    assert found.figures["sure_precision"].value == 0.5
    assert found.figures["ece"].value == pytest.approx((2 * 0.45 + 0.15) / 3)
    assert [(b.count, b.right) for b in found.reliability if b.count] == [(1, 0), (2, 0.5)]


def test_differences_are_paired() -> None:
    truths = {n: truth(problem((100, 200)), name=n) for n in "abcd"}
    good = {n: [finding((100, 200))] for n in truths}
    worse = good | {"a": []}
    found = finding_differences(truths, good, worse, rounds=100)
    assert found["recall"].value == 0.25
    assert found["precision"].value == found["precision"].low == 0.0
    assert finding_differences(truths, good, good, rounds=20)["recall"].high == 0.0
    assert finding_differences(truths, good, {}) == {}


def test_the_constant_answer_is_the_most_frequent_costly_pattern() -> None:
    training = [
        truth(problem((0, 1), cost=100)),
        truth(problem((0, 1), cost=300), problem((0, 9), pattern=COPY, cost=60)),
        truth(problem((0, 1), pattern=SYNC, cost=40)),
        truth(problem((0, 1), pattern=SYNC, cost=500, harmless=True)),
    ]
    found = constant(training)
    assert (found.pattern, found.share, found.confidence) == (GC, 0.2, 0.5)
    (answer,) = found.predict([FAULTY])["t"]
    assert answer == Prediction("t", GC, ((0, 1000),), 0.5, 200)
    with pytest.raises(DetectorError, match="no costly problem in 1 training traces"):
        constant([truth()])
    with pytest.raises(DetectorError, match="t: no windows"):
        found.predict([replace(FAULTY, span_us=None)])


def test_a_report_becomes_predictions() -> None:
    places = {"occurrences": [{"start_us": 1, "end_us": 2}, {"start_us": 5, "end_us": 6}]}
    reported = Finding(
        "", GC, "cpu", 1, 6, confidence=0.7, estimated_savings_us=30, evidence=places
    )
    report = Report(findings=(reported, Finding("", "unclear", "cpu", 0, 9)))
    assert predictions_of(report, "t") == [Prediction("t", GC, ((1, 2), (5, 6)), 0.7, 30)]


def test_a_label_without_a_cost_is_an_error() -> None:
    with pytest.raises(DetectorError, match=f"{GC}: a labeled problem without its cost"):
        grade_trace(truth(Problem(GC, "cpu", ((0, 1),), None)), [])
    with pytest.raises(DetectorError, match="t: analyzed_us is 0"):
        replace(FAULTY, analyzed_us=0)


def test_the_page_shows_each_origin_masked_and_unmasked() -> None:
    truths = {"a": FAULTY, "b": replace(truth(name="b"), origin="natural")}
    groups = figures_by_origin(truths, {"a": [finding((100, 200))]}, rounds=2)
    text = "\n".join(page(groups, None))
    assert "1 traces scanned, 1 without a prediction" in text
    for group in ("all origins", "natural", "recorded"):
        assert f"| {group}, masked" in text
        assert f"| {group}, unmasked" in text
    whole = plain(groups)["all origins"]["masked"]
    assert whole["figures"]["precision"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert plain(groups)["natural"]["masked"]["figures"]["precision"]["value"] is None
