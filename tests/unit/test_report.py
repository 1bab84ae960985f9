"""The report is a contract: names kept, round trips exact, never a NaN."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import DetectorError
from detector.report import (
    Candidate,
    Finding,
    Fix,
    NotChecked,
    Report,
    SourceInfo,
    SourceLine,
    StepInfo,
    Summary,
    Tool,
    WindowScore,
    from_json,
    occurrences,
    reaches,
    to_json,
)

# The contract's own example, names and nesting; see the design of report.json, version 1.
CONTRACT = {
    "schema": {},
    "tool": {"version": {}, "flagger": {}, "judge": {}, "taxonomy": {}, "config": {}},
    "source": {
        "path": {}, "sha256": {}, "bytes": {}, "events": {}, "kernels": {}, "devices": {},
        "rank": {}, "span_us": {}, "steps": {"name": {}, "start_us": {}, "end_us": {}},
        "coverage": {"read_fraction": {}, "repaired": {}, "dropped": {},
                     "kernels_with_launch": {}, "kernels_with_op": {}},
    },
    "summary": {"judged_us": {}, "device_busy": {}, "exposed_copy": {}, "exposed_comm": {},
                "device_idle": {}, "recoverable_us": {}},
    "windows": {"start_us": {}, "end_us": {}, "step": {}, "score": {}, "cpu_score": {},
                "gpu_score": {}},
    "findings": {
        "id": {}, "pattern": {}, "side": {}, "start_us": {}, "end_us": {}, "steps": {},
        "score": {}, "confidence": {}, "severity": {}, "recoverable_us": {}, "share": {},
        "occurrences": {}, "evidence": {}, "explanation": {},
        "fix": {"summary": {}, "code": {}, "where": {"file": {}, "line": {}, "function": {}}},
        "candidates": {"pattern": {}, "probability": {}},
    },
    "not_checked": {"pattern": {}, "because": {}},
    "warnings": {},
}  # fmt: skip

FINDING = Finding(
    "f1",
    "sync-scalar-readback",
    "cpu",
    10.0,
    20.0,
    fix=Fix("keep it on the device", "x", (SourceLine("train.py", 3, "step"),)),
    candidates=(Candidate("sync-scalar-readback", 0.9),),
)
FULL = Report(
    source=SourceInfo("a.json", steps=(StepInfo("ProfilerStep#2", 0.0, 1.0),)),
    windows=(WindowScore(0.0, 1.0, 0, 0.5),),
    findings=(FINDING,),
    not_checked=(NotChecked("comm-straggler", "one rank"),),
    warnings=("truncated",),
)


def _names(value: object) -> object:
    if isinstance(value, list):
        return _names(value[0]) if value else {}
    if isinstance(value, dict):
        return {key: _names(item) for key, item in value.items()}
    return {}


def test_the_field_names_and_their_order_are_those_of_the_contract():
    written = json.loads(to_json(FULL))
    assert json.dumps(_names(written)) == json.dumps(CONTRACT)


finite = st.floats(allow_nan=False, allow_infinity=False)
share = st.floats(0, 1)
count = st.integers(0, 2**62)
free = st.recursive(
    st.none() | st.booleans() | count | finite | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
reports = st.builds(
    Report,
    tool=st.builds(Tool, config=st.dictionaries(st.text(max_size=4), free, max_size=2)),
    source=st.builds(
        SourceInfo,
        path=st.text(max_size=9),
        bytes=count,
        devices=st.lists(st.text(max_size=4), max_size=2).map(tuple),
        rank=st.none() | st.integers(0, 9),
        span_us=st.tuples(finite, finite),
        steps=st.lists(st.builds(StepInfo, st.text(max_size=4), finite, finite), max_size=2).map(
            tuple
        ),
    ),
    summary=st.builds(Summary, finite, share, share, share, share, finite),
    windows=st.lists(
        st.builds(WindowScore, finite, finite, st.none() | st.integers(0, 9), share, share, share),
        max_size=2,
    ).map(tuple),
    findings=st.lists(
        st.builds(
            Finding,
            id=st.text(max_size=4),
            pattern=st.text(max_size=4),
            side=st.sampled_from(["cpu", "gpu"]),
            start_us=finite,
            end_us=finite,
            severity=st.sampled_from(["info", "low", "warning", "critical"]),
            evidence=st.dictionaries(st.text(max_size=4), free, max_size=2),
        ),
        max_size=2,
    ).map(tuple),
    warnings=st.lists(st.text(max_size=5), max_size=2).map(tuple),
)


@given(reports)
def test_what_is_written_reads_back_the_same(report):
    assert from_json(to_json(report)) == report


@given(finite | st.sampled_from([math.nan, math.inf, -math.inf]))
def test_evidence_that_is_not_finite_is_null_and_never_nan(number):
    report = Report(findings=(replace(FINDING, evidence={"x": [number]}),))
    back = from_json(to_json(report)).findings[0].evidence["x"]
    assert back == [number if math.isfinite(number) else None]


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_field_of_the_contract_that_is_not_finite_is_refused_by_name(number):
    report = Report(findings=(replace(FINDING, score=number),))
    with pytest.raises(ValueError, match=r"findings\[0\].score"):
        to_json(report)


def test_numbers_of_numpy_and_lone_surrogates_in_evidence_are_written():
    evidence = {
        "n": np.int64(3),
        "t": np.float32(0.5),
        "a": np.arange(2),
        "s": "\udc80",
        "b": 2**70,
    }
    back = from_json(to_json(Report(findings=(replace(FINDING, evidence=evidence),))))
    assert back.findings[0].evidence == {"n": 3, "t": 0.5, "a": [0, 1], "s": "?", "b": 2.0**70}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2}', '{"findings": 3}', b"\xff"])
def test_what_is_no_report_is_one_error_of_one_line(text):
    with pytest.raises(DetectorError) as caught:
        from_json(text)
    assert "\n" not in str(caught.value)


def test_a_field_of_a_later_version_is_ignored():
    assert from_json('{"schema": 1, "colour": "blue"}') == Report()


def test_a_finding_reaches_its_own_level_and_those_below():
    report = Report(findings=(replace(FINDING, severity="warning"),))
    assert [reaches(report, s) for s in ("info", "low", "warning", "critical")] == [
        True, True, True, False,
    ]  # fmt: skip
    assert not reaches(Report(), "info")


def test_occurrences_are_those_listed_or_the_span():
    listed = [{"start_us": 1, "end_us": 2.0}, {"start_us": "x"}, 7]
    assert occurrences(replace(FINDING, evidence={"occurrences": listed})) == ((1.0, 2.0),)
    assert occurrences(FINDING) == ((10.0, 20.0),)
