"""The tables as a Hugging Face data set: what is read is what was written, without a network."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataset import card
from dataset.labels import UNKNOWN, Label, LabelRegion
from dataset.publish import TABLES, Row, publish
from dataset.splits import MAIN, PARTS, SCHEMES
from detector.features import COLUMNS, candidate
from detector.lab.tables import table
from detector.patterns import CLASSES, IDS
from detector.taxonomy import NONE

datasets = pytest.importorskip("datasets", reason="the tables need the train extra")

REGIONS = (
    LabelRegion(1.0, 2.5, "sync-explicit", "cpu", 0.75, "injection", True),
    LabelRegion(2.5, 3.0, UNKNOWN, "gpu"),
)
LABEL = Label(
    origin="injected",
    pair="base/a",
    workload="language-x",
    device="cuda:A100",
    framework="torch 2.13.0",
    seed=2**31 + 5,
    step_us=12.5,
    quality="bad",
    regions=REGIONS,
    parameters={"faults": [{"strength": 0.25}]},
    base="a",
    extent="every",
    healthy_step_us=10.0,
)
NUMBERS = [0.5] * len(candidate.COLUMNS)
GOOD = replace(LABEL, quality="good", regions=(), extent="", base="", healthy_step_us=None)


def row(name: str, label: Label, count: int = 3) -> Row:
    """A trace with ``count`` windows and one evidence; its first feature counts the windows."""
    pattern = label.patterns[0] if label.patterns else NONE
    keys = ("origin", "workload", "device", "pair", "quality", "seed")
    about = {"trace": name, **{key: getattr(label, key) for key in keys}, "pattern": pattern}
    matrix = np.full((count, len(COLUMNS)), np.nan, np.float32)
    matrix[:, 0] = np.arange(count) / 3
    return Row(
        name,
        label,
        f"traces/{name}.json.gz",
        "0" * 64,
        "MIT",
        37.5,
        [
            {**about, "start_us": i, "end_us": i + 1, "cpu": 1, "gpu": 0}
            | {"unknown_cpu": 0, "unknown_gpu": 0.5}
            for i in range(count)
        ],
        matrix,
        [
            {**about, "pattern": "sync-explicit", "savings_us": 12.5, "numbers": NUMBERS}
            | {"starts_us": [0.5, 2.0], "ends_us": [1.0, 2.5]}
        ]
        if label.patterns
        else [],
        [{**about, "side": "cpu", "text": f"Shares: {name}", "visible": [pattern, NONE]}],
    )


ROWS = [
    row("a/1", LABEL),
    row("b/2", GOOD),
    row("c/3", replace(GOOD, origin="natural"), 2),
    row("d/4", GOOD, 1),
]
MAIN_PARTS = ["train", "test", "natural", "train"]
DEVICE_PARTS = ["train", "excluded", "test", "test"]
EXCLUDED = ["excluded", "test", "excluded", "excluded"]
SPLITS = dict.fromkeys(SCHEMES, EXCLUDED) | {MAIN: MAIN_PARTS, "unseen_device": DEVICE_PARTS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("published")
    written = publish(ROWS, SPLITS, out)
    traces = [
        {**vars(r.label), "patterns": list(r.label.patterns), "licence": r.licence, "windows": 3}
        | {scheme: SPLITS[scheme][i] for scheme in SCHEMES}
        for i, r in enumerate(ROWS)
    ]
    (out / "README.md").write_text(card.text({"tables": written, "traces": traces}))
    (out / "manifest.json").write_text(json.dumps({"tables": written}))
    return out


@pytest.fixture(scope="module")
def loaded(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every table, by load_dataset alone, on a machine without a network."""

    def nowhere(*_: object) -> None:
        raise AssertionError("asked the network")

    datasets.disable_progress_bars()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", nowhere)
        cache = str(tmp_path_factory.mktemp("cache"))
        names = (*TABLES, "windows-unseen_device")
        return {n: datasets.load_dataset(str(folder), n, cache_dir=cache) for n in names}


def test_each_table_has_the_parts_that_have_rows(loaded: dict[str, Any]) -> None:
    sizes = {name: {part: len(rows) for part, rows in t.items()} for name, t in loaded.items()}
    assert sizes == {
        "traces": {"train": 2, "test": 1, "natural": 1},
        "regions": {"train": 2},
        "candidates": {"train": 1},
        "windows": {"train": 4, "test": 3, "natural": 2},
        "evidence": {"train": 2, "test": 1, "natural": 1},
        "windows-unseen_device": {"train": 3, "test": 3},
    }


def test_every_table_is_there_by_every_scheme_and_no_row_twice(folder: Path) -> None:
    names = datasets.get_dataset_config_names(str(folder))
    assert set(names) == {
        *TABLES,
        *(f"{table}-{scheme}" for table in TABLES for scheme in SCHEMES[1:]),
    } - {
        f"{table}-{scheme}"
        for table in ("regions", "candidates")
        for scheme in SCHEMES[1:]
        if scheme != "unseen_device"
    }
    files = sorted(p.name for p in (folder / "tables" / "windows").iterdir())
    assert files == [f"{name}.parquet" for name in ("natural-0", "test-0", "train-0", "train-1")]


