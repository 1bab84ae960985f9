"""A trace read by slow, obvious loops: the oracle of the feature tests.

Times are whole µs ("ticks"), and a set of time is a Python set of ticks. Nothing here uses the
code it checks but the names of ``vocabulary``, which say what is what.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from detector import vocabulary
from detector.trace import DEVICE_WORK, Cat, Trace

Ticks = set[int]
HOST_NAMED = (Cat.CPU_OP, Cat.USER_ANNOTATION, Cat.PYTHON_FUNCTION)
CALLS = (Cat.RUNTIME, Cat.DRIVER)
FUSABLE = ("pointwise", "copy", "norm", "softmax", "reduce", "fill")
NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Row:
    """One event; texts are "" and numbers -1 where absent."""

    i: int
    cat: Cat
    name: str
    start: int
    end: int
    track: int
    device: int
    stream: int
    bytes: int
    blocks: int
    collective: str
    group: int
    msg_elems: int
    dims: str
    types: str
    sequence: int
    launch: int
    parent: int
    op: int

    @property
    def ticks(self) -> range:
        return range(self.start, self.end)


def ticks(rows: Iterable[Row]) -> Ticks:
    return {tick for row in rows for tick in row.ticks}


def shape_list(text: str) -> list:
    try:
        return json.loads(text)
    except ValueError:
        return []


def is_shape(value: object) -> bool:
    return isinstance(value, list) and value != [] and all(isinstance(v, int) for v in value)


class Slow:
    """The sets of a trace, by plain loops."""

    def __init__(self, trace: Trace) -> None:
        names = (*trace.names, "")  # index -1 is ""
        self.trace = trace
        self.rows = [
            Row(
                i=i,
                cat=Cat(int(trace.cat[i])),
                name=names[trace.name[i]],
                start=int(trace.start[i]) // 1_000,
                end=int(trace.start[i] + trace.dur[i]) // 1_000,
                track=int(trace.track[i]),
                device=int(trace.device[i]),
                stream=int(trace.stream[i]),
                bytes=int(trace.bytes[i]),
                blocks=int(trace.blocks[i]),
                collective=names[trace.collective[i]],
                group=int(trace.group[i]),
                msg_elems=int(trace.msg_elems[i]),
                dims=names[trace.dims[i]],
                types=names[trace.types[i]],
                sequence=int(trace.sequence[i]),
                launch=int(trace.launch[i]),
                parent=int(trace.parent[i]),
                op=int(trace.op[i]),
            )
            for i in range(len(trace))
        ]
        self.all: Ticks = set(range(min(r.start for r in self.rows), max(r.end for r in self.rows)))

    def where(self, test: Callable[[Row], object]) -> list[Row]:
        return [row for row in self.rows if test(row)]

    # -- by name -----------------------------------------------------------------------------------

    def host(self, kind: str) -> list[Row]:
        return self.where(lambda r: r.cat in HOST_NAMED and vocabulary.HOST[kind].search(r.name))

    def ops(self, kind: str) -> list[Row]:
        return [r for r in self.host(kind) if r.cat == Cat.CPU_OP]

    def calls(self, kind: str) -> list[Row]:
        return self.where(lambda r: r.cat in CALLS and vocabulary.CALLS[kind].search(r.name))

    @cached_property
    def op(self) -> list[Row]:
        return self.where(lambda r: r.cat == Cat.CPU_OP and vocabulary.DISPATCHED.search(r.name))

    @cached_property
    def top(self) -> list[Row]:
        inside, above = {r.i for r in self.op}, {r.i: r.parent for r in self.rows}

        def around(row: Row) -> int:
            place = row.parent
            while place in {r.i for r in self.frame}:
                place = above[place]
            return place

        return [r for r in self.op if around(r) not in inside]

    @cached_property
    def call(self) -> list[Row]:
        return self.where(lambda r: r.cat in CALLS)

    @cached_property
    def frame(self) -> list[Row]:
        return self.where(lambda r: r.cat == Cat.PYTHON_FUNCTION)

    # -- the device --------------------------------------------------------------------------------

    @cached_property
    def has_device(self) -> bool:
        return any(r.cat in DEVICE_WORK for r in self.rows)

    @cached_property
    def work(self) -> list[Row]:
        """Device work; the generated traces have one device."""
        return self.where(lambda r: r.cat in DEVICE_WORK)

    @cached_property
    def kernel(self) -> list[Row]:
        return self.where(lambda r: r.cat == Cat.KERNEL)

    def kind(self, row: Row) -> str:
        for kind, pattern in vocabulary.KERNEL_KINDS.items():
            if pattern.search(row.name.lower()):
                return kind
        return "other"

    def kernels(self, *kinds: str) -> list[Row]:
        return [r for r in self.kernel if self.kind(r) in kinds]

    @cached_property
    def copy(self) -> list[Row]:
        return self.where(lambda r: r.cat == Cat.GPU_MEMCPY)

    def copies(self, way: str) -> list[Row]:
        return [r for r in self.copy if vocabulary.COPY_DIRECTIONS[way].search(r.name)]

    @cached_property
    def pageable(self) -> list[Row]:
        return [
            r
            for r in self.copies("h2d")
            if "Pageable" in r.name
            or (r.launch >= 0 and self.rows[r.launch].name in ("hipMemcpy", "hipMemcpyWithStream"))
        ]

    @cached_property
    def collective(self) -> list[Row]:
        if not self.has_device:
            return self.host("collective_run")
        return [r for r in self.kernel if self.kind(r) == "comm" or r.collective]

    @cached_property
    def compute_rows(self) -> list[Row]:
        if not self.has_device:
            known = vocabulary.HOST["compute"]
            return self.where(lambda r: r.cat == Cat.CPU_OP and known.search(r.name))
        return [r for r in self.kernel if r not in self.collective]

    @cached_property
    def compute(self) -> Ticks:
        found = ticks(self.compute_rows)
        return found if self.has_device else found - self.loader

    @cached_property
    def busy(self) -> Ticks:
        return ticks(self.work) if self.has_device else self.compute | ticks(self.collective)

    @cached_property
    def idle(self) -> Ticks:
        return self.all - self.busy

    @cached_property
    def launched(self) -> list[Row]:
        return [r for r in self.work if r.launch >= 0]

    @cached_property
    def launch(self) -> list[Row]:
        return [self.rows[i] for i in sorted({r.launch for r in self.launched})]

    @cached_property
    def launch_cost(self) -> float:
        return statistics.median(r.end - r.start for r in self.launch) if self.launch else NAN

    def starved(self) -> list[Row]:
        return [
            r
            for n, r in enumerate(self.work)
            if r.launch >= 0
            and all(self.rows[r.launch].start >= earlier.end for earlier in self.work[:n])
        ]

    def blocking(self) -> list[Row]:
        return [r for r in self.kernel if r.launch >= 0 and r.end <= self.rows[r.launch].end]

    def depth(self, launch: Row) -> float:
        """Calls before this one whose first work starts after it."""
        first: dict[int, int] = {}
        for row in self.launched:
            first.setdefault(row.launch, row.start)
        before = sum(call < launch.i for call in first)
        started = sum(start <= launch.start for start in first.values())
        return math.log2(1 + max(before - started, 0))

    @cached_property
    def sms(self) -> int:
        devices = self.trace.metadata.get("deviceProperties")
        return devices[0]["numSms"] if devices else 0

    def sized_kernels(self) -> list[Row]:
        return [r for r in self.kernel if r.blocks > 0 and self.sms > 0]

    def third_in_a_row(self, rows: list[Row], test: Callable[[Row], object]) -> list[Row]:
        return [
            r for n, r in enumerate(rows) if n >= 2 and all(test(x) for x in rows[n - 2 : n + 1])
        ]

    def matrix(self) -> list[Row]:
        return self.kernels("gemm", "conv")

    def bounced(self) -> list[Row]:
        back, there = self.copies("d2h"), self.copies("h2d")
        both = [r for r in self.copy if r in back or r in there]
        return [r for n, r in enumerate(both) if n and r in there and both[n - 1] in back]

    # -- the host ----------------------------------------------------------------------------------

    @cached_property
    def loader_rows(self) -> list[Row]:
        return [r for r in self.host("loader") if r.cat != Cat.PYTHON_FUNCTION]

    @cached_property
    def loader(self) -> Ticks:
        return ticks(self.loader_rows)

    @cached_property
    def main_track(self) -> int:
        weight: dict[int, int] = {}
        rows = self.launch or self.where(lambda r: r.cat == Cat.CPU_OP)
        for row in rows or self.where(lambda r: r.cat in HOST_NAMED):
            more = 1 if self.launch else row.end - row.start
            weight[row.track] = weight.get(row.track, 0) + more
        return min(weight, key=lambda t: (-weight[t], t)) if weight else -1

    def main(self, rows: list[Row]) -> Ticks:
        return ticks(r for r in rows if r.track == self.main_track)

    @cached_property
    def sync(self) -> list[Row]:
        rows = self.calls("sync")
        if not self.launch:
            return rows
        first, last = self.launch[0].start, self.launch[-1].start
        return [
            r
            for r in rows
            if (r.end > first and r.start < last)
            or not r.name.endswith(("DeviceSynchronize", "CtxSynchronize", "ContextSynchronize"))
        ]

    def above(self, row: Row) -> list[Row]:
        """The ops around a call, innermost first."""
        found, at = [], row.op
        while at >= 0:
            found.append(self.rows[at])
            at = self.rows[at].parent
        return found

    def cause(self, row: Row) -> str:
        around = self.above(row)
        for kind in ("dynamic_shape", "scalar"):
            if any(o.cat == Cat.CPU_OP and vocabulary.HOST[kind].search(o.name) for o in around):
                return kind
        for way in ("h2d", "d2h"):
            if any(self.copied(o) == way for o in around):
                return way
        return "explicit"

    def copied(self, op: Row) -> str:
        ways = [way for way in ("h2d", "d2h") if any(c.op == op.i for c in self.copies(way))]
        return ways[-1] if ways else ""

    def syncs(self, cause: str) -> list[Row]:
        return [r for r in self.sync if self.cause(r) == cause]

    @cached_property
    def op_time(self) -> Ticks:
        return ticks(self.op) - self.loader

    def idle_while(self, cause: str) -> Ticks:
        doing = {
            "loader": self.loader,
            "sync": ticks(self.sync),
            "alloc": ticks(self.calls("alloc")),
            "compile": ticks(self.host("compile")),
            "comm": ticks(self.host("collective_run")),
            "launch": ticks(self.calls("launch")),
            "op": self.op_time | ticks(self.call),
            "python": self.all,
        }
        left = self.idle
        for name, what in doing.items():
            if name == cause:
                return left & what
            left = left - what
        raise KeyError(cause)

    @cached_property
    def blank(self) -> Ticks:
        return self.all - (
            self.op_time | ticks(self.call) | self.loader | ticks(self.host("compile"))
        )

    def silent(self) -> list[Row]:
        parents = {r.parent for r in self.rows if r.cat == Cat.CPU_OP}
        callers = {r.op for r in self.call}
        return [
            r
            for r in self.op
            if self.has_device
            and r.i not in parents
            and r.i not in callers
            and r.end - r.start >= 50
        ]

    # -- what follows what -------------------------------------------------------------------------

    def looped(self, period: int, key: Callable[[Row], object]) -> list[Row]:
        keys = [key(r) for r in self.top]
        return [
            r
            for n, r in enumerate(self.top)
            if n >= 5 * period
            and all(keys[n - i * period] == keys[n - (i + 1) * period] for i in range(5))
        ]

    def novel(self) -> list[Row]:
        return [
            r
            for n, r in enumerate(self.top)
            if r.name not in [o.name for o in self.top[max(n - 32, 0) : n]]
        ]

    def dense_selects(self) -> list[Row]:
        selects = self.ops("select")
        return [
            r
            for n, r in enumerate(self.top)
            if r in selects and any(o in selects for o in self.top[max(n - 12, 0) : n])
        ]

    def inside(self, rows: list[Row], spans: list[Row]) -> list[Row]:
        return [r for r in rows if r.start in ticks(spans)]

    def unless_backward(self, rows: list[Row]) -> list[Row]:
        return [] if self.host("backward") else rows

    def message(self, row: Row) -> int:
        return row.msg_elems * 4 if row.msg_elems >= 0 else row.bytes

    def sized_collectives(self) -> list[Row]:
        return [r for r in self.collective if self.message(r) >= 0]

    def repeated_collectives(self) -> list[Row]:
        steps, seen, found = self.host("optimizer_step"), set(), []
        for row in self.sized_collectives():
            since = sum(step.start <= row.start for step in steps)
            key = (since, row.name, row.group, self.message(row))
            if key in seen and steps:
                found.append(row)
            seen.add(key)
        return found

    # -- shapes ------------------------------------------------------------------------------------

    def misaligned(self) -> list[Row]:
        def bad(row: Row) -> bool:
            for shape in shape_list(row.dims):
                if is_shape(shape) and len(shape) > 1:
                    for side in shape[-2:]:
                        if side >= 16 and side % 8 != 0:
                            return True
            return False

        return [r for r in self.ops("matmul") if bad(r)]

    def appends(self) -> list[Row]:
        def grows(row: Row) -> bool:
            tensors = (shape_list(row.dims) or [None])[0]
            if not (
                isinstance(tensors, list) and len(tensors) == 2 and all(map(is_shape, tensors))
            ):
                return False
            first, second = tensors
            pairs = [(a, b) for a, b in zip(first, second, strict=False) if a != b]
            return len(first) == len(second) and len(pairs) == 1 and pairs[0][0] >= 8 * pairs[0][1]

        return [r for r in self.ops("cat") if grows(r)]

    def casts(self, *types: str) -> list[Row]:
        moved = [o for o in self.rows if self.copied(o)]
        around = {o.i for o in moved} | {o.parent for o in moved}
        rows = [r for r in self.ops("cast") if r.i not in around]
        return [r for r in rows if not types or (shape_list(r.types) or [""])[0] in types]

    def repeated_casts(self) -> list[Row]:
        casts = self.casts()
        return [
            r
            for n, r in enumerate(casts)
            if r.dims and r.dims in [o.dims for o in casts[max(n - 64, 0) : n]]
        ]

    def biased_pairs(self) -> list[tuple[Row, Row]]:
        conv, norm = self.ops("conv_call"), self.ops("batch_norm_call")
        both = [r for r in self.rows if r in conv or r in norm]
        added = {o.i for add in self.ops("add") for o in self.around(add)}
        return [
            (before, r)
            for before, r in pairwise(both)
            if r in norm
            and before in conv
            and (is_shape((shape_list(before.dims) + [0] * 3)[2]) or before.i in added)
        ]

    def around(self, row: Row) -> list[Row]:
        """The eight events around an event, innermost first."""
        found, at = [], row.parent
        while at >= 0 and len(found) < 8:
            found.append(self.rows[at])
            at = self.rows[at].parent
        return found

    def conv_bias(self) -> list[Row]:
        conv, backward = self.issued_under(self.ops("conv_call")), self.ops("conv_backward")
        added = [w for w in self.issued_under(self.ops("add")) if w in conv]
        summed = [w for w in self.issued_under(backward) if w in self.kernels("reduce")]
        return added + [w for w in summed if w not in added]

    # -- what the host asked for -------------------------------------------------------------------

    @cached_property
    def run(self) -> list[Row]:
        return self.work if self.has_device else self.compute_rows

    def askers(self, row: Row) -> list[Row]:
        """The op that issued a piece of work (CPU run: that is it), and what is around that."""
        return self.above(row)[:8] if self.has_device else [row, *self.around(row)][:8]

    def issued_under(self, ops: list[Row]) -> list[Row]:
        return [w for w in self.run if any(o in ops for o in self.askers(w))]

    def launched_during(self, rows: list[Row]) -> list[Row]:
        time = ticks(rows)
        if not self.has_device:
            return [w for w in self.run if w.start in time]
        return [w for w in self.launched if self.rows[w.launch].start in time]


@dataclass(frozen=True)
class Look:
    """A window on a slow trace, in ticks; ``lengths`` are those of all windows looked through."""

    slow: Slow
    start: int
    end: int
    lengths: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        return self.end - self.start

    def covered(self, what: Ticks | list[Row]) -> int:
        time = what if isinstance(what, set) else ticks(what)
        return sum(tick in time for tick in range(self.start, self.end))

    def share(self, what: Ticks | list[Row]) -> float:
        return self.covered(what) / self.length

    def longest(self, what: Ticks) -> int:
        best = run = 0
        for tick in range(self.start, self.end):
            run = run + 1 if tick in what else 0
            best = max(best, run)
        return best

    def starting(self, rows: list[Row]) -> list[Row]:
        return [r for r in rows if self.start <= r.start < self.end]

    def count(self, rows: list[Row]) -> int:
        return len(self.starting(rows))

    def spent(self, rows: list[Row]) -> int:
        return sum(self.start <= tick < self.end for r in rows for tick in r.ticks)

    def weights(self, rows: list[Row], weight: Callable[[Row], float]) -> list[float]:
        return [weight(r) for r in self.starting(rows)]

    def mean(self, rows: list[Row], weight: Callable[[Row], float]) -> float:
        values = self.weights(rows, weight)
        return sum(values) / len(values) if values else NAN


def over(part: float, whole: float) -> float:
    return part / whole if whole > 0 else NAN


def log(value: float) -> float:
    return math.log2(value) if value > 0 else NAN


def log1p(value: float) -> float:
    return math.log2(1 + value)
