"""A trace in columns: what every later stage reads, and what none of them changes.

Times are int64 nanoseconds on the file's own axis (``base_ns`` is kept apart, for merging ranks).
Rows are duration events sorted by start; of two that start together the longer comes first, so a
parent precedes its children. "Absent" is -1 in every integer column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

NS_PER_US = 1_000
NS_PER_MS = 1_000_000


class Cat(IntEnum):
    """Kineto's categories, in its newest spelling; the reader maps older ones onto these."""

    CPU_OP = 0
    USER_ANNOTATION = 1
    PYTHON_FUNCTION = 2
    RUNTIME = 3  # cuda_runtime (hip* too), xpu_runtime, mtia_runtime, privateuse1_runtime
    DRIVER = 4  # cuda_driver, ...
    OVERHEAD = 5  # the profiler's own
    KERNEL = 6
    GPU_MEMCPY = 7
    GPU_MEMSET = 8
    GPU_USER_ANNOTATION = 9
    CUDA_SYNC = 10  # device side of a synchronization; never device work
    MTIA = 11  # mtia_ccp_events, mtia_insight
    OTHER = 12  # a category this version does not know: kept, counted, used for nothing


DEVICE_WORK = (Cat.KERNEL, Cat.GPU_MEMCPY, Cat.GPU_MEMSET)
HOST_CATS = (Cat.CPU_OP, Cat.USER_ANNOTATION, Cat.PYTHON_FUNCTION, Cat.RUNTIME, Cat.DRIVER)

Vendor = Literal["cuda", "rocm", "mtia", "xpu", "cpu"]


@dataclass(frozen=True)
class Track:
    """A host thread or a device stream. ``pid`` and ``tid`` are the file's own words."""

    pid: str
    tid: str
    is_device: bool
    device: int = -1
    stream: int = -1


@dataclass(frozen=True)
class Step:
    """One marked step; ``warmup`` where it compiles, autotunes or allocates unlike the rest."""

    name: str
    start: int
    end: int
    warmup: bool = False


@dataclass(frozen=True)
class Coverage:
    """What was read, repaired and dropped: nothing is left out without being counted here."""

    read_fraction: float = 1.0
    repaired: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    # Read but not kept as rows, by phase or purpose: flows, instants, counters, metadata.
    other: dict[str, int] = field(default_factory=dict)
    kernels_with_launch: float = 1.0  # share of device events that have a runtime call
    kernels_with_op: float = 1.0  # share of device events that have a cpu_op

    @property
    def is_cut_off(self) -> bool:
        """Whether the file ends early: later events may be missing."""
        return not self.repaired.keys().isdisjoint(("truncated gz", "no closing bracket"))


@dataclass(frozen=True)
class Source:
    """Where a trace came from."""

    path: str
    sha256: str
    bytes: int  # of the file as stored
    events: int  # all events of the file, of any phase


@dataclass(frozen=True, eq=False)
class Trace:
    """One rank's trace, as columns of equal length ``n``."""

    start: Int64
    dur: Int64
    cat: Int8  # Cat
    name: Int32  # index into names
    track: Int32  # index into tracks
    correlation: Int64
    external_id: Int64
    device: Int32
    stream: Int64
    bytes: Int64
    blocks: Int64  # grid x*y*z
    threads: Int64  # block x*y*z
    collective: Int32  # index into names: "Collective name"
    group: Int32  # index into names: "Process Group Name"
    group_ranks: Int32  # index into names: text of "Process Group Ranks", e.g. "[0, 1]"
    group_size: Int64  # "Group size"
    msg_elems: Int64  # "In msg nelems"
    element_type: Int32  # index into names: "dtype" of a collective
    comm_sequence: Int64  # "Seq": of a collective in its group
    dims: Int32  # index into names: text of "Input Dims", e.g. "[[8, 3], []]"
    types: Int32  # index into names: text of "Input type"
    sequence: Int64  # autograd "Sequence number"
    launch: Int32  # device event -> its runtime or driver call
    parent: Int32  # host event -> the event around it on its thread
    op: Int32  # device event or runtime call -> the innermost cpu_op that issued it
    names: tuple[str, ...]
    tracks: tuple[Track, ...]
    steps: tuple[Step, ...]
    metadata: dict[str, object]  # everything of the file beside traceEvents, small values only
    source: Source
    coverage: Coverage
    base_ns: int = 0
    has_shapes: bool = False
    has_stacks: bool = False  # python_function events
    rank: int | None = None

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def end(self) -> Int64:
        """start + dur, ns."""
        return self.start + self.dur

    @cached_property
    def is_device_work(self) -> Bool:
        """Kernels, copies and memsets (graph kernels too); not annotations, not sync rows."""
        return self.is_of(DEVICE_WORK)

    @cached_property
    def vendor(self) -> Vendor:
        """Whose device this is, by names and categories; "cpu" without device work."""
        if not self.is_device_work.any():
            return "mtia" if (self.cat == Cat.MTIA).any() else "cpu"
        runtime = np.unique(self.name[self.cat == Cat.RUNTIME])
        names = [self.names[i] for i in runtime]
        if any(n.startswith("hip") for n in names):
            return "rocm"
        if any(n.startswith(("ur", "ze")) for n in names):
            return "xpu"
        properties = str(self.metadata.get("deviceProperties", ""))
        return "rocm" if "AMD" in properties or "gfx" in properties else "cuda"

    @property
    def kernels(self) -> int:
        """How many kernels there are, on all devices."""
        return int((self.cat == Cat.KERNEL).sum())

    @cached_property
    def device_names(self) -> tuple[str, ...]:
        """The devices' names as the file gives them, each once; empty where it gives none."""
        properties = self.metadata.get("deviceProperties")
        rows = properties if isinstance(properties, list) else []
        used = set(self.device[self.is_device_work].tolist())
        named = [r for r in rows if isinstance(r, dict) and r.get("name")]
        here = [r for r in named if r.get("id") in used] or named
        return tuple(dict.fromkeys(str(r["name"]) for r in here))

    def without_ids(self) -> Trace:
        """The same without the ids by which its events were linked: no later stage uses them."""
        none = np.broadcast_to(np.int64(-1), len(self))
        return replace(self, correlation=none, external_id=none)

    def around(self, rows: Int64) -> Int64:
        """The innermost event around each that is no Python frame; -1 where there is none."""
        found = self.parent[rows].astype(np.int64)
        frame = np.append(self.cat == Cat.PYTHON_FUNCTION, False)  # the last place takes -1
        while frame[found].any():
            found = np.where(frame[found], self.parent[found], found)
        return found

    def rows(self, *cats: Cat) -> Int64:
        """Indices of the events of these categories, in time order."""
        return np.flatnonzero(self.is_of(cats))

    def is_of(self, cats: Iterable[Cat]) -> Bool:
        """Whether each row is of one of these categories."""
        table = np.zeros(len(Cat), np.bool_)
        table[list(cats)] = True
        return table.take(self.cat)  # faster than by []
