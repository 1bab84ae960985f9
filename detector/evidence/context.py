"""What a reader should know beside a region's own events: device, program, causes, savings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import numpy as np

from detector import gpu_specs
from detector.candidates import Candidates
from detector.evidence import words
from detector.evidence.sheet import Context, EvidenceRow
from detector.ledger import BY_ID, Ledger
from detector.patterns import capability, circumstances_of
from detector.region import Region
from detector.signals import Signals
from detector.trace import NS_PER_US, Int64

MOST_SHAPES: Final = 5
MOST_SAVINGS: Final = 8
MOST_STEPS: Final = 8  # that a region is compared with
_LEAST_CAUSE: Final = 0.005  # of the region: less is not shown
_GIGA: Final = 1e9
_VERSIONS: Final = {
    "torch_version": "PyTorch",
    "pytorch_version": "PyTorch",
    "cuda_runtime_version": "CUDA runtime",
    "hip_runtime_version": "HIP runtime",
}


class Contexts:
    """The context of every region of one trace."""

    def __init__(self, signals: Signals, ledger: Ledger, found: Candidates) -> None:
        self.s, self.a, self.trace = signals, signals.activity, signals.trace
        self.ledger, self.found = ledger, found

    def of(self, region: Region) -> Context:
        """The context of one region."""
        notes = (*self._of_trace, *self._other_steps(region), *self._shapes(region))
        return Context(notes, (*self._causes(region), *self._savings))

    # -- the trace -----------------------------------------------------------------------------

    @cached_property
    def _of_trace(self) -> tuple[str, ...]:
        return tuple(filter(None, (self._device(), self._software(), self._program())))

    def _device(self) -> str:
        if not self.a.has_device:
            return ""
        found = capability.properties(self.a)
        name = capability.device_name(self.a)
        level = capability.generation(self.s)
        parts = [words.plain(name), f"compute capability {level:.1f}" if level else ""]
        multiprocessors, memory = found.get("numSms"), found.get("totalGlobalMem")
        parts.append(f"{multiprocessors} SMs" if isinstance(multiprocessors, int) else "")
        parts.append(f"{memory / _GIGA:.0f} GB" if isinstance(memory, int) else "")
        listed = gpu_specs.find_device(name)
        parts.append(f"memory bandwidth {listed.bandwidth:.0f} GB/s" if listed else "")
        parts.append(_units(self.trace.vendor, level))
        known = [part for part in parts if part]
        return f"Device: {', '.join(known)}" if known else ""

    def _software(self) -> str:
        known = self.trace.metadata
        parts = [
            f"{label} {_version(str(known[key]))}"
            for key, label in _VERSIONS.items()
            if key in known
        ]
        return f"Software: {', '.join(parts)}" if parts else ""

    def _program(self) -> str:
        """Training or inference, optimizer, parallelism, compiled or eager."""
        seen = circumstances_of(self.s)
        parts: list[str] = [seen.use or ""]
        if seen.optimizers:
            parts.append(f"optimizer {', '.join(seen.optimizers)} ({seen.style})")
        parts += sorted(name.upper() for name in seen.parallelism)
        info = self.trace.metadata.get("distributedInfo")
        if isinstance(info, Mapping) and isinstance(info.get("world_size"), int):
            parts.append(f"{info['world_size']} ranks")
        parts.append("compiled" if seen.compiled else "eager")
        parts.append("CUDA graphs" if seen.graphs else "")
        recorded = (("shapes", self.trace.has_shapes), ("stacks", self.trace.has_stacks))
        absent = [what for what, there in recorded if not there]
        parts.append(f"recorded without {' and '.join(absent)}" if absent else "")
        return f"Program: {'; '.join(part for part in parts if part)}"

    @cached_property
    def _savings(self) -> tuple[EvidenceRow, ...]:
        """What the repair of each candidate saves of the analyzed time, by counterfactual."""
        rows = []
        for candidate in self.found.found[:MOST_SAVINGS]:
            pattern, us = candidate.pattern.id, candidate.best_ns / NS_PER_US
            rows.append(
                EvidenceRow(f"saves_{pattern}", f"repair of {pattern} saves", us, "us", None)
            )
            label = f"repair of {pattern} saves of the analyzed time"
            rows.append(EvidenceRow(f"saved_{pattern}", label, candidate.share, "share", None))
        return tuple(rows)

    # -- the region ----------------------------------------------------------------------------

    def _causes(self, region: Region) -> Iterator[EvidenceRow]:
        """The region's time by cause, and the same of the rest."""
        length = max(region.dur, 1)
        outside = self.ledger.end - self.ledger.start - length
        for cause, ns in self.ledger.total(region.start, region.end).items():
            if ns < _LEAST_CAUSE * length:
                continue
            rest = (self._whole.get(cause, 0) - ns) / outside if outside > 0 else None
            label = f"time by cause, {BY_ID[cause].label}"
            rest = None if rest is None else max(rest, 0.0)
            yield EvidenceRow(f"time_{cause}", label, ns / length, "share", rest)

    def _other_steps(self, region: Region) -> Iterator[str]:
        """The same part of other steps by cause: a region may be like it everywhere, or alone."""
        inside = [
            s for s in self.trace.steps if self.ledger.start <= s.start < s.end <= self.ledger.end
        ]
        mine = next((s for s in inside if s.start <= region.start < s.end), None)
        others = [s for s in inside if s is not mine][:MOST_STEPS]
        if mine is None or not others or region.end > mine.end:
            return
        spent: Counter[str] = Counter()
        for step in others:
            scale = (step.end - step.start) / (mine.end - mine.start)
            start, end = (
                step.start + round(scale * (edge - mine.start))
                for edge in (region.start, region.end)
            )
            spent.update(self.ledger.total(start, end))
        whole = max(spent.total(), 1)
        causes = (f"{BY_ID[c].label} {100 * ns / whole:.0f}%" for c, ns in spent.most_common(4))
        yield f"The same part of {len(others)} other steps: {'; '.join(causes)}"

    @cached_property
    def _whole(self) -> dict[str, int]:
        return self.ledger.total()

    def _shapes(self, region: Region) -> Iterator[str]:
        """The ops with the most time, with the shapes of their inputs."""
        if not self.trace.has_shapes:
            return
        rows = self.ops_in(region)
        rows = rows[self.trace.dims[rows] >= 0]
        pair = self.trace.name[rows].astype(np.int64) << 32 | self.trace.dims[rows]
        ids, which = np.unique(pair, return_inverse=True)
        spent = np.bincount(which, self.trace.dur[rows], len(ids))
        count = np.bincount(which, minlength=len(ids))
        for i in np.argsort(-spent, kind="stable")[:MOST_SHAPES].tolist():
            name = words.plain(self.trace.names[int(ids[i]) >> 32])
            dims = words.bounded(self.trace.names[int(ids[i]) & 0xFFFFFFFF], 70)
            yield f"Shapes: {words.quoted(name)} x{count[i]} of inputs {dims}"

    def ops_in(self, region: Region) -> Int64:
        """Outermost ops that start in a region, or that launched the device work in it."""
        if region.side == "gpu" and self.a.has_device:
            work = self.a.device_work
            first, last = np.searchsorted(self.trace.start[work], (region.start, region.end))
            ops = np.unique(self.trace.op[work[first:last]]).astype(np.int64)
            return np.asarray(ops[ops >= 0], np.int64)
        start = self.trace.start[self.a.top_ops]
        first, last = np.searchsorted(start, (region.start, region.end))
        return np.asarray(self.a.top_ops[first:last], np.int64)


def _units(vendor: str, level: float) -> str:
    """The matrix units that a device has, in words."""
    if vendor == "rocm":
        return "matrix cores for fp16, bf16 and fp32"
    if vendor != "cuda" or not level:
        return ""
    if level >= 8.9:
        return "tensor cores for fp16, bf16, tf32 and fp8"
    if level >= 8.0:
        return "tensor cores for fp16, bf16 and tf32"
    if level >= 7.0:
        return "tensor cores for fp16 only, no tf32, no bf16"
    return "no tensor cores"


def _version(text: str) -> str:
    """12040 is CUDA's way to write 12.4."""
    if text.isdigit() and len(text) == 5:
        return f"{int(text) // 1000}.{int(text) % 1000 // 10}"
    return words.bounded(text, 30)
