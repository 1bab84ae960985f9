"""Encoder: a small BERT of ``transformers`` that classifies texts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from dataset.workloads.processing import SPECIAL, WORDS
from dataset.workloads.setting import Setting
from dataset.workloads.task import Batch, Task

CLASSES = 40


class Network(nn.Module):
    """Token ids [batch, length] to logits [batch, classes]."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.bert = BertForSequenceClassification(
            BertConfig(
                vocab_size=WORDS + len(SPECIAL),
                hidden_size=setting.width,
                intermediate_size=4 * setting.width,
                num_hidden_layers=setting.depth,
                num_attention_heads=4,
                max_position_embeddings=setting.side,
                num_labels=CLASSES,
            )
        )

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.bert(input_ids=ids).logits
        return logits


class Encoder(Task):
    """Cross-entropy on classes of texts."""

    def build(self) -> nn.Module:
        return Network(self.setting)

    def make_batch(self, size: int) -> Batch:
        ids = torch.randint(0, WORDS, (size, self.setting.side))
        return {"ids": ids, "y": torch.randint(0, CLASSES, (size,))}

    def loss(self, batch: Batch) -> Tensor:
        return F.cross_entropy(self.model(batch["ids"]), batch["y"])

    def infer(self, batch: Batch) -> Tensor:
        return self.model(batch["ids"]).softmax(1)
