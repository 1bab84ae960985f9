"""What one simulated program is: every structural choice, drawn once from (workload, device, seed).

A faulty trace and its healthy twin share the plan; they differ in the fault alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from dataset.simulate.devices import Device
from dataset.simulate.eager import Eager, Modes, Tensor
from dataset.simulate.machine import Machine
from dataset.simulate.ranks import Ranks, Reducer
from dataset.simulate.training import Feed


@dataclass(frozen=True)
class Plan:
    """Structural choices of a program. ``pull`` is the wanted device time / host time."""

    workload: str
    device: Device
    seed: int
    steps: int
    depth: int
    width: int
    image: int
    length: int
    batch: float
    pull: float
    amp: str | None
    optimizer: str
    fused: bool
    clip: bool
    shapes: bool
    stacks: bool
    host: float
    queue: int
    style: str  # "2021", "2023", "2025"
    warm: int  # unrecorded steps before the window
    cold: bool  # the first recorded step allocates and loads
    side_stream: bool
    paced: bool
    input_share: float  # time of the pinned input copy / step time
    wait: float  # usual loader wait, µs
    scalar_every: int  # a rare .item() every so many steps; 0 never
    final_sync: bool
    world: int
    accumulate: int
    bucket: int
    variant: int
    sync_rows: bool
    overhead: bool
    markers: bool  # ProfilerStep annotations
    leafy: int  # how many short python frames a call has, where there are stacks
    chatty: int  # views that a module takes beside its work
    half_params: bool  # parameters in half precision: no casts
    state_copies: int  # small device-to-device copies of a step: buffers, metrics
    comm: float  # wanted time of the collectives / time of the compute kernels
    network: float = 1.0  # what the collectives' times are multiplied by to get there

    @property
    def trains(self) -> bool:
        """Whether the program trains (else it infers)."""
        return "infer" not in self.workload and "decode" not in self.workload

    def scaled(self, length: float) -> int:
        """A size multiplied by the batch factor, at least 1."""
        return max(1, round(length * self.batch))


STEP_BUDGET = {"train": (4, 7), "decode": (4, 8), "infer": (4, 8)}


def draw(workload: str, device: Device, seed: int) -> Plan:
    """The plan of (workload, device, seed); equal inputs give equal plans."""
    r = random.Random(f"plan/{workload}/{device.key}/{seed}")
    kind = "infer" if "infer" in workload else ("decode" if "decode" in workload else "train")
    old = device.key in ("V100", "RTX2080Ti")
    new = device.key in ("B200", "MI300X")
    styles = ("2025",) if new else (("2021", "2023", "2025") if old else ("2023", "2025"))
    style = r.choice(styles)
    bound = r.random() < 0.68
    side = r.random() < 0.55
    long = workload == "lm-ddp-accumulate" or "decode" in workload
    return Plan(
        workload=workload,
        device=device,
        seed=seed,
        steps=r.randint(*STEP_BUDGET[kind]),
        depth=r.randint(1, 2) if long else r.randint(2, 4),
        width=r.choice((128, 256, 512, 768, 1024)),
        image=r.choice((32, 64, 112, 224)),
        length=r.choice((128, 256, 512, 1024)),
        batch=1.0,
        pull=r.uniform(1.15, 3.5) if bound else r.uniform(0.6, 1.15),
        amp=_amp(r, device, workload),
        optimizer=r.choice(("AdamW", "Adam", "SGD", "AdamW")),
        fused=r.random() < 0.4,
        clip=r.random() < 0.35,
        shapes=r.random() < (0.75 if style != "2021" else 0.85),
        stacks=r.random() < 0.55 and style != "2021",
        host=r.choice((0.7, 1.0, 1.4, 2.0, 3.0, 4.0, 6.0 if old else 2.4)) * r.uniform(0.85, 1.2),
        queue=r.choice((256, 512, 1024)),
        style=style,
        warm=r.choice((0, 1, 1, 2)),
        cold=r.random() < 0.15,
        side_stream=side,
        paced=r.random() < 0.2,
        input_share=r.uniform(0.002, 0.03 if side else 0.006),
        wait=r.uniform(15, 180),
        scalar_every=r.choice((0, 0, 4)),
        final_sync=r.random() < 0.75,
        world=r.choice((2, 4, 8, 8)),
        accumulate=r.choice((2, 3)) if workload.endswith("accumulate") else 1,
        bucket=25 << 20,
        variant=r.randrange(1 << 30),
        sync_rows=style == "2025" and r.random() < 0.3,
        overhead=style == "2025" and r.random() < 0.3,
        markers=r.random() < 0.88,
        leafy=r.choice((1, 1, 2, 3)),
        chatty=r.choice((0, 0, 1, 3)),
        half_params=r.random() < 0.45,
        state_copies=r.choice((0, 0, 2, 5, 12)),
        comm=r.uniform(0.05, 0.35),
    )


def _amp(r: random.Random, device: Device, workload: str) -> str | None:
    """Autocast dtype. Parts without TF32 use half precision always: fp32 there would be a fault."""
    if device.tf32 and not device.is_rocm and "lm" not in workload and r.random() < 0.25:
        return None
    return device.half_type


# Source places of a user's own code; healthy and faulty code draw from the same ones.
FILES = (
    "train.py",
    "trainer.py",
    "model.py",
    "engine.py",
    "layers.py",
    "main.py",
    "runner.py",
    "blocks.py",
)
FUNCTIONS = (
    "forward",
    "step",
    "run",
    "training_step",
    "update",
    "process",
    "__call__",
    "compute",
    "apply",
)

Hook = Callable[["Run", Tensor], None]


@dataclass
class Run:
    """One run of a program: the machine, eager mode, and the hooks that edits hang on."""

    plan: Plan
    m: Machine
    e: Eager
    feed: Feed
    rng: random.Random  # of the edits: the healthy twin never draws from it
    ranks: Ranks | None = None
    reducer: Reducer | None = None
    hooks: dict[str, Hook] = field(default_factory=dict)
    layers: dict[str, int] = field(default_factory=dict)  # how often each point came in a step
    finish: list[float] = field(default_factory=list)  # when each step had left host and device
    opened: float = 0.0  # when the window opened and the device had drained, µs
    healthy_us: float = 0.0  # step time of the program without edits

    def at(self, point: str, x: Tensor | None = None) -> bool:
        """A point where edits may act: start, load, between, loss, end, ...; whether one hangs here."""
        self.layers[point] = self.layers.get(point, 0) + 1
        hook = self.hooks.get(point)
        if hook:
            hook(self, x or Tensor((1 << 16,), self.e.amp or "float"))
        return hook is not None

    def place(self) -> str:
        """A frame of the user's own code, which tells nothing."""
        r = self.rng
        return f"{r.choice(FILES)}({r.randint(20, 400)}): {r.choice(FUNCTIONS)}"

    def reset(self, modes: Modes, hooks: dict[str, Hook]) -> None:
        """Begin a step with these edits."""
        self.e.modes, self.hooks = modes, hooks
        self.e.layer = 0
        self.layers = {}


def stall(run: Run, us: float) -> float:
    """Host time after which the device has been idle for ``us`` µs."""
    return run.m.backlog() + us
