"""Kineto files of any length, made up: steps of products that each end in a read-back."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

STEP = 100_000.0  # µs


def write(path: Path, *, steps: int, ops: int, rank: int = 0, world: int = 1) -> Path:
    """A trace of about ``3 * steps * ops`` events; of several ranks the last comes late."""
    events: list[dict[str, object]] = []
    late = 20_000.0 if rank == world - 1 else 0.0
    corr = 0

    def host(cat: str, name: str, ts: float, dur: float, **args: object) -> None:
        events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
             "args": args}
        )  # fmt: skip

    def device(name: str, ts: float, dur: float, **args: object) -> None:
        given = {"device": 0, "stream": 7, "correlation": corr, **args}
        events.append(
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur,
             "args": given}
        )  # fmt: skip

    for step in range(steps):
        at, each = step * STEP, 0.7 * STEP / ops
        host("user_annotation", f"ProfilerStep#{step}", at, STEP)
        for i in range(ops):
            corr += 1
            ts = at + i * each
            dims = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
            host("cpu_op", f"aten::op{i % 400}", ts, 0.7 * each, **dims)
            host("cuda_runtime", "cudaLaunchKernel", ts + 0.1 * each, 0.2 * each, correlation=corr)
            device(f"sgemm_{i % 300}", ts + 0.4 * each, 0.5 * each)
        corr += 1
        ts = at + 0.75 * STEP
        host("cpu_op", "aten::item", ts, 15_000)
        host("cpu_op", "aten::_local_scalar_dense", ts + 5, 14_990)
        host("cuda_runtime", "cudaMemcpyAsync", ts + 10, 10, correlation=corr)
        host("cuda_runtime", "cudaStreamSynchronize", ts + 30, 14_950)
        device("spin", ts - 4_000, 18_900)
        if world > 1:
            corr += 1
            start = at + 0.76 * STEP + 16_000 * (late > 0)
            host("cuda_runtime", "cudaLaunchKernel", ts + 15_100, 5, correlation=corr)
            device("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, at + 0.97 * STEP - start,
                   **{"Collective name": "allreduce", "In msg nelems": 1 << 20,
                      "Group size": world, "dtype": "Float", "Seq": step})  # fmt: skip
    trace: dict[str, object] = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}],
        "traceEvents": events,
    }
    if world > 1:
        trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    path.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))
    return path
