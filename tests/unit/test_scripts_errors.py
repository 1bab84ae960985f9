"""The worst errors in findings: what counts as one, which are kept, and what is shown of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from detector.lab.scoring import Prediction, Problem, Truth
from scripts.scanned import Case
from scripts.worst_errors import Error, errors, headline, markdown, show, worst

LOADING, OTHER = "input-dataloader-sync", "sync-explicit"
PLACE = ((20_000.0, 50_000.0),)
FAULT = Problem(LOADING, "cpu", PLACE, 30_000.0)
FAULTY = Truth("t", "recorded", "w", "", 100_000.0, False, (FAULT,))


def said(pattern: str = LOADING, savings: float = 30_000.0, sure: float = 0.8) -> Prediction:
    return Prediction("t", pattern, PLACE, sure, savings)


def found(findings: list[Prediction], candidates: list[Prediction]) -> list[Error]:
    return list(errors({"t": FAULTY}, {"t": findings}, {"t": candidates}))


def test_a_right_finding_is_no_error() -> None:
    assert found([said()], [said()]) == []


def test_a_finding_without_a_label_costs_what_it_states() -> None:
    (error,) = found([said(), said(OTHER, 20_000.0, 0.6)], [said()])
    assert (error.kind, error.pattern, error.true, error.label_us) == ("wrong", OTHER, 0.0, ())
    assert error.cost == pytest.approx(0.6 * 0.2)


def test_a_wrong_size_costs_the_difference() -> None:
    (error,) = found([said(savings=70_000.0)], [said()])
    assert (error.kind, error.stated, error.true) == ("size", 0.7, 0.3)
    assert error.cost == pytest.approx(0.8 * 0.4)


def test_a_missed_fault_costs_its_gain_less_what_its_lead_says() -> None:
    (lead,) = found([], [said(sure=0.4)])
    assert (lead.kind, lead.confidence, lead.stated) == ("missed", 0.4, 0.3)
    assert lead.cost == pytest.approx(0.6 * 0.3)
    (nothing,) = found([], [])
    assert nothing.confidence is None
    assert nothing.cost == pytest.approx(0.3)


def error(**changes: object) -> Error:
    made = Error("missed", "t", "recorded", "w", LOADING, 0.4, 0.2, 0.3, PLACE, PLACE)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_one_of_each_program_and_pattern_is_kept_the_worst_first() -> None:
    every = [error(trace=str(i), true=0.1 * i) for i in (1, 2, 3)] + [error(program="v", true=0.9)]
    kept = worst([*every, error(pattern=OTHER, true=0.25)], 2)
    assert [(e.program, e.true) for e in kept] == [("v", 0.9), ("w", pytest.approx(0.3))]


def test_an_error_is_drawn_with_ledger_places_and_a_step(tmp_path: Path) -> None:
    host = {"ph": "X", "pid": 1, "tid": 1}
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [
        host | {"cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 20_000},
        host | {"cat": "user_annotation", "name": loader, "ts": 20_000, "dur": 30_000},
        host | {"cat": "cpu_op", "name": "aten::mm", "ts": 50_000, "dur": 50_000},
    ]
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"traceEvents": events}))
    shown = show(error(), Case("t", file), tmp_path, 1)
    picture = (tmp_path / shown.picture).read_text()
    ElementTree.fromstring(picture)  # well formed
    for words in ("1. missed: input-dataloader-sync", "true gain 30 %", "place labeled"):
        assert words in picture
    assert f"]({shown.picture})" in markdown([shown])


def test_traces_of_others_get_words_alone() -> None:
    text = markdown([error(origin="injected", trace="injected/base/001")])
    assert "| w (injected) |" in text
    assert "injected/base" not in text
    assert "![" not in text


@pytest.mark.parametrize(
    ("kind", "words"),
    [("wrong", "no label (w)"), ("size", "true gain 30 % (w)"), ("missed", "a lead at 0.40 (w)")],
)
def test_a_headline_says_what_the_error_is(kind: str, words: str) -> None:
    assert headline(error(kind=kind)).endswith(words)
