"""FLOP/s and bytes a second that kernels and ops reach, beside what the device could."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from detector import gpu_specs, vocabulary
from detector.activity import Activity
from detector.evidence.arithmetic import GRADIENTS, Arithmetic, Work, is_known
from detector.evidence.listing import Floats
from detector.gpu_specs import Device
from detector.index_sets import among, groups, union
from detector.patterns import capability
from detector.trace import Cat, Int64, Trace

_MOST_KINDS: Final = 2_000  # of (op, shapes, types) under one name: more are not worked out
_PER_NS: Final = 1e-3  # FLOP/ns -> TFLOP/s


@dataclass(frozen=True)
class Rate:
    """TFLOP/s and GB/s, and the larger of their shares of the device's peaks, which ``limit``
    names; share 0 and no limit where the device is not in the table. See ``TopEvent``."""

    tflop_per_s: float
    gb_per_s: float
    share: float = 0.0
    limit: str = ""


class Rates:
    """The rates of the kernels and ops of one trace, where shapes and types were recorded."""

    def __init__(self, activity: Activity) -> None:
        self.a, self.trace = activity, activity.trace

    def of_kernels(self, rows: Int64, time: Floats) -> Rate | None:
        """The rate of these kernels: each does its part, by time, of the work of the op behind it.

        Where an op issued matrix kernels, those alone do its work.
        """
        issuer = self.trace.op[rows].astype(np.int64)
        in_matrix = self._matrix.of(issuer)
        alone = in_matrix > 0
        known = (issuer >= 0) & (~alone | among(rows, self._matrix.kernels))
        whole = np.where(alone, in_matrix, self._all.of(issuer))[known]
        part = time[known] / np.maximum(whole, 1)
        return self._rate(issuer[known], part, time[known], rows)

    def of_ops(self, rows: Int64, own: Floats) -> Rate | None:
        """The rate of these ops in their kernels' time; on a CPU run in their own time."""
        if not self.a.has_device:
            return self._rate(rows, np.ones(len(rows)), own, rows[:0])
        time = self._all.of(rows)
        ran = time > 0
        kernels = self.a.kernels[among(self.trace.op[self.a.kernels], rows)]
        return self._rate(rows[ran], np.ones(int(ran.sum())), time[ran], kernels)

    def _rate(self, ops: Int64, part: Floats, time: Floats, kernels: Int64) -> Rate | None:
        """The rate of these calls: a ``part`` of each was done in ``time`` ns by ``kernels``."""
        trace = self.trace
        flop = moved = spent = most = 0.0
        kind = ""
        kinds, which = groups(trace.name[ops], trace.dims[ops], trace.types[ops])
        parts, times = np.bincount(which, part), np.bincount(which, time)
        columns = (key[:_MOST_KINDS].tolist() for key in kinds)
        for i, (name, dims, types) in enumerate(zip(*columns, strict=True)):
            work = self._work(name, dims, types)
            if work is None or times[i] <= 0:
                continue
            flop, moved = flop + work.flop * parts[i], moved + work.bytes * parts[i]
            spent += times[i]
            if times[i] > most:
                kind, most = work.type, times[i]
        if not spent:
            return None
        tflop_per_s, gb_per_s = flop / spent * _PER_NS, moved / spent
        return self._beside_peaks(Rate(tflop_per_s, gb_per_s), kind, kernels)

    def _beside_peaks(self, rate: Rate, kind: str, kernels: Int64) -> Rate:
        if self.device is None:
            return rate
        label, peak = _peak(self.device, kind, tensor=self._on_tensor_cores(kernels))
        shares = {"memory bandwidth": rate.gb_per_s / self.device.bandwidth}
        if peak and rate.tflop_per_s:
            shares[f"{label} arithmetic"] = rate.tflop_per_s / peak
        limit = max(shares, key=lambda name: shares[name])
        return Rate(rate.tflop_per_s, rate.gb_per_s, shares[limit], limit)

    def _on_tensor_cores(self, kernels: Int64) -> bool:
        """Whether most of these kernels' time is on tensor cores, as their names say."""
        tensor = self.a.named(kernels, vocabulary.TENSOR_CORE)
        return bool(2 * self.trace.dur[tensor].sum() > self.trace.dur[kernels].sum())

    def _work(self, name: int, dims: int, types: int) -> Work | None:
        names = self.trace.names
        if dims < 0 or types < 0 or not is_known(names[name]):
            return None
        return self._arithmetic.of(names[name], names[dims], names[types])

    @cached_property
    def device(self) -> Device | None:
        """The main device, where the table has it."""
        return gpu_specs.find_device(capability.device_name(self.a))

    @cached_property
    def _arithmetic(self) -> Arithmetic:
        made = Arithmetic()
        rows = self.a.named(self.a.of(Cat.CPU_OP), GRADIENTS, Cat.CPU_OP)
        kinds, _ = groups(self.trace.name[rows], self.trace.dims[rows])
        for name, dims in zip(*(key.tolist() for key in kinds), strict=True):
            if dims >= 0:
                made.learn(self.trace.names[name], self.trace.names[dims])
        return made

    @cached_property
    def _all(self) -> _Issued:
        return _Issued(self.trace, self.a.kernels)

    @cached_property
    def _matrix(self) -> _Issued:
        kinds = (self.a.kernels_of(kind) for kind in ("gemm", "conv", "attention"))
        return _Issued(self.trace, union(*kinds))


class _Issued:
    """The time of these kernels by the op that issued them itself."""

    def __init__(self, trace: Trace, kernels: Int64) -> None:
        self.kernels = kernels
        issuer = trace.op[kernels]
        known = issuer >= 0
        (self.ops,), which = groups(issuer[known])
        self.ns = np.bincount(which, trace.dur[kernels][known], len(self.ops))

    def of(self, ops: Int64) -> Floats:
        """For each of these ops the time, ns; 0 for one that issued none."""
        if not len(self.ops):
            return np.zeros(len(ops))
        at = np.minimum(np.searchsorted(self.ops, ops), len(self.ops) - 1)
        return np.where(self.ops[at] == ops, self.ns[at], 0.0)


def _peak(device: Device, kind: str, *, tensor: bool) -> tuple[str, float]:
    """The name and peak of the arithmetic on this type; 0 where there is no figure."""
    if kind == "float":
        return ("TF32", device.tf32) if tensor and device.tf32 else ("fp32", device.fp32)
    return {
        "c10::Half": ("fp16", device.fp16),
        "c10::BFloat16": ("bf16", device.bf16),
    }.get(kind, ("", 0.0))
