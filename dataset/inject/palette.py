"""What one trace's host, libraries and device look like: durations, names and sizes that fit in.

Durations are drawn from the trace's own events of the kind, or worked out from what these reach
(`dataset.inject.durations`); of the simulator there are the names and grids of kernels and the
public figures of devices. All times are ns.
"""

from __future__ import annotations

import math
import re
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from dataset.inject import durations
from dataset.inject.edits import Call, Unfit, Work
from dataset.simulate import devices
from dataset.simulate import kernels as usual
from detector.activity import Activity
from detector.signals.event_sets import multiprocessors
from detector.trace import Cat, Int64, Trace

_CALLS: Final = {
    "launch": "cudaLaunchKernel",
    "memcpy": "cudaMemcpyAsync",
    "memset": "cudaMemsetAsync",
    "stream_sync": "cudaStreamSynchronize",
    "device_sync": "cudaDeviceSynchronize",
    "event_sync": "cudaEventSynchronize",
    "event_record": "cudaEventRecord",
    "stream_wait": "cudaStreamWaitEvent",
    "malloc": "cudaMalloc",
    "free": "cudaFree",
    "host_alloc": "cudaHostAlloc",
    "memcpy_sync": "cudaMemcpyAsync",  # what `copy_` calls when it is to wait
}
_HIP: Final = {"host_alloc": "hipHostMalloc", "memcpy_sync": "hipMemcpyWithStream"}
_SMALL_BYTES: Final = 16_384  # up to here a copy takes its latency
_BLOCKING_BYTES: Final = 65_536  # pageable memory up to this size is staged: the call returns
_COPIES: Final = {
    "htod_pageable": ("HtoD", "Pageable", "Device"),
    "htod_pinned": ("HtoD", "Pinned", "Device"),
    "dtoh_pageable": ("DtoH", "Device", "Pageable"),
    "dtoh_pinned": ("DtoH", "Device", "Pinned"),
    "dtod": ("DtoD", "Device", "Device"),
}
_DIRECTIONS: Final = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d"}
# Our kinds of kernels by vocabulary's, and how many tensors of the given size they move.
_KINDS: Final = {
    "elementwise": ("pointwise", 3.0),
    "copy": ("copy", 2.0),
    "cast": ("copy", 1.5),
    "fill": ("fill", 1.0),
    "reduce": ("reduce", 1.0),
    "cat": ("cat", 2.0),
    "gather": ("index", 2.0),
    "softmax": ("softmax", 2.0),
    "norm": ("norm", 2.0),
    "layout": ("layout", 2.0),
    "optimizer": ("optimizer", 4.0),
    "gemm": ("gemm", 0.0),
    "conv": ("conv", 0.0),
    "attention": ("attention", 0.0),
}
_CAST: Final = re.compile(r"bfloat16_copy|float16_copy|copy_kernel.*lambda\((float|c10)")
_WIDTH: Final = {**usual.BYTES, "int": 4, "c10::Float8_e4m3fn": 1, "long": 8}
_TYPE_WORDS: Final = {
    "float": re.compile(r"(?<![a-z])float(?!\d)|f32|sgemm"),
    "c10::BFloat16": re.compile(r"(?i)bfloat16|bf16|_BB"),
    "c10::Half": re.compile(r"(?i)c10::Half|__half|f16|fp16|_HH|h884|h1688|h16816"),
}
_HALF: Final = re.compile(r"(?i)half|bfloat16|bf16|fp16")
_ATEN: Final = re.compile(r"at::native|softmax_warp|index|gather")
_ATEN_KINDS: Final = ("elementwise", "copy", "cast", "fill", "reduce", "cat", "gather", "softmax")
_NO_GRAPH: Final = re.compile(r"^(?!.*Graph)")


