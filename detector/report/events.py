"""Events of the trace that a report shows: excerpts around findings, and the heaviest by name.

Part of ``report.json``.
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
    tflop_per_s: float = 0.0
    """What is reached in calls whose shapes tell their arithmetic: products, convolutions,
    attention (no mask is taken off). 0 where none tells."""
    gb_per_s: float = 0.0
    """Bytes of inputs and outputs, each moved once, over the time of these calls; 0 where shapes
    do not tell."""
    peak_share: float = 0.0
    """The larger of the shares of the GPU's peaks of arithmetic and memory bandwidth; 0 where the
    GPU is not in the table."""
    limit: str = ""
    """Which peak that is: ``bf16 arithmetic``, ``memory bandwidth``."""


@dataclass(frozen=True)
class Peaks:
    """What the GPU reaches by its maker's data sheet, without sparsity; of a package of two dies
    one die."""

    fp32_tflop_per_s: float
    """Products in full fp32."""
    tf32_tflop_per_s: float
    """On tensor (matrix) cores; 0 where it has none for the type, here and below."""
    fp16_tflop_per_s: float
    """The same with sums in fp32."""
    bf16_tflop_per_s: float
    """The same."""
    bandwidth_gb_per_s: float
    """Of its memory."""
    source: str
    """Where these figures stand."""


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

    Bounded: short events are joined with their neighbors, few threads and streams are shown.
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
