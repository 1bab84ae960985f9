"""The JSON document behind a trace: its events as the file has them, and which row is which.

Values that no edit touches stay what they are, times included.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np

from dataset.inject.edits import Unfit
from detector.kineto.categories import CATEGORIES, DEVICE_CATS
from detector.kineto.decode import to_ns
from detector.kineto.stream import GZIP
from detector.trace import DEVICE_WORK, NS_PER_US, Bool, Cat, Int64, Trace

Event = dict[str, Any]
Style = Literal["whole", "float", "exact"]

FLOWS: Final = ("ac2g", "async", "async_cpu_to_gpu")  # from a call to what it issued
_EXACT_US: Final = float(1 << 43)  # beyond it a float is coarser than a nanosecond


@dataclass(frozen=True)
class Clock:
    """How the file writes times: whole µs, floats, or exact decimals of absolute times."""

    style: Style

    def at(self, ns: int) -> Any:
        """A ``ts``."""
        if self.style == "whole":
            return ns // NS_PER_US
        return ns / NS_PER_US if self.style == "float" else Decimal(ns).scaleb(-3)

    def span(self, start: int, end: int) -> tuple[Any, Any]:
        """``ts`` and ``dur``: order and nesting hold whatever the resolution."""
        if self.style == "whole":
            first = start // NS_PER_US
            return first, end // NS_PER_US - first
        return self.at(start), self.at(end - start)

    def rounded(self, ns: Int64) -> Int64:
        """Times as a reader of the file will see them, ns."""
        return ns // NS_PER_US * NS_PER_US if self.style == "whole" else ns


class Raw:
    """One parsed document. ``event[row]`` is the place of a row's event in ``events``."""

    def __init__(self, document: dict[str, Any], trace: Trace, clock: Clock) -> None:
        self.document, self.clock = document, clock
        self.events: list[Event] = document["traceEvents"]
        self._trace = trace
        self.tracks = {(t.pid, t.tid, t.is_device): i for i, t in enumerate(trace.tracks)}
        self.start = _times([e.get("ts", 0) for e in self.events])
        self.dur = _times([e.get("dur", 0) for e in self.events])
        self.event = self._match()

    @classmethod
    def open(cls, path: Path, trace: Trace) -> Raw:
        """Parse the file of a trace that `kineto.read` has read. Raises Unfit where the two do not
        agree: a file that needs repair."""
        data = path.read_bytes()
        text = gzip.decompress(data) if data[:2] == GZIP else data
        try:
            document = msgspec.json.decode(text)
            clock = _clock(document["traceEvents"])
            if clock.style == "exact":
                document = msgspec.json.Decoder(float_hook=Decimal).decode(text)
            return cls(document, trace, clock)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise Unfit(f"{path}: a file that needs repair: {error}") from error

    @cached_property
    def others(self) -> Int64:
        """Places of the events that are no rows and have a time: flows, instants, spans."""
        moves = [e.get("ph") != "M" and "ts" in e for e in self.events]
        return np.flatnonzero((self.row < 0) & np.array(moves, np.bool_))

    @cached_property
    def other_tracks(self) -> Int64:
        """The track of each of ``others``."""
        return np.array([self.track(self.events[i]) for i in self.others.tolist()], np.int64)

    @cached_property
    def row(self) -> Int64:
        """For each event its row; -1 for flows, instants and the like."""
        rows = np.full(len(self.events), -1, np.int64)
        rows[self.event] = np.arange(len(self.event))
        return rows

    def track(self, event: Event) -> int:
        """The track that an event lies on; -1 where no row does."""
        place = str(event.get("pid", "")), str(event.get("tid", ""))
        on_device = CATEGORIES.get(event.get("cat", "")) in DEVICE_CATS
        for side in (on_device, not on_device):
            number = self.tracks.get((*place, side), -1)
            if number >= 0:
                return number
        return -1

    # -- ids -----------------------------------------------------------------------------------
    def numbers(self, key: str) -> Int64:
        """One arg of every row; -1 where it has none."""
        if key not in self._numbers:
            args = [self.events[i].get("args") or {} for i in self.event.tolist()]
            values = [a.get(key) for a in args]
            self._numbers[key] = np.array([v if type(v) is int else -1 for v in values], np.int64)
        return self._numbers[key]

    @cached_property
    def _numbers(self) -> dict[str, Int64]:
        return {}

    @cached_property
    def always_repeats(self) -> bool:
        """Up to 2023 the External id of calls and device work repeated the correlation."""
        external, same = self._externals
        return bool(2 * same.sum() > external.sum())

    @cached_property
    def unlinked_repeats(self) -> bool:
        """Whether calls outside every op repeat it; else they carry no External id."""
        external, same = self._externals
        return bool(same.sum() > (~external).sum())

    @cached_property
    def _externals(self) -> tuple[Bool, Bool]:
        """Of calls and device work: which have an External id; which repeat the correlation."""
        rows = self._trace.rows(Cat.RUNTIME, Cat.DRIVER, *DEVICE_WORK)
        external = self._trace.external_id[rows]
        return external >= 0, (external == self._trace.correlation[rows]) & (external >= 0)

    # -- flows ---------------------------------------------------------------------------------
    @cached_property
    def flow_rows(self) -> tuple[Int64, Int64]:
        """Places of the launch flows that sit on a row, and these rows."""
        t = self._trace
        linked = np.flatnonzero(t.correlation >= 0)
        keys = zip(t.correlation[linked].tolist(), t.start[linked].tolist(), strict=True)
        at = dict(zip(keys, linked.tolist(), strict=True))
        start = self.start.tolist()
        found = [
            (i, at[self.events[i].get("id"), start[i]])
            for i in self.others.tolist()
            if self.events[i].get("cat") in FLOWS and (self.events[i].get("id"), start[i]) in at
        ]
        pairs = np.array(found, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    @cached_property
    def flow_of(self) -> dict[int, int]:
        """Row -> the place of its launch flow."""
        events, rows = self.flow_rows
        return dict(zip(rows.tolist(), events.tolist(), strict=True))

    @cached_property
    def flows_follow(self) -> bool:
        """Whether a flow stands right behind its slice, as Kineto writes them."""
        events, rows = self.flow_rows
        return bool(len(rows) and 2 * (events == self.event[rows] + 1).sum() > len(rows))

    def flow_like(self, rows: Int64) -> Event | None:
        """The launch flow of one of these rows; None where most have none."""
        flows = [self.flow_of[row] for row in rows.tolist() if row in self.flow_of]
        return self.events[flows[0]] if 2 * len(flows) > len(rows) else None

    # -- rows ----------------------------------------------------------------------------------
    def _match(self) -> Int64:
        """Rows and events of equal start, duration, name and place belong together."""
        waiting: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        start, dur = self.start.tolist(), self.dur.tolist()
        for i, e in enumerate(self.events):
            if e.get("ph") == "X":
                place = str(e.get("pid", "")), str(e.get("tid", ""))
                waiting[(start[i], dur[i], e.get("name", ""), *place)].append(i)
        for members in waiting.values():
            members.reverse()
        t, found = self._trace, np.full(len(self._trace), -1, np.int64)
        columns = zip(
            t.start.tolist(), t.dur.tolist(), t.name.tolist(), t.track.tolist(), strict=True
        )
        for row, (at, lasting, name, track) in enumerate(columns):
            place = t.tracks[track].pid, t.tracks[track].tid
            members = waiting.get((at, lasting, t.names[name], *place), [])
            if not members:
                raise Unfit(f"{t.source.path}: {t.names[name]!r} at {at} ns needs repair")
            found[row] = members.pop()
        return found


def _clock(events: list[Event]) -> Clock:
    times = [e["ts"] for e in events if e.get("ph") == "X"]
    if not times or any(type(t) is str for t in times):
        raise TypeError("times that are no numbers")
    if all(type(t) is int for t in times):
        return Clock("whole")
    return Clock("exact" if max(map(abs, times)) > _EXACT_US else "float")


def _times(values: list[Any]) -> Int64:
    """ns of numbers of µs: ints, floats and decimals."""
    if any(type(v) is Decimal for v in values):
        return np.array(
            [int((Decimal(v) * NS_PER_US).to_integral_value()) for v in values], np.int64
        )
    if all(type(v) is int for v in values):
        return np.array(values, np.int64) * NS_PER_US
    return to_ns(np.array(values, np.float64))


def encode(document: dict[str, Any]) -> bytes:
    """The document as JSON; exact decimals are numbers there."""
    return msgspec.json.Encoder(decimal_format="number").encode(document)
