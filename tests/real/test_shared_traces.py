"""The whole product on real traces that others published, where they are at hand."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import pytest

from detector import kineto
from detector.flagger.confidence import LightGBMConfidence
from detector.flagger.lightgbm import LightGBMFlagger
from detector.judge.embedded import EmbeddedJudge
from detector.pipeline import detect
from detector.report import Report, from_json, to_json
from detector.window import ByStep

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no folder of shared traces here")


def catalog() -> dict[str, dict[str, str]]:
    if not FOLDER.is_dir():
        return {}
    with (FOLDER / "CATALOG.csv").open(newline="", encoding="utf-8") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


@cache
def report(name: str) -> Report:
    """The report with the shipped models."""
    return detect(
        kineto.read(FOLDER / f"{name}.json.gz"),
        windower=ByStep(),
        flagger=LightGBMFlagger(),
        confidence=LightGBMConfidence(),
        judge=EmbeddedJudge(),
    )


@pytest.mark.parametrize("file", sorted(catalog()))
def test_every_trace_gives_a_valid_report(file: str) -> None:
    found = report(file.removesuffix(".json.gz"))

    assert found.source.kernels == int(catalog()[file]["kernels"])
    assert from_json(to_json(found)) == from_json(to_json(from_json(to_json(found))))
    assert sum(f.share for f in found.findings) <= 1 + 1e-9
    assert all(f.share >= 0.01 for f in found.findings if f.pattern != "unclear")
    assert found.summary.analyzed_us > 0


def test_the_loader_without_workers_is_found_and_the_one_with_workers_is_not() -> None:
    alone, helped = (report(f"v100_resnet50_train_workers{n}") for n in (0, 4))

    loader = [f for f in alone.findings if f.pattern == "input-dataloader-sync"]
    assert len(loader) == 1
    # 355 ms of 1,049 are waits with an idle device; most of them must be covered.
    assert loader[0].estimated_savings_us > 0.8 * 355_000
    assert len(loader[0].steps) == 6
    assert not [f for f in helped.findings if f.pattern.startswith("input-dataloader")]


def test_pageable_copies_are_a_finding_or_stand_in_the_evidence() -> None:
    for workers in (0, 4):
        found = report(f"v100_resnet50_train_workers{workers}")
        named = [f for f in found.findings if f.pattern == "input-pageable-copy"]
        shown = [row for f in found.findings if (row := f.evidence.get("h2d_pageable"))]
        assert named or any(row["value"] or row["rest"] for row in shown)


@pytest.mark.parametrize(
    ("name", "blind", "says"),
    [
        ("launches_without_gpu_records", "host-launch-bound", "device records"),
        ("mtia_infer", "host-launch-bound", "no kernels on streams"),
        ("mi210_gpu_only", "input-dataloader-sync", "no ops were recorded"),
    ],
)
def test_what_a_trace_cannot_show_is_said(name: str, blind: str, says: str) -> None:
    found = report(name)

    assert blind in {n.pattern for n in found.not_checked}
    assert any(says in words for words in (*found.warnings, found.why_not or ""))


def test_a_trace_without_steps_says_so() -> None:
    assert any("no step markers" in w for w in report("mi300_ddp_resnet18_train").warnings)


@pytest.mark.parametrize(
    ("name", "events"), [("a100_ddp_conv_nccl_train", 3774), ("a100_alexnet", 98)]
)
def test_every_device_event_links_to_its_launch(name: str, events: int) -> None:
    trace = kineto.read(FOLDER / f"{name}.json.gz")

    assert trace.is_device_work.sum() == events
    assert (trace.launch[trace.is_device_work] >= 0).all()
