"""Records jobs of several ranks that really run: DDP over gloo on the CPU, one rank made slow.

    python -m dataset.record_jobs --out dataset/recorded/jobs --ranks 2 4 8

Each job is a folder of ``rank_N.json.gz`` with a ``label.json``: which rank is slow, why, or
nobody. The ranks of one size are started once and record all jobs, one after the other.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import socket
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

STEPS, WARM_UP, TRIED = (
    12,
    2,
    4,
)  # recorded; before them; before anything, to learn the step's length
WIDTH, BATCH = 256, 32
# Drawn by seed: what a batch takes to read, s, and what a slow rank loses, in steps.
READ_S = (0.005, 0.02, 0.04, 0.08)
LOST = (0.5, 1.0, 2.0)
MOST_LOST = 0.5  # s, on a machine too busy to time a step
MODELS = ("mlp", "conv", "attention")
# What a trace needs of an event's arguments; the rest is left out, for the files to be small.
KEPT = ("External id", "Sequence number", "Input Dims", "correlation")


@dataclass(frozen=True)
class Label:
    """What was done to a job. ``straggler``: the slow rank; null where there is none."""

    name: str
    ranks: int
    straggler: int | None
    kind: str
    """``data``, ``compute``, ``host`` or empty."""
    seed: int
    model: str
    read_ms: float
    """What reading a batch takes on every rank."""
    lost: float
    """What the slow rank loses in each step, in steps of the job without it; 0 for none."""
    queued_ms: tuple[float, ...] = ()
    """How long each rank's main thread was ready and had no core, in the recorded steps: ranks
    that share cores disturb each other as the ranks of a real job do not."""


VARIANTS = {
    "healthy": "",
    "data": "data",  # its loader is slow
    "compute": "compute",  # more work of the same kind
    "sleep": "host",  # Python that does something else
    "uneven": "compute",  # larger batches
    "unused": "",  # find_unused_parameters, on all ranks alike
    "no_sync": "",  # gradients reduced in every micro-step, on all ranks alike
}


def main() -> None:
    """Record every variant for each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    for ranks in arguments.ranks:
        labels = [label(v, ranks, s) for s in arguments.seeds for v in arguments.variants]
        record(labels, arguments.out)


def label(variant: str, ranks: int, seed: int) -> Label:
    """The job of this variant: which rank is slow, by how much and of what is up to the seed."""
    draw = random.Random(f"{variant} {ranks} {seed}")
    kind = VARIANTS[variant]
    slow = draw.randrange(ranks) if kind else None
    model, read, lost = draw.choice(MODELS), draw.choice(READ_S), draw.choice(LOST)
    name = f"{variant}_{ranks}_{seed}"
    return Label(name, ranks, slow, kind, seed, model, 1e3 * read, lost if kind else 0.0)


def record(labels: list[Label], out: Path) -> None:
    """Start the ranks, which record all of these jobs."""
    import torch.multiprocessing as mp

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_rank, (labels[0].ranks, port, labels, out), nprocs=labels[0].ranks)


def _rank(rank: int, ranks: int, port: int, labels: list[Label], out: Path) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):  # a rank of a real job has cores of its own
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    try:
        for mine in labels:
            dist.barrier()
            folder = out / mine.name
            folder.mkdir(parents=True, exist_ok=True)
            queued, packed = _job(rank, mine)
            (folder / f"rank_{rank}.json.gz").write_bytes(packed)
            each: list[float] = [0.0] * ranks
            dist.all_gather_object(each, round(1e3 * queued, 1))
            if rank == 0:
                done = replace(mine, queued_ms=tuple(each))
                (folder / "label.json").write_text(json.dumps(asdict(done), indent=2) + "\n")
    finally:
        dist.destroy_process_group()


class _Numbers:
    """A data set of whole batches, each of which takes its time."""

    def __init__(self, batches: int, rows: int, pause: float) -> None:
        import torch

        self.batches, self.pause = torch.randn(batches, rows, WIDTH), pause

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> Any:
        time.sleep(self.pause)
        return self.batches[i]