def test_another_scheme_s_parts_hold_its_traces(loaded: dict[str, Any]) -> None:
    parts = loaded["windows-unseen_device"]
    assert set(parts["train"]["trace"]) == {"a/1"}
    assert set(parts["test"]["trace"]) == {"c/3", "d/4"}


def test_columns_of_words_are_class_labels_in_the_taxonomy_s_order(loaded: dict[str, Any]) -> None:
    features = {name: next(iter(parts.values())).features for name, parts in loaded.items()}
    names = {
        (name, column): feature.names
        for name, columns in features.items()
        for column, feature in columns.items()
        if isinstance(feature, datasets.ClassLabel)
    }
    assert names["windows", "pattern"] == names["evidence", "pattern"] == list(CLASSES)
    assert names["candidates", "pattern"] == list(CLASSES)
    assert names["regions", "pattern"] == [*IDS, UNKNOWN]
    assert {names["traces", scheme] == list(PARTS) for scheme in SCHEMES} == {True}
    assert features["evidence"]["visible"] == datasets.List(
        datasets.ClassLabel(names=list(CLASSES))
    )
    assert {features["windows"][c].dtype for c in COLUMNS} == {"float32"}


def words(rows: Any, i: int = 0) -> dict[str, Any]:
    """A row with its classes as words."""
    classes = {k: f for k, f in rows.features.items() if isinstance(f, datasets.ClassLabel)}
    return {k: classes[k].int2str(v) if k in classes else v for k, v in rows[i].items()}


def test_what_is_read_is_what_was_written(loaded: dict[str, Any]) -> None:
    trace = words(loaded["traces"]["train"])
    shown = {key: trace[key] for key in ("origin", "quality", "extent", "base", "seed", "pair")}
    assert shown == {key: getattr(LABEL, key) for key in shown}
    assert (trace["step_us"], trace["healthy_step_us"]) == (12.5, 10.0)
    assert (trace["analyzed_us"], trace["healthy"]) == (37.5, False)
    assert trace["patterns"] == [CLASSES.index("sync-explicit")]
    assert json.loads(trace["parameters"]) == LABEL.parameters
    assert {s: trace[s] for s in SCHEMES} == {s: SPLITS[s][0] for s in SCHEMES}
    assert words(loaded["traces"]["test"])["healthy_step_us"] is None
    spans = [words(loaded["regions"]["train"], i) for i in range(2)]
    assert spans == [{"trace": "a/1", **vars(region)} for region in REGIONS]
    found = words(loaded["candidates"]["train"])
    assert (found["pattern"], found["savings_us"]) == ("sync-explicit", 12.5)
    assert (found["starts_us"], found["ends_us"]) == ([0.5, 2.0], [1.0, 2.5])
    assert found["numbers"] == NUMBERS
    window = words(loaded["windows"]["train"], 2)
    assert (window["start_us"], window["unknown_gpu"], window["pattern"]) == (2, 0.5, IDS[9])
    assert window[COLUMNS[0]] == pytest.approx(2 / 3)
    assert window[COLUMNS[1]] is None  # not known


@pytest.mark.parametrize(
    ("label", "healthy"),
    [
        (replace(GOOD, origin="recorded"), True),
        (replace(GOOD, origin="natural"), True),
        (replace(GOOD, origin="natural", regions=REGIONS[1:]), True),
        (replace(GOOD, origin="simulated"), False),
        (GOOD, False),  # an untouched base: nobody knows what is wrong in it
        (LABEL, False),
    ],
)
def test_a_healthy_trace_is_one_that_is_known_to_be(label: Label, healthy: bool) -> None:
    assert row("x", label).healthy == healthy


def test_the_trainers_read_the_same_with_classes_as_words(folder: Path) -> None:
    windows, evidence = table(folder, "windows"), table(folder, "evidence")
    assert windows["trace"].tolist() == ["a/1"] * 3 + ["d/4"] + ["b/2"] * 3  # not by hand
    assert windows["pattern"].tolist() == ["sync-explicit"] * 3 + [NONE] * 4
    assert windows["origin"].unique().tolist() == ["injected"]
    assert evidence["visible"].tolist() == [["sync-explicit", NONE], [NONE, NONE], [NONE, NONE]]
    assert table(folder, "windows", ["natural"])["origin"].unique().tolist() == ["natural"]


def test_the_same_rows_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    publish(ROWS, SPLITS, tmp_path)
    for file in sorted((folder / "tables").rglob("*.parquet")):
        assert (tmp_path / file.relative_to(folder)).read_bytes() == file.read_bytes()


def test_the_card_counts_what_is_there(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert "\n4 traces of PyTorch programs with labels by region: which of 1 performance" in text
    assert "| `windows` | a cut of a step | 9 |" in text
    assert "| injected | a real trace, a fault put in by replay | 3 | 1 |" in text
    assert "1 of 1 injected faults sit in every step" in text
    assert "| sync-explicit | 0 | 1 | 0 | 0 | 1 | 1 | 0 | 0 | 0 |" in text
    assert "| a | MIT | 1 |" in text
    assert "$" not in text
