"""Predictions of any tool, read from files.

A folder holds a JSON file for each scanned trace, at the trace's name in the benchmark
(``injected/BASE/001.json``): a ``report.json`` of this product, or a list of predictions. A JSON
Lines file holds one prediction a line, each with its ``trace``. A prediction:

    trace         name of the trace in the benchmark (in a folder the file's name says it)
    pattern       an id of the taxonomy
    start_us      where it begins, µs on the trace file's own ``ts`` axis
    end_us        where it ends
    occurrences   optional: a list of [start_us, end_us] pairs, its places in between
    confidence    in [0, 1]
    savings_us    what fixing it saves of the analyzed time, µs

A trace counts as scanned when there is a file of it or a line that names it: an empty list, or a
line with nothing but its ``trace``, says that nothing was found. What was not scanned is never
taken for free of findings.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from detector.errors import DetectorError
from detector.lab.scoring.prediction import Prediction, predictions_of
from detector.lab.scoring.truth import Spans
from detector.patterns import BY_ID
from detector.report import from_json

SUFFIX: Final = ".json"
REQUIRED: Final = ("pattern", "start_us", "end_us", "confidence", "savings_us")
LARGEST: Final = 9e15  # µs: in ns it still fits an int64
KNOWN: Final = frozenset((*REQUIRED, "trace", "occurrences"))


def read_predictions(path: Path, known: Collection[str]) -> dict[str, list[Prediction]]:
    """By scanned trace, from a folder or a JSON Lines file. ``known``: the benchmark's traces.

    Raises DetectorError: one line with the file, the place and what is wrong with it.
    """
    if path.is_dir():
        found = _from_folder(path, known)
    elif path.is_file():
        found = _from_lines(path, known)
    else:
        raise DetectorError(f"{path}: no such file or folder")
    if not found:
        raise DetectorError(f"{path}: no predictions")
    return found


# -- a folder --------------------------------------------------------------------------------------


def _from_folder(folder: Path, known: Collection[str]) -> dict[str, list[Prediction]]:
    found = {}
    for file in sorted(folder.rglob(f"*{SUFFIX}")):
        trace = file.relative_to(folder).as_posix().removesuffix(SUFFIX)
        if trace not in known:
            raise DetectorError(f"{file}: no trace of the benchmark is called {trace!r}")
        found[trace] = _of_file(file, trace)
    return found


def _of_file(file: Path, trace: str) -> list[Prediction]:
    text = _text(file)
    content = _decoded(text, str(file))
    if isinstance(content, list):
        return [_of_item(item, trace, f"{file}: [{i}]") for i, item in enumerate(content)]
    try:
        report = from_json(text)
    except DetectorError as error:
        raise DetectorError(f"{file}: {error}") from error
    found = predictions_of(report, trace)
    for one in found:
        _check(one, str(file))
    return found


def _of_item(item: object, trace: str, place: str) -> Prediction:
    row = _object(item, place)
    if row.get("trace", trace) != trace:
        raise DetectorError(f"{place}: its trace is {row['trace']!r}, its file says {trace!r}")
    return prediction(row | {"trace": trace}, place)


# -- JSON Lines ------------------------------------------------------------------------------------


def _from_lines(file: Path, known: Collection[str]) -> dict[str, list[Prediction]]:
    found: dict[str, list[Prediction]] = {}
    for place, row in _rows(file):
        trace = row.get("trace")
        if not isinstance(trace, str):
            raise DetectorError(f"{place}: trace is missing")
        if trace not in known:
            raise DetectorError(f"{place}: no trace of the benchmark is called {trace!r}")
        mine = found.setdefault(trace, [])
        if row.keys() != {"trace"}:
            mine.append(prediction(row, place))
    return found


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(_text(file).splitlines(), 1):
        if line.strip():
            place = f"{file}:{number}"
            yield place, _object(_decoded(line, place), place)


# -- one prediction --------------------------------------------------------------------------------


def prediction(row: Mapping[str, Any], place: str) -> Prediction:
    """A checked row. Raises DetectorError naming ``place`` and the field."""
    if missing := [name for name in REQUIRED if name not in row]:
        raise DetectorError(f"{place}: {', '.join(missing)} missing")
    if foreign := sorted(row.keys() - KNOWN):
        raise DetectorError(f"{place}: no field is called {foreign[0]!r}")
    if not isinstance(row["pattern"], str):
        raise DetectorError(f"{place}: pattern is no text")
    spans = _spans(row, place)
    confidence, savings = (_number(row[name], name, place) for name in ("confidence", "savings_us"))
    found = Prediction(row["trace"], row["pattern"], spans, confidence, savings)
    _check(found, place)
    return found


def _check(found: Prediction, place: str) -> None:
    """What reports and rows must keep alike."""
    if found.pattern not in BY_ID:
        raise DetectorError(f"{place}: no pattern is called {found.pattern!r}")
    if not 0 <= found.confidence <= 1:
        raise DetectorError(f"{place}: confidence {found.confidence} is not in [0, 1]")
    if not found.savings_us >= 0:
        raise DetectorError(f"{place}: savings_us {found.savings_us} is below 0")


def _spans(row: Mapping[str, Any], place: str) -> Spans:
    whole = _span([row["start_us"], row["end_us"]], place)
    if "occurrences" not in row:
        return (whole,)
    listed = row["occurrences"]
    if not isinstance(listed, list) or not listed:
        raise DetectorError(f"{place}: occurrences must be a list of [start_us, end_us] pairs")
    return tuple(_span(item, place) for item in listed)


def _span(item: object, place: str) -> tuple[float, float]:
    if not isinstance(item, list) or len(item) != 2:
        raise DetectorError(f"{place}: occurrences must be a list of [start_us, end_us] pairs")
    start, end = (_number(v, n, place) for v, n in zip(item, ("start_us", "end_us"), strict=True))
    if end < start:
        raise DetectorError(f"{place}: ends at {end}, before it starts at {start}")
    return start, end


def _number(value: object, name: str, place: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -LARGEST <= value <= LARGEST:  # type: ignore[operator]
        raise DetectorError(f"{place}: {name} must be a finite number, not {str(value)[:40]}")
    return float(value)  # type: ignore[arg-type]


def _object(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DetectorError(f"{place}: no prediction, which is a JSON object")
    return dict(value)


def _decoded(text: str, place: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DetectorError(f"{place}: no JSON: {error}") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DetectorError(f"{file}: {error}") from error
