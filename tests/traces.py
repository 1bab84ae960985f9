"""Traces written by hand: short event lists become a ``Trace`` without a file or the reader.

Times are µs. Links are found by slow, obvious loops, so a test never leans on the code it tests:

    trace_of(
        op("aten::mm", 0, 10),
        launch(2, 3, corr=1),
        kernel("sgemm", 6, 20, corr=1),
    )
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from detector.trace import DEVICE_WORK, Cat, Coverage, Source, Step, Trace, Track

CALLS = (Cat.RUNTIME, Cat.DRIVER)
ON_DEVICE = (*DEVICE_WORK, Cat.GPU_USER_ANNOTATION, Cat.CUDA_SYNC, Cat.MTIA)


@dataclass(frozen=True)
class Event:
    """One event; times in µs, -1 or "" where the file would say nothing."""

    cat: Cat
    name: str
    start: float
    dur: float
    thread: int = 1
    corr: int = -1
    external_id: int = -1
    device: int = -1
    stream: int = -1
    bytes: int = -1
    blocks: int = -1
    threads: int = -1
    collective: str = ""
    group: str = ""
    group_ranks: str = ""
    group_size: int = -1
    msg_elems: int = -1
    element_type: str = ""
    comm_sequence: int = -1
    dims: str = ""
    types: str = ""
    sequence: int = -1

    @property
    def start_ns(self) -> int:
        return round(self.start * 1_000)

    @property
    def dur_ns(self) -> int:
        return round(self.dur * 1_000)

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.dur_ns

    @property
    def place(self) -> Track:
        if self.cat in ON_DEVICE:
            return Track(str(self.device), str(self.stream), True, self.device, self.stream)
        return Track("1", str(self.thread), False)

    def holds(self, other: Event) -> bool:
        return self.start_ns <= other.start_ns and other.end_ns <= self.end_ns


# -- events --------------------------------------------------------------------------------------


def op(name: str, start: float, dur: float, **rest: object) -> Event:
    """A cpu_op."""
    return Event(Cat.CPU_OP, name, start, dur, **rest)  # type: ignore[arg-type]


def annotation(name: str, start: float, dur: float, **rest: object) -> Event:
    """A user_annotation: record_function, loader, optimizer step."""
    return Event(Cat.USER_ANNOTATION, name, start, dur, **rest)  # type: ignore[arg-type]


def python(name: str, start: float, dur: float, **rest: object) -> Event:
    """A python_function frame."""
    return Event(Cat.PYTHON_FUNCTION, name, start, dur, **rest)  # type: ignore[arg-type]


def call(name: str, start: float, dur: float, **rest: object) -> Event:
    """A runtime call."""
    return Event(Cat.RUNTIME, name, start, dur, **rest)  # type: ignore[arg-type]


def launch(start: float, dur: float, corr: int = -1, **rest: object) -> Event:
    """A kernel launch."""
    return call("cudaLaunchKernel", start, dur, corr=corr, **rest)


def sync(start: float, dur: float, name: str = "cudaStreamSynchronize", **rest: object) -> Event:
    """A synchronizing call."""
    return call(name, start, dur, **rest)


def kernel(
    name: str, start: float, dur: float, corr: int = -1, stream: int = 7, **rest: object
) -> Event:
    """A kernel, of device 0 unless said otherwise."""
    given = {"device": 0, "blocks": 128, "threads": 256, **rest}
    return Event(Cat.KERNEL, name, start, dur, corr=corr, stream=stream, **given)  # type: ignore[arg-type]


def memcpy(
    name: str, start: float, dur: float, size: int, corr: int = -1, stream: int = 7, **rest: object
) -> Event:
    """A copy; ``name`` as Kineto has it, e.g. "Memcpy HtoD (Pageable -> Device)"."""
    given = {"device": 0, **rest}
    return Event(
        Cat.GPU_MEMCPY,
        name,
        start,
        dur,
        corr=corr,
        stream=stream,
        bytes=size,
        **given,  # type: ignore[arg-type]
    )


def memset(start: float, dur: float, corr: int = -1, stream: int = 7, **rest: object) -> Event:
    """A memset of device 0."""
    given = {"device": 0, **rest}
    return Event(
        Cat.GPU_MEMSET,
        "Memset (Device)",
        start,
        dur,
        corr=corr,
        stream=stream,
        **given,  # type: ignore[arg-type]
    )


def repeat(events: Sequence[Event], times: int, every: float) -> tuple[Event, ...]:
    """The events again and again, ``every`` µs apart, with correlations of their own."""
    span = 1 + max((event.corr for event in events), default=0)
    return tuple(
        replace(
            event,
            start=event.start + i * every,
            corr=event.corr + i * span if event.corr >= 0 else -1,
        )
        for i in range(times)
        for event in events
    )


# -- the trace -----------------------------------------------------------------------------------


def trace_of(
    *events: Event,
    steps: Sequence[tuple[float, float]] = (),
    metadata: Mapping[str, object] | None = None,
    path: str = "hand.json",
    rank: int | None = None,
) -> Trace:
    """A linked trace of these events, in any order; ``steps`` are (start, end) in µs."""
    rows = sorted(events, key=lambda e: (e.start_ns, -e.end_ns))
    names = _texts(rows)
    tracks = tuple(dict.fromkeys(event.place for event in rows))
    launch_of = [_launch(event, rows) for event in rows]
    parent = [_parent(i, rows) for i in range(len(rows))]
    op_of = [_op(i, rows, launch_of, parent) for i in range(len(rows))]
    device = [i for i, event in enumerate(rows) if event.cat in DEVICE_WORK]

    def text(values: Sequence[str]) -> np.ndarray:
        return np.array([names.index(v) if v else -1 for v in values], np.int32)

    def ints(values: Sequence[int], kind: type = np.int64) -> np.ndarray:
        return np.array(values, kind)

    return Trace(
        start=ints([e.start_ns for e in rows]),
        dur=ints([e.dur_ns for e in rows]),
        cat=ints([e.cat for e in rows], np.int8),
        name=text([e.name for e in rows]),
        track=ints([tracks.index(e.place) for e in rows], np.int32),
        correlation=ints([e.corr for e in rows]),
        external_id=ints([e.external_id for e in rows]),
        device=ints([e.device for e in rows], np.int32),
        stream=ints([e.stream for e in rows]),
        bytes=ints([e.bytes for e in rows]),
        blocks=ints([e.blocks for e in rows]),
        threads=ints([e.threads for e in rows]),
        collective=text([e.collective for e in rows]),
        group=text([e.group for e in rows]),
        group_ranks=text([e.group_ranks for e in rows]),
        group_size=ints([e.group_size for e in rows]),
        msg_elems=ints([e.msg_elems for e in rows]),
        element_type=text([e.element_type for e in rows]),
        comm_sequence=ints([e.comm_sequence for e in rows]),
        dims=text([e.dims for e in rows]),
        types=text([e.types for e in rows]),
        sequence=ints([e.sequence for e in rows]),
        launch=ints(launch_of, np.int32),
        parent=ints(parent, np.int32),
        op=ints(op_of, np.int32),
        names=tuple(names),
        tracks=tracks,
        steps=tuple(
            Step(f"ProfilerStep#{i}", round(start * 1_000), round(end * 1_000))
            for i, (start, end) in enumerate(steps)
        ),
        metadata=dict(metadata or {}),
        source=Source(path, "0" * 64, 0, len(rows)),
        coverage=Coverage(
            kernels_with_launch=_share([launch_of[i] >= 0 for i in device]),
            kernels_with_op=_share([op_of[i] >= 0 for i in device]),
        ),
        has_shapes=any(event.dims for event in rows),
        has_stacks=any(event.cat == Cat.PYTHON_FUNCTION for event in rows),
        rank=rank,
    )


def _texts(rows: Sequence[Event]) -> list[str]:
    texts = (
        t
        for e in rows
        for t in (e.name, e.collective, e.group, e.group_ranks, e.element_type, e.dims, e.types)
        if t
    )
    return list(dict.fromkeys(texts))


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 1.0


def _launch(event: Event, rows: Sequence[Event]) -> int:
    """A device event's call: the one with its correlation."""
    if event.cat not in ON_DEVICE or event.corr < 0:
        return -1
    return next((i for i, e in enumerate(rows) if e.cat in CALLS and e.corr == event.corr), -1)


def _parent(i: int, rows: Sequence[Event]) -> int:
    """The innermost event around this one on its thread: the last before it that holds it."""
    if rows[i].cat in ON_DEVICE:
        return -1
    around = [j for j in range(i) if rows[j].place == rows[i].place and rows[j].holds(rows[i])]
    return around[-1] if around else -1


def _op(i: int, rows: Sequence[Event], launch_of: Sequence[int], parent: Sequence[int]) -> int:
    """The innermost cpu_op around the call (of the device event)."""
    at = launch_of[i] if rows[i].cat in ON_DEVICE else i
    if at < 0 or rows[at].cat not in CALLS:
        return -1
    while at >= 0 and rows[at].cat != Cat.CPU_OP:
        at = parent[at]
    return at
