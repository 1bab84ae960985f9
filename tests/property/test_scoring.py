"""Figures of findings that hold for any labels and findings."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from detector.lab.scoring import Prediction, Problem, Truth, constant, finding_figures
from detector.lab.scoring.findings import FIGURES
from detector.lab.scoring.graded import kind_of
from detector.patterns import BY_ID

PATTERNS = ("host-gc-pause", "sync-explicit", "memory-redundant-copy", "comm-exposed")
LENGTH = 1000


@st.composite
def spans(draw: st.DrawFn) -> tuple[tuple[float, float], ...]:
    edges = draw(st.lists(st.integers(0, LENGTH), min_size=2, max_size=6, unique=True))
    edges.sort()
    return tuple(zip(edges[::2], edges[1::2], strict=False))


@st.composite
def truth(draw: st.DrawFn) -> Truth:
    patterns = draw(st.lists(st.sampled_from(PATTERNS), max_size=3, unique=True))
    problems = tuple(
        Problem(p, BY_ID[p].side, draw(spans()), draw(st.integers(1, 500)), draw(st.booleans()))
        for p in patterns
    )
    unknown = {side: draw(spans()) for side in draw(st.sets(st.sampled_from(("cpu", "gpu"))))}
    program = draw(st.sampled_from("abc"))
    return Truth("t", "recorded", program, "", LENGTH, not problems, problems, unknown, (0, LENGTH))


@st.composite
def finding(draw: st.DrawFn) -> Prediction:
    numbers = draw(st.integers(0, 100)) / 100, draw(st.integers(0, 600))
    return Prediction("t", draw(st.sampled_from(PATTERNS)), draw(spans()), *numbers)


SCANNED = st.lists(st.tuples(truth(), st.lists(finding(), max_size=4)), min_size=1, max_size=6)


def numbered(scanned: list[tuple[Truth, list[Prediction]]]) -> tuple[dict, dict]:  # type: ignore[type-arg]
    truths = {str(i): replace(t, trace=str(i)) for i, (t, _) in enumerate(scanned)}
    return truths, {str(i): predicted for i, (_, predicted) in enumerate(scanned)}


@given(truth(), finding(), spans(), st.sampled_from(("cpu", "gpu")))
def test_more_unknown_time_never_makes_an_unmasked_finding_right(
    mine: Truth, predicted: Prediction, more: tuple[tuple[float, float], ...], side: str
) -> None:
    doubt = replace(mine, unknown={**mine.unknown, side: (*mine.unknown.get(side, ()), *more)})
    before, after = kind_of(predicted, mine), kind_of(predicted, doubt)
    assert before == after or (before in ("wrong", "misplaced") and after == "unknown")
    for one in (mine, doubt):
        figures = [
            finding_figures({"t": t}, {"t": [predicted]}, False, rounds=1) for t in (mine, one)
        ]
        assert str(figures[0].figures) == str(figures[1].figures)


@settings(max_examples=40)
@given(SCANNED, st.randoms(use_true_random=False))
def test_figures_do_not_depend_on_any_order(scanned: list, random: object) -> None:  # type: ignore[type-arg]
    truths, predicted = numbered(scanned)
    names = list(truths)
    random.shuffle(names)  # type: ignore[attr-defined]
    mixed = {n: truths[n] for n in names}, {n: predicted[n][::-1] for n in reversed(names)}
    for masked in (True, False):
        one = finding_figures(truths, predicted, masked, rounds=1)
        other = finding_figures(*mixed, masked, rounds=1)
        assert one.kinds == other.kinds
        assert one.patterns == other.patterns
        for name in FIGURES:
            a, b = one.figures[name].value, other.figures[name].value
            assert abs(a - b) < 1e-9 or (a != a and b != b)


def perfect(truth: Truth) -> list[Prediction]:
    mine = [p for p in truth.problems if not p.harmless]
    return [Prediction("t", p.pattern, p.spans_us, 1.0, p.cost) for p in mine]


@settings(max_examples=60)
@given(st.lists(truth(), min_size=1, max_size=6))
def test_a_perfect_prediction_scores_one(many: list[Truth]) -> None:
    truths, predicted = numbered([(t, perfect(t)) for t in many])
    for masked in (True, False):
        found = finding_figures(truths, predicted, masked, rounds=1)
        whole = found.problems > 0
        for name in ("precision", "recall", "strict_recall", "sure_precision", "macro_f1"):
            value = found.figures[name].value
            assert value == 1 if whole else value != value
        assert not whole or found.figures["ece"].value == 0
        assert not found.healthy or found.figures["wrong_per_healthy"].value == 0


def test_a_constant_prediction_does_not() -> None:
    """Each pattern in one trace, beside a healthy one: right at best where it is the fault."""
    places = ((100.0, 200.0),)
    truths = {
        p: Truth(p, "recorded", p, "", 1000, False, (Problem(p, BY_ID[p].side, places, 100),))
        for p in BY_ID
    }
    truths["healthy"] = Truth("healthy", "recorded", "healthy", "", 1000, True)
    truths = {name: replace(t, span_us=(0, 1000)) for name, t in truths.items()}
    found = finding_figures(truths, constant(truths.values()).predict(truths.values()), rounds=1)
    assert found.figures["recall"].value <= 1 / len(BY_ID)
    assert found.figures["precision"].value <= 1 / len(BY_ID)
    assert found.figures["wrong_per_healthy"].value == 1