class Palette:
    """Draws of names and durations from one trace."""

    main: int  # track of the thread that runs the program

    def __init__(self, trace: Trace, activity: Activity) -> None:
        self.trace, self.activity = trace, activity
        self.vendor: Literal["cuda", "rocm", "cpu"] = _vendor(trace)
        self.has_stacks, self.has_shapes = trace.has_stacks, trace.has_shapes

    # -- host times --------------------------------------------------------------------------
    @cached_property
    def own(self) -> Int64:
        """For each row its duration less that of its direct children, at least 0."""
        trace = self.trace
        inner = np.zeros(len(trace) + 1, np.int64)
        np.add.at(inner, trace.parent, trace.dur)  # the last place takes "no parent"
        own: Int64 = np.maximum(trace.dur - inner[:-1], 0)
        return own

    @cached_property
    def _op_times(self) -> Int64:
        rows = self.activity.aten[self.trace.track[self.activity.aten] == self.main]
        return _middle(self.own[rows], 5, 75)

    @cached_property
    def _launch_times(self) -> Int64:
        trace, work = self.trace, self.activity.kernels
        rows = np.unique(trace.launch[work][trace.launch[work] >= 0]).astype(np.int64)
        return _middle(trace.dur[self.activity.named(rows, _NO_GRAPH, Cat.RUNTIME)], 5, 75)

    @cached_property
    def _gap_times(self) -> Int64:
        trace, ops = self.trace, self.activity.top_ops
        ops = ops[trace.track[ops] == self.main]
        return _middle(np.maximum(trace.start[ops][1:] - trace.end[ops][:-1], 0), 5, 75)

    def op_ns(self, draw: np.random.Generator) -> int:
        """Own host time of a small ATen op."""
        return _pick(self._op_times, draw, 3_000)

    def launch_ns(self, draw: np.random.Generator) -> int:
        """Host time of a call that launches a kernel."""
        return _pick(self._launch_times, draw, 5_000)

    def gap_ns(self, draw: np.random.Generator) -> int:
        """Interpreter time between two ops that the program calls one after the other."""
        return _pick(self._gap_times, draw, 4_000)

    # -- calls -------------------------------------------------------------------------------
    def call(self, kind: str) -> str:
        """The runtime call of this vendor and trace for one of the kinds of ``_CALLS``."""
        if kind == "launch":
            simple = self.activity.kernels_of("pointwise")
            used = self._launchers(simple if len(simple) else self.activity.kernels)
            if used:
                return used
        name = _CALLS[kind]
        return _HIP.get(kind, name.replace("cuda", "hip", 1)) if self.vendor == "rocm" else name

    def _launchers(self, rows: Int64) -> str:
        """The call that issued most of these device rows; "" where none is known."""
        launch = self.trace.launch[rows].astype(np.int64)
        launch = self.activity.named(launch[launch >= 0], _NO_GRAPH, Cat.RUNTIME)
        names = self.trace.name[launch]
        return self.trace.names[int(np.bincount(names).argmax())] if len(names) else ""

    def op(
        self,
        name: str,
        own: int | None = None,
        inside: tuple[Call, ...] = (),
        dims: Any = None,
        types: Any = None,
        *,
        draw: np.random.Generator,
        **args: Any,
    ) -> Call:
        """A cpu_op; shapes only where this trace records them. ``args`` e.g. sequence numbers."""
        given = dict(args)
        if self.has_shapes and dims is not None:
            given |= {"Input Dims": dims, "Input type": types or [""] * len(dims)}
        return Call(name, "cpu_op", self.op_ns(draw) if own is None else own, inside, args=given)

    def launch(self, work: Work, draw: np.random.Generator) -> Call:
        """The runtime call that issues ``work``; a large pageable copy makes it wait."""
        own = self.launch_ns(draw)
        if work.cat == "gpu_memset":
            return Call(self.call("memset"), "cuda_runtime", own, work=work)
        if work.cat == "gpu_memcpy":
            wait = "Pageable" in work.name and (
                work.args.get("bytes", 0) > _BLOCKING_BYTES or "DtoH" in work.name
            )
            name = self.call("memcpy")
            return Call(name, "cuda_runtime", own, work=work, wait="work" if wait else "")
        return Call(self._launcher_of(work.name), "cuda_runtime", own, work=work)

    def blocking_copy(self, work: Work, draw: np.random.Generator) -> tuple[Call, ...]:
        """What a copy between host and device that waits leaves: CUDA copies, then synchronizes
        the stream; HIP does both in one call."""
        if self.vendor == "rocm":
            name = self.call("memcpy_sync")
            return (Call(name, "cuda_runtime", self.launch_ns(draw), work=work, wait="work"),)
        wait = self.sync("stream_sync", draw)
        return (self.launch(work, draw), wait)

    def sync(self, kind: str, draw: np.random.Generator) -> Call:
        """A call that waits: ``stream_sync``, ``event_sync`` or ``device_sync``."""
        own = max(1_000, self.launch_ns(draw) // 3)
        wait: Any = "device" if kind == "device_sync" else "stream"
        return Call(self.call(kind), "cuda_runtime", own, wait=wait)

    def _launcher_of(self, kernel: str) -> str:
        return self._launcher_names.get(kernel) or self.call("launch")

    @cached_property
    def _launcher_names(self) -> dict[str, str]:
        trace, rows = self.trace, self.activity.kernels
        rows = rows[trace.launch[rows] >= 0]
        used = zip(trace.name[rows].tolist(), trace.name[trace.launch[rows]].tolist(), strict=True)
        pairs = {pair for pair in used if "Graph" not in trace.names[pair[1]]}
        return {trace.names[kernel]: trace.names[call] for kernel, call in sorted(pairs)}

    def frame(self, name: str, inside: tuple[Call, ...] = (), own: int = 1_000) -> tuple[Call, ...]:
        """A python_function frame around the calls; without stacks the calls alone."""
        return (Call(name, "python_function", own, inside),) if self.has_stacks else inside

    # -- device work -------------------------------------------------------------------------
    @cached_property
    def stream(self) -> int:
        """Track of the stream that computes; -1 without device work."""
        trace = self.trace
        rows = self.activity.compute_rows if len(self.activity.kernels) else self.activity.work
        if not self.activity.has_device or not len(rows):
            return -1
        return int(np.bincount(trace.track[rows], trace.dur[rows]).argmax())

    @cached_property
    def device(self) -> devices.Device:
        """Public figures of this trace's device, or of the nearest one that is known."""
        names = " ".join(self.trace.device_names).replace("GP100", "V100").replace(" ", "")
        rows = [d for d in devices.DEVICES.values() if d.is_rocm == (self.vendor == "rocm")]
        known = [d for d in rows if d.key.removesuffix("X") in names]
        known += [d for d in rows if d.key == "MI210" and "AMD" in names]
        return (known or [d for d in rows if d.key in ("V100", "MI300X")])[0]

    @cached_property
    def units(self) -> int:
        """Multiprocessors of the device."""
        return multiprocessors(self.activity)

    @cached_property
    def tick_ns(self) -> int:
        """The step of the device's clock: its durations are multiples of this."""
        dur = self.trace.dur[self.activity.kernels]
        return max(1, int(np.gcd.reduce(dur))) if len(dur) else 1

    def lasting(self, ns: float) -> int:
        """A duration that the device's clock could have given, at least one tick."""
        return max(1, round(ns / self.tick_ns)) * self.tick_ns

    def copy(
        self, kind: str, size: int, draw: np.random.Generator, track: int | None = None
    ) -> Work:
        """A copy of ``size`` bytes; ``kind`` is one of ``_COPIES``. Raises Unfit on the CPU."""
        self._needs_device()
        direction, source, target = _COPIES[kind]
        if self.vendor == "rocm":
            source, target = (
                "Host" if end in ("Pageable", "Pinned") else end for end in (source, target)
            )
        name = f"Memcpy {direction} ({source} -> {target})"
        latency, rate = self._copy_speed(direction, source, target)
        ns = (latency + size / rate) * math.exp(draw.normal(0, 0.03))
        place = self.stream if track is None else track
        return Work(name, "gpu_memcpy", self.lasting(ns), place, {"bytes": int(size)})

    def _copy_speed(self, direction: str, source: str, target: str) -> tuple[float, float]:
        """(latency in ns, bytes/ns): of this trace's own copies of the kind, else the usual."""
        d, trace = self.device, self.trace
        usual_rate = {"DtoD": d.bandwidth / 2.4}.get(
            direction, d.pageable if "Pageable" in (source, target) else d.pinned
        )
        latency, rate = 1_300.0, usual_rate * 0.9 / 1_000
        rows = self.activity.copies_of(_DIRECTIONS[direction])
        name = re.compile(re.escape(f"({source} -> {target})"))
        rows = self.activity.named(rows, name, Cat.GPU_MEMCPY)
        rows = rows[(trace.bytes[rows] > 0) & (trace.dur[rows] > 0)]
        small = rows[trace.bytes[rows] <= _SMALL_BYTES]
        large = rows[trace.bytes[rows] >= 16 * _SMALL_BYTES]
        if len(small):
            latency = float(np.median(trace.dur[small]))
        if len(large):
            rate = float(np.median(trace.bytes[large] / trace.dur[large]))
        return latency, rate

    def memset(self, size: int, track: int | None = None) -> Work:
        """Clearing ``size`` bytes."""
        self._needs_device()
        ns = max(1_000.0, size / self.device.bandwidth * 1_000 * 1.2)
        place = self.stream if track is None else track
        return Work("Memset (Device)", "gpu_memset", self.lasting(ns), place, {"bytes": int(size)})

    def kernel(
        self,
        kind: str,
        elements: int,
        dtype: str,
        draw: np.random.Generator,
        track: int | None = None,
    ) -> Work:
        """A kernel over ``elements`` values (gemm, conv, attention: multiply-adds) of ``dtype``.

        Kinds are those of ``_KINDS``. Named after one of this trace's own kernels of that kind
        and type where it has one. Raises Unfit on the CPU.
        """
        self._needs_device()
        model = self._usual(kind, elements, dtype)
        own = self._own_kernels(kind, dtype)
        name, block = model.name, model.block
        if len(own):
            weight = self.trace.dur[own] + 1.0  # not the small helpers beside the real work
            row = int(draw.choice(own, p=weight / weight.sum()))
            name = self.trace.names[self.trace.name[row]]
            threads = int(self.trace.threads[row])
            block = (threads, 1, 1) if threads > 0 else block
        ns = self._kernel_ns(kind, elements, dtype) * math.exp(draw.normal(0, 0.05))
        blocks = math.prod(model.grid) * math.prod(model.block) / max(1, math.prod(block))
        grid = (max(1, math.ceil(blocks)), 1, 1)
        place = self.stream if track is None else track
        return Work(name, "kernel", self.lasting(ns), place, {"grid": grid, "block": block})

    @cached_property
    def _latency(self) -> float:
        return durations.latency(self.activity)

    @cached_property
    def rate(self) -> float:
        """Bytes/ns that this trace's pointwise kernels move."""
        rows = self.activity.kernels_of("pointwise")
        names = [self.trace.names[i] for i in self.trace.name[rows].tolist()]
        half = sum(bool(_HALF.search(name)) for name in names) > len(names) / 2
        return durations.moving_rate(self.activity, self.device, 2 if half else 4)

    def moving_ns(self, size: float) -> float:
        """What a kernel takes that moves so many bytes."""
        return self._latency + size / self.rate

    def _kernel_ns(self, kind: str, elements: int, dtype: str) -> float:
        tensors = _KINDS[kind][1]
        if tensors:
            return self.moving_ns(elements * _WIDTH.get(dtype, 4) * tensors)
        peak = durations.matrix_peak(self.device, dtype)
        return self._latency + 2.0 * elements / (peak * durations.REACH)

    def _own_kernels(self, kind: str, dtype: str) -> Int64:
        rows = self.activity.kernels_of(_KINDS[kind][0])
        if kind in ("cast", "copy"):
            cast = self.activity.named(rows, _CAST, Cat.KERNEL)
            rows = cast if kind == "cast" else np.setdiff1d(rows, cast)
        aten = self.activity.named(rows, _ATEN, Cat.KERNEL)  # not a library's fused kernels
        rows = aten if kind in _ATEN_KINDS else rows
        if dtype in _TYPE_WORDS:
            typed = self.activity.named(rows, _TYPE_WORDS[dtype], Cat.KERNEL)
            rows = typed if len(typed) or kind in ("gemm", "conv", "cast") else rows
        return rows

    def _usual(self, kind: str, elements: int, dtype: str) -> usual.Kernel:
        """What this vendor's PyTorch would run, by the device's public figures."""
        d, words = self.device, dtype if dtype in usual.BYTES else "float"
        if kind in ("gemm", "conv", "attention"):
            side = max(16, round(elements ** (1 / 3) / 8) * 8)
            if kind == "conv":
                traffic = 3.0 * side * side * _WIDTH[dtype]
                return usual.conv(d, "fprop", 2.0 * elements, traffic, words, 1)
            return usual.gemm(d, side, side, side, words)
        tensors = _KINDS[kind][1]
        if kind == "reduce":
            return usual.reduction(d, "sum", elements, words)
        if kind == "layout":
            return usual.layout_change(d, elements * _WIDTH[dtype], words, True)
        if kind == "optimizer":
            return usual.multi_tensor(d, "add_", elements * _WIDTH[dtype] * 3.0, 1)
        size = elements * _WIDTH.get(dtype, 4) * tensors
        if kind in _NAMES:
            return usual.named(d, _NAMES[kind].format(t=words), size)
        op = {"copy": "copy_", "fill": "fill_", "cast": "cast"}.get(kind, "add")
        return usual.pointwise(d, op, elements, words, tensors)

    def _needs_device(self) -> None:
        if self.vendor == "cpu":
            raise Unfit("no device work in this trace")


_NAMES: Final = {
    "cat": "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig"
    "<at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int, 2, 128, 1>"
    "(at::native::(anonymous namespace)::OpaqueType<4u>*, at::native::(anonymous namespace)::"
    "CatArrInputTensorMetadata<at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int,"
    " 128, 1>, at::native::(anonymous namespace)::TensorSizeStride<unsigned int, 4u>, int,"
    " unsigned int)",
    "gather": "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel"
    "<at::native::index_kernel_impl<at::native::OpaqueType<4> >(at::TensorIteratorBase&,"
    " c10::ArrayRef<long>, c10::ArrayRef<long>)::{{lambda(char*, char const*, long)#1}}>"
    "(at::TensorIteratorBase&, c10::ArrayRef<long>, c10::ArrayRef<long>,"
    " at::native::index_kernel_impl<at::native::OpaqueType<4> >(at::TensorIteratorBase&,"
    " c10::ArrayRef<long>, c10::ArrayRef<long>)::{{lambda(char*, char const*, long)#1}} const&,"
    " bool)::{{lambda(int)#1}}>(long)",
    "softmax": "void (anonymous namespace)::softmax_warp_forward<{t}, {t}, float, 8, false, false>"
    "({t}*, {t} const*, int, int, int, bool const*, int, bool)",
    "norm": "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<{t}, float>"
    "(int, float, {t} const*, {t} const*, {t} const*, float*, float*, {t}*)",
}


def _vendor(trace: Trace) -> Literal["cuda", "rocm", "cpu"]:
    if trace.vendor not in ("cuda", "rocm", "cpu"):
        raise Unfit(f"{trace.source.path}: no replay for {trace.vendor} devices")
    return trace.vendor


def _middle(times: Int64, low: float, high: float) -> Int64:
    """The times between two percentiles: what is usual."""
    if not len(times):
        return times
    first, last = np.percentile(times, [low, high])
    usual_times: Int64 = times[(times >= first) & (times <= last)]
    return usual_times


def _pick(times: Int64, draw: np.random.Generator, usual_ns: int) -> int:
    if not len(times):
        return max(1, int(usual_ns * math.exp(draw.normal(0, 0.25))))
    return int(times[draw.integers(len(times))])
