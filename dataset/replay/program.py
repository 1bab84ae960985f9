"""One replay of a graph: its sequences with the edits in them, and the times that come out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dataset.replay.edits import (
    Alter,
    Edit,
    EditedTimes,
    Insert,
    Issue,
    Remove,
    Replace,
    Task,
    Wait,
)
from detector.replay import Graph, Stuck
from detector.replay.columns import SERVED, THREAD
from detector.replay.solve import Deps, Sequences, arrange, times
from detector.trace import Int64

_FINE = 1 << 20  # edits at one time are kept apart by so many orders


# Of a thread's sequence: from, to, base time, and the nodes that stand there instead.
Piece = tuple[int, int, int, list[int]]


class EditableGraph(Graph):
    """A graph that edits can be put into. Reusable: no replay changes anything in it."""

    def replay(self, edits: Sequence[Edit] = ()) -> EditedTimes:
        """All times after these edits. Raises Stuck where they make events wait in a circle."""
        program = _Program(self)
        program.change(edits)
        return program.run()

    @cached_property
    def works_of(self) -> dict[int, list[int]]:
        """Rows of device work by the row of the call that issued them."""
        found: dict[int, list[int]] = {}
        rows = np.flatnonzero(self.is_work & (self.trace.launch >= 0))
        for row, call in zip(rows.tolist(), self.trace.launch[rows].tolist(), strict=True):
            found.setdefault(call, []).append(row)
        return found

    @cached_property
    def deps_by_node(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """(node, delay) of what each node waits for."""
        found: dict[int, tuple[tuple[int, int], ...]] = {}
        on, delay = self.deps.on.tolist(), self.deps.delay.tolist()
        for node, pair in zip(self.deps.node.tolist(), zip(on, delay, strict=True), strict=True):
            found[node] = (*found.get(node, ()), pair)
        return found

    @cached_property
    def across(self) -> set[int]:
        """Nodes whose first dependency is on another thread."""
        first = self.deps.ptr[:-1][np.diff(self.deps.ptr) > 0]
        between = (self.deps.kind[first] & (THREAD | SERVED)) > 0
        return set(self.deps.node[first[between]].tolist())

    @cached_property
    def waited_streams(self) -> dict[int, set[int]]:
        """By end node of a call, the streams on which it waits for all issued so far."""
        waits = self.waits
        call, column = np.nonzero(waits.covers)
        found: dict[int, set[int]] = {}
        rows, tracks = waits.rows[call].tolist(), waits.tracks[column].tolist()
        for row, track in zip(rows, tracks, strict=True):
            found.setdefault(2 * row + 1, set()).add(track)
        return found


class _Program:
    """Sequences of nodes by track. Used once: `change`, then `run`."""

    def __init__(self, graph: EditableGraph) -> None:
        self.graph = graph
        self.base = int(graph.trace.start.min()) if len(graph.trace) else 0
        self.gap: list[int] = graph.gap.tolist()
        self.dur: list[int] = np.where(graph.is_work, graph.trace.dur, 0).repeat(2).tolist()
        recorded = np.stack([graph.trace.start, graph.trace.end], axis=1)
        self.origin: list[int] = recorded.ravel().tolist()
        self.deps = dict(graph.deps_by_node)
        self.across = set(graph.across)
        self.gone: set[int] = set()
        self.heir: dict[int, int] = {}  # who stands for a node that is gone; -1: nobody
        self.altered: set[int] = set()
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
        """Put all edits in. Raises Stuck where one is of no event or thread of the trace."""
        spliced: defaultdict[int, list[Piece]] = defaultdict(list)
        for number, edit in enumerate(edits):
            self._check(edit)
            if isinstance(edit, Insert):
                spliced[edit.track].append(self._insert(number, edit))
            elif isinstance(edit, Alter):
                self._alter(edit)
            else:
                spliced[int(self.graph.trace.track[edit.row])].append(self._replace(edit))
        for track, pieces in spliced.items():
            self._splice(track, pieces)
        self._streams()
        self._follow(spliced.get(self.graph.first, []))
        if self.gone:
            self._inherit()

    def _check(self, edit: Edit) -> None:
        graph = self.graph
        if isinstance(edit, Insert):
            if edit.track not in graph.threads:
                raise Stuck(f"track {edit.track} is no host thread with events")
        elif not (graph.is_host[edit.row] or (isinstance(edit, Alter) and graph.is_work[edit.row])):
            raise Stuck(f"row {edit.row} is neither host program nor device work to alter")

    def _new(self, gap: int, dur: int = 0) -> int:
        self.gap.append(gap)
        self.dur.append(dur)
        self.origin.append(self.base)
        return len(self.gap) - 1

    def _insert(self, number: int, edit: Insert) -> Piece:
        nodes = self.graph.threads[edit.track]
        times = self.graph.recorded(nodes)
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

    def _replace(self, edit: Replace | Remove) -> Piece:
        trace, row = self.graph.trace, edit.row
        sequence = self.sequences[int(trace.track[row])]
        start, end = int(trace.start[row]), int(trace.end[row])
        times = self.graph.recorded(self.graph.threads[int(trace.track[row])])
        i = sequence.index(2 * row, bisect_left(times, start))
        j = sequence.index(2 * row + 1, i) + 1
        inside = set(sequence[i:j])
        rows = {node // 2 for node in inside if node ^ 1 in inside}
        self.gone |= {node for row in rows for node in (2 * row, 2 * row + 1)}
        self.gone |= {2 * work for row in rows for work in self.graph.works_of.get(row, ())}
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

    def _alter(self, edit: Alter) -> None:
        row, trace = edit.row, self.graph.trace
        works = self.graph.works_of.get(row, [])
        if edit.dur is not None and self.graph.is_work[row]:
            self.dur[2 * row] = edit.dur
            self.altered.add(2 * row)
        elif edit.dur is not None:
            self._own(row, edit.dur)
        if edit.wait:
            key = self._launched(int(trace.start[row]))
            target = 2 * works[-1] if works else -1
            track = int(trace.track[works[-1]]) if works else self.graph.busiest
            self.waiting.append(
                (2 * row + 1, edit.wait, target if edit.wait == "work" else track, key)
            )

    def _own(self, row: int, dur: int) -> None:
        """Another own time: more of it stands at the end, less of it everywhere."""
        inner = np.flatnonzero(self.graph.is_host & (self.graph.trace.parent == row))
        parts = [*(2 * inner).tolist(), 2 * row + 1]
        now = sum(self.gap[node] for node in parts)
        if dur >= now:
            self.gap[parts[-1]] += dur - now
            return
        for node in parts:
            self.gap[node] = self.gap[node] * dur // now

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
        """Of what is put in at ``at``: before all that the trace issues then."""
        self.order += 1
        return (at - self.base) * _FINE + self.order

    def _launched(self, at: int) -> int:
        """Of what the trace issues at ``at``."""
        return (at - self.base + 1) * _FINE - 1

    # -- sequences -----------------------------------------------------------------------------
    def _splice(self, track: int, pieces: list[Piece]) -> None:
        """Put the pieces in; one without length stands within the gap around it."""
        sequence, nodes = self.sequences[track], self.graph.threads[track]
        times = self.graph.recorded(nodes)
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
                self._fit(fresh[0], sequence[i] if i < len(sequence) else -1, since, at, i == 0)
            gone = [node for node in sequence[i:j] if node in self.gone]
            if fresh:
                self.heir.update(dict.fromkeys(gone, fresh[-1]))
            out += gone + fresh
            done, since = j, at
        self.sequences[track] = self._kept(out + sequence[done:])

    def _fit(self, fresh: int, behind: int, since: int, at: int, first: bool) -> None:
        """Place what comes at ``at`` in the gap from ``since`` to the node behind it.

        Where that gap is a wait for another thread, it belongs to its nearer end.
        """
        if behind >= 0 and behind in self.across:
            (on, delay), ahead = self.deps[behind][0], self.origin[behind] - at
            if first or ahead < at - since:
                self.deps[fresh] = ((on, delay - ahead),)
                self.gap[behind] = min(self.gap[behind], ahead)
                return
        self.gap[fresh] += at - since
        if first:
            self.origin[fresh] = at + self.gap[fresh]
            self.gap[behind] = max(0, self.origin[behind] - at)
        elif behind >= 0:
            self.gap[behind] = max(0, self.gap[behind] - (at - since))

    def _kept(self, nodes: list[int]) -> list[int]:
        """Without what is gone. For a node that is gone stands what took its place, else the one
        before it; what began upon another thread, the next one does instead."""
        if not self.gone:
            return nodes
        kept: list[int] = []
        orphans: list[int] = []
        for node in nodes:
            if node in self.gone:
                self.heir.setdefault(node, kept[-1] if kept else -1)
                orphans += [node] if node in self.across else []
                continue
            for orphan in orphans:
                self.deps[node] = (self.deps[orphan][0], *self.deps.get(node, ()))
                self.across.add(node)
            orphans = []
            kept.append(node)
        return kept

    def _inherit(self) -> None:
        """Whoever waited for what is gone waits for its heir."""
        for node, deps in self.deps.items():
            if any(on in self.gone for on, _ in deps):
                heirs = ((self.heir.get(on, on), delay) for on, delay in deps)
                self.deps[node] = tuple((on, delay) for on, delay in heirs if on >= 0)

    def _follow(self, pieces: list[Piece]) -> None:
        """A second thread that begins anew after something was put into the first waits for it."""
        placed = sorted((at, fresh[-1]) for i, j, at, fresh in pieces if i == j and fresh)
        if not placed:
            return
        for node in self.graph.across - self.gone:
            (on, delay), begin = self.deps[node][0], self.origin[node]
            k = bisect_right(placed, (begin, len(self.gap))) - 1
            if k >= 0 and placed[k][0] >= begin - delay and on in self._on_first:
                self._depend(node, placed[k][1], begin - placed[k][0])

    @cached_property
    def _on_first(self) -> set[int]:
        return set(self.graph.threads[self.graph.first].tolist())

    def _streams(self) -> None:
        """The device's sequences; then whatever waits for "all issued so far"."""
        keys: dict[int, list[int]] = {}
        for track in {*self.graph.streams, *self.added}:
            merged, issued = self._merged(track)
            self.sequences[track] = merged
            lowest = np.array(issued, np.int64)
            keys[track] = np.minimum.accumulate(lowest[::-1])[::-1].tolist()
        for node, issue, key in self.linked:
            self._link(node, issue, key, keys)
        typical = self.graph.typical
        for end, tracks in self.graph.waited_streams.items() if self.added else ():
            key = self._launched(self.origin[end - 1])
            for track in tracks & self.added.keys():
                self._after(end, track, key, keys, typical.delay, fresh=True)
        for end, wait, target, key in self.waiting:
            if wait == "work":
                self._depend(end, target, typical.delay)
            for track in keys if wait == "device" else (target,) if wait == "stream" else ():
                self._after(end, track, key, keys, typical.delay)

    def _merged(self, track: int) -> tuple[list[int], list[int]]:
        """Nodes and the keys of their issue: the base's order, and fresh work behind what was
        issued."""
        rows: Int64 = self.graph.streams.get(track, np.zeros(0, np.int64))
        base = (2 * rows).tolist()
        issued = [self._launched(at) for at in self.graph.issued[rows].tolist()]
        lowest = np.minimum.accumulate(np.array(issued, np.int64)[::-1])[::-1].tolist()
        key_of = dict(zip(base, issued, strict=True))
        out: list[int] = []
        done = 0
        for key, _, node in sorted(self.added.get(track, ())):
            i = max(done, bisect_right(lowest, key))
            out += [*base[done:i], node]
            key_of[node] = key
            done = i
        merged = self._kept(out + base[done:])
        self._part(merged, base)
        return merged, [key_of[node] for node in merged]

    def _part(self, merged: list[int], base: list[int]) -> None:
        """Work that overlapped the one before it overlaps no other that comes to stand there."""
        before = dict(zip(base[1:], base, strict=False))
        for previous, node in zip(merged, merged[1:], strict=False):
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
        self,
        node: int,
        track: int,
        key: int,
        keys: dict[int, list[int]],
        delay: int,
        fresh: bool = False,
    ) -> None:
        """After the last work issued up to ``key``; ``fresh``: if it is not of the base."""
        if track in keys and (i := bisect_right(keys[track], key)):
            last = self.sequences[track][i - 1]
            if not fresh or last >= len(self.graph.gap):
                self._depend(node, last, delay)

    def _depend(self, node: int, on: int, delay: int) -> None:
        if on >= 0:
            self.deps[node] = (*self.deps.get(node, ()), (on, delay))

    # -- times ---------------------------------------------------------------------------------
    def run(self) -> EditedTimes:
        """The time of every node. Raises Stuck."""
        values = self._solved()
        trace, graph = self.graph.trace, self.graph
        start, end, keep = trace.start.copy(), trace.end.copy(), np.ones(len(trace), np.bool_)
        host, work = np.flatnonzero(graph.is_host), np.flatnonzero(graph.is_work)
        start[host], end[host] = values[2 * host], values[2 * host + 1]
        end[work] = values[2 * work]
        start[work] = end[work] - np.array(self.dur, np.int64)[2 * work]
        keep[[node // 2 for node in self.gone]] = False
        begin, finish, issue = (np.array([task[i] for task in self.tasks], int) for i in range(3))
        has = issue >= 0
        durations = np.array(self.dur, np.int64)
        return EditedTimes(
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

    def _solved(self) -> Int64:
        """The time of every node; -1 of those that are gone."""
        sequences = list(self.sequences.values())
        ptr = np.cumsum([0, *map(len, sequences)], dtype=np.int32)
        program = Sequences(np.array([n for s in sequences for n in s], np.int32), ptr)
        edges = [(node, on, delay) for node, deps in self.deps.items() for on, delay in deps]
        columns = np.array(edges, np.int64).reshape(-1, 3).T
        deps = Deps.of(len(self.gap), [(columns[0], columns[1], columns[2])])
        gap, dur, origin = (np.array(c, np.int64) for c in (self.gap, self.dur, self.origin))
        mute = np.zeros(len(gap), np.uint8)
        prev = program.before(len(gap))
        return times(arrange(program, deps), prev, gap, dur, deps, mute, origin, self.base)
