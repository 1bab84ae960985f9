"""Croissant metadata: mlcroissant takes it, and reads by it what was written."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataset import croissant
from dataset.labels import Label, LabelRegion
from dataset.publish import COLUMN_TYPES, Row, publish
from dataset.splits import MAIN, PARTS, SCHEMES
from detector.features import COLUMNS
from detector.patterns import CLASSES

pytest.importorskip("datasets", reason="the tables need the train extra")
pytest.importorskip("mlcroissant", reason="the check needs the dev extra")

# rdflib, below mlcroissant, warns of itself.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

FAULTY = Label(
    origin="injected",
    pair="base/a",
    workload="language-x",
    device="cuda:A100",
    framework="torch 2.13.0",
    seed=3,
    step_us=12.5,
    quality="bad",
    regions=(LabelRegion(1.0, 2.5, "sync-explicit", "cpu"),),
    base="a",
    extent="every",
)
GOOD = replace(FAULTY, quality="good", regions=(), extent="", base="")
SPLITS = {scheme: ["excluded", "test"] for scheme in SCHEMES} | {MAIN: ["train", "test"]}


def row(name: str, label: Label) -> Row:
    keys = ("origin", "workload", "device", "pair", "quality", "seed")
    about = {"trace": name, **{key: getattr(label, key) for key in keys}, "pattern": "none"}
    shares = {"cpu": 0, "gpu": 0, "unknown_cpu": 0, "unknown_gpu": 0}
    window = {**about, "start_us": 0.5, "end_us": 1, **shares}
    matrix = np.zeros((1, len(COLUMNS)), np.float32)
    file = f"traces/{name}.json.gz"
    return Row(name, label, file, "0" * 64, "MIT", 1.0, [window], matrix, [], [])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("published")
    rows = [row("a/1", FAULTY), row("b/2", GOOD)]
    traces = [
        {"licence": r.licence, **{scheme: SPLITS[scheme][i] for scheme in SCHEMES}}
        for i, r in enumerate(rows)
    ]
    manifest = {"tables": publish(rows, SPLITS, out), "traces": traces}
    (out / "croissant.json").write_text(json.dumps(croissant.metadata(manifest, out)))
    return out


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Any:
    """The metadata as mlcroissant reads it; it raises where they are not valid."""
    mlcroissant = pytest.importorskip("mlcroissant")
    logging.getLogger("absl").setLevel(logging.ERROR)  # datePublished is only recommended
    return mlcroissant.Dataset(str(folder / "croissant.json"))


def words(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def records(loaded: Any, name: str) -> Iterator[dict[str, Any]]:
    for record in loaded.records(name):
        yield {key.removeprefix(f"{name}/"): words(value) for key, value in record.items()}


def test_it_is_valid_and_lists_every_file_and_column(folder: Path, loaded: Any) -> None:
    assert not loaded.metadata.ctx.issues.errors
    files = {file.content_url for file in loaded.metadata.file_objects}
    assert files == {str(p.relative_to(folder)) for p in folder.rglob("*.parquet")}
    fields = {r.id: {f.name for f in r.fields} for r in loaded.metadata.record_sets}
    assert set(fields) == {"groups", "traces", "regions", "windows"}  # no candidates, no evidence
    for name in ("traces", "regions", "windows"):
        columns = COLUMNS if name == "windows" else ()
        assert fields[name] == {"group", *COLUMN_TYPES[name], *columns}


def test_every_column_but_the_features_says_what_it_is() -> None:
    known = {column for columns in COLUMN_TYPES.values() for column in columns}
    assert known == set(croissant.COLUMN)


def test_what_it_reads_is_what_was_written(loaded: Any) -> None:
    traces = {r["trace"]: r for r in records(loaded, "traces")}
    assert set(traces) == {"a/1", "b/2"}
    assert (traces["a/1"]["group"], traces["b/2"]["group"]) == ("train-0", "test-0")
    assert (traces["a/1"]["step_us"], traces["a/1"]["base"]) == (12.5, "a")
    assert list(traces["a/1"]["patterns"]) == [CLASSES.index("sync-explicit")]
    assert PARTS[traces["b/2"]["unseen_device"]] == "test"
    (region,) = records(loaded, "regions")
    assert (region["trace"], region["start_us"], region["end_us"]) == ("a/1", 1.0, 2.5)
    assert [r["start_us"] for r in records(loaded, "windows")] == [0.5, 0.5]


def test_the_groups_say_the_part_of_each_file_by_scheme(loaded: Any) -> None:
    groups = {r["group"]: r for r in records(loaded, "groups")}
    assert groups["train-0"] == {"group": "train-0", MAIN: "train"} | dict.fromkeys(
        SCHEMES[1:], "excluded"
    )
    assert set(groups["test-0"].values()) == {"test-0", "test"}


def test_each_file_is_listed_with_its_hash_and_size(folder: Path) -> None:
    meta = json.loads((folder / "croissant.json").read_text())
    listed = [file for file in meta["distribution"] if "sha256" in file]
    for file in listed:
        content = (folder / file["contentUrl"]).read_bytes()
        assert file["sha256"] == sha256(content).hexdigest()
        assert file["contentSize"] == f"{len(content)} B"
    assert len(listed) == 5  # two groups, but only one has regions
