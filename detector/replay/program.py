"""One run of a graph: its sequences with the edits in them, and the times that come out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from detector.replay.edits import Alter, Edit, Insert, Issue, Remove, Replace, Task, Times, Wait
from detector.trace import Int64

if TYPE_CHECKING:
    from detector.replay.graph import Graph

_FINE = 1 << 20  # edits at one time are told apart by so many orders


class Stuck(ValueError):
    """The edits make events wait for each other."""


class Program:
    """Sequences of nodes by track. Used once: `change`, then `run`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.base = int(graph.trace.start.min()) if len(graph.trace) else 0
        self.gap: list[int] = graph.gap.tolist()
        self.dur: list[int] = graph.dur.tolist()
        self.origin: list[int] = graph.origin.tolist()
        self.deps = dict(graph.deps)
        self.gone: set[int] = set()
        self.altered: set[int] = set()  # device work of another duration
        self.sequences: dict[int, list[int]] = {
            k: nodes.tolist() for k, nodes in graph.threads.items()
        }
        self.added: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self.order = 0  # of the tasks, in program order
        self.waiting: list[tuple[int, Wait, int, int]] = []  # end node, wait, track or node, key
        self.linked: list[tuple[int, Issue, int]] = []
        self.tasks: list[tuple[int, int, int]] = []  # begin, end and work nodes
        self.idle: dict[int, tuple[int, int]] = {}

    # -- edits ---------------------------------------------------------------------------------
    def change(self, edits: Sequence[Edit]) -> None:
        """Put all edits in."""
        spliced: defaultdict[int, list[tuple[int, int, int, list[int]]]] = defaultdict(list)
        for number, edit in enumerate(edits):
            if isinstance(edit, Insert):
                spliced[edit.track].append(self._insert(number, edit))
            elif isinstance(edit, Alter):
                self._alter(edit)
            else:
                spliced[int(self.graph.trace.track[edit.row])].append(self._replace(number, edit))
        for track, pieces in spliced.items():
            self._splice(track, pieces)
        self._streams()
        self._reattach()

    def _new(self, gap: int, dur: int = 0) -> int:
        self.gap.append(gap)
        self.dur.append(dur)
        self.origin.append(self.base)
        return len(self.gap) - 1

    def _insert(self, number: int, edit: Insert) -> tuple[int, int, int, list[int]]:
        nodes = self.graph.threads[edit.track]
        times = self.graph.origin[nodes]
        i = int(np.searchsorted(times, edit.at))
        while i < len(nodes) and times[i] == edit.at and nodes[i] % 2:
            i += 1  # what ends now has ended
        fresh: list[int] = []
        for task in edit.tasks:
            self._task(task, edit.gap, edit.at, fresh)
        if not edit.tasks:
            fresh = [self._new(0), self._new(edit.gap)]
            self.idle[number] = (fresh[0], fresh[1])
        return i, i, edit.at, fresh

    def _replace(self, number: int, edit: Replace | Remove) -> tuple[int, int, int, list[int]]:
        trace, row = self.graph.trace, edit.row
        sequence = self.sequences[int(trace.track[row])]
        start, end = int(trace.start[row]), int(trace.end[row])
        times = self.graph.origin[self.graph.threads[int(trace.track[row])]]
        i = sequence.index(2 * row, bisect_left(times, start))
        j = sequence.index(2 * row + 1, i) + 1
        inside = set(sequence[i:j])
        rows = {node // 2 for node in inside if node ^ 1 in inside}
        self._remove(rows)
        fresh: list[int] = []
        lead = self.gap[2 * row]
        for task in edit.tasks if isinstance(edit, Replace) else ():
            self._task(task, lead, start, fresh)
            lead = 0
        if j < len(sequence) and not fresh:
            self.gap[sequence[j]] += lead
        # Halves of events that reach out of it stay.
        fresh += [node for node in sequence[i:j] if node // 2 not in rows]
        return i, j, end, fresh

    def _remove(self, rows: set[int]) -> None:
        self.gone |= {node for row in rows for node in (2 * row, 2 * row + 1)}
        self.gone |= {2 * work for row in rows for work in self.graph.works_of.get(row, ())}

    def _alter(self, edit: Alter) -> None:
        row, trace = edit.row, self.graph.trace
        if edit.dur is not None and self.graph.is_work[row]:
            self.dur[2 * row] = edit.dur
            self.altered.add(2 * row)
        elif edit.dur is not None:
            self.gap[2 * row + 1] = max(
                0, self.gap[2 * row + 1] + edit.dur - int(self.graph.own[row])
            )
        if edit.wait:
            key = self._key(int(trace.start[row]))
            works = self.graph.works_of.get(row, [])
            target = 2 * works[-1] if works else -1
            track = int(trace.track[works[-1]]) if works else self.graph.busiest
            self.waiting.append(
                (2 * row + 1, edit.wait, target if edit.wait == "work" else track, key)
            )

    def _task(self, task: Task, lead: int, at: int, out: list[int]) -> None:
        """Append the nodes of a task and of what is inside it."""
        key = self._key(at)
        begin = self._new(lead)
        out.append(begin)
        number = len(self.tasks)
        work = -1 if task.issue is None else self._issue(task.issue, begin, key)
        self.tasks.append((begin, -1, work))
        part = task.own // (len(task.inside) + 1)
        for inner in task.inside:
            self._task(inner, part, at, out)
        end = self._new(task.own - part * len(task.inside))
        out.append(end)
        self.tasks[number] = (begin, end, work)
        if task.wait:
            track = task.issue.track if task.issue else self.graph.busiest
            target = work if task.wait == "work" else track
            self.waiting.append((end, task.wait, target, self._key(at)))

    def _issue(self, issue: Issue, begin: int, key: int) -> int:
        typical = self.graph.typical
        node = self._new(typical.gap, issue.dur)
        self.deps[node] = ((begin, typical.latency),)
        self.added[issue.track].append((key, len(self.added[issue.track]), node))
        if issue.after or issue.holds:
            self.linked.append((node, issue, key))
        return node

    def _key(self, at: int) -> int:
        self.order += 1
        return (at - self.base) * _FINE + self.order

    # -- sequences -----------------------------------------------------------------------------
    def _splice(self, track: int, pieces: list[tuple[int, int, int, list[int]]]) -> None:
        """Put the pieces (from, to, base time, nodes) in; one stands within the gap around it."""
        sequence, nodes = self.sequences[track], self.graph.threads[track]
        times = self.graph.origin[nodes]
        out: list[int] = []
        done = 0
        since = -1  # base time up to which the gap before node ``done`` is used up
        for i, j, at, fresh in sorted(pieces, key=lambda piece: (piece[0], piece[2])):
            if i < done or j < done:
                raise Stuck("two edits change the same events")
            if i > done or since < 0:
                out += sequence[done:i]
                since = int(times[i - 1]) if i else at
            if i == j and fresh:
                self.gap[fresh[0]] += at - since
                if i < len(sequence):
                    self.gap[sequence[i]] = max(0, self.gap[sequence[i]] - (at - since))
            out += fresh
            done, since = j, at
        self.sequences[track] = [n for n in out + sequence[done:] if n not in self.gone]

    def _streams(self) -> None:
        """The device's sequences; then whatever waits for "all issued so far"."""
        keys: dict[int, list[int]] = {}
        for track in {*self.graph.streams, *self.added}:
            merged = self._merged(track)
            self.sequences[track] = [node for _, node in merged]
            lowest = np.array([key for key, _ in merged], np.int64)
            keys[track] = np.minimum.accumulate(lowest[::-1])[::-1].tolist()
        for node, issue, key in self.linked:
            self._link(node, issue, key, keys)
        typical = self.graph.typical
        for end, tracks in self.graph.covering.items() if self.added else ():
            key = (int(self.graph.origin[end - 1]) - self.base + 1) * _FINE - 1
            for track in tracks & self.added.keys():
                self._after(end, track, key, keys, typical.delay)
        for end, wait, target, key in self.waiting:
            if wait == "work":
                self._depend(end, target, typical.delay)
            for track in keys if wait == "device" else (target,) if wait == "stream" else ():
                self._after(end, track, key, keys, typical.delay)

    def _merged(self, track: int) -> list[tuple[int, int]]:
        """(key of the issue, node): the base's order, and fresh work behind what was issued."""
        rows: Int64 = self.graph.streams.get(track, np.zeros(0, np.int64))
        issued = ((self.graph.issued[rows] - self.base) * _FINE).tolist()
        base = [(k, 2 * r) for k, r in zip(issued, rows.tolist(), strict=True)]
        lowest = np.minimum.accumulate(np.array(issued, np.int64)[::-1])[::-1].tolist()
        out: list[tuple[int, int]] = []
        done = 0
        for key, _, node in sorted(self.added.get(track, ())):
            i = max(done, bisect_right(lowest, key))
            out += [*base[done:i], (key, node)]
            done = i
        merged = [(k, n) for k, n in out + base[done:] if n not in self.gone]
        self._part(merged, [node for _, node in base])
        return merged

    def _part(self, merged: list[tuple[int, int]], base: list[int]) -> None:
        """Work that overlapped the one before it overlaps no other that comes to stand there."""
        before = dict(zip(base[1:], base, strict=False))
        for (_, previous), (_, node) in zip(merged, merged[1:], strict=False):
            if self.gap[node] < 0 and (before.get(node) != previous or previous in self.altered):
                self.gap[node] = 0

    def _link(self, node: int, issue: Issue, key: int, keys: dict[int, list[int]]) -> None:
        gap = self.graph.typical.gap
        for track in issue.after:
            if track != issue.track and track in keys:
                self._after(node, track, key, keys, gap)
        for track in issue.holds:
            if track != issue.track and track in keys:
                i = bisect_right(keys[track], key)
                if i < len(keys[track]):
                    self._depend(self.sequences[track][i], node, gap)

    def _after(
        self, node: int, track: int, key: int, keys: dict[int, list[int]], delay: int
    ) -> None:
        if track in keys and (i := bisect_right(keys[track], key)):
            self._depend(node, self.sequences[track][i - 1], delay)

    def _depend(self, node: int, on: int, delay: int) -> None:
        if on >= 0:
            self.deps[node] = (*self.deps.get(node, ()), (on, delay))

    def _reattach(self) -> None:
        """Second threads that followed a node that is gone follow the one before it."""
        if not self.gone or self.graph.first < 0:
            return
        nodes = self.graph.threads[self.graph.first].tolist()
        place = {node: i for i, node in enumerate(nodes)}
        for node in self.graph.anchored:
            (on, delay), *others = self.deps[node]
            while on in self.gone and place[on]:
                before = nodes[place[on] - 1]
                delay += self.origin[on] - self.origin[before]
                on = before
            self.deps[node] = ((on, delay), *others)

    # -- times ---------------------------------------------------------------------------------
    def run(self) -> Times:
        """The time of every node. Raises Stuck."""
        time = self._solve()
        trace, graph = self.graph.trace, self.graph
        start, end, keep = trace.start.copy(), trace.end.copy(), np.ones(len(trace), np.bool_)
        values = np.array([-1 if t is None else t for t in time], np.int64)
        host, work = np.flatnonzero(graph.is_host), np.flatnonzero(graph.is_work)
        start[host], end[host] = values[2 * host], values[2 * host + 1]
        end[work] = values[2 * work]
        start[work] = end[work] - np.array(self.dur, np.int64)[2 * work]
        keep[[node // 2 for node in self.gone]] = False
        begin, finish, issue = (np.array([task[i] for task in self.tasks], int) for i in range(3))
        has = issue >= 0
        durations = np.array(self.dur, np.int64)
        return Times(
            start,
            end,
            keep,
            graph.timed,
            values[begin],
            values[finish],
            np.where(has, values[issue] - durations[issue], -1),
            np.where(has, values[issue], -1),
            {k: (int(values[a]), int(values[b])) for k, (a, b) in self.idle.items()},
        )

    def _solve(self) -> list[int | None]:
        """Walk each sequence as far as what it waits for is known, in turn, until all are done."""
        time: list[int | None] = [None] * len(self.gap)
        at = dict.fromkeys(self.sequences, 0)
        now: dict[int, int | None] = dict.fromkeys(self.sequences)
        open_tracks = list(self.sequences)
        while open_tracks:
            left = []
            moved = False
            for track in open_tracks:
                begun = at[track]
                at[track], now[track] = self._walk(self.sequences[track], begun, now[track], time)
                moved |= at[track] > begun
                if at[track] < len(self.sequences[track]):
                    left.append(track)
            if left and not moved:
                raise Stuck("the edits make events wait for each other")
            open_tracks = left
        return time

    def _walk(
        self, sequence: list[int], i: int, now: int | None, time: list[int | None]
    ) -> tuple[int, int | None]:
        gap, dur, deps, gone = self.gap, self.dur, self.deps, self.gone
        while i < len(sequence):
            node = sequence[i]
            begin = None if now is None else now + gap[node]
            for on, delay in deps.get(node, ()):
                if on in gone:
                    continue
                known = time[on]
                if known is None:
                    return i, now
                if begin is None or known + delay > begin:
                    begin = known + delay
            if begin is None:
                begin = self.origin[node]
            now = time[node] = begin + dur[node]
            i += 1
        return i, now
