"""A small discrete-event machine: one host clock, in-order device streams, and what they record.

The program that runs on it is straight-line Python. Each call moves the host clock and appends
rows; a kernel's times follow at once from the stream's tail, because streams are in order and can
wait only for what was already launched. Times are float µs since the machine's start.

One clock serves all host threads: while the autograd thread works the main thread waits in
``backward()``, so they never advance together. Loader workers are other processes and leave no rows.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dataset.simulate.devices import Device
from dataset.simulate.rows import Act, Habits, Row

# Normal deviates drawn once: a draw from a table costs a third of a call of gauss().
_NORMALS = 8_192
_Z = tuple(map(random.Random(1).gauss, (0.0,) * _NORMALS, (1.0,) * _NORMALS))
_SPREAD = tuple(math.exp(0.3 * z) for z in _Z)  # host costs: log-normal
_LEAVES = (
    "torch/nn/modules/module.py(1952): __getattr__",
    "<built-in function isinstance>",
    "<built-in function len>",
    "<built-in method _get_tracing_state of PyCapsule object at 0x7d6af4f5f4e0>",
    "<built-in method append of list object at 0x7fc740c64540>",
    "<built-in function hasattr>",
    "<built-in method size of Tensor object at 0x7fdc681f1c70>",
    "torch/_jit_internal.py(103): is_scripting",
)
HICCUP = 1.5e-4  # how often the system takes a host thread's core for a moment


class _Open:
    """An open host row; closes with the host clock. Hand-written: it runs thousands of times."""

    __slots__ = ("around", "counts", "first", "machine", "post", "row")

    def __init__(
        self, machine: Machine, row: Row, post: float, counts: bool, around: Row | None = None
    ) -> None:
        self.machine, self.row, self.post, self.counts = machine, row, post, counts
        self.first, self.around = len(machine.device_rows), around

    def __enter__(self) -> Row:
        if self.counts:
            self.machine.stack.append(self.row.external)
        return self.row

    def __exit__(self, *exc: object) -> None:
        machine = self.machine
        if self.post:
            machine.busy(self.post)
        self.row.end = machine.now
        if self.counts:
            machine.stack.pop()
        elif self.row.cat == "user_annotation":
            machine.mirror(self.row, self.first)
        if self.around is not None:
            machine.now += 0.2
            self.around.end = machine.now


class Machine:
    """Host clock, streams, launch queue and the rows they leave."""

    def __init__(self, device: Device, rng: random.Random, habits: Habits) -> None:
        self.device, self.rng, self.habits = device, rng, habits
        self.now = 0.0
        self.thread = habits.main
        self.rows: list[Row] = []
        self.device_rows: list[Row] = []
        self.acts: list[Act] = []
        self.stack: list[int] = []
        self.tails: dict[int, float] = {}
        self.queue: deque[float] = deque()
        self.correlation = rng.randrange(200, 60_000)
        self.external = 0
        self.sequence = rng.randrange(10, 3_000)
        self.blocking = False
        self.slowdown_until = 0.0  # compute runs a little slower beside a collective
        self.step_index = -1

    # -- the host ---------------------------------------------------------------------------
    def busy(self, us: float) -> None:
        """Spend host time, scaled by the host's speed, log-normal."""
        draw = self.rng.random()
        if draw < HICCUP:
            self.now += self.rng.uniform(20, 220)
        self.now += us * self.habits.host * _SPREAD[int(draw * _NORMALS)]

    def idle(self, us: float) -> None:
        """Spend exactly this much host time (a wait whose length is known)."""
        self.now += max(us, 0.0)

    def op(
        self,
        name: str,
        dims: object = None,
        types: object = None,
        *,
        seq: int | None = None,
        args: Mapping[str, Any] | None = None,
        pre: float = 1.3,
        post: float = 0.6,
    ) -> _Open:
        """Open a cpu_op. ``pre`` and ``post`` are its own host cost (µs) around what it calls."""
        around = self._builtin(name)
        self.external += 1
        extra: dict[str, Any] = dict(args) if args else {}
        if dims is not None:
            extra["Input Dims"] = dims
            extra["Input type"] = types
        if seq is not None:
            extra["Sequence number"] = seq
        row = Row(
            "cpu_op", name, self.now, self.now, self.thread, external=self.external, args=extra
        )
        self.rows.append(row)
        self.busy(pre)
        return _Open(self, row, post, True, around)

    def _builtin(self, name: str) -> Row | None:
        """The interpreter's own frame of an op that Python calls, where the trace has stacks."""
        called = self.habits.stacks and not self.stack and self.thread == self.habits.main
        if not called or not name.startswith("aten::"):
            return None
        self.leaves(2)
        frame = f"<built-in method {name[6:]} of type object at 0x7f3a5c0e1b40>"
        row = Row("python_function", frame, self.now, self.now, self.thread)
        self.rows.append(row)
        self.now += 0.3
        return row

    def annotation(self, name: str, pre: float = 4.0) -> _Open:
        """Open a user_annotation; its device twin follows when kernels were launched inside."""
        self.external += 1
        row = Row("user_annotation", name, self.now, self.now, self.thread, external=self.external)
        self.rows.append(row)
        self.busy(pre)
        return _Open(self, row, 2.0, False)

    def frame(self, name: str, pre: float = 0.5) -> _Open:
        """Open a python frame: host time always, a row only where the trace has stacks."""
        row = Row("python_function", name, self.now, self.now, self.thread)
        if self.habits.stacks:
            self.rows.append(row)
        self.busy(pre)
        return _Open(self, row, 0.3, False)

    def leaves(self, most: int) -> None:
        """A few short frames of the interpreter's own, where the trace has stacks."""
        if not self.habits.stacks or self.thread != self.habits.main:
            return
        for _ in range(self.rng.randint(0, most * self.habits.leafy)):
            name = _LEAVES[int(self.rng.random() * len(_LEAVES))]
            row = Row("python_function", name, self.now, self.now, self.thread)
            self.now += 0.15 + 0.5 * self.rng.random()
            row.end = self.now
            self.now += 0.05
            self.rows.append(row)

    def mirror(self, row: Row, first: int) -> None:
        """The device twin of an annotation that launched work on the compute stream."""
        stream = self.device.stream
        mine = [r for r in self.device_rows[first:] if r.lane == stream]
        if mine:
            twin = Row("gpu_user_annotation", row.name, mine[0].start, mine[-1].end, stream)
            twin.external = row.external
            self.rows.append(twin)

    @contextmanager
    def on_thread(self, thread: int) -> Iterator[None]:
        """Go on as another host thread, which the present one waits for."""
        before, self.thread = self.thread, thread
        self.busy(12.0)
        yield
        self.busy(8.0)
        self.thread = before

    @contextmanager
    def acting(self, pattern: str) -> Iterator[None]:
        """Note where a fault acts; leaves no row."""
        start, first = self.now, len(self.device_rows)
        yield
        mine = self.device_rows[first:]
        hull = (min(r.start for r in mine), max(r.end for r in mine)) if mine else None
        self.acts.append(Act(pattern, self.step_index, (start, self.now), hull))

    # -- runtime calls ----------------------------------------------------------------------
    def call(self, name: str, us: float, *, cat: str = "cuda_runtime", **args: Any) -> Row:
        """A runtime call of about ``us`` µs."""
        row = self._open_call(name, cat, args)
        self.busy(us)
        row.end = self.now
        return row

    def _open_call(self, name: str, cat: str, args: Mapping[str, Any]) -> Row:
        self.correlation += 1 + (self.rng.random() < 0.3)
        external = self.stack[-1] if self.stack else -1
        row = Row(cat, name, self.now, self.now, self.thread, self.correlation, external, args)
        self.rows.append(row)
        return row

    def _api(self, cuda: str) -> str:
        return cuda.replace("cuda", "hip", 1) if self.device.is_rocm else cuda

    def api(self, cuda: str, us: float = 1.0) -> Row:
        """A small runtime call named as this vendor names it."""
        return self.call(self._api(cuda), us)

    # -- the device -------------------------------------------------------------------------
    def tail(self, stream: int | None = None) -> float:
        """When this stream (or every stream) will have drained; the past when it is idle."""
        if stream is None:
            return max(self.tails.values(), default=0.0)
        return self.tails.get(stream, 0.0)

    def backlog(self) -> float:
        """µs of device work still queued."""
        return max(self.tail() - self.now, 0.0)

    def _enqueue(self, row: Row, issued: float, us: float, after: float = 0.0) -> Row:
        stream, d = row.lane, self.device
        latency = d.latency * (0.8 + 0.4 * self.rng.random())
        gap = d.gap * (0.75 + 0.5 * self.rng.random())
        start = max(issued + latency, self.tails.get(stream, -1e18) + gap, after)
        row.start, row.end = start, start + us
        self.tails[stream] = row.end
        self.device_rows.append(row)
        self.queue.append(start)
        return row

    def _wait_for_slot(self) -> None:
        while len(self.queue) >= self.habits.queue:
            self.now = max(self.now, self.queue.popleft())

    def launch(
        self,
        name: str,
        us: float,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        *,
        stream: int | None = None,
        api: str = "cudaLaunchKernel",
        after: float = 0.0,
        **args: Any,
    ) -> Row:
        """Launch a kernel of about ``us`` µs; returns its device row."""
        stream = self.device.stream if stream is None else stream
        cat = "cuda_driver" if api.startswith("cu") and not api.startswith("cuda") else ""
        shape = {"grid": grid, "block": block}
        call = self._open_call(self._launch_name(api), cat or "cuda_runtime", shape)
        self._wait_for_slot()
        self.busy(3.6)
        us = self._noisy(us, stream)
        row = Row("kernel", name, 0, 0, stream, call.correlation, call.external, {**shape, **args})
        self._enqueue(row, self.now, us, after)
        if self.blocking:
            self.now = max(self.now, row.end + 2.5)
        call.end = self.now
        return row

    def _launch_name(self, api: str) -> str:
        if not self.device.is_rocm:
            return api
        extended = api in ("cudaLaunchKernelExC", "cuLaunchKernelEx")
        if api.startswith("cuda"):
            return "hipExtModuleLaunchKernel" if extended else "hipLaunchKernel"
        return "hipModuleLaunchKernel"

    def _noisy(self, us: float, stream: int) -> float:
        us = max(us, self.device.floor) * math.exp(
            self.habits.noise * _Z[int(self.rng.random() * _NORMALS)]
        )
        beside = stream == self.device.stream and self.now < self.slowdown_until
        return us * 1.07 if beside else us

    def graph(
        self, kernels: list[tuple[str, float, tuple[int, int, int], tuple[int, int, int]]]
    ) -> None:
        """Replay a captured graph: one call, many kernels under one correlation."""
        call = self._open_call(self._api("cudaGraphLaunch"), "cuda_runtime", {})
        self.busy(6.0 + 0.02 * len(kernels))
        call.end = self.now
        for name, us, grid, block in kernels:
            row = Row("kernel", name, 0, 0, self.device.stream, call.correlation, -1)
            row.args = {"grid": grid, "block": block, "graph id": 1}
            self._enqueue(row, self.now, self._noisy(us, self.device.stream))
            self.queue.pop()  # one graph takes one slot, not one per kernel
        self.queue.append(self.now)

    def memset(self, size: int) -> None:
        """Clear ``size`` bytes on the compute stream."""
        call = self._open_call(self._api("cudaMemsetAsync"), "cuda_runtime", {})
        self._wait_for_slot()
        self.busy(3.4)
        call.end = self.now
        row = Row("gpu_memset", "Memset (Device)", 0, 0, self.device.stream, call.correlation)
        row.external, row.args = call.external, {"bytes": size}
        self._enqueue(row, self.now, max(1.0, size / self.device.bandwidth))

    def copy(
        self,
        direction: str,
        size: int,
        *,
        pinned: bool = True,
        stream: int | None = None,
        wait: bool | None = None,
        after: float = 0.0,
    ) -> Row:
        """A host-device copy as PyTorch issues it.

        ``direction`` is HtoD, DtoH or DtoD; ``wait`` (default: unpinned) makes the host wait for
        it, as ``non_blocking=False`` does. A pageable copy blocks inside the copy call itself.
        """
        stream = self.device.stream if stream is None else stream
        wait = (not pinned) if wait is None else wait
        joined = self.device.is_rocm and wait  # one call that copies and waits
        name = "hipMemcpyWithStream" if joined else self._api("cudaMemcpyAsync")
        call = self._open_call(name, "cuda_runtime", {"bytes": size})
        self._wait_for_slot()
        self.busy(5.0)
        row = Row("gpu_memcpy", self._copy_name(direction, pinned), 0, 0, stream)
        row.correlation, row.external = call.correlation, call.external
        row.args = {"bytes": size, "direction": direction}
        self._enqueue(row, self.now, self._copy_us(direction, size, pinned), after)
        blocks = direction != "DtoD" and not pinned and (size > 65_536 or direction == "DtoH")
        if joined or blocks:
            self.now = max(self.now, row.end + 1.0)
        call.end = self.now
        if wait and not joined:
            self.sync("cudaStreamSynchronize", stream)
        return row

    def _copy_name(self, direction: str, pinned: bool) -> str:
        host = "Host" if self.device.is_rocm else ("Pinned" if pinned else "Pageable")
        ends = {"HtoD": (host, "Device"), "DtoH": ("Device", host), "DtoD": ("Device", "Device")}
        source, target = ends[direction]
        return f"Memcpy {direction} ({source} -> {target})"

    def _copy_us(self, direction: str, size: int, pinned: bool) -> float:
        d = self.device
        rate = d.bandwidth / 2.4 if direction == "DtoD" else (d.pinned if pinned else d.pageable)
        return (1.2 + size / (rate * self.rng.uniform(0.82, 0.97))) * self.rng.uniform(0.98, 1.05)

    def sync(self, name: str = "cudaDeviceSynchronize", stream: int | None = None) -> None:
        """Wait on the host until the device (or one stream) has drained."""
        call = self._open_call(self._api(name), "cuda_runtime", {})
        began = self.now
        self.busy(1.6)
        until = self.tail(stream)
        self.now = max(self.now, until + self.rng.uniform(1.5, 4.0)) if until > began else self.now
        call.end = self.now
        self._sync_row(name, call, stream, began)

    def wait_event(self, at: float) -> None:
        """``cudaEventSynchronize`` on an event that the device reaches at ``at``."""
        call = self._open_call(self._api("cudaEventSynchronize"), "cuda_runtime", {})
        self.busy(1.8)
        self.now = max(self.now, at + 2.0)
        call.end = self.now

    def _sync_row(self, name: str, call: Row, stream: int | None, began: float) -> None:
        if not self.habits.sync_rows or self.device.is_rocm:
            return
        kind = "Stream Sync" if "Stream" in name else "Context Sync"
        lane = self.device.stream if stream is None else stream
        row = Row("cuda_sync", kind, began, self.now, lane, call.correlation, call.external)
        row.args = {"cuda_sync_kind": kind, "stream": lane if stream is not None else -1}
        self.rows.append(row)

    def stream_wait(self, waiter: int, on: int) -> None:
        """``waiter`` goes on only after what ``on`` holds now (event record and wait)."""
        self.api("cudaEventRecord", 0.9)
        self.api("cudaStreamWaitEvent", 0.8)
        reached = self.tails.get(on, 0.0)
        if reached > self.tails.get(waiter, -1e18):
            self.tails[waiter] = reached

    def malloc(self, size: int) -> None:
        """A driver allocation."""
        self.call(self._api("cudaMalloc"), 12 + size / 4e6, bytes=size)

    def free(self) -> None:
        """A driver free: it drains the device first."""
        call = self._open_call(self._api("cudaFree"), "cuda_runtime", {})
        self.busy(14.0)
        self.now = max(self.now, self.tail() + 4.0)
        self.busy(18.0)
        call.end = self.now
