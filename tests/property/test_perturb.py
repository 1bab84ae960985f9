"""The same run recorded with other ids, another clock or in another order: the same findings."""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dataset.perturb import KINDS, SAME, cut, perturb
from dataset.simulate import simulate
from detector import kineto
from detector.flagger.confidence import LightGBMConfidence
from detector.flagger.lightgbm import LightGBMFlagger
from detector.judge.embedded import EmbeddedJudge
from detector.pipeline import detect
from detector.report import Report
from detector.window import ByStep

ROOT = Path(__file__).resolve().parents[2]
RECORDED = (
    "examples/train_image_classifier.json.gz",
    "dataset/recorded/cpu/recommender-plain-1-f1fa.json.gz",
)
SIMULATED = {
    "launches on an A100": ("host-launch-bound", "lm-train", "A100", 1),
    "read-backs on an MI300X": ("sync-scalar-readback", "lm-train", "MI300X", 2),
}
SOURCES = (*RECORDED, *SIMULATED)


@cache
def document(source: str) -> dict[str, Any]:
    if source in SIMULATED:
        return simulate(*SIMULATED[source])[0]
    found: dict[str, Any] = msgspec.json.decode(gzip.decompress((ROOT / source).read_bytes()))
    return found


def scanned(made: Mapping[str, Any]) -> Report:
    return detect(
        kineto.read(io.BytesIO(msgspec.json.encode(made))),
        windower=ByStep(),
        flagger=LightGBMFlagger(),
        confidence=LightGBMConfidence(),
        judge=EmbeddedJudge(),
    )


@cache
def before(source: str) -> Report:
    return scanned(document(source))


def said(report: Report) -> list[tuple[str, float, float, int]]:
    shown = (*report.findings, *report.leads)
    return [
        (f.pattern, round(f.share, 4), round(f.confidence, 4), f.occurrences)
        for f in sorted(shown, key=lambda f: f.pattern)
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_each_source_shows_something(source: str) -> None:
    assert said(before(source))


@pytest.mark.parametrize("kind", SAME)
@pytest.mark.parametrize("source", SOURCES)
def test_findings_do_not_depend_on_ids_clock_or_order(source: str, kind: str) -> None:
    other = perturb(document(source), kind)
    assert other is None or said(scanned(other)) == said(before(source))


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - SAME.keys()))
@pytest.mark.parametrize("source", SOURCES)
def test_less_detail_adds_no_event_and_changes_no_original(source: str, kind: str) -> None:
    original = msgspec.json.encode(document(source))
    other = perturb(document(source), kind)
    assert msgspec.json.encode(document(source)) == original
    if other is not None:
        assert len(other["traceEvents"]) <= len(document(source)["traceEvents"])
        assert kineto.read(io.BytesIO(msgspec.json.encode(other)))


@pytest.mark.parametrize("source", SOURCES)
def test_a_cut_keeps_what_begins_in_it_and_the_work_it_launched(source: str) -> None:
    report = before(source)
    step = report.source.steps[len(report.source.steps) // 2]
    trace = kineto.read(
        io.BytesIO(msgspec.json.encode(cut(document(source), step.start_us, step.end_us)))
    )
    assert 0 < len(trace) < len(document(source)["traceEvents"])
    work = trace.is_device_work
    assert (trace.launch[work] >= 0).all()
