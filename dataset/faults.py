"""Which fault is recorded in which program, and how its marks become regions."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dataset.workloads.setting import Variant
from detector.patterns import BY_ID

COMPILABLE = ("classifier", "detector", "segmenter", "generator", "language")
WORKLOADS = (
    *COMPILABLE,
    "recommender",
    "depth",
    "pose",
    "speech",
    "translator",
    "forecaster",
    "graph",
)
COMPILED = ("classifier", "segmenter", "language")  # where a compilation leaves a small trace
DDP = ("classifier", "language")
# One worker keeps up with these: their batches are small beside their steps.
LOADING = tuple(name for name in WORKLOADS if name not in ("recommender", "speech"))
CONVOLVING = ("classifier", "detector", "segmenter", "generator", "depth", "pose")
ATTENDING = ("generator", "language", "translator")


@dataclass(frozen=True)
class Fault:
    """How one pattern is recorded.

    ``sometimes``: it can act in some steps only. ``backward``: the backward nodes of marked forward
    ops are regions too. ``narrow``: a region is what lies between the first and the last event of
    such a name inside the mark, not the whole mark. ``least``: marks shorter than this share of the
    longest one are no region (waits that were none). ``rare``: acts in at most three
    steps.
    """

    pattern: str
    variant: Variant = "plain"
    workloads: tuple[str, ...] = WORKLOADS
    cuda_only: bool = False
    sometimes: bool = True
    backward: bool = False
    narrow: str | None = None
    least: float = 0.0
    rare: bool = False

    @property
    def side(self) -> str:
        """The side on which the pattern is scored, by the taxonomy."""
        return BY_ID[self.pattern].side


COMPILES = r"dynamo_timed|_compile\."
SEARCHES = r"search_unused_parameters"
REDUCES = r"all_?reduce"

FAULTS: tuple[Fault, ...] = (
    Fault("input-dataloader-sync", "loader", LOADING, sometimes=False),
    Fault("input-dataloader-starved", "loader", LOADING, sometimes=False, least=0.15),
    Fault("input-main-thread-preprocessing", "loader", LOADING, sometimes=False),
    Fault("input-pageable-copy", cuda_only=True),
    Fault("input-copy-not-overlapped", cuda_only=True),
    Fault("input-tiny-copies", cuda_only=True),
    Fault("input-cpu-tensor-to-device", workloads=("generator",), cuda_only=True),
    Fault("sync-scalar-readback", cuda_only=True),
    Fault("sync-tensor-readback", cuda_only=True),
    Fault("sync-explicit", cuda_only=True),
    Fault("sync-blocking-launch", cuda_only=True, sometimes=False),
    Fault("host-launch-bound", "graphed", ("classifier",), cuda_only=True, sometimes=False),
    Fault("host-cpu-fallback", workloads=("detector", "segmenter"), cuda_only=True, backward=True),
    Fault("compute-fp32-matmul", cuda_only=True, sometimes=False),
    Fault("compute-underfilled", workloads=("language",), cuda_only=True, backward=True),
    Fault("sync-dynamic-shape", workloads=("detector", "segmenter"), cuda_only=True),
    Fault("host-python-overhead"),
    Fault("host-loop-indexing", backward=True),
    Fault("host-gc-pause"),
    Fault("memory-alloc-churn", cuda_only=True),
    Fault("memory-zero-grad-fill"),
    Fault("memory-redundant-copy", backward=True),
    Fault("memory-layout-transform", workloads=CONVOLVING, backward=True),
    Fault("memory-dtype-churn", backward=True),
    Fault("compute-misaligned-gemm", workloads=("language",), cuda_only=True, sometimes=False),
    Fault("compute-unfused-attention", workloads=ATTENDING, backward=True),
    Fault("compute-unfused-elementwise", backward=True),
    Fault("compute-single-tensor-optimizer", sometimes=False),
    Fault("compute-conv-bias-batchnorm", workloads=CONVOLVING, sometimes=False),
    Fault("compile-graph-break", "compiled", COMPILABLE, sometimes=False),
    Fault("compile-recompile", "compiled", COMPILED, narrow=COMPILES, rare=True),
    Fault("comm-unused-parameters", "ddp", DDP, cuda_only=True, sometimes=False, narrow=SEARCHES),
    Fault("comm-missing-no-sync", "ddp", DDP, narrow=REDUCES),
    Fault("comm-small-collectives", "ddp", DDP, sometimes=False, narrow=REDUCES),
    Fault("infer-autograd", "serve"),
    Fault("infer-kv-cat", "decode", workloads=("language",)),
)
FAULT_BY_ID = {fault.pattern: fault for fault in FAULTS}

# Why a pattern of the taxonomy has no recorded fault here, on any device.
NOT_RECORDED = {
    "comm-exposed": "needs two GPUs",
    "comm-straggler": "needs the traces of several ranks",
}

# Healthy on purpose, though something in the trace looks like a fault.
EXTRAS: tuple[tuple[str, Variant, str], ...] = (
    ("classifier", "plain", "item"),
    ("classifier", "plain", "checkpoint"),
    ("detector", "plain", "long"),
    ("detector", "plain", "item"),
    ("segmenter", "plain", "log"),
    ("segmenter", "plain", "checkpoint"),
    ("generator", "plain", "long"),
    ("generator", "serve", "item"),
    ("language", "plain", "log"),
    ("language", "plain", "collect"),
    ("matmul", "plain", "busy"),
    ("matmul", "serve", "busy"),
    ("recommender", "plain", "item"),
    ("depth", "plain", "checkpoint"),
    ("pose", "serve", "item"),
    ("speech", "plain", "long"),
    ("translator", "plain", "item"),
    ("forecaster", "plain", "log"),
    ("graph", "plain", "collect"),
)

# What findings were wrong about most often on real traces, with its healthy counterpart: compiled
# programs with warm caches, pauses and collections of services, first use of memory, tokenizers
# and image processors, inference on a CPU, optimizers in all forms, the framework's own time.
# The encoder is served only: in training its attention drops out, for which torch has no fused
# kernel on a CPU, so none of its traces would be healthy.
# (workload, variant, seed, with stacks, faults each on its own, healthy extras)
HARD_WORKLOADS = ("encoder", "patches", "tiny")
PROGRAMS = (*WORKLOADS, *HARD_WORKLOADS)
HARD: tuple[tuple[str, Variant, int, bool, tuple[str, ...], tuple[str, ...]], ...] = (
    *(
        (workload, "service", int(not stacks), stacks, faults, ("pause", "first"))
        for workload in ("encoder", "patches")
        for stacks, faults in (
            (True, ("input-main-thread-preprocessing", "infer-autograd", "host-python-overhead")),
            (False, ("input-main-thread-preprocessing", "host-gc-pause")),
        )
    ),
    *(
        ("tiny", "plain", seed, seed % 2 == 0, ("compute-single-tensor-optimizer",), ())
        for seed in range(5)
    ),
    ("patches", "plain", 0, True, ("memory-zero-grad-fill",), ("first",)),
    ("patches", "plain", 1, False, ("compute-single-tensor-optimizer",), ("collect",)),
    ("patches", "loader", 0, True, ("input-main-thread-preprocessing",), ()),
    *((name, "compiled", 4, True, ("compile-graph-break",), ()) for name in COMPILED),
    ("tiny", "compiled", 0, True, (), ()),
)


@dataclass(frozen=True)
class Case:
    """One trace to record. Cases with the same ``pair`` are twins."""

    workload: str
    variant: Variant
    seed: int
    patterns: tuple[str, ...] = ()
    extra: str | None = None
    with_stack: bool = True
    record_shapes: bool = True

    @property
    def pair(self) -> str:
        """The name that a faulty trace shares with its healthy twin."""
        return f"{self.workload}-{self.variant}-{self.seed}"

    @property
    def name(self) -> str:
        """A file name that says nothing about what is wrong inside."""
        what = zlib.crc32(f"{self.patterns}{self.extra}".encode()) & 0xFFFF
        return f"{self.pair}-{what:04x}"


def cases(
    device: str,
    workloads: Sequence[str] = PROGRAMS,
    patterns: Sequence[str] | None = None,
    seed: int = 0,
) -> list[Case]:
    """The matrix: every fault of ``patterns`` (all if None) with its twin, and the extras.

    Each seed makes two sets of programs, one recorded with stacks and one without.
    """
    bad = [
        case for fault in showable(device, patterns) for case in _of_fault(fault, workloads, seed)
    ]
    good = dict.fromkeys(
        Case(c.workload, c.variant, c.seed, (), None, c.with_stack, c.record_shapes) for c in bad
    )
    extras = [
        Case(workload, variant, 2 * seed + number % 2, (), extra, number % 2 == 0)
        for number, (workload, variant, extra) in enumerate(EXTRAS)
        if workload in (*workloads, "matmul") and patterns is None
    ]
    hard = _hard(workloads, seed) if patterns is None and device == "cpu" else ()
    found = dict.fromkeys([*bad, *good, *extras, *hard])
    return sorted(found, key=lambda c: (c.pair, c.patterns, c.extra or ""))


def _hard(workloads: Sequence[str], seed: int) -> Iterator[Case]:
    for workload, variant, number, stacks, faults, extras in HARD:
        if workload in workloads:
            about = (workload, variant, 10 * seed + number)
            yield Case(*about, with_stack=stacks)
            yield from (Case(*about, (fault,), with_stack=stacks) for fault in faults)
            yield from (Case(*about, (), extra, with_stack=stacks) for extra in extras)


def showable(device: str, patterns: Sequence[str] | None = None) -> list[Fault]:
    """The faults that this device can show."""
    chosen = FAULTS if patterns is None else [FAULT_BY_ID[p] for p in patterns]
    return [fault for fault in chosen if device != "cpu" or not fault.cuda_only]


def skipped(device: str) -> Iterator[tuple[str, str]]:
    """(pattern, why) for each pattern of the taxonomy that is not recorded on this device."""
    for pattern in BY_ID:
        if pattern not in FAULT_BY_ID:
            yield pattern, NOT_RECORDED.get(pattern, "no program shows it yet")
        elif device == "cpu" and FAULT_BY_ID[pattern].cuda_only:
            yield pattern, "costs next to nothing, or does not exist, without a GPU"


def acting_steps(case: Case, count: int) -> list[bool]:
    """In which of the recorded steps the faults act: all, or for half of the cases some."""
    several = len(case.patterns) > 1
    every = several or all(not FAULT_BY_ID[p].sometimes for p in case.patterns)
    rng = random.Random(zlib.crc32(f"{case.name}/{case.workload}".encode()))
    rare = any(FAULT_BY_ID[p].rare for p in case.patterns)
    if every or (rng.random() < 0.35 and not rare):
        return [True] * count
    chosen = set(rng.sample(range(count), rng.randint(2, 3 if rare else max(2, count // 2))))
    return [index in chosen for index in range(count)]


def _of_fault(fault: Fault, workloads: Iterable[str], seed: int) -> Iterator[Case]:
    for workload in workloads:
        if workload in fault.workloads:
            odd = _odd(fault, workload)
            yield Case(
                workload,
                fault.variant,
                2 * seed + odd,
                (fault.pattern,),
                with_stack=not odd,
                record_shapes=fault.variant != "ddp",
            )


def _odd(fault: Fault, workload: str) -> int:
    """0: with stacks, 1: without. Each program has both kinds, where the trace stays small."""
    if fault.variant in ("compiled", "ddp", "decode", "graphed"):
        return 1
    if fault.pattern == "host-loop-indexing":
        return 1
    if fault.variant == "loader":
        return 0 if workload == "classifier" else 1
    if fault.pattern == "compute-single-tensor-optimizer":
        return 0 if workload in ("classifier", "detector", "language") else 1
    return (FAULTS.index(fault) + WORKLOADS.index(workload)) % 2
