"""The README's pictures: drawn from this project's own traces, where the pattern sits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dataset import plots
from dataset.labels import LabelRegion
from dataset.plots import Example, counts, examples, step_of, strips
from detector import kineto

pytest.importorskip("matplotlib", reason="pictures need the train extra")
PIL = pytest.importorskip("PIL.Image", reason="pictures need the train extra")


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Example]:
    """Two examples of one group and one of another, and a pattern that nobody can show."""
    wanted = ("sync-explicit", "sync-scalar-readback", "host-gc-pause", "comm-straggler")
    monkeypatch.setattr(plots, "IDS", wanted)
    monkeypatch.setattr(plots, "RECORDED", tmp_path / "none")
    return examples(tmp_path)


def test_examples_are_our_own_and_show_their_pattern(two: list[Example]) -> None:
    assert [e.pattern for e in two] == ["sync-explicit", "sync-scalar-readback", "host-gc-pause"]
    for example in two:
        assert {r.pattern for r in example.regions} == {example.pattern}
        assert example.title.endswith("simulated:A100 (simulated)")
        start, end = step_of(example)
        assert any(r.start_us < end and r.end_us > start for r in example.regions)


def test_the_step_is_the_one_that_holds_most_of_the_pattern(tmp_path: Path) -> None:
    event = {"ph": "X", "pid": 1, "tid": 1, "dur": 100}
    step = {**event, "cat": "user_annotation", "name": "ProfilerStep#1"}
    op = {**event, "cat": "cpu_op", "name": "aten::mm", "dur": 90}
    events = [{**kind, "ts": 100 * i} for i in range(3) for kind in (step, op)]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"traceEvents": events}))
    regions = (
        LabelRegion(50, 60, "host-gc-pause", "cpu"),
        LabelRegion(190, 290, "host-gc-pause", "cpu"),
        LabelRegion(100, 200, "sync-explicit", "cpu"),
    )
    example = Example("host-gc-pause", kineto.read(file), regions, "")
    assert step_of(example) == (200, 300)


def test_a_picture_for_each_group_small_enough_to_keep(two: list[Example], tmp_path: Path) -> None:
    made = strips(two, tmp_path / "out")
    assert [p.name for p in made] == ["sync.png", "host.png"]
    with PIL.open(made[0]) as tall, PIL.open(made[1]) as single:
        assert tall.width == single.width
        assert tall.height == pytest.approx(2 * single.height, abs=2)
        assert len(set(tall.convert("L").tobytes())) > 5  # not a blank page
    assert all(p.stat().st_size < 60_000 for p in made)


def test_counts_are_drawn_of_every_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, list[tuple[str, str]]] = {}
    bars = plots._bars

    def spy(axes: object, pairs: list[tuple[str, str]], names: object, title: str) -> None:
        drawn[title] = list(pairs)
        bars(axes, pairs, names, title)  # type: ignore[arg-type]

    monkeypatch.setattr(plots, "_bars", spy)
    trace = {"origin": "recorded", "device": "cpu", "split": "train", "patterns": []}
    traces = [trace, {**trace, "origin": "injected", "patterns": ["sync-explicit", "infer-kv-cat"]}]
    assert counts(traces, tmp_path).stat().st_size < 60_000
    assert drawn == {
        "by pattern": [
            ("none", "recorded"),
            ("sync-explicit", "injected"),
            ("infer-kv-cat", "injected"),
        ],
        "by device": [("cpu", "recorded"), ("cpu", "injected")],
        "by part": [("train", "recorded"), ("train", "injected")],
    }
