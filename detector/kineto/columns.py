"""Groups of typed events -> columns; names, threads and shapes are interned on the way."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Iterator
from math import prod
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from detector.kineto.categories import DEVICE_CATS
from detector.kineto.decode import Group
from detector.kineto.events import NO_TEXT, SHAPES, Shape
from detector.kineto.store import ROWS, Store
from detector.trace import Cat, Int32, Int64, Track

Columns = dict[str, npt.NDArray[Any]]

DTYPES: dict[str, Any] = {
    "start": np.int64,
    "dur": np.int64,
    "cat": np.int8,
    "name": np.int32,
    "track": np.int32,
    "correlation": np.int64,
    "external_id": np.int64,
    "device": np.int32,
    "stream": np.int64,
    "bytes": np.int64,
    "blocks": np.int64,
    "threads": np.int64,
    "collective": np.int32,
    "group": np.int32,
    "msg_elems": np.int64,
    "dims": np.int32,
    "types": np.int32,
    "sequence": np.int64,
}
_INT64 = (1 << 63) - 1
_UNSIGNED_MINUS_ONE = 0xFFFFFFFF  # Kineto writes stream -1 as uint32


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
    """Collects groups; ``finish`` gives whole columns."""

    def __init__(self) -> None:
        self.names = Interner()
        self._texts = Interner()  # JSON of shapes and types, as bytes
        self._tracks = Interner()
        self._threads: dict[tuple[int | str, bool], _Threads] = {}
        self._stores: dict[tuple[Cat, str], Store] = {}
        self._rows: dict[Cat, int] = defaultdict(int)

    def add(self, group: Group) -> None:
        """Append the rows of one category of one block."""
        events, cat = group.events, group.cat
        names = self.names
        self._put(cat, "start", group.start)
        self._put(cat, "dur", group.dur)
        self._put(cat, "name", _int32([names[e.name] for e in events]))
        self._put(cat, "track", _int32(self._track_numbers(events, cat in DEVICE_CATS)))
        shape = SHAPES.get(cat, Shape.DEVICE)
        if shape is not Shape.FRAME:
            for key, values in self._arguments(shape, [e.args for e in events]):
                self._put(cat, key, values)
        self._rows[cat] += len(events)

    def _put(self, cat: Cat, key: str, values: npt.NDArray[Any], first: int | None = None) -> None:
        store = self._stores.get((cat, key))
        if store is None:
            store = self._stores[cat, key] = Store(DTYPES[key])
        store.put(self._rows[cat] if first is None else first, values)

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

    def _arguments(self, shape: Shape, args: list[Any]) -> list[tuple[str, Any]]:
        """The columns that this shape has and these rows use."""
        columns: list[tuple[str, Int64 | None]] = []
        ids = [a.external_id for a in args]
        if shape is not Shape.OP:
            if -1 in ids:
                ids = [a.external_id_2021 if i == -1 else i for i, a in zip(ids, args, strict=True)]
            columns.append(("correlation", integers([a.correlation for a in args])))
            columns.append(("bytes", _present([a.bytes for a in args])))
        columns.append(("external_id", integers(ids)))
        if shape is Shape.OP:
            columns.append(("sequence", _present([a.sequence for a in args])))
            columns += self._shapes(args)
        if shape is Shape.DEVICE:
            columns.append(("device", integers([a.device for a in args])))
            stream = integers([a.stream for a in args])
            columns.append(("stream", np.where(stream == _UNSIGNED_MINUS_ONE, -1, stream)))
            columns.append(("blocks", _volumes([a.grid for a in args])))
            columns.append(("threads", _volumes([a.block for a in args])))
        if shape is not Shape.CALL:
            columns.append(("collective", self._words([a.collective for a in args])))
            columns.append(("group", self._words([a.group for a in args])))
            columns.append(("msg_elems", _present([a.msg_elems for a in args])))
        return [(key, values) for key, values in columns if values is not None]

    def _shapes(self, args: list[Any]) -> list[tuple[str, Any]]:
        dims = [a.dims for a in args]
        if dims.count(NO_TEXT) == len(dims):
            dims = [a.dims_2022 for a in args]
        return [("dims", self._json(dims)), ("types", self._json([a.types for a in args]))]

    def _json(self, raws: list[Any]) -> Int64 | None:
        if raws.count(NO_TEXT) == len(raws):
            return None
        texts = self._texts
        return np.array([texts[bytes(r)] if r is not NO_TEXT else -1 for r in raws])

    def _words(self, words: list[Any]) -> Int64 | None:
        if words.count(None) == len(words):
            return None
        names = self.names
        return np.array([-1 if w is None else names[str(w)] for w in words])

    def send(self, out: BinaryIO) -> None:
        """Write all rows for another builder to ``extend`` itself by."""
        words = list(self.names), list(self._texts), list(self._tracks)
        sizes = {key: len(store) for key, store in self._stores.items()}
        pickle.dump((*words, dict(self._rows), sizes), out)
        for store in self._stores.values():
            for _, values in store.drain():
                out.write(values.data)

    def extend(self, sent: Any, rows: IO[bytes]) -> None:
        """Append the rows of another builder; ``sent`` is what it pickled, ``rows`` go on there.

        Raises EOFError where they break off.
        """
        names, texts, tracks, counts, sizes = sent
        name = _int32([self.names[word] for word in names] + [-1])
        text = _int32([self._texts[word] for word in texts] + [-1])
        track = _int32([self._tracks[key] for key in tracks] + [-1])
        renumber = dict.fromkeys(("name", "collective", "group"), name)
        renumber |= {"dims": text, "types": text, "track": track}
        for (cat, key), size in sizes.items():
            self._receive(cat, key, size, rows, renumber.get(key))
        for cat, count in counts.items():
            self._rows[cat] += count

    def _receive(
        self, cat: Cat, key: str, size: int, rows: IO[bytes], renumber: Int32 | None
    ) -> None:
        first = self._rows[cat]
        for at in range(0, size, ROWS):
            values = np.empty(min(ROWS, size - at), DTYPES[key])
            if rows.readinto(values.data.cast("B")) < values.nbytes:  # type: ignore[attr-defined]
                raise EOFError
            self._put(cat, key, values if renumber is None else renumber[values], first + at)

    def times(self) -> Columns:
        """Start, duration and category of every row: category by category, as in the file."""
        counts = list(self._rows.values())
        columns = {"cat": np.repeat(np.array(list(self._rows), np.int8), counts)}
        for key in ("start", "dur"):
            column = columns[key] = np.empty(sum(counts), DTYPES[key])
            for first, values in self._drain(key):
                column[first : first + len(values)] = values
        return columns

    def _drain(self, key: str) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        at = 0
        for cat, rows in self._rows.items():
            store = self._stores.pop((cat, key), None)
            for first, values in store.drain() if store is not None else ():
                yield at + first, values
            at += rows

    def finish(self, order: Int64) -> tuple[Columns, tuple[str, ...], tuple[Track, ...]]:
        """The other columns, their rows those of ``times`` in this order; names; tracks."""
        place = np.full(sum(self._rows.values()), -1, np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        columns = {
            key: self._placed(key, place, len(order))
            for key in DTYPES
            if key not in ("start", "dur", "cat")
        }
        if self._texts:
            texts = _int32([self.names[_plain(raw)] for raw in self._texts] + [-1])
            columns["dims"], columns["types"] = texts[columns["dims"]], texts[columns["types"]]
        return columns, tuple(self.names), _tracks(list(self._tracks), columns)

    def _placed(self, key: str, place: Int32, total: int) -> npt.NDArray[Any]:
        """One column, scattered to its final order; without values it costs no memory."""
        if not any((cat, key) in self._stores for cat in self._rows):
            return np.broadcast_to(np.array(-1, DTYPES[key]), (total,))
        column = np.full(total, -1, DTYPES[key])
        for first, values in self._drain(key):
            target = place[first : first + len(values)]
            if target.min() < 0:
                values, target = values[target >= 0], target[target >= 0]
            column[target] = values
        return column


def _tracks(keys: list[tuple[str, str, bool]], columns: Columns) -> tuple[Track, ...]:
    """Tracks with their device and stream: the rows' own, else what pid and tid say."""
    rows = np.flatnonzero(columns["device"] >= 0)
    track = columns["track"][rows]
    devices = dict(zip(track.tolist(), columns["device"][rows].tolist(), strict=True))
    streams = dict(zip(track.tolist(), columns["stream"][rows].tolist(), strict=True))
    tracks = [
        Track(pid, tid, True, devices.get(i, number(pid)), streams.get(i, number(tid)))
        if is_device
        else Track(pid, tid, False)
        for i, (pid, tid, is_device) in enumerate(keys)
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


def _present(values: list[Any]) -> Int64 | None:
    return None if values.count(-1) == len(values) else integers(values)


def _volumes(sizes: list[Any]) -> Int64 | None:
    """Products of grid or block sizes; None where no row has one."""
    if sizes.count(None) == len(sizes):
        return None
    try:
        return integers([x * y * z for x, y, z in sizes])
    except (TypeError, ValueError):
        return integers([-1 if size is None else prod(size) for size in sizes])
