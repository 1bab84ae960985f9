"""Groups of typed events -> columns, with names, threads and shapes interned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from math import prod
from operator import attrgetter
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from detector.kineto.arguments import ARGUMENTS, Argument, Kind
from detector.kineto.categories import DEVICE_CATS, SHAPES, Shape
from detector.kineto.scanner import Scanned
from detector.kineto.store import Store
from detector.trace import Int32, Int64, Trace, Track

if TYPE_CHECKING:
    from detector.kineto.decode import Group

Columns = dict[str, npt.NDArray[Any]]

_INTEGERS: dict[str, Any] = {"Int8": np.int8, "Int32": np.int32, "Int64": np.int64}
# The columns of a trace that are read; those that link its events come later.
DTYPES: dict[str, Any] = {
    field.name: _INTEGERS[str(field.type)]
    for field in fields(Trace)
    if field.type in _INTEGERS and field.name not in ("launch", "parent", "op")
}
WORDS = tuple(a.field for a in ARGUMENTS if a.kind is Kind.WORD)
_INT64 = (1 << 63) - 1
_UNSIGNED_MINUS_ONE = 0xFFFFFFFF  # Kineto writes stream -1 as uint32
_OLD_SPELLINGS = (("external_id", "external_id_2021"), ("dims", "dims_2022"))


class Interner(dict[Any, int]):
    """Values numbered in order of first sight."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


class _Threads(dict[Any, int]):
    """Thread id -> track number, of one process; ids may be numbers or words."""

    def __init__(self, tracks: Interner, pid: int | str, is_device: bool) -> None:
        self._tracks, self._pid, self._is_device = tracks, str(pid), is_device

    def __missing__(self, tid: int | str) -> int:
        self[tid] = number = self._tracks[self._pid, str(tid), self._is_device]
        return number


