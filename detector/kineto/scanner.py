"""The compiled scanner: intact blocks -> columns, several times as fast as typed decoding.

Where it was not built (no compiler at installation), or rejects a block, the decoders take over.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from detector.kineto.arguments import ARGUMENTS
from detector.kineto.categories import (
    ANNOTATIONS_2021,
    CATEGORIES,
    DEVICE_CATS,
    OTHER_CATEGORIES,
    OTHER_PHASES,
    SHAPES,
    Shape,
    unknown,
)
from detector.trace import Cat, Int64

try:
    from detector.kineto import _scan
    from detector.kineto._scan import parents as parents
except ImportError:
    COMPILED = False
else:
    COMPILED = True

# Arguments of the scanner: words and the numbers that stand for them.
_PURPOSES = tuple(dict.fromkeys([*OTHER_PHASES.values(), *OTHER_CATEGORIES.values()]))
_OPERATOR_2021 = len(Cat)  # operators and annotations: the name tells


def _code(cat: int, shape: Shape, is_device: bool) -> int:
    return cat * 8 + shape * 2 + is_device


_CATEGORIES = (
    *(
        (word.encode(), _code(cat, SHAPES[cat], cat in DEVICE_CATS))
        for word, cat in CATEGORIES.items()
        if word != "Operator"
    ),
    (b"Operator", _code(_OPERATOR_2021, Shape.OP, False)),
    *((word.encode(), -1 - _PURPOSES.index(p)) for word, p in OTHER_CATEGORIES.items()),
)
_UNKNOWN = _code(Cat.OTHER, SHAPES[Cat.OTHER], Cat.OTHER in DEVICE_CATS)
_PHASES = (
    (b"X", -1),
    *((phase.encode(), _PURPOSES.index(p)) for phase, p in OTHER_PHASES.items()),
)
_COLUMNS = ("start", "dur", "cat", "name", "track", *(a.field for a in ARGUMENTS))
_ALWAYS = 5
_FIELDS = tuple(
    (a.key.encode(), int(a.kind), _COLUMNS.index(a.field), sum(1 << shape for shape in a.shapes))
    for a in ARGUMENTS
)
_SHORTEST_ROW = 50  # bytes
_MOST_ROWS = 1 << 16  # of one block


@dataclass
class Scanned:
    """One block: its rows in columns that are valid until the next is scanned."""

    used: int  # bytes, to behind the array's end
    count: int  # events of any phase
    other: Counter[str]
    rows: dict[Shape, dict[str, npt.NDArray[Any]]]
    names: list[str]
    texts: list[bytes]
    tracks: list[tuple[str, str, bool]]


class Scanner:
    """Scans one block after the other."""

    def __init__(self) -> None:
        self._scratch: Int64 = np.empty((len(Shape), len(_COLUMNS), 0), np.int64)

    def scan(self, block: memoryview) -> Scanned | None:
        """The rows of a JSON array of events; None where something in it is unusual."""
        if not COMPILED:
            return None
        rows = min(len(block) // _SHORTEST_ROW + 1, _MOST_ROWS)
        if rows > self._scratch.shape[2]:
            self._scratch = np.empty((len(Shape), len(_COLUMNS), rows), np.int64)
        found = _scan.scan(block, self._scratch, _CATEGORIES, _PHASES, _FIELDS, _UNKNOWN)
        if found is None:
            return None
        used, events, counts, present, purposes, unknown_words, names, texts, tracks = found
        words = [name if isinstance(name, str) else _unescaped(name) for name in names]
        tables = {
            shape: self._table(shape, counts[shape], present[shape], words)
            for shape in Shape
            if counts[shape]
        }
        other = Counter({p: n for p, n in zip(_PURPOSES, purposes, strict=False) if n})
        for word, rows in unknown_words:
            other[unknown(word)] += rows
        return Scanned(used, events, other, tables, words, texts, tracks)

    def _table(
        self, shape: Shape, count: int, present: int, names: list[str]
    ) -> dict[str, npt.NDArray[Any]]:
        columns = {
            key: self._scratch[shape, i, :count]
            for i, key in enumerate(_COLUMNS)
            if i < _ALWAYS or present >> i & 1
        }
        operators = columns["cat"] == _OPERATOR_2021
        if operators.any():
            is_note = np.array([name.startswith(ANNOTATIONS_2021) for name in names], np.bool_)
            cat = np.where(is_note[columns["name"]], Cat.USER_ANNOTATION, Cat.CPU_OP)
            columns["cat"] = np.where(operators, cat, columns["cat"])
        return columns


def _unescaped(text: bytes) -> str:
    return str(json.loads(b'"' + text + b'"'))
