"""Events of the trace that a report shows: excerpts around findings, and the heaviest by name.

Part of ``report.json``, as ``detector.report`` describes it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TopEvent:
    """Kernels or ops of one name in the analyzed time."""

    name: str
    """Name of the kernel, without parameters, or of the op."""
    count: int
    """How often it runs."""
    us: float
    """Of a kernel all its time; of an op its time on the host outside ops that it calls."""
    gpu_us: float = 0.0
    """Of an op the time of the GPU work that it issued itself."""
    shapes: str = ""
    """Shapes of the inputs on which most of the time goes; empty where none were recorded."""


@dataclass(frozen=True)
class ExcerptTrack:
    """A thread or stream of an excerpt: bars as columns of equal length, in no order of time."""

    label: str
    """``thread 17 (main)``, ``stream 7``."""
    is_device: bool
    """Whether it is a stream."""
    start_us: tuple[float, ...] = ()
    """Start of each bar, from the start of the excerpt; negative where it began before."""
    dur_us: tuple[float, ...] = ()
    """Its length."""
    busy_us: tuple[float, ...] = ()
    """Time of the events in it: less than its length where short events are joined."""
    depth: tuple[int, ...] = ()
    """Level of the call stack, 0 the outermost that is shown."""
    name: tuple[int, ...] = ()
    """Index into ``names`` of the excerpt; of joined events the longest."""
    count: tuple[int, ...] = ()
    """Events that the bar stands for."""
    at_fault: tuple[int, ...] = ()
    """Positions of the bars that are at fault."""


@dataclass(frozen=True)
class Excerpt:
    """The events around the costliest place of a finding: what a timeline of it shows.

    Bounded: short events are joined with their neighbours, few threads and streams are shown.
    """

    start_us: float
    """Its start."""
    end_us: float
    """Its end."""
    place_us: tuple[float, float] = (0.0, 0.0)
    """The whole place; longer than the excerpt where it holds too many events."""
    events: int = 0
    """Events in the time of the excerpt."""
    hidden: int = 0
    """Those of them on threads, streams or levels of the stack that are not among the tracks."""
    names: tuple[str, ...] = ()
    """Names of events, each once."""
    spans_us: tuple[tuple[float, float], ...] = ()
    """The finding's occurrences in it, from its start."""
    tracks: tuple[ExcerptTrack, ...] = ()
    """Threads, the one that feeds the GPU first, then streams."""
