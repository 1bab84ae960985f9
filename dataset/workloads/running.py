"""Runs one program under the profiler and exports its raw trace, marks included."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from dataset.workloads.service import Service
from dataset.workloads.setting import Setting
from dataset.workloads.switch import SWITCH
from dataset.workloads.training import Server, Trainer, build_task

WAIT, WARMUP = 3, 1
KINDS = {"serve": Server, "decode": Server, "service": Service}  # by variant; else a Trainer


class Program(Protocol):
    """What is recorded."""

    def step(self, index: int) -> None:
        """The work of one step."""


def record(
    setting: Setting,
    patterns: Sequence[str],
    steps: Sequence[bool],
    raw: Path,
    *,
    with_stack: bool,
    record_shapes: bool,
) -> None:
    """Run the program and write its trace with marks to ``raw``.

    ``steps`` says for each recorded step whether the faults act in it.
    """
    torch.set_num_threads(1)
    logging.getLogger("torch").setLevel(logging.ERROR)
    if "sync-blocking-launch" in patterns:
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # read when the process first uses the GPU
    torch.manual_seed(setting.seed)
    # What acts in every recorded step acts before it too: nothing happens for the first time.
    always = all(steps)
    SWITCH.arm(patterns, [always] * (WAIT + WARMUP) + list(steps))
    if setting.world > 1:
        with _Group(setting, raw):
            _run(setting, raw, with_stack, record_shapes)
    else:
        _run(setting, raw, with_stack, record_shapes)


def _run(setting: Setting, raw: Path, with_stack: bool, record_shapes: bool) -> None:
    if setting.variant == "compiled":
        torch._dynamo.config.recompile_limit = 64
        torch._dynamo.config.accumulated_recompile_limit = 1024
    if setting.device != "cpu":
        full = "compute-fp32-matmul" in SWITCH.built
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not full
    kind: type[Service | Server | Trainer] = KINDS.get(setting.variant, Trainer)
    program: Program = kind(build_task(setting))
    activities = [ProfilerActivity.CPU]
    if setting.device != "cpu":
        activities.append(ProfilerActivity.CUDA)
    profiler = profile(
        activities=activities,
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=setting.steps, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(raw)),
        record_shapes=record_shapes,
        with_stack=with_stack,
    )
    if setting.rank:
        for index in range(WAIT + WARMUP + setting.steps):
            SWITCH.acting = SWITCH.plan[index]
            program.step(index)
        return
    with profiler:
        taken = main(program, profiler, WAIT + WARMUP + setting.steps)
    raw.with_suffix(".taken").write_text(str(taken))


def main(program: Program, profiler: profile, count: int) -> int:
    """The loop; frames outside this one are not part of the recorded program.

    Returns how often it was preempted: a disturbed recording shows the machine, not the program.
    """
    for index in range(count):
        if index == WAIT:
            begun = preemptions()
        SWITCH.acting = SWITCH.plan[index]
        program.step(index)
        profiler.step()
    return preemptions() - begun


def preemptions() -> int:
    """How often the machine took the processor from this thread so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


class _Group:
    """A gloo group of two local processes that meet over a file."""

    def __init__(self, setting: Setting, raw: Path) -> None:
        self.setting = setting
        self.meeting = raw.with_suffix(".meet")

    def __enter__(self) -> None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{self.meeting}",
            rank=self.setting.rank,
            world_size=self.setting.world,
            timeout=timedelta(seconds=60),
        )

    def __exit__(self, *_: object) -> None:
        torch.distributed.destroy_process_group()
