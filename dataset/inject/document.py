"""A replayed base as a new document: moved, removed, altered and fresh events.

Layout and key order stay. What is no row moves with what it belongs to: flows sit on their slices,
instants and counters move along their thread's time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from dataset.inject.axis import Axis, axes
from dataset.inject.base import Base
from dataset.inject.ids import Ids
from dataset.inject.outcome import CATS, EVERYWHERE, Fresh, Outcome
from dataset.inject.raw import FLOWS, Event
from dataset.inject.spelling import Speller
from detector.trace import DEVICE_WORK, Bool, Cat, Int64

_CALLS: Final = (Cat.RUNTIME, Cat.DRIVER)
_KINDS: Final = (
    (Cat.CPU_OP, Cat.USER_ANNOTATION),
    (Cat.PYTHON_FUNCTION,),
    _CALLS,
    DEVICE_WORK,
    (Cat.OVERHEAD,),
)  # what stands together in a file
_ISSUED: Final = ("kernel", "gpu_memcpy", "gpu_memset")


def write(base: Base, outcome: Outcome) -> dict[str, Any]:
    """The new document; the base's own is not changed."""
    return _Writer(base, outcome).document()


class _Writer:
    def __init__(self, base: Base, outcome: Outcome) -> None:
        self.base, self.raw, self.trace = base, base.raw, base.trace
        self.o, self.clock = outcome, base.raw.clock
        self.fresh = [placed.event for placed in outcome.fresh]
        self.speller = Speller(base, base.raw)
        self.ids = Ids(base, outcome, self._before)

    def document(self) -> dict[str, Any]:
        """Header and tail as they were, the events anew."""
        return {**self.raw.document, "traceEvents": self._events()}

    def _events(self) -> list[Event]:
        out: list[tuple[int, int, int, Event]] = []
        drop = self._dropped()
        ts, te = self._event_times()
        times = zip(ts.tolist(), te.tolist(), strict=True)
        old = zip(self.raw.start.tolist(), self.raw.dur.tolist(), strict=True)
        rows = self.raw.row.tolist()
        for i, ((start, end), (was, lasted)) in enumerate(zip(times, old, strict=True)):
            if drop[i]:
                continue
            event = self.ids.renumbered(self.raw.events[i], rows[i])
            if rows[i] in self.o.altered:
                event = self._altered(event, rows[i])
            if start != was or end - start != lasted:
                event = self._timed(event, start, end)
            if "external ts" in event.get("args", ()):
                event = self._external(event, i)
            out.append((i, 0, 0, event))
        if self.fresh:
            out += self._fresh_events()
            out.sort(key=lambda item: item[:3])
        return [event for *_, event in out]

    def _timed(self, event: Event, start: int, end: int) -> Event:
        event = dict(event)
        if "dur" in event:
            event["ts"], event["dur"] = self.clock.span(start, end)
        else:
            event["ts"] = self.clock.at(start)
        return event

    def _external(self, event: Event, i: int) -> Event:
        """2021: the time of the op that a call belongs to."""
        at = np.array([event["args"]["external ts"] * 1_000], np.int64)
        track = self.raw.track(self.raw.events[i])
        moved = int(self._axes[track].at(at)[0]) if track >= 0 else int(at[0])
        return {**event, "args": {**event["args"], "external ts": self.clock.at(moved)}}

    # -- what goes -----------------------------------------------------------------------------
    def _dropped(self) -> Bool:
        """Events of removed rows; their flows; instants inside them."""
        drop = np.zeros(len(self.raw.events), np.bool_)
        gone = np.flatnonzero(~self.o.keep)
        drop[self.raw.event[gone]] = True
        if not len(gone):
            return drop
        lost = np.setdiff1d(self.trace.correlation[gone], self.trace.correlation[self.o.keep])
        calls, starts = set(lost[lost >= 0].tolist()), self._starts(gone)
        pairs = set()
        for i in self.raw.others.tolist():
            event = self.raw.events[i]
            if event.get("cat") in FLOWS:
                drop[i] = event.get("id") in calls
            elif event.get("cat") == "fwdbwd":
                if (self.raw.track(event), int(self.raw.start[i])) in starts:
                    pairs.add(event["id"])
            elif event.get("ph") == "i" and "Bytes" in event.get("args", ()):
                drop[i] = self._inside(gone, self.raw.track(event), int(self.raw.start[i]))
        for i in self.raw.others.tolist():
            if self.raw.events[i].get("cat") == "fwdbwd":
                drop[i] = self.raw.events[i]["id"] in pairs
        return drop

    def _starts(self, rows: Int64) -> set[tuple[int, int]]:
        """(track, start) at which removed rows begin and no other does."""
        t = self.trace
        kept = np.flatnonzero(self.o.keep)
        mine = set(zip(t.track[rows].tolist(), t.start[rows].tolist(), strict=True))
        return mine - set(zip(t.track[kept].tolist(), t.start[kept].tolist(), strict=True))

    def _inside(self, rows: Int64, track: int, at: int) -> bool:
        mine = rows[self.trace.track[rows] == track]
        return bool(((self.trace.start[mine] <= at) & (at < self.trace.end[mine])).any())

    # -- when ----------------------------------------------------------------------------------
    @cached_property
    def _axes(self) -> list[Axis]:
        t = self.trace
        old, new = (t.start, t.end), (self.o.start, self.o.end)
        return axes(t.track, len(t.tracks), self.o.keep, old, new)

    def _event_times(self) -> tuple[Int64, Int64]:
        """New start and end of every event of the base."""
        start, end = self.raw.start.copy(), self.raw.start + self.raw.dur
        start[self.raw.event], end[self.raw.event] = self.o.start, self.o.end
        others, track = self.raw.others, self.raw.other_tracks
        for number in np.unique(track).tolist():
            mine = others[track == number]
            axis = self._axes[number if number >= 0 else self.base.main]
            start[mine], end[mine] = axis.at(start[mine]), axis.at(end[mine])
        self._flow_times(start, end)
        return start, end

    def _flow_times(self, start: Int64, end: Int64) -> None:
        """A launch flow begins where its call begins, and ends where its work begins."""
        events, rows = self.raw.flow_rows
        moved = self.o.start[rows]
        start[events], end[events] = moved, moved

    # -- fresh events --------------------------------------------------------------------------
    def _fresh_events(self) -> list[tuple[int, int, int, Event]]:
        out: list[tuple[int, int, int, Event]] = []
        for k, placed in enumerate(self.o.fresh):
            fresh = placed.event
            before = self._before(fresh, (CATS[fresh.cat],))
            event, model = self.speller.event(fresh, before)
            event["ts"], event["dur"] = self.clock.span(fresh.start, fresh.end)
            self.ids.give(event, k)
            place = self._place(fresh, model)
            out.append((place, 1 + k, 0, event))
            flow = self._flow(fresh, k, event)
            if flow is not None:
                behind = self.raw.flow_of.get(before, place)
                out.append((place if self.raw.flows_follow else behind, 1 + k, 1, flow))
        return out

    def _before(self, fresh: Fresh, cats: Sequence[Cat], track: int | None = None) -> int:
        """The last kept row of these categories that starts no later on its track (or on
        ``track``); -1."""
        number = fresh.track if track is None else track
        key = tuple(cats), number
        if key not in self._by_start:
            rows = np.flatnonzero(self.o.keep & np.isin(self.trace.cat, cats))
            if number != EVERYWHERE:
                rows = rows[self.trace.track[rows] == number]
            rows = rows[np.argsort(self.o.start[rows], kind="stable")]
            self._by_start[key] = self.o.start[rows], rows
        starts, rows = self._by_start[key]
        at = int(np.searchsorted(starts, fresh.start, side="right")) - 1
        return int(rows[at]) if at >= 0 else -1

    @cached_property
    def _by_start(self) -> dict[tuple[tuple[Cat, ...], int], tuple[Int64, Int64]]:
        return {}

    def _place(self, fresh: Fresh, model: int) -> int:
        """Index of the event after which a fresh one stands in the file: of its kind, by time."""
        kind = next(kind for kind in _KINDS if CATS[fresh.cat] in kind)
        row = self._before(fresh, kind)
        if row < 0:
            row = model
        if row < 0:
            return len(self.raw.events) - 1
        i = int(self.raw.event[row])
        follows = i + 1 < len(self.raw.events) and self.raw.events[i + 1].get("cat") in FLOWS
        return i + 1 if follows else i

    def _flow(self, fresh: Fresh, k: int, event: Event) -> Event | None:
        """The launch flow of a fresh call or device work, where such slices have one."""
        if fresh.cat != "cuda_runtime" and fresh.cat not in _ISSUED:
            return None
        key = fresh.cat if fresh.cat in _ISSUED else fresh.name, fresh.issued is not None
        if key not in self._flow_models:
            self._flow_models[key] = self.raw.flow_like(self._peers(fresh))
        model = self._flow_models[key]
        if model is None:
            return None
        flow = {**model, "id": self.ids.correlation_of(k), "pid": event["pid"], "ts": event["ts"]}
        flow["tid"] = type(model["tid"])(event["tid"])  # 2021: text in slices, numbers in flows
        return flow

    @cached_property
    def _flow_models(self) -> dict[tuple[str, bool], Event | None]:
        return {}

    def _peers(self, fresh: Fresh) -> Int64:
        """Rows of the base that play the same part: calls of that name, else of that kind."""
        rows = self.base.activity.of(*_CALLS)
        if fresh.cat in _ISSUED:
            return np.flatnonzero(self.trace.is_device_work)
        named = self.base.activity.named(rows, re.compile(f"^{re.escape(fresh.name)}$"), *_CALLS)
        if len(named):
            return named
        issues = np.isin(rows, self.trace.launch[self.trace.is_device_work])
        waits = np.isin(rows, self.base.activity.calls("sync"))
        if fresh.issued is not None:
            return rows[issues]
        if "Synchronize" in fresh.name and waits.any():
            return rows[waits & ~issues]
        return rows[~issues & ~waits]

    # -- altered -------------------------------------------------------------------------------
    def _altered(self, event: Event, row: int) -> Event:
        alter = self.o.altered[row]
        event = dict(event)
        cat = next((word for word, c in CATS.items() if c == self.trace.cat[row]), "")
        fresh = Fresh(
            cat,
            alter.name or event["name"],
            int(self.trace.track[row]),
            int(self.o.start[row]),
            int(self.o.end[row]),
            alter.args,
        )
        event["name"] = fresh.name
        if cat and "args" in event:
            event["args"] = self.speller.altered(fresh, event["args"])
        return event
