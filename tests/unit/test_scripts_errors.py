"""The worst errors: what counts as one, which are kept, and what is shown of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dataset import labels as label_files
from dataset.labels import Label, LabelRegion
from detector.features import COLUMNS
from detector.flagger import Scores
from detector.lab.comparison.scored import Scored
from detector.lab.comparison.thresholds import flags
from detector.lab.scoring import Problem, Truth
from detector.taxonomy import NONE
from detector.window import analyzed_time
from scripts.scanned import Case
from scripts.worst_errors import Error, alarms, markdown, misses, show, span_of, spoken, worst
from tests.traces import op, trace_of

pytest.importorskip("matplotlib", reason="pictures need the train extra")

GC, OTHER, LOADING = "host-gc-pause", "sync-explicit", "input-dataloader-sync"
LIMITS = {"cpu": 0.5, "gpu": 0.5}


def scored_of(cpu: list[float], *, faulty: bool) -> Scored:
    """Ten windows of 10 µs in one trace; windows 2 to 4 hold a garbage collection."""
    inside = np.isin(np.arange(10), (2, 3, 4)) & faulty
    frame = pd.DataFrame(
        {
            "trace": "t",
            "origin": "recorded",
            "workload": "w",
            "device": "cpu",
            "extent": "some",
            "cluster": "w",
            "quality": "bad" if faulty else "good",
            "healthy": not faulty,
            "start_us": 10.0 * np.arange(10),
            "end_us": 10.0 * np.arange(1, 11),
            "cpu": inside * 1.0,
            "gpu": 0.0,
            "unknown_cpu": 0.0,
            "unknown_gpu": 0.0,
            "pattern": np.where(inside, GC, NONE),
        }
    )
    features = pd.DataFrame(np.zeros((10, len(COLUMNS)), np.float32), columns=list(COLUMNS))
    features["saved_sync_explicit"] = 0.2
    scores = Scores(np.array(cpu, np.float32), np.zeros(10, np.float32))
    return Scored(pd.concat([frame, features], axis=1), scores, flags(scores, LIMITS))


FAULT = Problem(GC, "cpu", ((20.0, 50.0),), 10.0)
TRUTHS = {"t": Truth("t", "recorded", "w", "", 100.0, False, (FAULT,))}


def test_a_miss_is_a_label_none_of_whose_windows_reaches_the_threshold() -> None:
    cpu = [0.9, 0.0, 0.1, 0.4, 0.2, 0.9, 0.0, 0.0, 0.0, 0.0]
    (found,) = misses("test", scored_of(cpu, faulty=True), LIMITS, TRUTHS)
    assert (found.kind, found.pattern, found.row, found.start_us) == ("miss", GC, 3, 30)
    assert found.share == pytest.approx(0.3)
    assert found.weight == pytest.approx((1 - 0.4 / 0.5) * 0.3)
    cpu[4] = 0.6
    assert not list(misses("test", scored_of(cpu, faulty=True), LIMITS, TRUTHS))


def test_an_alarm_is_a_told_region_of_a_healthy_trace() -> None:
    cpu = [0.0, 0.6, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.7]
    found = list(alarms("test", scored_of(cpu, faulty=False), LIMITS))
    assert [(e.pattern, e.row, e.places) for e in found] == [
        (OTHER, 2, ((10, 30),)),
        (OTHER, 9, ((90, 100),)),
    ]
    assert found[0].share == pytest.approx(0.2)
    assert not list(alarms("test", scored_of(cpu, faulty=True), LIMITS))


def error(trace: str = "t", pattern: str = GC, score: float = 0.1, kind: str = "miss") -> Error:
    place = ((20.0, 50.0),)
    return Error("test", kind, trace, "cpu", pattern, 3, 30, 40, 0.3, score, 0.5, (0.5, 0.5), place)


def test_one_of_each_trace_and_pattern_is_kept_the_worst_first() -> None:
    found = [
        error("a", score=0.3),
        error("a", OTHER, 0.2),
        error("b", GC, 0.1),
        error("c", GC, 0.0),
    ]
    kept = worst(found, 3)
    assert [(e.trace, e.pattern) for e in kept] == [("c", GC), ("a", OTHER)]


class Spoken:
    """Contributions known beforehand: the last feature speaks for, the first against."""

    def contributions(self, rows: object, side: str) -> np.ndarray:
        return np.linspace(-1, 1, len(COLUMNS))[None, :]


def test_features_that_spoke_against_the_truth_are_named() -> None:
    scored = scored_of([0.0] * 10, faulty=True)
    missed = spoken(error(), Spoken(), scored)  # type: ignore[arg-type]
    alarmed = spoken(error(kind="alarm"), Spoken(), scored)  # type: ignore[arg-type]
    assert [name for name, _, _ in missed.spoke] == list(COLUMNS[:3])
    assert [name for name, _, _ in alarmed.spoke] == list(COLUMNS[:-4:-1])


def test_a_picture_shows_the_step_and_its_neighbours() -> None:
    steps = [(100 * i, 100 * (i + 1)) for i in range(6)]
    work = (op("aten::mm", start, 90) for start, _ in steps)
    analyzed = analyzed_time(trace_of(*work, steps=steps))
    assert span_of(replace(error(), start_us=310.0, end_us=320.0), analyzed) == (200, 500)


def test_an_error_is_drawn_with_what_the_core_saves(tmp_path: Path) -> None:
    host = {"ph": "X", "pid": 1, "tid": 1}
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [
        host | {"cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 20_000},
        host | {"cat": "user_annotation", "name": loader, "ts": 20_000, "dur": 30_000},
        host | {"cat": "cpu_op", "name": "aten::mm", "ts": 50_000, "dur": 50_000},
    ]
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"traceEvents": events}))
    regions = (LabelRegion(20_000, 50_000, LOADING, "cpu"),)
    label = Label("recorded", "p", "w", "cpu", "torch 2", 0, 100_000.0, "bad", regions)
    label_files.write(label, label_files.label_path(file))
    scored = scored_of([0.1] * 10, faulty=True)
    shown = show(error(pattern=LOADING), scored, Case("t", file), tmp_path, 1)
    assert shown.picture == "01-miss-input-dataloader-sync.png"
    assert 2_000 < (tmp_path / shown.picture).stat().st_size < 60_000
    assert 0.2 < shown.saved <= 0.3
    assert "| 1 | test | miss | input-dataloader-sync (cpu) | " in markdown([shown])
