"""Speech recognizer: convolutions over frames, a recurrent layer, connectionist loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dataset.workloads.layers import Activation, Norm
from dataset.workloads.setting import CHANNELS, Setting
from dataset.workloads.switch import SWITCH, Mark
from dataset.workloads.task import Batch, Task

LETTERS = 29
WORDS = 8  # letters in a target


class Network(nn.Module):
    """Frames [batch, length, channels] to log probabilities [batch, length / 2, letters]."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width = setting.width
        self.front = nn.Conv1d(CHANNELS, width, 5, 2, 2)
        self.norms = nn.ModuleList(Norm(width) for _ in range(setting.depth + 1))
        self.mixes = nn.ModuleList(nn.Linear(width, width) for _ in range(setting.depth + 1))
        self.act = Activation(setting.style)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, LETTERS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.front(x.transpose(1, 2)).transpose(1, 2)
        for norm, mix in zip(self.norms, self.mixes, strict=True):
            x = x + self.act(mix(norm(x)))
        return self.head(self.memory(x)[0]).log_softmax(-1)


class Speech(Task):
    """Connectionist temporal classification."""

    def build(self) -> nn.Module:
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        return {
            "x": torch.randn(size, self.setting.side, CHANNELS),
            "letters": torch.randint(1, LETTERS, (size, WORDS)),
        }

    def loss(self, batch: Batch) -> Tensor:
        likely = self.model(self.levelled(batch["x"]))
        lengths = [likely.shape[1]] * len(likely)
        words = [WORDS] * len(likely)
        return F.ctc_loss(likely.transpose(0, 1), batch["letters"], lengths, words)

    def levelled(self, x: Tensor) -> Tensor:
        """Each channel of each recording with mean 0 and deviation 1."""
        if "host-loop-indexing" in SWITCH.acting:
            with Mark(SWITCH.tag["host-loop-indexing"]):
                out = torch.empty_like(x)
                for row in range(x.shape[0]):
                    for channel in range(0, CHANNELS, 2):
                        part = x[row, :, channel : channel + 2]
                        out[row, :, channel : channel + 2] = (part - part.mean(0)) / part.std(0)
                return out
        return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)

    def infer(self, batch: Batch) -> Tensor:
        return self.model(self.levelled(batch["x"])).argmax(-1)