class Builder:
    """Collects rows, each shape's apart; ``finish`` gives whole columns."""

    def __init__(self) -> None:
        self.names = Interner()
        self._texts = Interner()  # JSON of shapes and types, as bytes
        self._tracks = Interner()
        self._threads: dict[tuple[int | str, bool], _Threads] = {}
        self._stores: dict[tuple[Shape, str], Store] = {}
        self._rows: dict[Shape, int] = dict.fromkeys(Shape, 0)

    def add(self, group: Group) -> None:
        """Append the rows of one category of one block."""
        events, names = group.events, self.names
        columns: Columns = {
            "start": group.start,
            "dur": group.dur,
            "cat": np.full(len(events), group.cat, np.int8),
            "name": _int32([names[e.name] for e in events]),
            "track": _int32(self._track_numbers(events, group.cat in DEVICE_CATS)),
        }
        shape = SHAPES[group.cat]
        wanted = [argument for argument in ARGUMENTS if shape in argument.shapes]
        if wanted:
            args = [e.args for e in events]
            for argument in wanted:
                values = self._values(argument, list(map(attrgetter(argument.field), args)))
                if values is not None:
                    columns[argument.field] = values
        self._put(shape, columns)

    def add_scanned(self, block: Scanned) -> None:
        """Append the rows of one block that was scanned; its numbers of texts are its own."""
        names = _int32([*map(self.names.__getitem__, block.names), -1])
        texts = _int32([*map(self._texts.__getitem__, block.texts), -1])
        tracks = _int32([*map(self._tracks.__getitem__, block.tracks), -1])
        own = dict.fromkeys(("name", *WORDS), names)
        own |= {"dims": texts, "dims_2022": texts, "types": texts, "track": tracks}
        for shape, columns in block.rows.items():
            mine = {
                key: own[key][values] if key in own else values for key, values in columns.items()
            }
            self._put(shape, mine)

    def _put(self, shape: Shape, columns: Columns) -> None:
        """Append rows; a column that none of them has may be missing."""
        for key, old in _OLD_SPELLINGS:
            if old in columns:
                values = columns.pop(old)
                new = columns.get(key, values)
                columns[key] = np.where(new == -1, values, new)
        if "stream" in columns:
            stream = columns["stream"]
            columns["stream"] = np.where(stream == _UNSIGNED_MINUS_ONE, -1, stream)
        for key, values in columns.items():
            store = self._stores.get((shape, key))
            if store is None:
                store = self._stores[shape, key] = Store(DTYPES[key])
            store.put(self._rows[shape], values)
        self._rows[shape] += len(columns["start"])

    def _track_numbers(self, events: list[Any], is_device: bool) -> list[int]:
        pids = {e.pid for e in events}
        if len(pids) == 1:
            threads = self._process(pids.pop(), is_device)
            return [threads[e.tid] for e in events]
        of = {pid: self._process(pid, is_device) for pid in pids}
        return [of[e.pid][e.tid] for e in events]

    def _process(self, pid: int | str, is_device: bool) -> _Threads:
        if (pid, is_device) not in self._threads:
            self._threads[pid, is_device] = _Threads(self._tracks, pid, is_device)
        return self._threads[pid, is_device]

    def _values(self, argument: Argument, values: list[Any]) -> npt.NDArray[Any] | None:
        """One argument of some rows as numbers; None where no row has it."""
        if argument.kind is Kind.INTEGER:
            return None if values.count(-1) == len(values) else integers(values)
        if argument.kind is Kind.VOLUME:
            return None if values.count(None) == len(values) else _volumes(values)
        if argument.kind is Kind.WORD:
            names = self.names
            if values.count(None) == len(values):
                return None
            return _int32([-1 if v is None else names[str(v)] for v in values])
        texts = self._texts
        raws = list(map(bytes, values))  # empty where there is none
        return _int32([texts[raw] if raw else -1 for raw in raws]) if any(raws) else None

    def times(self) -> Columns:
        """Start, duration and category of every row: shape by shape, as in the file."""
        columns: Columns = {}
        for key in ("start", "dur", "cat"):
            column = columns[key] = np.empty(sum(self._rows.values()), DTYPES[key])
            for first, values in self._drain(key):
                column[first : first + len(values)] = values
        return columns

    def _drain(self, key: str) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        at = 0
        for shape, rows in self._rows.items():
            store = self._stores.pop((shape, key), None)
            for first, values in store.drain() if store is not None else ():
                yield at + first, values
            at += rows

    def finish(self, order: Int64) -> tuple[Columns, tuple[str, ...], tuple[Track, ...]]:
        """The other columns, their rows those of ``times`` in this order; names; tracks.

        Names and tracks are numbered in the order in which the rows first use them.
        """
        place = np.full(sum(self._rows.values()), -1, np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        keys = [key for key in DTYPES if key not in ("start", "dur", "cat")]
        columns = by_two(lambda key: self._placed(key, place, len(order)), keys)
        if self._texts:
            texts = _int32([self.names[_plain(raw)] for raw in self._texts] + [-1])
            columns["dims"], columns["types"] = texts[columns["dims"]], texts[columns["types"]]
        names = _renumber(columns, ("name", *WORDS, "dims", "types"), self.names)
        tracks = _renumber(columns, ("track",), self._tracks)
        return columns, tuple(names), _tracks(tracks, columns)

    def _placed(self, key: str, place: Int32, total: int) -> npt.NDArray[Any]:
        """One column, scattered to its final order; without values it costs no memory."""
        if not any((shape, key) in self._stores for shape in Shape):
            return np.broadcast_to(np.array(-1, DTYPES[key]), (total,))
        column = np.full(total, -1, DTYPES[key])
        for first, values in self._drain(key):
            target = place[first : first + len(values)]
            if target.min() < 0:
                values, target = values[target >= 0], target[target >= 0]
            column[target] = values
        return column


def by_two(function: Callable[[str], npt.NDArray[Any]], keys: list[str]) -> Columns:
    """{key: function(key)}, by two threads: numpy releases the interpreter lock."""
    found: Columns = {}
    pending = iter(keys)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for key in pending:
                found[key] = function(key)
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    helper = Thread(target=work)
    helper.start()
    work()
    helper.join()
    for error in errors:
        raise error
    return found


def _renumber(columns: Columns, keys: tuple[str, ...], values: Interner) -> list[Any]:
    """Number what these columns index anew, by first use; returns it in that order."""
    new = np.full(len(values) + 1, -1, np.int32)
    used = 0
    for key in keys:
        column = columns[key]
        if not column.strides[0]:
            continue
        first = np.full(len(new), len(column), np.int32)
        first[column[::-1]] = np.arange(len(column) - 1, -1, -1, dtype=np.int32)
        first[-1] = len(column)
        first[new >= 0] = len(column)
        fresh = np.flatnonzero(first < len(column))
        new[fresh[np.argsort(first[fresh])]] = np.arange(used, used + len(fresh))
        used += len(fresh)
        columns[key] = new[column]
    rank = new.tolist()
    ordered: list[Any] = [None] * used
    for value, number in values.items():
        if rank[number] >= 0:
            ordered[rank[number]] = value
    return ordered


def _tracks(keys: list[tuple[str, str, bool]], columns: Columns) -> tuple[Track, ...]:
    """Tracks with their device and stream: the rows' own, else what pid and tid say."""
    rows = np.flatnonzero(columns["device"] >= 0)
    last = np.full(len(keys), -1)
    last[columns["track"][rows]] = rows
    tracks = [
        Track(pid, tid, is_device)
        if not is_device
        else Track(pid, tid, True, number(pid), number(tid))
        if row < 0
        else Track(pid, tid, True, *(int(columns[key][row]) for key in ("device", "stream")))
        for row, (pid, tid, is_device) in zip(last.tolist(), keys, strict=True)
    ]
    on_device = np.array([t.is_device for t in tracks], np.bool_)[columns["track"]]
    for key in ("device", "stream"):
        rows = np.flatnonzero(on_device & (columns[key] < 0))
        if len(rows):
            of_track = np.array([getattr(t, key) for t in tracks], DTYPES[key])
            columns[key] = columns[key].copy()
            columns[key][rows] = of_track[columns["track"][rows]]
    return tuple(tracks)


def number(text: str) -> int:
    """7 from "7" and from 2022's "stream 7"; -1 from anything else."""
    last = text.split()[-1] if text.split() else ""
    return int(last) if last.isascii() and last.isdigit() and len(last) < 9 else -1


def _plain(raw: bytes) -> str:
    """The JSON on one line, whatever the file's layout."""
    try:
        return json.dumps(json.loads(raw))
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")


def _int32(values: list[int]) -> npt.NDArray[np.int32]:
    return np.fromiter(values, np.int32, len(values))


def integers(values: list[Any]) -> Int64:
    """Ids as int64; -1 for what is none."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter([integer(v) for v in values], np.int64, len(values))


def integer(value: Any) -> int:
    """One id; -1 for what is none, or does not fit."""
    try:
        number = int(value if not isinstance(value, str) or value.isdigit() else float(value))
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if abs(number) <= _INT64 else -1


def _volumes(sizes: list[Any]) -> Int64:
    """Products of grid or block sizes."""
    try:
        return integers([x * y * z for x, y, z in sizes])
    except (TypeError, ValueError):
        return integers([-1 if size is None else prod(size) for size in sizes])
