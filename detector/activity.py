"""What happens when: a trace's events by what they do, as rows and as interval sets.

Every number of the features, the evidence and the costs is measured on these sets, so a "loader
wait" or a "scalar read-back" means the same thing everywhere. Everything is computed once, on
demand, without a loop over events.

A trace without device work (a CPU run) has its compute on the host: there "busy" is the union of
the ATen ops outside the data loader. A trace with several devices is analyzed on the busiest one.
"""

from __future__ import annotations

import itertools
import re
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from detector import vocabulary
from detector.index_sets import difference, distinct, groups, union
from detector.intervals import EMPTY, Intervals
from detector.memoize import memoized
from detector.trace import Bool, Cat, Int64, Trace

HOST_NAMED: Final = (Cat.CPU_OP, Cat.USER_ANNOTATION, Cat.PYTHON_FUNCTION)
CALLS: Final = (Cat.RUNTIME, Cat.DRIVER)

# How many characters of a name are searched: real ones have up to 5,000, a hostile one millions.
LONGEST_NAME: Final = 8_192
# How many levels of ops around a launch are searched: they nest a few levels deep.
OP_DEPTH: Final = 8

# A launch reaches an idle device within microseconds; a longer delay has another cause.
STALL_NS: Final = 1_000_000

# Why the host waits in a synchronizing call, most telling first.
SYNC_CAUSES: Final = ("dynamic_shape", "scalar", "h2d", "d2h", "explicit")
# What the host does while the device idles, most telling first; "python" is what no event explains.
IDLE_CAUSES: Final = ("loader", "sync", "alloc", "compile", "comm", "launch", "op", "python")


