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

_AT_ONCE = 1 << 16  # nodes


def recorded(begin: Int64, end: Int64, is_work: Bool, nodes: Int64 | Int32) -> Int64:
    """The times of nodes, by the begin and end of each row; of device work its end."""
    found = np.empty(len(nodes), np.int64)
    for first in range(0, len(nodes), _AT_ONCE):  # so that what is in between stays small
        some = nodes[first : first + _AT_ONCE]
        row = (some >> 1).astype(np.int64)
        late = (some & 1).astype(np.bool_) | is_work[row]
        found[first : first + _AT_ONCE] = np.where(late, end[row], begin[row])
    return found


@dataclass(frozen=True, eq=False)
class Columns:
    """A program, by row of its trace and by node (``2 r`` and ``2 r + 1``); see ``graph``.

    ``in_op``: rows with an op right around them; ``program``: rows that count for when it ends;
    ``calls``: by row the frame of the built-in that holds it alone, as that is the call of it, else
    the row itself; ``begin`` and ``end``: as recorded, by row; ``gap``: by node; ``order``: one in
    which to compute; ``left_out``: nodes that are in none, although the other of their row
    is.
    """

    start: Int64
    parent: Int32
    launch: Int32
    in_op: Bool
    is_host: Bool
    is_work: Bool
    program: Bool
    calls: Int32
    begin: Int64
    end: Int64
    gap: Int64
    deps: Deps
    sequences: Sequences
    order: Int32
    left_out: Bool

    def recorded(self, nodes: Int64 | Int32) -> Int64:
        """The times of nodes as recorded; of device work its end."""
        return recorded(self.begin, self.end, self.is_work, nodes)

    def places(self) -> Int32:
        """Where each node stands in its sequence: an index of ``sequences.nodes``."""
        place = np.zeros(len(self.gap), np.int32)
        place[self.sequences.nodes] = np.arange(len(self.sequences.nodes), dtype=np.int32)
        return place

    def parts(self) -> tuple[Int32, Int32]:
        """Nodes whose gap is a row's own time, by row: its end, and the begins right inside it."""
        host = np.flatnonzero(self.is_host).astype(np.int32)
        inner = host[self.parent[host] >= 0]
        owner = self.parent[inner]
        ptr = np.zeros(len(self.parent) + 1, np.int32)
        np.cumsum(np.bincount(owner, minlength=len(self.parent)) + self.is_host, out=ptr[1:])
        nodes = np.full(ptr[-1], -1, np.int32)
        nodes[ptr[host + 1] - 1] = 2 * host + 1
        nodes[nodes < 0] = 2 * inner[np.argsort(owner, kind="stable")]
        return ptr, nodes

    @cached_property
    def served(self) -> tuple[Int64, Int64]:
        """Nodes that wait for a thread that fetches, and the rows whose own time that is."""
        deps, parent = self.deps, self.parent
        node = distinct(deps.node[(deps.kind & SERVED) > 0])
        owner = np.where(node % 2, node // 2, parent[node // 2])
        return node[owner >= 0], owner[owner >= 0]
