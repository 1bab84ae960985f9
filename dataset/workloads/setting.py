"""The sizes of one recorded program, drawn from its seed."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from typing import Literal

# How a stored sample becomes what the model takes: from text, from a series, else from pictures.
TEXT = frozenset({"language", "translator", "recommender", "encoder"})
SERIES = frozenset({"speech", "forecaster", "graph", "tiny"})
CHANNELS = 16  # of a series
ADAM = frozenset({"language", "translator", "speech", "graph", "encoder", "patches"})

Variant = Literal["plain", "loader", "compiled", "ddp", "serve", "decode", "graphed", "service"]


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
    "recommender": ((48, 64), (1, 2), (192, 256), (64, 96)),
    "depth": ((12, 14, 16), (1,), (3, 4, 5), (80, 96)),
    "pose": ((20, 24, 28), (1, 2), (5, 6, 8), (80, 96)),
    "speech": ((96, 128), (1, 2), (12, 16), (32, 40)),
    "translator": ((96, 128), (1,), (3, 4), (40, 48)),
    "forecaster": ((64, 80), (1, 2), (12, 16), (96, 128)),
    "graph": ((96, 128), (1, 2), (8, 10), (64, 96)),
    "encoder": ((96, 128), (2,), (6, 8), (64, 80)),
    "patches": ((64, 96), (2,), (6, 8), (64,)),
    "tiny": ((16, 24, 32), (3, 4, 5), (8, 16), (16,)),
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
    adam = workload in ADAM
    return Setting(
        workload, variant, device, seed, width, depth, batch, side, steps, style, adam, extra
    )
