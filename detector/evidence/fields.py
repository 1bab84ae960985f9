"""What the measures are made of: additive amounts, rows and masks of one trace.

A measure is a quotient of two additive amounts, so the region's value and the rest's come from
the same two prefix sums. Time is measured on ``Activity``'s interval sets; events belong to the
span in which they start.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from detector import vocabulary
from detector.activity import Activity
from detector.intervals import Intervals
from detector.trace import NS_PER_US, Bool, Cat, Int64

Amount = Callable[[int, int], float]  # additive over adjacent spans [start, end), ns
Pair = tuple[Amount, Amount]

TINY_KERNEL_NS: Final = 10_000
SMALL_COPY_BYTES: Final = 64 * 1024
SMALL_COLLECTIVE_ELEMS: Final = 256 * 1024  # 1 MB of fp32
BLOCKS_TO_FILL: Final = 100  # multiprocessors of a data-centre GPU, where the file does not say


def _length(start: int, end: int) -> float:
    return float(end - start)


def _one(_start: int, _end: int) -> float:
    return 1.0


class Fields:
    """What the measures are made of, for one trace."""

    def __init__(self, activity: Activity) -> None:
        self.a = activity
        self.trace = activity.trace

    # -- amounts -------------------------------------------------------------------------------

    def tally(self, rows: Int64, weight: npt.NDArray[np.generic] | None = None) -> Amount:
        """Sum of ``weight`` (1 each without) over the rows that start inside."""
        start = self.trace.start[rows]
        one_each = np.ones(len(rows)) if weight is None else weight.astype(np.float64)
        total = np.concatenate([[0.0], np.cumsum(one_each)])

        def amount(s: int, e: int) -> float:
            first, last = np.searchsorted(start, (s, e))
            return float(total[last] - total[first])

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

    def count(self, rows: Int64) -> Pair:
        """Events that start inside."""
        return self.tally(rows), _one

    def mean(self, rows: Int64, value: npt.NDArray[np.generic]) -> Pair:
        """Mean of ``value`` over the rows."""
        return self.tally(rows, value), self.tally(rows)

    def part(self, rows: Int64, which: Bool, weight: npt.NDArray[np.generic] | None = None) -> Pair:
        """Share of the rows (or of their weight) that ``which`` picks."""
        weight = np.ones(len(rows)) if weight is None else weight
        return self.tally(rows, weight * which), self.tally(rows, weight)

    def kernel_time_of(self, which: Bool) -> Pair:
        """Share of the kernel time in these kernels (a mask over ``Activity.kernels``)."""
        return self.part(self.a.kernels, which, self.trace.dur[self.a.kernels])

    # -- rows ----------------------------------------------------------------------------------

    def matching(self, rows: Int64, pattern: re.Pattern[str]) -> Bool:
        return np.isin(rows, self.a.named(rows, pattern))

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
        """From the start of the call to the start of the kernel."""
        rows = self.launched
        delay = self.trace.start[rows] - self.trace.start[self.trace.launch[rows]]
        return np.asarray(np.maximum(delay, 0) / NS_PER_US, np.float64)

    @cached_property
    def starved(self) -> Bool:
        """Of ``launched``: kernels whose call began when the device had nothing left to do."""
        work, rows = self.a.device_work, self.launched
        done = np.maximum.accumulate(self.trace.end[work]) if len(work) else work
        position = np.searchsorted(work, rows)
        before = np.where(position > 0, done[position - 1], np.iinfo(np.int64).min)
        return np.asarray(self.trace.start[self.trace.launch[rows]] >= before, np.bool_)

    @cached_property
    def tiny(self) -> Bool:
        return np.asarray(self.trace.dur[self.a.kernels] < TINY_KERNEL_NS, np.bool_)

    @cached_property
    def unfilled(self) -> Bool:
        """Kernels that are no collectives and start fewer blocks than the device has processors."""
        blocks = self.trace.blocks[self.a.kernels]
        below = (blocks > 0) & (blocks < self._processors)
        return np.asarray(below & (self.kernel_kind != 1), np.bool_)

    @cached_property
    def _processors(self) -> int:
        listed = self.trace.metadata.get("deviceProperties")
        first = listed[0] if isinstance(listed, list) and listed else {}
        known = first.get("numSms") if isinstance(first, dict) else None
        return known if isinstance(known, int) and known > 0 else BLOCKS_TO_FILL

    @cached_property
    def chained(self) -> Bool:
        """Kernels in a run of three or more pointwise or norm kernels."""
        kinds = list(vocabulary.KERNEL_KINDS)
        codes = [1 + kinds.index(kind) for kind in ("pointwise", "norm", "reduce", "copy")]
        light = np.isin(self.kernel_kind, codes)
        edge = np.flatnonzero(np.diff(np.concatenate([[0], light.astype(np.int8), [0]])))
        mask = np.zeros(len(light), np.bool_)
        for first, last in edge.reshape(-1, 2)[np.diff(edge)[::2] >= 3]:
            mask[first:last] = True
        return mask

    @cached_property
    def hostless(self) -> Int64:
        """Top-level cpu_ops of the feeding thread, outside the loader, that call no device."""
        trace, a = self.trace, self.a
        if not a.has_device:
            return np.empty(0, np.int64)
        ops = a.of(Cat.CPU_OP)
        ops = ops[trace.track[ops] == a.main_track]
        # A span covers its calls, so an op without a call inside adds nothing to the call time.
        calls = a.call_time.covered(trace.start[ops], trace.end[ops])
        top = Intervals.union(trace.start[ops], trace.end[ops])
        first = np.isin(trace.start[ops], top.start)
        waits = a.loader.covered(trace.start[ops], trace.end[ops])
        return np.asarray(ops[first & (calls == 0) & (waits == 0)], np.int64)

    # -- shapes --------------------------------------------------------------------------------

    def _dims(self, rows: Int64, test: Callable[[list[list[int]]], bool]) -> Bool:
        """Which rows' "Input Dims" pass the test; each distinct text is parsed once."""
        ids, which = np.unique(self.trace.dims[rows], return_inverse=True)
        passed = [i >= 0 and test(parse_dims(self.trace.names[i])) for i in ids]
        return np.array(passed, np.bool_)[which] if len(rows) else np.empty(0, np.bool_)

    def odd_matmul(self) -> Pair:
        """Share of the matrix products with a side that is no multiple of 8."""
        rows = self.a.ops("matmul")
        return self.part(rows, self._dims(rows, _odd_sides), self.trace.dur[rows])

    def biased_conv(self) -> Pair:
        """Convolutions with a bias."""
        rows = self.a.named(self.a.of(Cat.CPU_OP), re.compile(r"^aten::conv[123]d$"))
        return self.count(rows[self._dims(rows, _third_operand)])

    def pointwise_runs(self) -> Pair:
        """Share of the time in top-level pointwise ops (for runs without a device)."""
        return self.time(self.a.ops("pointwise"))

    # -- sums over the trace -------------------------------------------------------------------

    def graph_ops(self) -> Pair:
        """Share of the ops that record a node of the autograd graph."""
        rows = self.a.of(Cat.CPU_OP)
        return self.part(rows, self.trace.sequence[rows] >= 0)

    def sync_time(self, cause: str) -> Pair:
        return self.time(self.a.syncs_of(cause))

    def sync_count(self, cause: str) -> Pair:
        return self.count(self.a.syncs_of(cause))

    def collective_elements(self) -> Pair:
        rows = self._sized_collectives
        return self.mean(rows, self.trace.msg_elems[rows])

    @cached_property
    def _sized_collectives(self) -> Int64:
        rows = self.a.comm_rows
        if not (self.trace.msg_elems[rows] >= 0).any():
            rows = self.a.host("collective_op")
        return rows[self.trace.msg_elems[rows] >= 0]

    def small_collectives(self) -> Pair:
        rows = self._sized_collectives
        return self.count(rows[self.trace.msg_elems[rows] < SMALL_COLLECTIVE_ELEMS])

    def h2d_speed(self) -> Pair:
        rows = self.h2d
        return self.tally(rows, np.maximum(self.trace.bytes[rows], 0)), self.tally(
            rows, self.trace.dur[rows]
        )


def parse_dims(text: str) -> list[list[int]]:
    """ "[[8, 3], [], [[2], [2]]]" -> the sides of each operand: lists in lists are flattened."""
    operands: list[list[int]] = []
    depth = 0
    for token in re.findall(r"\[|\]|-?\d+", text[:4_000]):
        if token == "[":
            depth += 1
            if depth == 2:
                operands.append([])
        elif token == "]":
            depth -= 1
        elif depth >= 2:
            operands[-1].append(int(token))
    return operands


def _odd_sides(operands: list[list[int]]) -> bool:
    matrices = [sides[-2:] for sides in operands if len(sides) >= 2]
    return any(side % 8 for sides in matrices for side in sides if side > 1)


def _third_operand(operands: list[list[int]]) -> bool:
    return len(operands) >= 3 and len(operands[2]) == 1
