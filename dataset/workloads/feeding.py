"""Where batches come from: memory, or a data loader that decodes stored samples."""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dataset.workloads.setting import CHANNELS, SERIES, TEXT, Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task

STORED = 24  # distinct stored samples; they repeat
RAW_SIDE = {
    **dict.fromkeys(("classifier", "detector", "pose"), 160),
    "segmenter": 240,
    "depth": 200,
    "patches": 320,
}
FRAMES = 32
# How many times the decoding work one worker cannot do while the model computes.
SLOW = {
    **dict.fromkeys(SERIES, 24),
    "classifier": 8,
    "detector": 8,
    "segmenter": 12,
    "generator": 24,
    "language": 11,
    "depth": 10,
    "pose": 10,
    "translator": 6,
}


class Samples(Dataset[Batch]):
    """Stored bytes with their targets; ``[i]`` decodes sample i unless ``raw``."""

    def __init__(self, task: Task, length: int, raw: bool = False, effort: int = 1) -> None:
        self.setting = task.setting
        self.length = length
        self.raw = raw
        self.effort = effort
        self.targets = task.make_batch(STORED)
        self.field = "ids" if "ids" in self.targets else "x"
        del self.targets[self.field]
        self.stored = [stored(self.setting, number) for number in range(STORED)]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Batch:
        number = index % STORED
        sample = {name: values[number] for name, values in self.targets.items()}
        if self.raw:
            content = torch.frombuffer(bytearray(self.stored[number]), dtype=torch.uint8)
            return {**sample, "stored": content}
        for _ in range(self.effort):
            sample[self.field] = decode(self.stored[number], self.setting)
        return sample


