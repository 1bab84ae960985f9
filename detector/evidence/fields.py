"""What the measures are made of: additive amounts, rows and masks of one trace.

A measure is a quotient of two additive amounts, so the region's value and the rest's come from
the same two prefix sums. Time is measured on ``Activity``'s interval sets; events belong to the
span in which they start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from detector import vocabulary
from detector.activity import Activity
from detector.features import sets
from detector.index_sets import among
from detector.intervals import Intervals
from detector.trace import NS_PER_US, Bool, Cat, Int64

Amount = Callable[[int, int], float]  # additive over adjacent spans [start, end), ns
Pair = tuple[Amount, Amount]


def _length(start: int, end: int) -> float:
    return float(end - start)


def _one(_start: int, _end: int) -> float:
    return 1.0


class Fields:
    """What the measures are made of, for one trace."""

    def __init__(self, activity: Activity) -> None:
        self.a = activity
        self.trace = activity.trace
        self._sets: dict[str, Int64] = {}

    # -- amounts -------------------------------------------------------------------------------

    def tally(self, rows: Int64, weight: npt.NDArray[np.generic] | None = None) -> Amount:
        """Sum of ``weight`` (1 each without) over the rows that start inside."""
        start = self.trace.start[rows]
        total = None if weight is None else np.append(0.0, np.cumsum(weight, dtype=np.float64))

        def amount(s: int, e: int) -> float:
            first, last = np.searchsorted(start, (s, e))
            return float(last - first if total is None else total[last] - total[first])

        return amount

    def share(self, intervals: Intervals) -> Pair:
        """Share of the time that these intervals cover."""

        def amount(s: int, e: int) -> float:
            before = intervals.before(np.array([s, e], np.int64))
            return float(before[1] - before[0])

        return amount, _length

    def time(self, rows: Int64) -> Pair:
        """Share of the time in which at least one of these events runs."""
        return self.share(self.a.spans(rows))

    def calls_of(self, rows: Int64) -> Pair:
        """Share of the time in which a call that issued one of these events runs."""
        calls = self.trace.launch[rows]
        return self.time(np.unique(calls[calls >= 0]).astype(np.int64))

    def count(self, rows: Int64) -> Pair:
        """Events that start inside."""
        return self.tally(rows), _one

    def mean(self, rows: Int64, value: npt.NDArray[np.generic]) -> Pair:
        """Mean of ``value`` over the rows."""
        return self.tally(rows, value), self.tally(rows)

    def part(self, rows: Int64, which: Bool, weight: npt.NDArray[np.generic] | None = None) -> Pair:
        """Share of the rows (or of their weight) that ``which`` picks."""
        if weight is None:
            return self.tally(rows[which]), self.tally(rows)
        return self.tally(rows, weight * which), self.tally(rows, weight)

    def kernel_time_of(self, which: Bool) -> Pair:
        """Share of the kernel time in these kernels (a mask over ``Activity.kernels``)."""
        return self.part(self.a.kernels, which, self.trace.dur[self.a.kernels])

    # -- named sets ----------------------------------------------------------------------------

    def set(self, name: str) -> Int64:
        """Rows of a set that the features name, each looked up once."""
        if name not in self._sets:
            self._sets[name] = sets.rows(self.a, name)
        return self._sets[name]

    def work(self, name: str) -> Pair:
        """Share of the time with device work (CPU run: with computing ops) that is this set's."""
        part = self.a.spans(self.set(name)) & self._working
        return self.share(part)[0], self.share(self._working)[0]

    def count_in(self, name: str, of: str) -> Pair:
        """Share of the events of a set that belong to another."""
        rows = self.set(of)
        return self.part(rows, among(rows, self.set(name)))

    @cached_property
    def _working(self) -> Intervals:
        return self.a.spans(self.a.work)

    # -- rows ----------------------------------------------------------------------------------

    @cached_property
    def kernel_kind(self) -> npt.NDArray[np.int8]:
        return self.a.kernel_kind[self.trace.name[self.a.kernels]]

    def kind(self, kind: str) -> Pair:
        """Share of the kernel time in kernels of a kind."""
        code = 0 if kind == "other" else 1 + list(vocabulary.KERNEL_KINDS).index(kind)
        return self.kernel_time_of(self.kernel_kind == code)

    @cached_property
    def h2d(self) -> Int64:
        return self.a.copies_of("h2d")

    @cached_property
    def compute_stream(self) -> int:
        """The stream with the most compute time; -1 without."""
        rows = self.a.compute_rows if self.a.has_device else np.empty(0, np.int64)
        if not len(rows):
            return -1
        ids, which = np.unique(self.trace.stream[rows], return_inverse=True)
        return int(ids[np.argmax(np.bincount(which, self.trace.dur[rows]))])

    @cached_property
    def launched(self) -> Int64:
        """Kernels with a known call."""
        return self.a.kernels[self.trace.launch[self.a.kernels] >= 0]

    @cached_property
    def launch_delay_us(self) -> npt.NDArray[np.float64]:
        """Time from the start of the launch call to the start of the kernel."""
        rows = self.launched
        delay = self.trace.start[rows] - self.trace.start[self.trace.launch[rows]]
        return np.asarray(np.maximum(delay, 0) / NS_PER_US, np.float64)

    # -- sums over the trace -------------------------------------------------------------------

    def graph_ops(self) -> Pair:
        """Share of the ops that record a node of the autograd graph."""
        rows = self.a.of(Cat.CPU_OP)
        return self.part(rows, self.trace.sequence[rows] >= 0)

    def collective_elements(self) -> Pair:
        rows = self._sized_collectives
        return self.mean(rows, self.trace.msg_elems[rows])

    @cached_property
    def _sized_collectives(self) -> Int64:
        rows = self.a.comm_rows
        if not (self.trace.msg_elems[rows] >= 0).any():
            rows = self.a.host("collective_op")
        return rows[self.trace.msg_elems[rows] >= 0]

    def h2d_speed(self) -> Pair:
        rows = self.h2d
        return self.tally(rows, np.maximum(self.trace.bytes[rows], 0)), self.tally(
            rows, self.trace.dur[rows]
        )
