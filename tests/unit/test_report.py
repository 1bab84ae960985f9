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
    LEVELS,
    Candidate,
    Claim,
    Finding,
    Fix,
    LedgerPlace,
    LedgerRow,
    NotChecked,
    ProgramOp,
    Report,
    SourceInfo,
    SourceLine,
    StepInfo,
    Summary,
    Tool,
    WindowScore,
    from_json,
    occurrences,
    to_json,
)
from detector.report.events import Peaks, TopEvent
from detector.report.job import Communication, Gradients, JobTraffic
from detector.report.judging import Doubted, JudgeRound, Judging, Unsized
from scripts import report_format
from tests.sample_reports import EXCERPT

# The contract's names and nesting, in their order.
LEDGER = {
    "cause": {}, "label": {}, "group": {}, "us": {}, "share": {},
    "where": {"function": {}, "file": {}, "line": {}, "us": {}}, "by_step_us": {},
}  # fmt: skip
FINDING_NAMES = {
    "id": {}, "pattern": {}, "side": {}, "start_us": {}, "end_us": {}, "steps": {},
    "score": {}, "confidence": {}, "severity": {}, "kind": {}, "estimated_savings_us": {},
    "savings_range_us": {}, "savings_alone_us": {}, "by_step_us": {}, "share": {}, "assumes": {},
    "occurrences": {},
    "evidence": {}, "explanation": {}, "claims": {"label": {}, "value": {}}, "judged_by": {},
    "fix": {"summary": {}, "code": {}, "where": {"file": {}, "line": {}, "function": {}},
            "module": {}},
    "candidates": {"pattern": {}, "probability": {}},
    "excerpt": {"start_us": {}, "end_us": {}, "place_us": {}, "events": {}, "hidden": {},
                "names": {}, "spans_us": {},
                "tracks": {"label": {}, "is_device": {}, "start_us": {}, "dur_us": {},
                           "busy_us": {}, "depth": {}, "name": {}, "count": {},
                           "at_fault": {}}},
    "ranks": {},
}  # fmt: skip
TOP = {
    "name": {},
    "count": {},
    "us": {},
    "gpu_us": {},
    "shapes": {},
    "tflop_per_s": {},
    "gb_per_s": {},
    "peak_share": {},
    "limit": {},
}
CONTRACT = {
    "schema": {}, "analyzable": {}, "why_not": {}, "record_instead": {},
    "tool": {
        "version": {}, "flagger": {}, "confidence": {}, "judge": {}, "taxonomy": {}, "config": {}
    },
    "source": {
        "path": {}, "sha256": {}, "bytes": {}, "events": {}, "kernels": {}, "devices": {},
        "rank": {}, "span_us": {}, "steps": {"name": {}, "start_us": {}, "end_us": {}},
        "program": {"name": {}, "shapes": {}, "calls": {}},
        "coverage": {"read_fraction": {}, "repaired": {}, "dropped": {},
                     "kernels_with_launch": {}, "kernels_with_op": {}},
    },
    "summary": {"analyzed_us": {}, "trace_us": {}, "gpu_busy": {}, "exposed_copy": {},
                "exposed_comm": {}, "gpu_idle": {}, "estimated_savings_us": {}},
    "ledger": LEDGER,
    "unexplained": LEDGER,
    "top_kernels": TOP,
    "top_ops": TOP,
    "peaks": {"fp32_tflop_per_s": {}, "tf32_tflop_per_s": {}, "fp16_tflop_per_s": {},
              "bf16_tflop_per_s": {}, "bandwidth_gb_per_s": {}, "source": {}},
    "communication": {
        "traffic": {"op": {}, "dtype": {}, "group": {}, "dimension": {}, "group_size": {},
                    "algorithm": {}, "protocol": {}, "bytes": {}, "calls": {}, "elements": {},
                    "transfer_us": {}, "bus_gbs": {}, "best_bus_gbs": {}},
        "gradients": {"reduced_bytes": {}, "reduced_elements": {}, "model_bytes": {},
                      "model_elements": {}, "times": {}, "known_by": {}},
    },
    "windows": {"start_us": {}, "end_us": {}, "step": {}, "score": {}, "cpu_score": {},
                "gpu_score": {}},
    "findings": FINDING_NAMES,
    "leads": FINDING_NAMES,
    "judging": {
        "model": {}, "prompt": {}, "places": {}, "answered": {}, "fallbacks": {}, "invalid": {},
        "struck": {}, "input_tokens": {}, "output_tokens": {}, "cost": {},
        "doubted": {"pattern": {}, "start_us": {}, "end_us": {}},
        "unsized": {"pattern": {}, "start_us": {}, "end_us": {}, "confidence": {},
                    "explanation": {}},
        "rounds": {"start_us": {}, "end_us": {}, "round": {}, "view": {}, "outcome": {},
                   "cached": {}, "input_tokens": {}, "output_tokens": {}, "seconds": {}},
    },
    "not_checked": {"pattern": {}, "because": {}, "setting": {}},
    "warnings": {},
    "job": {},
}  # fmt: skip

