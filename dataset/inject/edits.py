"""What a fault changes in a program, as a host thread would run it: the words that injectors speak.

An injector says which calls to put where, and what they issue; when everything happens then is the
replay's to tell. Times are ns. Rows and tracks are those of the base's Trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Wait = Literal["", "work", "stream", "device"]


class Unfit(ValueError):
    """This base cannot show this fault: the message says why."""


@dataclass(frozen=True)
class Work:
    """Device work that a call issues."""

    name: str
    cat: Literal["kernel", "gpu_memcpy", "gpu_memset"]
    dur: int  # ns on the device
    track: int  # the stream that it runs on
    args: Mapping[str, Any] = field(default_factory=dict)  # grid, block, bytes ...; no ids
    # Streams that it waits for (all work issued on them so far), and that wait for it (all work
    # issued on them from now on), as events recorded on streams make them.
    after: tuple[int, ...] = ()
    holds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Call:
    """One host event and the calls inside it, in program order.

    ``own`` is the host's own time in it, spread evenly before, between and after ``inside``. With
    ``work`` it is the runtime call that issues that work as it begins. ``wait`` says what it
    returns after: its own work, all work issued so far on that work's (else the compute) stream, or
    on the device.
    """

    name: str
    cat: Literal["cpu_op", "user_annotation", "python_function", "cuda_runtime", "overhead"]
    own: int  # ns
    inside: tuple[Call, ...] = ()
    work: Work | None = None
    wait: Wait = ""
    args: Mapping[str, Any] = field(default_factory=dict)  # Input Dims, Sequence number ...; no ids


@dataclass(frozen=True)
class Insert:
    """``calls`` run one after the other on host thread ``track``, from base time ``at`` on.

    They stand where ``at`` falls in the thread's program: inside the event that holds ``at``, after
    all that ended before it. Everything later on the thread follows them. ``gap`` is idle host time
    (interpreter, no event) before each of them.
    """

    track: int
    at: int
    calls: tuple[Call, ...]
    gap: int = 0
    faulty: bool = True  # part of the labeled region
    instead: tuple[Call, ...] = ()  # what a repaired program calls here: no part of the cost


@dataclass(frozen=True)
class Replace:
    """Host event ``row``, with all inside it and the device work that it issued, gives way."""

    row: int
    calls: tuple[Call, ...]
    faulty: bool = True
    instead: tuple[Call, ...] = ()  # as above


@dataclass(frozen=True)
class Remove:
    """Host event ``row``, with all inside it and the device work that it issued, goes."""

    row: int


@dataclass(frozen=True)
class Alter:
    """Event ``row`` keeps its place and gets another name, duration or arguments.

    ``dur``: device work's own time; a host event's own time (its children stay). ``wait``: a
    runtime call that now returns only after what `Call.wait` says.
    """

    row: int
    name: str | None = None
    dur: int | None = None
    wait: Wait | None = None
    args: Mapping[str, Any] = field(default_factory=dict)  # added to the event's own
    faulty: bool = True


Edit = Insert | Replace | Remove | Alter
