"""A service: requests come in, are made into batches, answered, and the answers put into words."""

from __future__ import annotations

import gc
import json
import time

import torch
from torch import Tensor

from dataset.workloads.feeding import STORED, decode, stored
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task
from dataset.workloads.training import MIDDLE, keep_records

PAUSE_S = 0.012  # between requests, where no request waits


class Service:
    """``step(index)`` answers one request. Extras: ``pause``, a service that waits for its next
    request; ``first``, one that a larger request than ever makes allocate anew."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.setting = task.setting
        task.model.train(False)  # type: ignore[attr-defined]
        self.net = task.model
        self.raw = [stored(self.setting, number) for number in range(STORED)]
        self.field = "ids" if "ids" in task.make_batch(1) else "x"
        self.ready = [self.decoded(i) for i in range(3)]
        self.cached = keep_records(20_000) if "host-gc-pause" in SWITCH.built else []

    def step(self, index: int) -> None:
        """Answer one request."""
        if self.setting.extra == "pause":
            time.sleep(PAUSE_S * (1 + index % 3))
        answer = self.answer(self.request(index))
        self.reply(answer, index)
        if "host-gc-pause" in SWITCH.acting:
            with Mark(SWITCH.tag["host-gc-pause"]):
                gc.collect()

    def request(self, index: int) -> Batch:
        """The batch of a request: made here, or by whoever sent it."""
        if "input-main-thread-preprocessing" in SWITCH.acting:
            with Mark(SWITCH.tag["input-main-thread-preprocessing"]):
                return self.decoded(index)
        batch = self.ready[index % len(self.ready)]
        if self.setting.extra == "first" and index == MIDDLE:
            return {name: torch.cat([value] * 3) for name, value in batch.items()}
        return batch

    def decoded(self, index: int) -> Batch:
        count = self.setting.batch
        samples = [
            decode(self.raw[(index * count + i) % STORED], self.setting) for i in range(count)
        ]
        return {self.field: torch.stack(samples)}

    def answer(self, batch: Batch) -> Tensor:
        if "infer-autograd" in SWITCH.acting:
            with Mark(SWITCH.tag["infer-autograd"]):
                return self.task.infer(batch).detach()
        with torch.inference_mode():
            return self.task.infer(batch)

    def reply(self, answer: Tensor, index: int) -> None:
        """Put an answer into words: the best few, or, where that is the fault, all of them."""
        if "host-python-overhead" in SWITCH.acting:
            with Mark(SWITCH.tag["host-python-overhead"]):
                rows = answer.tolist()
                lines = [
                    {"rank": rank, "class": f"class {place}", "share": f"{share:.6f}"}
                    for row in rows
                    for rank, (share, place) in enumerate(
                        sorted(((s, p) for p, s in enumerate(row)), reverse=True)
                    )
                ]
                for _ in range(6):
                    lines = json.loads(json.dumps(lines))
                self.said = str(len(lines) + index)
                return
        self.said = json.dumps(answer.amax(1).tolist())
