"""The benchmark's tables as a Hugging Face data set: Parquet files, one per table and group.

    datasets.load_dataset(FOLDER, "windows")                    # or another of TABLES
    datasets.load_dataset(FOLDER, "windows-unseen_device")      # a table by another split scheme

``FOLDER/tables/TABLE/PART-N.parquet``, and ``README.md``, whose front matter names them. A group is
the traces that are in the same part of every split scheme (`dataset.splits.groups`), so a part of
any scheme is a list of files, and no row is there twice. Columns that hold one of a few words are
``ClassLabel``s, patterns in the order of the taxonomy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np
import numpy.typing as npt

from dataset.labels import UNKNOWN, CostFrom, Extent, Label, Origin, Quality, Side
from dataset.splits import MAIN, PARTS, SCHEMES, Group, Part, groups
from detector.features import COLUMNS, candidate
from detector.patterns import CLASSES, IDS

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Features

TABLES: Final = ("traces", "regions", "windows", "candidates", "evidence")
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "origin": get_args(Origin),
    "quality": get_args(Quality),
    "side": get_args(Side),
    "extent": get_args(Extent),
    "cost_from": get_args(CostFrom),
    **dict.fromkeys(SCHEMES, PARTS),
}
ABOUT: Final = {
    **dict.fromkeys(("trace", "workload", "device", "pair"), "string"),
    **dict.fromkeys(("origin", "quality"), "words"),
    "seed": "int64",
}
SPAN: Final = dict.fromkeys(("start_us", "end_us"), "float64")
LABELS: Final = ("cpu", "gpu", "unknown_cpu", "unknown_gpu")
COLUMN_TYPES: Final[dict[str, dict[str, str]]] = {
    "traces": {
        **ABOUT,
        **dict.fromkeys(("file", "sha256", "base", "licence", "framework"), "string"),
        **dict.fromkeys(("generator", "parameters"), "string"),
        **dict.fromkeys(("step_us", "healthy_step_us", "analyzed_us"), "float64"),
        "healthy": "bool",
        "extent": "words",
        "patterns": "classes",
        **dict.fromkeys(SCHEMES, "words"),
    },
    "regions": {
        "trace": "string",
        **SPAN,
        "pattern": "class or unknown",
        "side": "words",
        "cost_us": "float64",
        "cost_from": "words",
        "harmless": "bool",
    },
    "windows": {**ABOUT, **SPAN, **dict.fromkeys(LABELS, "float32"), "pattern": "class"},
    "candidates": {
        **ABOUT,
        "pattern": "class",
        "savings_us": "float64",
        "starts_us": "times",
        "ends_us": "times",
        "numbers": "numbers",
    },
    "evidence": {
        **ABOUT,
        "pattern": "class",
        "side": "words",
        "text": "string",
        "visible": "classes",
    },
}


@dataclass(frozen=True)
class Row:
    """One trace of the benchmark: what is known of it, and its rows in the tables."""

    name: str
    label: Label
    file: str  # below the benchmark's folder
    sha256: str
    licence: str
    analyzed_us: float
    windows: list[dict[str, Any]]
    matrix: npt.NDArray[np.float32]
    candidates: list[dict[str, Any]]
    evidence: list[dict[str, Any]]

    @property
    def healthy(self) -> bool:
        """Known to have no problem anywhere: a healthy recorded run, or a natural trace in which
        somebody found none. Never a base, of which nobody knows the rest."""
        return self.label.quality == "good" and self.label.origin in ("recorded", "natural")


def publish(
    rows: Sequence[Row], parts: Mapping[str, Sequence[Part]], out: Path
) -> dict[str, dict[str, int]]:
    """Write the tables; returns for each the number of rows by group; one without rows has no file.

    ``parts``: for each scheme the part of each trace.
    """
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    there: dict[str, dict[str, int]] = {}
    for name in TABLES:
        features = _features(name)
        there[name] = {}
        for group in groups(parts):
            frame = _frame(name, rows, group)
            if not len(frame):
                continue
            file = out / file_of(name, group.name)
            file.parent.mkdir(parents=True, exist_ok=True)
            whole = Dataset.from_pandas(frame, features=features, preserve_index=False)
            whole.to_parquet(str(file))
            there[name][group.name] = len(frame)
    return there


def file_of(table: str, group: str) -> str:
    """Where a group's rows of a table are, below the benchmark's folder."""
    return f"tables/{table}/{group}.parquet"


@dataclass(frozen=True)
class Configuration:
    """What ``load_dataset`` knows by one name: a table by the parts of one split scheme."""

    name: str
    table: str
    files: dict[str, list[str]]  # by part, below the benchmark's folder


def configurations(
    tables: Mapping[str, Mapping[str, int]], found: Sequence[Group]
) -> list[Configuration]:
    """Every table by every scheme; parts without rows, and what a scheme excludes, are left out.

    ``tables``: what ``publish`` returned. The main scheme's configuration has the table's name
    alone, and all of its parts.
    """
    made = []
    for scheme in SCHEMES:
        for table, rows in tables.items():
            files: dict[str, list[str]] = {}
            for part in PARTS:
                mine = [g.name for g in found if g.parts[scheme] == part and g.name in rows]
                if mine and (scheme == MAIN or part != "excluded"):
                    files[part] = [file_of(table, name) for name in mine]
            if files:
                name = table if scheme == MAIN else f"{table}-{scheme}"
                made.append(Configuration(name, table, files))
    return made


def _features(name: str) -> Features:
    from datasets import ClassLabel as Words
    from datasets import Features, List, Value

    kinds = {
        "class": Words(names=list(CLASSES)),
        "class or unknown": Words(names=[*IDS, UNKNOWN]),
        "classes": List(Words(names=list(CLASSES))),
        "times": List(Value("float64")),
        "numbers": List(Value("float32"), length=len(candidate.COLUMNS)),
    }
    made = {}
    for column, kind in COLUMN_TYPES[name].items():
        if kind == "words":
            made[column] = Words(names=list(WORDS[column]))
        else:
            made[column] = kinds[kind] if kind in kinds else Value(kind)
    if name == "windows":
        made |= {column: Value("float32") for column in COLUMNS}
    return Features(made)


def _frame(name: str, rows: Sequence[Row], group: Group) -> pd.DataFrame:
    """The rows of a group's traces, words as numbers."""
    import pandas as pd

    found = [row for i in group.members for row in _records(name, rows[i], group.parts)]
    types = COLUMN_TYPES[name]
    frame = pd.DataFrame(found, columns=list(types))
    for column, kind in types.items():
        if kind == "classes":
            frame[column] = [[CLASSES.index(c) for c in row] for row in frame[column]]
        elif names := names_of(column, kind):
            frame[column] = frame[column].map({word: i for i, word in enumerate(names)})
    if name == "windows" and len(frame):
        matrix = np.concatenate([rows[i].matrix for i in group.members])
        frame = pd.concat([frame, pd.DataFrame(matrix, columns=list(COLUMNS))], axis=1)
    return frame


def names_of(column: str, kind: str) -> tuple[str, ...]:
    """The words that a column's numbers stand for; none for other columns."""
    if kind == "words":
        return WORDS[column]
    return {"class": CLASSES, "class or unknown": (*IDS, UNKNOWN)}.get(kind, ())


def _records(name: str, row: Row, parts: Mapping[str, Part]) -> Iterable[dict[str, Any]]:
    """The rows of a trace in a table, words as words."""
    if name == "windows":
        return row.windows
    if name == "candidates":
        return row.candidates
    if name == "evidence":
        return row.evidence
    if name == "regions":
        return [{"trace": row.name, **vars(region)} for region in row.label.regions]
    label = row.label
    about = {**vars(label), "patterns": label.patterns, "trace": row.name, "file": row.file}
    about |= {"sha256": row.sha256, "licence": row.licence, "healthy": row.healthy}
    about["analyzed_us"] = row.analyzed_us
    about["parameters"] = json.dumps(label.parameters, sort_keys=True)
    return [about | dict(parts)]