def _net(kind: str, draw: random.Random) -> Any:
    """(rows, WIDTH) in, anything out."""
    from torch import nn

    if kind == "mlp":
        wide = draw.choice((64, 256, 512))
        inner = [m for _ in range(draw.randint(1, 4)) for m in (nn.Linear(wide, wide), nn.ReLU())]
        return nn.Sequential(nn.Linear(WIDTH, wide), *inner)
    if kind == "conv":
        shape, deep = (1, WIDTH), draw.choice((4, 16))
        inner = [m for _ in range(2) for m in (nn.Conv1d(deep, deep, 5), nn.GELU())]
        return nn.Sequential(nn.Unflatten(1, shape), nn.Conv1d(1, deep, 9), *inner)
    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (WIDTH // 32, 32)), layer)


def _model(mine: Label, variant: str) -> Any:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = _net(mine.model, random.Random(mine.name))
            self.unused = torch.nn.Linear(WIDTH, WIDTH) if variant == "unused" else None

        def forward(self, x: Any) -> Any:
            return self.used(x)

    return DistributedDataParallel(Net(), find_unused_parameters=variant == "unused")


class _Step:
    """One training step, and what the slow rank does besides."""

    def __init__(self, model: Any, variant: str) -> None:
        import torch

        self.model, self.variant, self.lost = model, variant, 0.0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        self.square = torch.randn(512, 512)

    def __call__(self, rows: Any) -> None:
        import torch
        from torch.profiler import record_function

        if self.lost and self.variant == "sleep":
            with record_function("wait for a lock"):
                time.sleep(self.lost)
        if self.lost and self.variant == "compute":
            until = time.thread_time() + self.lost
            while time.thread_time() < until:
                torch.mm(self.square, self.square)
        for _ in range(2 if self.variant == "no_sync" else 1):
            self.model(rows).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def _job(rank: int, mine: Label) -> tuple[float, bytes]:
    """One job of this rank: seconds that it waited for a core while recorded, and the trace."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    variant = mine.name.split("_" + str(mine.ranks))[0]
    torch.manual_seed(mine.seed)
    model = _model(mine, variant)
    step = _Step(model, variant)
    lost = min(mine.lost * _length(mine, step), MOST_LOST)
    slow = rank == mine.straggler
    step.lost = lost if slow else 0.0
    rows = _larger(model.module, lost) if slow and variant == "uneven" else BATCH
    pause = mine.read_ms / 1e3 + (lost if slow and variant == "data" else 0.0)
    numbers = _Numbers(STEPS + WARM_UP, rows, pause)
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "trace.json"
        torch.distributed.barrier()
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=WARM_UP, active=STEPS, repeat=1),
            on_trace_ready=lambda p: p.export_chrome_trace(str(raw)),
        ) as profiler:
            for i, batch in enumerate(torch.utils.data.DataLoader(numbers, batch_size=None)):
                if i == WARM_UP:
                    began = _queued()
                step(batch)
                if i == len(numbers) - 1:
                    queued = _queued() - began
                profiler.step()
        return queued, _small(raw.read_text())


def _length(mine: Label, step: _Step) -> float:
    """Seconds of a step with no slow rank, the same number on all ranks."""
    import torch

    took = []
    numbers = _Numbers(TRIED, BATCH, mine.read_ms / 1e3)
    began = time.perf_counter()
    for batch in torch.utils.data.DataLoader(numbers, batch_size=None):
        step(batch)
        took.append(time.perf_counter() - began)
        began = time.perf_counter()
    usual = torch.tensor([sorted(took)[len(took) // 2]])
    torch.distributed.all_reduce(usual, torch.distributed.ReduceOp.MAX)
    return float(usual.item())


def _larger(module: Any, lost: float) -> int:
    """Rows of a batch that takes so much longer, s."""
    import torch

    def takes(rows: int) -> float:
        began = time.thread_time()
        module(torch.randn(rows, WIDTH)).square().mean().backward()
        module.zero_grad()
        return time.thread_time() - began

    takes(BATCH)
    rows, whole = BATCH, lost + takes(BATCH)
    while rows < 512 * BATCH and takes(rows) < whole:
        rows *= 2
    return rows


def _queued() -> float:
    """Seconds that this thread has been ready to run without a core; 0 where Linux is not."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _small(text: str) -> bytes:
    """The trace without what no reader needs and what tells the machine; the same every time."""
    trace = json.loads(text)
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") != "Trace"]
    for event in events:
        args = {k: v for k, v in event.get("args", {}).items() if k in KEPT}
        event.pop("args", None)
        if args:
            event["args"] = args
    kept = {"schemaVersion", "distributedInfo", "baseTimeNanoseconds"}
    head = {key: value for key, value in trace.items() if key in kept}
    packed = json.dumps({**head, "traceEvents": events}, separators=(",", ":")).encode()
    return gzip.compress(packed, 9, mtime=0)


if __name__ == "__main__":
    sys.exit(main())
