"""Work between ranks: a process group, its collectives, DDP's reducer."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
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

    ``acting`` names the fault whose work its collectives are, where they are one's.
    """

    e: Eager
    ranks: Ranks
    bucket: int  # bytes
    on: bool = True
    pending: int = 0
    acting: str = ""

    def ready(self, param: Param) -> None:
        """Take a gradient into the bucket."""
        if not self.on:
            return
        with (
            self.e.op("torch::distributed::reducer::mul_out", param),
            self.e.op("aten::mul", param),
        ):
            self.e.launch(K.pointwise(self.e.d, "mul_", param.elems, param.dtype, 2))
        self.pending += param.elems
        if self.pending * 4 >= self.bucket:
            self._flush()

    def _flush(self) -> None:
        if self.pending:
            with self.e.m.acting(self.acting) if self.acting else nullcontext():
                collective(self.e, self.ranks, "allreduce", self.pending)
        self.pending = 0

    def finish(self) -> None:
        """The end of backward: the last bucket, and compute waits for all of them."""
        if not self.on:
            return
        self._flush()
        self.e.m.stream_wait(self.e.d.stream, self.ranks.stream)
        self._copy_out()

    def _copy_out(self) -> None:
        """Small gradients come back from their bucket by copies."""
        for param in self.e.params[:12]:
            if param.size <= 1 << 14:
                with (
                    self.e.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", param),
                    self.e.op("aten::copy_", param),
                ):
                    self.e.m.copy("DtoD", param.size, wait=False)