class Activity:
    """A trace, read as activity. Rows are indices into the trace's columns, in time order."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    # -- names ---------------------------------------------------------------------------------

    @cached_property
    def _names_by_cat(self) -> tuple[Int64, ...]:
        """For each category the names that its events use: few, where the trace has many."""
        count, names = len(Cat), len(self.trace.names)
        used = np.bincount(self.trace.name * np.int64(count) + self.trace.cat)
        table = np.zeros(names * count, np.bool_)
        table[: len(used)] = used > 0
        return tuple(np.flatnonzero(column) for column in table.reshape(names, count).T)

    @memoized
    def _named(self, pattern: re.Pattern[str], *cats: Cat) -> Bool:
        """For each name whether it matches; names that no event of the categories has do not."""
        return self._matches(pattern, *(self._names_by_cat[cat] for cat in cats or Cat))

    def _matches(self, pattern: re.Pattern[str], *groups: Int64) -> Bool:
        """For each name of the trace whether it is in one of the groups and matches."""
        names, search = self.trace.names, pattern.search
        asked = itertools.chain(*(group.tolist() for group in groups))
        matches = np.zeros(len(names), np.bool_)
        matches[[i for i in asked if search(names[i], 0, LONGEST_NAME)]] = True
        return matches

    def named(self, rows: Int64, pattern: re.Pattern[str], *cats: Cat) -> Int64:
        """The rows among ``rows`` whose name matches.

        With the rows' categories the matches are kept for the next call with this pattern;
        without, only the names of these rows are searched.
        """
        if cats and not self._named(pattern, *cats).any():
            return rows[:0]
        name = self.trace.name[rows].astype(np.int64)
        matches = self._named(pattern, *cats) if cats else self._matches(pattern, distinct(name))
        return rows[matches[name]]

    def of(self, *cats: Cat) -> Int64:
        """Rows of these categories, named in any order."""
        return self._of(frozenset(cats))

    @memoized
    def _of(self, cats: frozenset[Cat]) -> Int64:
        return self.trace.rows(*cats)

    @memoized
    def host(self, kind: str) -> Int64:
        """Host events of a kind of ``vocabulary.HOST``."""
        return self.named(self.of(*HOST_NAMED), vocabulary.HOST[kind], *HOST_NAMED)

    @memoized
    def ops(self, kind: str) -> Int64:
        """cpu_ops of a kind of ``vocabulary.HOST``."""
        return self.named(self.of(Cat.CPU_OP), vocabulary.HOST[kind], Cat.CPU_OP)

    @memoized
    def calls(self, kind: str) -> Int64:
        """Runtime and driver calls of a kind of ``vocabulary.CALLS``."""
        return self.named(self.of(*CALLS), vocabulary.CALLS[kind], *CALLS)

    @cached_property
    def aten(self) -> Int64:
        """cpu_ops of the dispatcher ("aten::add", "c10d::allreduce_"); markers are none."""
        return self.named(self.of(Cat.CPU_OP), vocabulary.DISPATCHED, Cat.CPU_OP)

    @cached_property
    def top_ops(self) -> Int64:
        """Outermost aten ops: what the program called, not what an op called in turn, be it by way
        of Python (custom ops, custom autograd functions)."""
        is_op = np.zeros(len(self.trace) + 1, np.bool_)  # the last place takes "no parent"
        is_op[self.aten] = True
        return self.aten[~is_op[self.trace.around(self.aten)]]

    def spans(self, rows: Int64) -> Intervals:
        """The union of these events' times."""
        return Intervals.union(self.trace.start[rows], self.trace.end[rows])

    # -- the device ----------------------------------------------------------------------------

    @cached_property
    def has_device(self) -> bool:
        """Whether the trace holds device work at all."""
        return bool(self.trace.is_device_work.any())

    @cached_property
    def main_device(self) -> int:
        """The device with the most kernel time."""
        kernels = self.of(Cat.KERNEL)
        if not len(kernels):
            kernels = np.flatnonzero(self.trace.is_device_work)
        devices = self.trace.device[kernels]
        if not len(devices):
            return -1
        (ids,), which = groups(devices)
        return int(ids[np.argmax(np.bincount(which, self.trace.dur[kernels]))])

    def _on_main(self, rows: Int64) -> Int64:
        found: Int64 = rows[self.trace.device[rows] == self.main_device]
        return found

    @cached_property
    def kernels(self) -> Int64:
        """Kernel rows of the main device."""
        return self._on_main(self.of(Cat.KERNEL))

    @cached_property
    def copies(self) -> Int64:
        """Memcpy rows of the main device."""
        return self._on_main(self.of(Cat.GPU_MEMCPY))

    @cached_property
    def memsets(self) -> Int64:
        """Memset rows of the main device."""
        return self._on_main(self.of(Cat.GPU_MEMSET))

    @cached_property
    def device_work(self) -> Int64:
        """Kernels, copies and memsets of the main device, in time order."""
        return self._on_main(np.flatnonzero(self.trace.is_device_work))

    @cached_property
    def work(self) -> Int64:
        """What the device runs: ``device_work``; on a CPU run the ops that compute."""
        return self.device_work if self.has_device else self.compute_rows

    @cached_property
    def work_ops(self) -> tuple[Int64, ...]:
        """For each of ``work`` the op that issued it, then the event around that, and so on up."""
        levels = [self.trace.op[self.work].astype(np.int64) if self.has_device else self.work]
        for _ in range(OP_DEPTH - 1):
            above = np.where(levels[-1] >= 0, self.trace.parent[levels[-1]], -1)
            if (above < 0).all():
                break
            levels.append(above.astype(np.int64))
        return tuple(levels)

    def holders(self, rows: Int64, pattern: re.Pattern[str]) -> Int64:
        """Rows of the cpu_ops around these rows whose name matches, each once."""
        named = self._named(pattern, Cat.CPU_OP)
        found, above = [], self.trace.parent[rows].astype(np.int64)
        for _ in range(OP_DEPTH):
            above = above[above >= 0]
            found.append(above[named[self.trace.name[above]]])
            above = self.trace.parent[above].astype(np.int64)
        return union(*found)

    @cached_property
    def kernel_kind(self) -> npt.NDArray[np.int8]:
        """Index into ``KERNEL_KINDS`` (+1; 0 = other) for every name of the trace."""
        kind = np.zeros(len(self.trace.names), np.int8)
        used = distinct(self.trace.name[self.kernels])
        for i in used:
            name = self.trace.names[i][:LONGEST_NAME].lower()
            for code, pattern in enumerate(vocabulary.KERNEL_KINDS.values(), 1):
                if pattern.search(name):
                    kind[i] = code
                    break
        return kind

    def kernels_of(self, kind: str) -> Int64:
        """Kernel rows of a kind of ``vocabulary.KERNEL_KINDS``, or "other"."""
        code = 0 if kind == "other" else 1 + list(vocabulary.KERNEL_KINDS).index(kind)
        found: Int64 = self.kernels[self.kernel_kind[self.trace.name[self.kernels]] == code]
        return found

    def copies_of(self, direction: str) -> Int64:
        """Memcpy rows "h2d", "d2h" or "d2d"."""
        return self.named(self.copies, vocabulary.COPY_DIRECTIONS[direction], Cat.GPU_MEMCPY)

    @cached_property
    def pageable_h2d(self) -> Int64:
        """Host-to-device copies from pageable memory.

        CUDA says so in the name. ROCm does not: there, a copy that the blocking
        hipMemcpyWithStream issued.
        """
        h2d = self.copies_of("h2d")
        named = self._named(vocabulary.PAGEABLE, Cat.GPU_MEMCPY)[self.trace.name[h2d]]
        blocking = self._launched_by(h2d, re.compile(r"^hipMemcpy(WithStream)?$"))
        return h2d[named | blocking]

    def _launched_by(self, rows: Int64, call: re.Pattern[str]) -> Bool:
        launch = self.trace.launch[rows]
        return (launch >= 0) & self._named(call, *CALLS)[self.trace.name[launch]]

    @cached_property
    def comm_rows(self) -> Int64:
        """Collectives where they run: kernels on a device, run annotations on a CPU backend."""
        if not self.has_device:
            return self.host("collective_run")
        kernels = self.kernels
        by_name = self.kernel_kind[self.trace.name[kernels]] == 1
        found: Int64 = kernels[by_name | (self.trace.collective[kernels] >= 0)]
        return found

    @cached_property
    def compute_rows(self) -> Int64:
        """What computes: kernels that are no collectives; on a CPU run the ops."""
        if not self.has_device:
            return self.named(self.of(Cat.CPU_OP), vocabulary.HOST["compute"])
        return difference(self.kernels, self.comm_rows)

    @cached_property
    def compute(self) -> Intervals:
        """Time in which at least one compute kernel (CPU run: op outside the loader) runs."""
        spans = self.spans(self.compute_rows)
        return spans if self.has_device else spans - self.loader

    @cached_property
    def comm(self) -> Intervals:
        """Time in which a collective runs."""
        return self.spans(self.comm_rows)

    @cached_property
    def exposed_comm(self) -> Intervals:
        """Collectives that no compute hides."""
        return self.comm - self.compute

    @cached_property
    def copy(self) -> Intervals:
        """Time in which a copy runs."""
        return self.spans(self.copies)

    @cached_property
    def exposed_copy(self) -> Intervals:
        """Copies that neither compute nor a collective hides."""
        return self.copy - (self.compute | self.comm)

    @cached_property
    def kernel_busy(self) -> Intervals:
        """Time in which any kernel runs; on a CPU run any op."""
        return self.compute | self.comm if self.has_device else self.compute

    @cached_property
    def busy(self) -> Intervals:
        """Time in which the device does anything: kernels, copies, memsets."""
        if not self.has_device:
            return self.compute | self.comm
        return self.spans(self.device_work)

    # -- the host ------------------------------------------------------------------------------

    @cached_property
    def launches(self) -> Int64:
        """Runtime calls that started work of the main device, in time order, each once."""
        launch = self.trace.launch[self.device_work]
        return distinct(launch[launch >= 0])

    @cached_property
    def main_track(self) -> int:
        """The thread that feeds the device: the most launches, else the most op time."""
        rows = self.launches if len(self.launches) else self.of(Cat.CPU_OP)
        if not len(rows):
            rows = self.of(*HOST_NAMED)
        if not len(rows):
            return -1
        weight = None if len(self.launches) else self.trace.dur[rows]
        return int(np.argmax(np.bincount(self.trace.track[rows], weight)))

    @cached_property
    def loader_rows(self) -> Int64:
        """The training thread's calls for the next batch."""
        cats = (Cat.USER_ANNOTATION, Cat.CPU_OP)
        return self.named(self.of(*cats), vocabulary.HOST["loader"], *cats)

    @cached_property
    def loader(self) -> Intervals:
        """Time in which the training thread waits for, or makes, a batch."""
        return self.spans(self.loader_rows)

    @cached_property
    def sync_rows(self) -> Int64:
        """Calls that make the host wait, less the profiler's own at either end of the trace."""
        rows = self.calls("sync")
        if not len(self.launches):
            return rows
        launched = self.trace.start[self.launches]
        inside = (self.trace.end[rows] > launched[0]) & (self.trace.start[rows] < launched[-1])
        # A read-back may well be the last call of all; the profiler's is a device synchronize.
        own = self._named(vocabulary.DEVICE_SYNC, *CALLS)[self.trace.name[rows]]
        found: Int64 = rows[inside | ~own]
        return found

    @cached_property
    def sync_cause(self) -> npt.NDArray[np.int8]:
        """Index into ``SYNC_CAUSES`` for each of ``sync_rows``, by the ops around the call."""
        trace, rows = self.trace, self.sync_rows
        cause = np.full(len(rows), SYNC_CAUSES.index("explicit"), np.int8)
        direction = self.op_copy_direction
        ancestor = trace.op[rows].astype(np.int64)
        for _ in range(12):  # ops nest a few levels deep; Python frames end the climb by -1
            known = ancestor >= 0
            if not known.any():
                break
            names = trace.name[ancestor]
            for code, kind in enumerate(("dynamic_shape", "scalar")):
                hit = known & self._named(vocabulary.HOST[kind], Cat.CPU_OP)[names]
                cause[hit] = np.minimum(cause[hit], code)
            copied = np.where(known, direction[ancestor], -1)
            for code, which in ((2, 0), (3, 1)):
                hit = copied == which
                cause[hit] = np.minimum(cause[hit], code)
            ancestor = np.where(known, trace.parent[ancestor], -1)
        return cause

    @cached_property
    def op_copy_direction(self) -> npt.NDArray[np.int8]:
        """For each row: 0 for an op that copied host to device, 1 device to host, else -1."""
        direction = np.full(len(self.trace), -1, np.int8)
        for code, which in ((0, "h2d"), (1, "d2h")):
            ops = self.trace.op[self.copies_of(which)]
            direction[ops[ops >= 0]] = code
        return direction

    def syncs_of(self, cause: str) -> Int64:
        """Rows of ``sync_rows`` that wait for this cause."""
        found: Int64 = self.sync_rows[self.sync_cause == SYNC_CAUSES.index(cause)]
        return found

    @cached_property
    def sync(self) -> Intervals:
        """Time the host spends in synchronizing calls."""
        return self.spans(self.sync_rows)

    @cached_property
    def alloc(self) -> Intervals:
        """Time in driver calls that allocate, map or free memory."""
        return self.spans(self.calls("alloc"))

    @cached_property
    def compiling(self) -> Intervals:
        """Time in torch.compile's own work."""
        return self.spans(self.host("compile"))

    @cached_property
    def op_time(self) -> Intervals:
        """Time in any cpu_op of any thread, outside the loader."""
        return self.spans(self.aten) - self.loader

    @cached_property
    def call_time(self) -> Intervals:
        """Time in runtime and driver calls."""
        return self.spans(self.of(*CALLS))

    def idle(self, start: int, end: int) -> Intervals:
        """Time of [start, end) in which the device does nothing."""
        return self.busy.invert(start, end)

    @cached_property
    def stalled(self) -> Intervals:
        """Idle of a millisecond or more that no code of this trace explains.

        Either the device's next work has been called for: the call loads its kernel, or the work
        is queued behind other work that began before the recording. Or the host waits although
        all work that was recorded is done.
        """
        if not self.has_device:
            return EMPTY
        trace, rows = self.trace, np.flatnonzero(self.trace.is_device_work)
        pending = Intervals.union(self.called(rows), trace.end[rows])
        waits = difference(self.calls("sync"), trace.launch)
        next_work = self.device_work[
            np.searchsorted(trace.start[self.device_work], self.busy.start)
        ]
        idle_since = np.concatenate([trace.start[:1], self.busy.end[:-1]])
        late = Intervals.union(np.maximum(self.called(next_work), idle_since), self.busy.start)
        return late.lasting(STALL_NS) | (self.spans(waits) - pending - self.busy).lasting(STALL_NS)

    def called(self, work: Int64) -> Int64:
        """When the host called for this work; its own start, where that was not recorded."""
        launch = self.trace.launch[work]
        start = self.trace.start[work]
        return np.where(launch >= 0, np.minimum(self.trace.start[launch], start), start)

    @cached_property
    def _idle_causes(self) -> dict[str, Intervals]:
        trace = self.trace
        if not len(trace):
            return dict.fromkeys(IDLE_CAUSES, EMPTY)
        first, last = int(trace.start.min()), int(trace.end.max())
        doing = {
            "loader": self.loader,
            "sync": self.sync,
            "alloc": self.alloc,
            "compile": self.compiling,
            "comm": self.spans(self.host("collective_run")),
            "launch": self.spans(self.calls("launch")),
            "op": self.op_time | self.call_time,
            "python": Intervals.span(first, last),
        }
        left, causes = self.idle(first, last), {}
        for cause in IDLE_CAUSES:
            causes[cause] = left & doing[cause]
            left = left - causes[cause]
        return causes

    def idle_while(self, cause: str) -> Intervals:
        """Device idle while the host does ``cause`` (of ``IDLE_CAUSES``); disjoint over causes."""
        return self._idle_causes[cause]
