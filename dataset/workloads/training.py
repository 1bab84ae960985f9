"""The training loop that all workloads share, with what goes wrong around a model."""

from __future__ import annotations

import gc
import io
import json
import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from dataset.workloads.feeding import Mover, decode, from_loader, from_memory
from dataset.workloads.setting import TEXT, Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task

log = logging.getLogger("training")


class Trainer:
    """One training program; ``step(index)`` is one optimizer step."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.setting = task.setting
        self.net: nn.Module = task.model  # type: ignore[assignment]
        self.raw = "input-main-thread-preprocessing" in SWITCH.built
        loads = self.setting.variant == "loader"
        source = from_loader(task, self.raw) if loads else from_memory(task)
        self.mover = Mover(source, self.setting.device, self.raw)
        self.wrap()
        self.optimizer = self.make_optimizer()
        self.history: list[dict[str, float]] = []
        self.records = (
            keep_records(3000 * (1 + task.setting.style)) if "host-gc-pause" in SWITCH.built else []
        )
        self.changes = 0
        self.rounds = 2 if self.setting.variant == "ddp" else 1

    def wrap(self) -> None:
        if self.setting.variant == "compiled":
            compiled: Callable[..., Tensor] = torch.compile(
                self.net, backend="eager", dynamic=False
            )
            self.task.model = compiled
        if self.setting.variant == "graphed" and "host-launch-bound" not in SWITCH.built:
            sample = next(self.mover.source)["x"].to(self.setting.device)
            self.task.model = torch.cuda.make_graphed_callables(self.net, (sample,))
        if self.setting.variant == "ddp":
            self.task.model = nn.parallel.DistributedDataParallel(
                self.net,
                find_unused_parameters="comm-unused-parameters" in SWITCH.built,
                bucket_cap_mb=0.004 if "comm-small-collectives" in SWITCH.built else 25,
                gradient_as_bucket_view=True,
            )

    def make_optimizer(self) -> torch.optim.Optimizer:
        usual = "AdamW" if self.setting.adam else "SGD"
        forms = tuple(OPTIMIZERS)
        name = forms[self.setting.seed % len(forms)] if self.setting.workload == "tiny" else usual
        how: dict[str, Any] = {"lr": 1e-4, "weight_decay": 1e-4, **OPTIMIZERS[name]}
        if "compute-single-tensor-optimizer" in SWITCH.built:
            how["foreach"] = False
        else:
            how["fused" if name in FUSED else "foreach"] = True
        made: torch.optim.Optimizer = getattr(torch.optim, name)(self.net.parameters(), **how)
        return made

    def step(self, index: int) -> None:
        """The work of one step."""
        for number in range(self.rounds):
            self.micro_step(index, number == self.rounds - 1)
        self.update()
        self.after(index)

    def micro_step(self, index: int, last: bool) -> None:
        batch = self.prepare(self.mover.next_batch(), index)
        if "comm-missing-no-sync" in SWITCH.acting and not last:
            with Mark(SWITCH.tag["comm-missing-no-sync"]):
                self.compute(batch)
        elif last or self.setting.variant != "ddp":
            self.compute(batch)
        else:
            with self.task.model.no_sync():  # type: ignore[attr-defined]
                self.compute(batch)

    def compute(self, batch: Batch) -> None:
        for pattern in AROUND_ALL & SWITCH.acting:
            with Mark(SWITCH.tag[pattern]):
                return self.differentiate(batch)
        return self.differentiate(batch)

    def differentiate(self, batch: Batch) -> None:
        loss = self.forward(batch)
        self.read(loss, batch)
        if "comm-small-collectives" in SWITCH.acting:
            with Mark(SWITCH.tag["comm-small-collectives"]):
                loss.backward()
        else:
            loss.backward()
        self.last_loss = loss

    def forward(self, batch: Batch) -> Tensor:
        for pattern in AROUND_FORWARD & SWITCH.acting:
            with Mark(SWITCH.tag[pattern]):
                return self.task.loss(batch)
        return self.task.loss(batch)

    def read(self, loss: Tensor, batch: Batch) -> None:
        """What the program looks at between forward and backward."""
        if "sync-scalar-readback" in SWITCH.acting:
            with Mark(SWITCH.tag["sync-scalar-readback"]):
                self.history.append({"loss": loss.item()})
        if "sync-tensor-readback" in SWITCH.acting:
            with Mark(SWITCH.tag["sync-tensor-readback"]):
                self.seen = {name: value.cpu() for name, value in batch.items()}
        if "sync-explicit" in SWITCH.acting:
            with Mark(SWITCH.tag["sync-explicit"]):
                torch.cuda.synchronize()

    def prepare(self, batch: Batch, index: int) -> Batch:
        """Main-thread work on a batch."""
        if self.raw:
            batch = self.decode_all(batch)
        if "compile-recompile" in SWITCH.acting:
            self.changes += 1
            return self.crop(batch)
        if self.setting.extra == "long" and index == MIDDLE:
            return {name: torch.cat([value] * 3) for name, value in batch.items()}
        return batch

    def crop(self, batch: Batch) -> Batch:
        """Fewer samples or tokens than ever before."""
        if "ids" in batch:
            return {"ids": batch["ids"][:, : self.setting.side - self.changes]}
        return {name: value[: self.setting.batch - self.changes] for name, value in batch.items()}

    def decode_all(self, batch: Batch) -> Batch:
        field = "ids" if self.setting.workload in TEXT else "x"
        with Mark(SWITCH.tag["input-main-thread-preprocessing"]):
            stored = batch.pop("stored")
            samples = [decode(bytes(s.numpy()), self.setting) for s in stored]
            ready = {name: torch.stack(list(values)) for name, values in batch.items()}
            ready[field] = torch.stack(samples)
        return {name: values.to(self.setting.device) for name, values in ready.items()}

    def update(self) -> None:
        if "compute-single-tensor-optimizer" in SWITCH.acting:
            with Mark(SWITCH.tag["compute-single-tensor-optimizer"]):
                self.optimizer.step()
        else:
            self.optimizer.step()
        if "memory-zero-grad-fill" in SWITCH.acting:
            with Mark(SWITCH.tag["memory-zero-grad-fill"]):
                self.optimizer.zero_grad(set_to_none=False)
        else:
            self.optimizer.zero_grad(set_to_none=True)

    def after(self, index: int) -> None:
        """What a program does at the end of a step."""
        if "host-python-overhead" in SWITCH.acting:
            with Mark(SWITCH.tag["host-python-overhead"]):
                self.summarise(index)
        if "host-gc-pause" in SWITCH.acting:
            with Mark(SWITCH.tag["host-gc-pause"]):
                gc.collect()
        if "memory-alloc-churn" in SWITCH.acting:
            with Mark(SWITCH.tag["memory-alloc-churn"]):
                torch.cuda.empty_cache()
        if index == MIDDLE and self.setting.extra is not None:
            self.once()

    def summarise(self, index: int) -> None:
        """Per-step bookkeeping in plain Python, as training scripts tend to grow it."""
        lines = []
        for name, value in self.net.named_parameters():
            shape, total = value.shape, 1
            for side in shape:
                total *= side
            for column in range(48):
                lines += [f"{index:06d} {name:<60} {total:>12,} {column * 0.5:.3e}"]
        text = "\n".join(lines)
        self.history.append({"size": len(text), "words": len(text.split())})
        if self.setting.style % 2:
            self.kept = json.loads(json.dumps({"lines": lines, "step": index}))
        else:
            log.debug("step %d: %s", index, sorted(set(lines))[:3])

    def once(self) -> None:
        """Something that costs a little, once, and that nobody should repair."""
        if self.setting.extra == "item":
            self.history.append({"loss": self.last_loss.item()})
        elif self.setting.extra == "checkpoint":
            torch.save(self.net.state_dict(), io.BytesIO())
        elif self.setting.extra == "log":
            log.info("loss %s", f"{self.last_loss.item():.4f}")
        elif self.setting.extra == "collect":
            gc.collect()
        elif self.setting.extra == "first":
            self.average = {k: v.clone() for k, v in self.net.state_dict().items()}


class Server:
    """One inference program; ``step(index)`` answers one batch."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.setting = task.setting
        self.net: nn.Module = task.model  # type: ignore[assignment]
        self.mover = Mover(from_memory(task), self.setting.device)
        self.net.train(False)
        self.answers: list[Tensor] = []

    def step(self, index: int) -> None:
        """Answer one batch."""
        batch = self.mover.next_batch()
        if "infer-autograd" in SWITCH.acting:
            self.net.train()
            with Mark(SWITCH.tag["infer-autograd"]):
                answer = self.task.infer(batch)
            self.net.eval()
        else:
            with torch.inference_mode():
                answer = self.task.infer(batch)
        self.answers = [answer.detach()]
        if index == MIDDLE and self.setting.extra == "item":
            self.answers += [torch.tensor(answer.float().sum().item())]


def keep_records(count: int) -> list[object]:
    """Many small objects alive, as cached annotations are: what makes a collection long."""
    return [{"id": i, "box": [i, i + 1, [i]], "name": (str(i), [i])} for i in range(count)]


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "AdamW": {},
    "SGD": {"momentum": 0.9, "nesterov": True},
    "RMSprop": {"momentum": 0.9},
    "Adagrad": {},
    "NAdam": {},
}
FUSED = frozenset({"AdamW", "SGD", "Adagrad"})  # those with a fused form on a CPU
MIDDLE = 6  # the index of the step in which extras happen; always a recorded one
AROUND_FORWARD = frozenset({"compile-graph-break", "compile-recompile", "comm-unused-parameters"})
AROUND_ALL = frozenset({"sync-blocking-launch", "host-launch-bound", "compute-fp32-matmul"})


def build_task(setting: Setting) -> Task:
    """The workload by name."""
    module = import_module(f"dataset.workloads.{setting.workload}")
    task: type[Task] = getattr(module, setting.workload.capitalize())
    return task(setting)
