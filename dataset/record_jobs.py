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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

STEPS, WARM_UP = 5, 2
WIDTH, BATCH = 256, 32
READ_S = 0.04  # a batch takes on every rank: steps that a busy machine's pauses do not drown
SLOW_S = 0.06  # what a slow rank loses in a step: a multiple of what a busy machine does by chance
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
    parser.add_argument("--takes", type=int, default=3, help="of each job; one is kept")
    arguments = parser.parse_args()
    for ranks in arguments.ranks:
        labels = [label(v, ranks, s) for s in arguments.seeds for v in arguments.variants]
        record(labels, arguments.out, arguments.takes)


def label(variant: str, ranks: int, seed: int) -> Label:
    """The job of this variant: which rank is slow is a matter of the seed."""
    kind = VARIANTS[variant]
    slow = random.Random(f"{variant} {ranks} {seed}").randrange(ranks) if kind else None
    return Label(f"{variant}_{ranks}_{seed}", ranks, slow, kind, seed)


def record(labels: list[Label], out: Path, takes: int) -> None:
    """Start the ranks, which record all of these jobs."""
    import torch.multiprocessing as mp

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_rank, (labels[0].ranks, port, labels, str(out), takes), nprocs=labels[0].ranks)
    for mine in labels:
        text = json.dumps(asdict(mine), indent=2) + "\n"
        (out / mine.name / "label.json").write_text(text)


def _rank(
    rank: int, ranks: int, port: int, labels: list[Label], out: str, takes_of_each: int
) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    try:
        for mine in labels:
            takes = []
            for _ in range(takes_of_each):
                dist.barrier()
                took, packed = _job(rank, mine)
                slowest = torch.tensor([took])
                dist.all_reduce(slowest, dist.ReduceOp.MAX)
                takes.append((slowest.item(), packed))
            folder = Path(out) / mine.name
            folder.mkdir(parents=True, exist_ok=True)
            # The take that other programs disturbed least: all ranks choose the same.
            best = min(range(len(takes)), key=lambda i: takes[i][0])
            (folder / f"rank_{rank}.json.gz").write_bytes(takes[best][1])
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


def _model(variant: str) -> Any:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [m for _ in range(2) for m in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
            self.used, self.unused = torch.nn.Sequential(*layers), torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            return self.used(x)

    net = Net()
    if variant != "unused":
        net.unused = torch.nn.Identity()
    return DistributedDataParallel(net, find_unused_parameters=variant == "unused")


def _job(rank: int, mine: Label) -> tuple[float, bytes]:
    """One job of this rank: seconds that its recorded steps took, and the trace."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    variant = mine.name.split("_" + str(mine.ranks))[0]
    slow = rank == mine.straggler
    torch.manual_seed(mine.seed)
    batch = BATCH * 32 if slow and variant == "uneven" else BATCH
    pause = READ_S + (SLOW_S if slow and variant == "data" else 0.0)
    numbers = _Numbers(STEPS + WARM_UP + 2, batch, pause)
    loader = torch.utils.data.DataLoader(numbers, batch_size=None)
    model, square = _model(variant), torch.randn(1024, 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "trace.json"
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=WARM_UP, active=STEPS, repeat=1),
            on_trace_ready=lambda p: p.export_chrome_trace(str(raw)),
        ) as profiler:
            began = time.perf_counter()
            for rows in loader:
                if slow and variant == "sleep":
                    with record_function("wait for a lock"):
                        time.sleep(SLOW_S)
                if slow and variant == "compute":
                    for _ in range(3):
                        torch.mm(square, square)
                for _ in range(2 if variant == "no_sync" else 1):
                    loss = model(rows).square().mean()
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                profiler.step()
            took = time.perf_counter() - began
        return took, _small(raw.read_text())


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