def stored(setting: Setting, number: int) -> bytes:
    """Sample ``number`` as it is kept: packed pixels or levels, or a text."""
    rng = np.random.default_rng(setting.seed * 1000 + number)
    if setting.workload in RAW_SIDE:
        side = RAW_SIDE[setting.workload]
        coarse = rng.integers(0, 255, (side // 4, side // 4, 3), dtype=np.uint8)
        return zlib.compress(np.asarray(Image.fromarray(coarse).resize((side, side))).tobytes(), 6)
    if setting.workload in TEXT:
        length = 600 if setting.workload == "encoder" else 9000
        return " ".join(f"w{word}" for word in rng.integers(0, 4000, length)).encode()
    levels = rng.integers(0, 64, (FRAMES, *_shape(setting)), dtype=np.uint8)
    return zlib.compress(levels.tobytes(), 6)


def decode(content: bytes, setting: Setting) -> Tensor:
    """A stored sample as the tensor that the model takes, without the batch dimension."""
    if setting.workload == "patches":
        from dataset.workloads.processing import process  # here: the others need no transformers

        return process(picture_of(content, RAW_SIDE["patches"]), setting.side)
    if setting.workload == "encoder":
        from dataset.workloads.processing import tokenize

        return tokenize(content.decode(), setting.side)
    if setting.workload in RAW_SIDE:
        return decode_picture(content, RAW_SIDE[setting.workload], setting.side)
    if setting.workload in TEXT:
        return encode_text(content.decode(), setting.side)
    levels = np.frombuffer(zlib.decompress(content), dtype=np.uint8)
    frames = levels.reshape(FRAMES, *_shape(setting)).astype(np.float32)
    return torch.from_numpy(frames.mean(axis=0) / 32 - 1)


def _shape(setting: Setting) -> tuple[int, ...]:
    """Of a sample that is neither a picture nor a text."""
    if setting.workload in SERIES:
        return (setting.side, CHANNELS)
    return (3, setting.side, setting.side)


def picture_of(content: bytes, side: int) -> Image.Image:
    pixels = np.frombuffer(zlib.decompress(content), dtype=np.uint8)
    return Image.fromarray(pixels.reshape(side, side, 3))


def decode_picture(content: bytes, raw_side: int, side: int) -> Tensor:
    picture = picture_of(content, raw_side).resize((side, side), Image.Resampling.BICUBIC)
    pixels = np.asarray(picture, dtype=np.float32) / 255
    pixels = (pixels - pixels.mean(axis=(0, 1))) / (pixels.std(axis=(0, 1)) + 0.1)
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def encode_text(text: str, length: int) -> Tensor:
    numbers: dict[str, int] = {}
    ids: list[int] = []
    known = 0
    for word in text.split():
        if word not in numbers:
            numbers[word] = known
            known += 1
        ids += [numbers[word]]
    return torch.tensor(ids[:length])


def from_memory(task: Task) -> Iterator[Batch]:
    """Ready batches, over and over; pinned where there is a GPU."""
    batches = [task.make_batch(task.setting.batch) for _ in range(3)]
    if task.setting.device != "cpu":
        batches = [{k: v.pin_memory() for k, v in batch.items()} for batch in batches]
    return endless(batches)


def from_loader(task: Task, raw: bool) -> Iterator[Batch]:
    """Batches from a DataLoader; how well it keeps up is what its faults change."""
    sync = "input-dataloader-sync" in SWITCH.built
    starved = "input-dataloader-starved" in SWITCH.built
    respawn = starved and task.setting.style % 2 == 0
    slow = starved and not respawn
    batch = task.setting.batch
    # Few batches an epoch where workers start again with each epoch; else one long epoch.
    length = batch * (3 if respawn else 400)
    samples = Samples(task, length, raw=raw, effort=SLOW[task.setting.workload] if slow else 1)
    loader = DataLoader(
        samples,
        batch_size=batch,
        num_workers=0 if sync else 1,
        persistent_workers=not sync and not respawn,
        prefetch_factor=None if sync else 2 if starved else 12,
        pin_memory=task.setting.device != "cpu",
        collate_fn=as_lists if raw else None,
    )
    batches = endless(loader)
    if sync or starved:
        return batches
    first = next(batches)  # workers fill their queue while a program builds its model
    time.sleep(0.4)
    return itertools.chain([first], batches)


def as_lists(samples: list[Batch]) -> dict[str, list[Tensor]]:
    """Undecoded samples differ in length and stay apart."""
    return {name: [sample[name] for sample in samples] for name in samples[0]}


def endless(batches: Iterable[Batch]) -> Iterator[Batch]:
    while True:
        yield from batches


class Mover:
    """Batches on the device; on a GPU the next one is copied on a side stream meanwhile."""

    def __init__(self, source: Iterator[Batch], device: str, raw: bool = False) -> None:
        self.source = source
        self.device = device
        # Undecoded samples stay on the CPU.
        self.stream = torch.cuda.Stream() if device != "cpu" and not raw else None
        self.ready: Batch | None = None

    def next_batch(self) -> Batch:
        if self.stream is None:
            return self.fetch()
        if not SWITCH.acting.isdisjoint(COPY_FAULTS):
            return self.copy_in_line(self.fetch())
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.ready if self.ready is not None else self.copy_in_line(self.fetch())
        with torch.cuda.stream(self.stream):
            self.ready = {k: v.to(self.device, non_blocking=True) for k, v in self.fetch().items()}
        for value in batch.values():
            value.record_stream(torch.cuda.current_stream())
        return batch

    def fetch(self) -> Batch:
        for pattern in LOADER_FAULTS & SWITCH.acting:
            with Mark(SWITCH.tag[pattern]):
                return next(self.source)
        return next(self.source)

    def copy_in_line(self, batch: Batch) -> Batch:
        if "input-pageable-copy" in SWITCH.acting:
            batch = {k: v.clone() for k, v in batch.items()}
            with Mark(SWITCH.tag["input-pageable-copy"]):
                return {k: v.to(self.device) for k, v in batch.items()}
        if "input-tiny-copies" in SWITCH.acting:
            with Mark(SWITCH.tag["input-tiny-copies"]):
                return {
                    k: torch.stack(
                        [row.to(self.device, non_blocking=True) for row in split(v)]
                    ).view(v.shape)
                    for k, v in batch.items()
                }
        if "input-copy-not-overlapped" in SWITCH.acting:
            with Mark(SWITCH.tag["input-copy-not-overlapped"]):
                return {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}
        return {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}


def split(value: Tensor) -> Tensor:
    """Rows of at most 64 KB."""
    rows = value.reshape(-1, value.shape[-1]) if value.dim() > 2 else value
    groups = max(1, min(64, rows.shape[0]))
    while rows.shape[0] % groups:
        groups -= 1
    return rows.reshape(groups, -1)


LOADER_FAULTS = frozenset({"input-dataloader-sync", "input-dataloader-starved"})
COPY_FAULTS = frozenset({"input-pageable-copy", "input-tiny-copies", "input-copy-not-overlapped"})
