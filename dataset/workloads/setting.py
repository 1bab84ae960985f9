"""The sizes of one recorded program, drawn from its seed."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from typing import Literal

Variant = Literal["plain", "loader", "compiled", "ddp", "serve", "decode", "graphed"]


@dataclass(frozen=True)
class Setting:
    """What a program is built from. The same (workload, variant, seed) gives the same sizes.

    ``extra`` names what a healthy trace does once on purpose (a log line, a checkpoint, ...).
    """

    workload: str
    variant: Variant
    device: str
    seed: int
    width: int
    depth: int
    batch: int
    side: int  # image side, or sequence length
    steps: int  # recorded steps
    style: int  # picks among equivalent ways to write the same thing
    adam: bool  # AdamW, else SGD with momentum
    extra: str | None = None
    rank: int = 0
    world: int = 1

    def describe(self) -> dict[str, int]:
        """The sizes, for the label."""
        return {k: getattr(self, k) for k in ("width", "depth", "batch", "side", "steps", "style")}


# workload -> choices of width, depth, batch, side; a CPU step takes about 10 to 80 ms
SIZES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "classifier": ((16, 20, 24), (1, 2), (6, 8, 10), (56, 64, 72)),
    "detector": ((20, 24, 28), (3,), (4, 6, 8), (80, 96)),
    "segmenter": ((10, 12, 14), (1, 2), (3, 4, 5), (64, 80)),
    "generator": ((20, 24, 28), (1, 2), (6, 8), (24, 32)),
    "language": ((128, 160), (1,), (2, 3, 4), (80, 96, 112)),
    "matmul": ((384, 448, 512), (4, 6), (96, 128), (1,)),
}
# On a GPU the same programs need more work to be anything but launch-bound.
GPU_SCALE = {"width": 4, "batch": 4, "side": 2}


def draw(
    workload: str, variant: Variant, device: str, seed: int, extra: str | None = None
) -> Setting:
    """The setting of a program: all sizes from (workload, variant, seed)."""
    rng = random.Random(zlib.crc32(f"{workload}/{variant}/{seed}".encode()))
    width, depth, batch, side = (rng.choice(choices) for choices in SIZES[workload])
    steps, style = rng.choice((5, 5, 5, 5, 6)), rng.randrange(4)
    if variant == "serve":
        batch *= 3
    if variant == "loader":  # fetching a ready batch takes about a millisecond, so steps are longer
        batch = max(6, batch)
    if device != "cpu":
        width, batch, side = (
            value * GPU_SCALE[name]
            for name, value in (("width", width), ("batch", batch), ("side", side))
        )
    adam = workload == "language"
    return Setting(
        workload, variant, device, seed, width, depth, batch, side, steps, style, adam, extra
    )
