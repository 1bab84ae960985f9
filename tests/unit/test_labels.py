"""Labels: what is written is what is read, and a wrong label is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset import labels
from dataset.labels import Label, LabelError, LabelRegion

GOOD = Label(
    origin="recorded",
    pair="classifier-plain-0",
    workload="classifier",
    device="cpu",
    framework="torch 2.13.0",
    seed=0,
    step_us=12.5,
    quality="good",
)
BAD = replace(
    GOOD,
    quality="bad",
    regions=(LabelRegion(1.0, 2.5, "host-gc-pause", "cpu", 0.5, "twin"),),
    parameters={"a": 1},
)


INJECTED = replace(
    BAD,
    origin="injected",
    base="v100_train",
    extent="some",
    healthy_step_us=10.0,
    regions=(*BAD.regions, LabelRegion(3.0, 4.0, labels.UNKNOWN, "gpu")),
)


def test_a_label_survives_its_file(tmp_path: Path) -> None:
    for label in (GOOD, BAD, INJECTED):
        assert labels.read(labels.write(label, tmp_path / "x.label.json")) == label


def test_equal_labels_give_equal_bytes(tmp_path: Path) -> None:
    one = labels.write(replace(BAD, parameters={"a": 1, "b": 2}), tmp_path / "1.label.json")
    two = labels.write(replace(BAD, parameters={"b": 2, "a": 1}), tmp_path / "2.label.json")
    assert one.read_bytes() == two.read_bytes()


def test_the_file_holds_the_agreed_fields(tmp_path: Path) -> None:
    data = json.loads(labels.write(BAD, tmp_path / "x.label.json").read_text())
    assert set(data) == {
        *("origin", "pair", "workload", "device", "framework", "generator", "seed"),
        *("parameters", "step_us", "quality", "regions", "base", "extent", "healthy_step_us"),
    }
    assert data["generator"] == "3"
    place = {"start_us": 1.0, "end_us": 2.5, "pattern": "host-gc-pause", "side": "cpu"}
    assert data["regions"] == [place | {"cost_us": 0.5, "cost_from": "twin", "harmless": False}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"origin": "dreamt"}, "origin 'dreamt'"),
        ({"quality": "good"}, "quality good with 1 patterns"),
        ({"regions": ()}, "quality bad with 0 patterns"),
        ({"regions": (LabelRegion(0.0, 1.0, labels.UNKNOWN, "cpu"),)}, "bad with 0 patterns"),
        ({"extent": "always"}, "extent 'always'"),
        ({"base": None}, "base"),
        ({"healthy_step_us": float("inf")}, "healthy_step_us"),
        ({"step_us": float("nan")}, "step_us"),
        ({"pair": ""}, "pair"),
        ({"regions": (LabelRegion(2.0, 2.0, "x", "cpu"),)}, "ends before it starts"),
        ({"regions": (LabelRegion(0.0, float("inf"), "x", "cpu"),)}, "finite"),
        ({"regions": (LabelRegion(0.0, 1.0, "", "cpu"),)}, "pattern"),
        ({"regions": (LabelRegion(0.0, 1.0, "x", "tpu"),)}, "side 'tpu'"),
        ({"regions": (LabelRegion(0.0, 1.0, "x", "cpu", -1.0, "twin"),)}, "at least 0, or none"),
        ({"regions": (LabelRegion(0.0, 1.0, "x", "cpu", 1.0, "guess"),)}, "cost_from 'guess'"),
        ({"regions": (LabelRegion(0.0, 1.0, "x", "cpu", 1.0),)}, "needs its source"),
        ({"regions": (LabelRegion(0.0, 1.0, "x", "cpu", None, "hand"),)}, "needs its source"),
        (
            {
                "regions": (
                    *BAD.regions,
                    LabelRegion(0.0, 1.0, labels.UNKNOWN, "cpu", 1.0, "hand"),
                )
            },
            "unknown region has no cost",
        ),
    ],
)
def test_a_wrong_label_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(LabelError, match=said):
        labels.check(replace(BAD, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"regions": [{"start_us": 1}]}', "\x00"])
def test_a_file_that_is_no_label_names_itself(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.label.json"
    path.write_text(text)
    with pytest.raises(LabelError, match=r"x\.label\.json"):
        labels.read(path)


def test_a_label_of_the_first_generator_is_read(tmp_path: Path) -> None:
    path = labels.write(BAD, tmp_path / "x.label.json")
    data = json.loads(path.read_text())
    for name in ("base", "extent", "healthy_step_us"):
        del data[name]
    for name in ("cost_us", "cost_from", "harmless"):
        del data["regions"][0][name]
    path.write_text(json.dumps({**data, "generator": "1"}))
    region = replace(BAD.regions[0], cost_us=None, cost_from="")
    assert labels.read(path) == replace(BAD, generator="1", regions=(region,))


def test_unknown_regions_are_no_patterns() -> None:
    unknown = (LabelRegion(0.0, 1.0, labels.UNKNOWN, "gpu"),)
    label = labels.check(replace(GOOD, regions=unknown))
    assert label.patterns == ()
    assert INJECTED.patterns == ("host-gc-pause",)


@given(st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True))
def test_trace_and_label_names_are_inverse(name: str) -> None:
    trace = Path("folder") / f"{name}.json.gz"
    assert labels.trace_path(labels.label_path(trace)) == trace


def test_labeled_wants_every_trace(tmp_path: Path) -> None:
    labels.write(GOOD, tmp_path / "a.label.json")
    with pytest.raises(LabelError, match=r"a.json.gz is missing"):
        list(labels.labeled(tmp_path))
    (tmp_path / "a.json.gz").touch()
    assert [(path.name, label) for path, label in labels.labeled(tmp_path)] == [("a.json.gz", GOOD)]


def test_patterns_are_distinct_and_in_order() -> None:
    regions = [LabelRegion(i, i + 1, p, "cpu") for i, p in enumerate("bab")]
    assert replace(BAD, regions=tuple(regions)).patterns == ("b", "a")


def test_regions_are_cut_to_where_events_lie() -> None:
    spans = ((0.0, 15.0), (20.0, 40.0), (45.0, 60.0))
    regions = tuple(LabelRegion(a, b, "host-gc-pause", "cpu") for a, b in spans)
    events = [
        {"ph": "X", "ts": 10.0, "dur": 5.0},
        {"ph": "X", "ts": 30, "dur": 4},
        {"ph": "i", "ts": 99.0},
        {"ph": "X", "ts": 0.0, "dur": 90.0, "cat": "Trace"},
    ]
    cut = labels.clip(replace(BAD, regions=regions), events)
    assert [(r.start_us, r.end_us) for r in cut.regions] == [(10.0, 15.0), (20.0, 34.0)]