FINDING = Finding(
    "f1",
    "sync-scalar-readback",
    "cpu",
    10.0,
    20.0,
    fix=Fix("keep it on the device", "x", (SourceLine("train.py", 3, "step"),)),
    candidates=(Candidate("sync-scalar-readback", 0.9),),
    claims=(Claim("device busy", 0.4),),
    excerpt=EXCERPT,
)
CAUSE = LedgerRow("loader", "host: data loader", "host", 1.0, 1.0, (LedgerPlace("f", "a.py", 1),))
FULL = Report(
    source=SourceInfo(
        "a.json",
        steps=(StepInfo("ProfilerStep#2", 0.0, 1.0),),
        program=(ProgramOp("aten::mm", "[[2, 2], [2, 2]]", 1.0),),
    ),
    ledger=(CAUSE,),
    unexplained=(CAUSE,),
    leads=(FINDING,),
    top_kernels=(TopEvent("k", 1, 2.0),),
    top_ops=(TopEvent("aten::mm", 1, 2.0, 3.0, "[[2, 2]]"),),
    peaks=Peaks(1.0, 2.0, 3.0, 4.0, 5.0, "data sheet"),
    communication=Communication(
        (JobTraffic("AllReduce", "Float", "0", "", 2, "RING", "LL", 8, 1, 2, 1.0, 0.0, 0.0),),
        Gradients(8.0, 2.0, 8, 2, 1.0, "shapes"),
    ),
    windows=(WindowScore(0.0, 1.0, 0, 0.5),),
    findings=(FINDING,),
    judging=Judging(
        "m",
        doubted=(Doubted("host-gc-pause", 0.0, 1.0),),
        unsized=(Unsized("host-gc-pause", 0.0, 1.0, 0.9, "It is."),),
        rounds=(JudgeRound(0.0, 1.0, 1),),
    ),
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


def test_a_list_of_numbers_takes_one_line_and_no_text_is_touched():
    """A track of an excerpt has hundreds of numbers in each of its columns."""
    odd = "[\n  1,\n  2\n]"
    report = replace(FULL, warnings=(odd,), findings=(replace(FINDING, explanation=odd),))
    text = to_json(report)
    assert '"start_us": [-20.0, 100.0, 940.0]' in text
    assert from_json(text) == report


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
    summary=st.builds(Summary, finite, finite, share, share, share, share, finite),
    analyzable=st.booleans(),
    why_not=st.none() | st.text(max_size=5),
    ledger=st.lists(
        st.builds(
            LedgerRow,
            st.text(max_size=4),
            st.text(max_size=4),
            st.sampled_from(["busy", "host"]),
            finite,
            share,
            st.just((LedgerPlace("f", "a.py", 1, 2.0),)),
        ),
        max_size=2,
    ).map(tuple),
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
            severity=st.sampled_from(LEVELS),
            kind=st.sampled_from(["fault", "opportunity"]),
            savings_range_us=st.tuples(finite, finite),
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


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"findings": 3}', b"\xff"])
def test_what_is_no_report_is_one_error_of_one_line(text):
    with pytest.raises(DetectorError) as caught:
        from_json(text)
    assert "\n" not in str(caught.value)


def test_a_field_of_a_later_version_is_ignored():
    assert from_json('{"schema": 2, "color": "blue"}') == Report()


def test_occurrences_are_those_listed_or_the_span():
    listed = [{"start_us": 1, "end_us": 2.0}, {"start_us": "x"}, 7]
    assert occurrences(replace(FINDING, evidence={"occurrences": listed})) == ((1.0, 2.0),)
    assert occurrences(FINDING) == ((10.0, 20.0),)


def test_the_document_of_the_format_is_current():
    assert report_format.PAGE.read_text("utf-8") == report_format.page(), (
        "run python scripts/report_format.py"
    )


def test_the_document_names_every_field_once_with_a_meaning():
    page = report_format.page()
    for name in ("estimated_savings_us", "analyzable", "record_instead", "savings_range_us"):
        rows = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert rows
        assert all(row.split("|")[3].strip() for row in rows)
