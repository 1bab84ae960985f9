"""What the host does, by cause: over any stretches of time, on the thread that is responsible."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from detector import vocabulary
from detector.index_sets import among, distinct
from detector.intervals import Intervals
from detector.ledger.causes import CODE
from detector.ledger.pieces import NONE, Pieces, merged
from detector.signals import Signals
from detector.signals.frames import LIBRARY, OWN, climb
from detector.trace import Bool, Cat, Int8, Int32, Int64

MOST_THREADS: Final = 4  # that are asked what they do while another waits
BETWEEN_NS: Final = 1_000_000  # so long the interpreter may take from op to op; more is unexplained

# Cause -> signal, first that holds: whatever is open around an instant, not only the innermost.
_AROUND: Final = (
    ("loader", "loader"),
    ("compilation", "compilation"),
    ("collection", "collection"),
)
_WAITS: Final = {
    "scalar-readback-wait": "sync-scalar",
    "dynamic-shape-wait": "sync-shape",
    "tensor-readback-wait": "sync-tensor",
    "input-copy-wait": "sync-copy",
    "explicit-wait": "sync-explicit",
    "unrecorded-wait": "unrecorded-wait",
}
_RESTARTS: Final = tuple(CODE[c] for c in ("call", "dispatch", "framework", "between"))


class Host:
    """Says what the host does. Built once for a trace."""

    def __init__(self, signals: Signals) -> None:
        self.s = signals
        self.trace = signals.trace
        self._around = self._marked_around()
        self._call = self._calls()
        self._annotation_owner = self._annotations()
        self._is_note = np.zeros(len(self.trace) + 1, np.bool_)  # the last place takes "none"
        self._is_note[self._annotating_ops()] = True
        frames = signals.activity.of(Cat.PYTHON_FUNCTION)
        self._engine_calls = signals.activity.named(
            frames, vocabulary.WAITS_FOR_BACKWARD, Cat.PYTHON_FUNCTION
        )

    def pieces(self, start: Int64, end: Int64, thread: Int64) -> Pieces:
        """The causes of these ascending, disjoint stretches; each by its thread (-1: the main).

        Where that thread only waits for another one, that one says: the main thread, which hands
        the work over, then whoever else launches or computes.
        """
        thread = np.where(thread < 0, self.s.main_thread, thread)
        parts = []
        for track in distinct(thread).tolist():
            mine = thread == track
            parts.append(self._on_thread(start[mine], end[mine], int(track)))
        return merged(parts) if parts else NONE

    def _on_thread(self, start: Int64, end: Int64, track: int) -> Pieces:
        left, done = self._classified(start, end, track), []
        for other in self._others:
            waits = self._waits(left)
            if other == track or not waits.any():
                continue
            instead = self._classified(left.start[waits], left.end[waits], other)
            known = ~self._waits(instead)
            done += [left.where(~waits), instead.where(known)]
            left = left.where(waits).within(instead.where(~known).spans)
        return merged([*done, left])

    @cached_property
    def _others(self) -> tuple[int, ...]:
        """Threads to ask where one waits: the main thread first, then those with most ops."""
        a, trace = self.s.activity, self.trace
        rows = np.concatenate([a.aten, a.launches])
        busy = np.bincount(trace.track[rows], trace.dur[rows], len(trace.tracks))
        order = [int(i) for i in np.argsort(-busy, kind="stable")[:MOST_THREADS] if busy[i]]
        main = [self.s.main_thread] if self.s.main_thread >= 0 else []
        return tuple(dict.fromkeys(main + order))

    def _waits(self, pieces: Pieces) -> Bool:
        """Where the main thread only waits for another: in no event, in the call of the backward
        engine, or, where no frame tells more, in an annotation."""
        trace, row = self.trace, pieces.row
        silent = np.isin(pieces.cause, (CODE["nothing"], CODE["between"]))
        silent |= (row >= 0) & (trace.cat[row] == Cat.USER_ANNOTATION)
        found: Bool = silent | among(row, self._engine_calls)
        return found

    def _classified(self, start: Int64, end: Int64, track: int) -> Pieces:
        line = self.s.timeline(track)
        lo, hi, of, segment = line.during(start, end)
        row = line.row[segment]
        cause = self._innermost(row, line.edge[segment + 1] - line.edge[segment])
        self._cover(cause, row, lo, track)
        self._restart(cause, lo, hi, of)
        return Pieces(lo, hi, row, cause)

    # -- the innermost event -------------------------------------------------------------------

    def _innermost(self, row: Int32, length: Int64) -> Int8:
        """Time by the innermost open event, and by how long it is the innermost."""
        trace = self.trace
        cause = np.where(length < BETWEEN_NS, CODE["between"], CODE["nothing"]).astype(np.int8)
        at = row >= 0
        cat = np.where(at, trace.cat[row], -1)
        cause[cat == Cat.CPU_OP] = CODE["dispatch"]
        calls = (cat == Cat.RUNTIME) | (cat == Cat.DRIVER)
        cause[calls] = self._call[row[calls]]
        named = (cat == Cat.PYTHON_FUNCTION) | (cat == Cat.USER_ANNOTATION)
        named |= self._is_note[row]
        cause[named] = self._python(row[named], cause[named], length[named])
        cause[among(row, self.s["op-stall"]) & at] = CODE["op-stall"]
        waits = among(row, self._engine_calls) & at
        cause[waits] = np.where(length < BETWEEN_NS, CODE["between"], CODE["nothing"])[waits]
        return cause

    def _python(self, row: Int32, otherwise: Int8, length: Int64) -> Int8:
        """Frames by whose file they are in; annotations by who wrote them."""
        owner = self.s.frame_owner
        frame = climb(self.trace, row, owner, LIBRARY)
        known = np.where(frame >= 0, owner[self.trace.name[frame]], 0)
        note = climb(self.trace, row, self._annotation_owner, LIBRARY)
        noted = np.where(note >= 0, self._annotation_owner[self.trace.name[note]], 0)
        whose = np.where(known > 0, known, noted)
        cause = otherwise.copy()
        cause[whose == LIBRARY] = CODE["framework"]
        cause[whose == OWN] = CODE["python"]
        return cause

    def _annotations(self) -> Int8:
        """For each name whether an annotation of it is torch's or the program's own.

        Step markers say nothing: a step holds everything.
        """
        trace = self.trace
        owner = np.zeros(len(trace.names), np.int8)
        rows = np.concatenate([self.s.activity.of(Cat.USER_ANNOTATION), self._annotating_ops()])
        for i in distinct(trace.name[rows]).tolist():
            if vocabulary.STEP_MARKER.match(trace.names[i]):
                continue
            torch = vocabulary.TORCH_ANNOTATION.match(trace.names[i])
            owner[i] = LIBRARY if torch else OWN
        return owner

    def _annotating_ops(self) -> Int64:
        """Annotations as old versions write them: ops with a name that is no op's."""
        a = self.s.activity
        ops = np.setdiff1d(self.s.cpu_ops, a.aten, assume_unique=True)
        return np.setdiff1d(ops, a.named(ops, vocabulary.HOST["backward"]), assume_unique=True)

    def _calls(self) -> Int8:
        """For each row the cause of its time, if it is a runtime or driver call."""
        s, cause = self.s, np.full(len(self.trace), CODE["call"], np.int8)
        cause[s.activity.calls("alloc")] = CODE["allocation"]
        pageable = self.trace.launch[s.activity.pageable_h2d]
        cause[pageable[pageable >= 0]] = CODE["pageable"]
        cause[s.activity.syncs_of("explicit")] = CODE["sync-explicit"]
        for name in _WAITS:
            cause[s[name]] = CODE[_WAITS[name]]
        inner = self.trace.rows(Cat.RUNTIME, Cat.DRIVER)
        above = self.trace.parent[inner]
        # A driver call inside a runtime call is part of it.
        nested = (above >= 0) & np.isin(self.trace.cat[above], (Cat.RUNTIME, Cat.DRIVER))
        plain = nested & (cause[inner] == CODE["call"])
        cause[inner[plain]] = cause[above[plain]]
        return cause

    # -- what is open around -------------------------------------------------------------------

    def _marked_around(self) -> dict[str, Int64]:
        return {cause: self.s[signal] for cause, signal in _AROUND}

    def _cover(self, cause: Int8, row: Int32, at: Int64, track: int) -> None:
        """Causes that hold for all that happens inside their events."""
        waits = np.isin(cause, [CODE[c] for c in ("allocation", *_WAITS.values(), "pageable")])
        work = self._spans(np.union1d(self.s["preprocessing-frame"], self.s["host-only-op"]), track)
        calls = (row >= 0) & np.isin(self.trace.cat[row], (Cat.RUNTIME, Cat.DRIVER))
        stalls = cause == CODE["op-stall"]
        inside = work.covered(at, at + 1) > 0 if len(work) else np.zeros(len(at), np.bool_)
        cause[inside & ~waits & ~calls & ~stalls] = CODE["preprocessing"]
        for name, rows in reversed(self._around.items()):
            spans = self._spans(rows, track)
            if len(spans):
                cause[spans.covered(at, at + 1) > 0] = CODE[name]

    def _spans(self, rows: Int64, track: int) -> Intervals:
        return self.s.activity.spans(self.s.on(rows, track))

    def _restart(self, cause: Int8, lo: Int64, hi: Int64, of: Int64) -> None:
        """What dispatch comes after a wait in the same stretch: the device had run dry."""
        waits = np.isin(cause, [CODE[c] for c in _WAITS.values() if c.startswith("sync-")])
        if not waits.any():
            return
        returned = np.full(int(of[-1]) + 1, np.iinfo(np.int64).max)
        last = np.flatnonzero(waits)
        returned[of[last]] = hi[last]  # ascending, so the last wait of a stretch stays
        cause[(lo >= returned[of]) & np.isin(cause, _RESTARTS)] = CODE["restart"]
