"""What replays of repairs go by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from detector.index_sets import distinct
from detector.replay.solve import Deps, Sequences
from detector.trace import Bool, Int32, Int64

# Kinds of dependencies, one bit each: a launch, a wait for device work, an event of another stream,
# a thread that follows or joins another, one that joins a thread that launches nothing.
LAUNCH, WAIT, STREAM, THREAD, SERVED = (1 << i for i in range(5))


@dataclass(frozen=True, eq=False)
class Columns:
    """A program, by row of its trace and by node (``2 r`` and ``2 r + 1``); see ``graph``.

    ``in_op``: rows with an op right around them; ``program``: rows that count for when it ends;
    ``calls``: by row the frame of the built-in that holds it alone, as that is the call of it, else
    the row itself; ``gap`` and ``dur`` by node; ``origin``: the recorded begin of each; ``order``:
    one in which to compute; ``left_out``: nodes that are in none, although the other of their row
    is.
    """

    start: Int64
    parent: Int32
    launch: Int32
    in_op: Bool
    is_host: Bool
    is_work: Bool
    program: Bool
    calls: Int64
    gap: Int64
    dur: Int64
    origin: Int64
    deps: Deps
    sequences: Sequences
    order: Int32
    left_out: Bool

    def recorded(self, nodes: Int64 | Int32) -> Int64:
        """The times of nodes as recorded; of device work its end."""
        return np.asarray(self.origin[nodes] + self.dur[nodes], np.int64)

    @cached_property
    def place(self) -> Int32:
        """Where each node stands in its sequence: an index of ``sequences.nodes``."""
        place = np.zeros(len(self.gap), np.int32)
        place[self.sequences.nodes] = np.arange(len(self.sequences.nodes), dtype=np.int32)
        return place

    def parts(self) -> tuple[Int32, Int32]:
        """Nodes whose gap is a row's own time, by row: its end, and the begins right inside it."""
        host = np.flatnonzero(self.is_host).astype(np.int32)
        inner = host[self.parent[host] >= 0]
        owner = np.concatenate([self.parent[inner], host])
        nodes = np.concatenate([2 * inner, 2 * host + 1])
        ptr = np.append(0, np.cumsum(np.bincount(owner, minlength=len(self.parent))))
        return ptr.astype(np.int32), nodes[np.argsort(owner, kind="stable")]

    @cached_property
    def served(self) -> tuple[Int64, Int64]:
        """Nodes that wait for a thread that fetches, and the rows whose own time that is."""
        deps, parent = self.deps, self.parent
        node = distinct(deps.node[(deps.kind & SERVED) > 0])
        owner = np.where(node % 2, node // 2, parent[node // 2])
        return node[owner >= 0], owner[owner >= 0]
