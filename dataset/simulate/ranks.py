"""Work between ranks: a process group, its collectives, DDP's reducer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dataset.simulate import kernels as K
from dataset.simulate.eager import Eager, Param, Tensor


@dataclass
class Ranks:
    """A process group as this rank sees it."""

    world: int
    stream: int
    sequence: int = 0
    group: str = "0"
    slow: float = 1.0  # how much slower than its best the network is

    def args(self, name: str, elems: int, dtype: str) -> dict[str, Any]:
        """The collective arguments that a kernel carries."""
        self.sequence += 1
        return {
            "Collective name": name,
            "dtype": {"c10::BFloat16": "BFloat16"}.get(dtype, "Float"),
            "In msg nelems": elems,
            "Out msg nelems": elems,
            "Group size": self.world,
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": self.group,
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(range(self.world))),
            "Seq": self.sequence,
        }


_RING = {
    "allreduce": ("nccl:all_reduce", "c10d::allreduce_", "AllReduce_Sum_{t}_RING_LL", 2.0),
    "_allgather_base": (
        "nccl:_all_gather_base",
        "c10d::_allgather_base_",
        "AllGather_RING_LL",
        1.0,
    ),
    "_reduce_scatter_base": (
        "nccl:_reduce_scatter_base",
        "c10d::_reduce_scatter_base_",
        "ReduceScatter_Sum_{t}_RING_LL",
        1.0,
    ),
    "all_to_all": ("nccl:all_to_all", "c10d::alltoall_base_", "SendRecv", 1.0),
    "broadcast": ("nccl:broadcast", "c10d::broadcast_", "Broadcast_RING_LL", 1.0),
}


def collective(
    e: Eager, ranks: Ranks, kind: str, elems: int, dtype: str = "float", *, in_line: bool = False
) -> float:
    """Issue a collective; returns when the device ends it. ``in_line`` makes compute wait for it."""
    m = e.m
    note, op, kernel, factor = _RING[kind]
    width = K.BYTES[dtype]
    share = (ranks.world - 1) / ranks.world
    us = 14.0 + 2.5 * ranks.world + factor * share * elems * width / e.d.link
    us = max(us * ranks.slow, 9.0) * m.rng.uniform(1.0, 1.25)
    word = {"c10::BFloat16": "bf16", "c10::Half": "f16"}.get(dtype, "f32")
    name = f"ncclDevKernel_{kernel.format(t=word)}(ncclDevKernelArgsStorage<4096ul>)"
    if e.d.is_rocm:
        name = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)"
    args = ranks.args(kind, elems, dtype)
    tensor = Tensor((elems,), dtype)
    with e.op(op, tensor, pre=6.0), m.op("record_param_comms", args=args, pre=4.0):
        m.api("cudaStreamIsCapturing", 0.5)
        m.stream_wait(ranks.stream, e.d.stream)
        with m.annotation(note, pre=2.0):
            m.launch(
                name,
                us,
                (24, 1, 1),
                (640, 1, 1),
                stream=ranks.stream,
                api="cudaLaunchKernelExC",
                **args,
            )
        m.api("cudaEventRecord", 0.8)
        end = m.tail(ranks.stream)
        m.slowdown_until = max(m.slowdown_until, end)
        if in_line:
            m.stream_wait(e.d.stream, ranks.stream)
    return end


@dataclass
class Reducer:
    """DDP's reducer: buckets fill as gradients come; each full one is reduced on the comm stream.

    ``late`` holds all buckets back until backward has ended; ``each`` reduces every tensor alone.
    """

    e: Eager
    ranks: Ranks
    bucket: int  # bytes
    on: bool = True
    late: bool = False
    each: bool = False
    pending: int = 0
    held: list[int] = field(default_factory=list)
    acting: str = ""

    def ready(self, param: Param) -> None:
        if not self.on:
            return
        with (
            self.e.op("torch::distributed::reducer::mul_out", param),
            self.e.op("aten::mul", param),
        ):
            self.e.launch(K.pointwise(self.e.d, "mul_", param.elems, "float", 2))
        self.pending += param.elems
        if self.pending * 4 >= self.bucket or self.each:
            self._flush()

    def _flush(self) -> None:
        if self.late:
            self.held.append(self.pending)
        elif self.pending:
            self._reduce(self.pending)
        self.pending = 0

    def _reduce(self, elems: int) -> None:
        if self.acting:
            with self.e.m.acting(self.acting):
                collective(self.e, self.ranks, "allreduce", elems)
        else:
            collective(self.e, self.ranks, "allreduce", elems)

    def finish(self) -> None:
        """The end of backward: the last bucket, and compute waits for all of them."""
        if not self.on:
            return
        self._flush()
        for elems in self.held:
            self._reduce(elems)
        self.held.clear()
        self.e.m.stream_wait(self.e.d.stream, self.ranks.stream)
