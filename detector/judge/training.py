"""Training of the embedded judge, in torch; what it learns is run by ``network`` in numpy.

Needs torch, which a scan never loads. Deterministic for a seed and a number of threads.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save
from torch import nn

from detector.errors import ModelError
from detector.evidence import Evidence
from detector.judge import dense, embedded, network, tokens
from detector.patterns import CLASSES

GELU: Final = "tanh"
LEAST_SCALE: Final = 1e-3  # a number that never varies in training must not explode later


@dataclass(frozen=True)
class Example:
    """One labelled evidence: what the network reads, its class, and the twin group it belongs to.

    Examples of one ``group`` never stand on both sides of the validation split.
    """

    text: str
    numbers: npt.NDArray[np.float32]
    label: str
    group: str


def example(evidence: Evidence, label: str, group: str) -> Example:
    """An example; ``label`` is a pattern id or "none"."""
    return Example(embedded.text_of(evidence), dense.vector(evidence), label, group)


@dataclass(frozen=True)
class Settings:
    """Size and schedule. ``validation``: share of the groups held out to choose and calibrate.

    ``lines``: of a text, drawn anew each time it is read in training.
    """

    vocabulary: int = 6_144
    width: int = 96
    layers: int = 2
    heads: int = 4
    inner: int = 192
    numbers: int = 96
    epochs: int = 10
    batch: int = 32
    rate: float = 2e-3
    decay: float = 0.05
    dropout: float = 0.15
    lines: int = 40
    piece_dropout: float = 0.1
    noise: float = 0.1
    smoothing: float = 0.05
    validation: float = 0.15
    threads: int = 1  # with more, torch spins while it waits for busy cores


@dataclass(frozen=True)
class Trained:
    """Weights ready to be saved, and the card's figures."""

    weights: dict[str, npt.NDArray[np.float32]]
    settings: Settings
    seed: int
    temperature: float
    metrics: dict[str, Any]
    trained_on: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Data:
    ids: torch.Tensor  # [n, lines, pieces]
    numbers: torch.Tensor  # [n, m]
    labels: torch.Tensor  # [n]

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, index: torch.Tensor) -> _Data:
        return _Data(self.ids[index], self.numbers[index], self.labels[index])


# -- the network -----------------------------------------------------------------------------------


class _Layer(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.heads = settings.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, settings.inner), nn.Linear(settings.inner, width)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: torch.Tensor, filled: torch.Tensor) -> torch.Tensor:
        n, lines, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(n, lines, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mask = filled[:, None, None, :]
        mixed = nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], attn_mask=mask)
        x = x + self.dropout(self.mix(mixed.transpose(1, 2).reshape(n, lines, width)))
        inner = nn.functional.gelu(self.up(self.norm2(x)), approximate=GELU)
        return x + torch.Tensor(self.dropout(self.down(inner)))


class Network(nn.Module):
    """What ``network.logits`` computes, to be trained. The names of the weights are the same."""

    def __init__(self, settings: Settings, mean: torch.Tensor, scale: torch.Tensor) -> None:
        super().__init__()
        width = settings.width
        self.settings = settings
        self.embed = nn.Embedding(settings.vocabulary, width, padding_idx=tokens.PAD)
        self.norm_in, self.norm_out = nn.LayerNorm(width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(_Layer(settings) for _ in range(settings.layers))
        self.dense = nn.Linear(len(mean), settings.numbers)
        self.dense.register_buffer("mean", mean)
        self.dense.register_buffer("scale", scale)
        self.dropout = nn.Dropout(settings.dropout)
        self.out = nn.Linear(2 * width + settings.numbers, len(CLASSES))

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """[n, classes] from [n, lines, pieces] and [n, m]."""
        ids, numbers = self._disturbed(ids, numbers)
        filled = (ids != tokens.PAD).any(dim=2)
        # A text whose every line was dropped still needs one place to attend to.
        seen = filled.clone()
        seen[:, 0] = True
        count = (ids != tokens.PAD).sum(dim=2, keepdim=True).clamp(min=1)
        x = self.norm_in(self._bags(ids) / count.sqrt())
        for layer in self.layers:
            x = layer(x, seen)
        x = self.norm_out(x)
        mask = filled[:, :, None]
        mean = (x * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        highest = x.masked_fill(~mask, float(network.LOWEST)).amax(dim=1)
        highest = torch.where(filled.any(dim=1)[:, None], highest, torch.zeros_like(highest))
        read = nn.functional.gelu(self.dense(numbers), approximate=GELU)
        together = self.dropout(torch.cat([mean, highest, read], dim=1))
        return torch.Tensor(self.out(together))

    def _bags(self, ids: torch.Tensor) -> torch.Tensor:
        """Sums of the pieces' embeddings, [n, lines, width], without the pieces' own copies."""
        flat = ids.flatten(end_dim=1)
        weight = self.embed.weight
        summed = nn.functional.embedding_bag(flat, weight, mode="sum", padding_idx=tokens.PAD)
        return torch.Tensor(summed.view(*ids.shape[:2], -1))

    def _disturbed(
        self, ids: torch.Tensor, numbers: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """In training: lines and pieces vanish, and numbers tremble."""
        mean, scale = self.dense.get_buffer("mean"), self.dense.get_buffer("scale")
        scaled = (numbers - mean) / scale
        scaled = scaled.clamp(-5, 5)
        if not self.training:
            return ids, scaled
        s = self.settings
        ids = _drawn(ids, s.lines)
        ids = ids * (torch.rand(ids.shape) >= s.piece_dropout)
        kept = torch.rand(scaled.shape) >= s.piece_dropout
        return ids, scaled * kept + s.noise * torch.randn_like(scaled)


def _drawn(ids: torch.Tensor, most: int) -> torch.Tensor:
    """At most this many lines of each text, at random; the network knows no order of lines."""
    empty = (ids == tokens.PAD).all(dim=2)
    order = (torch.rand(empty.shape) + empty).argsort(dim=1)[:, :most]
    return ids.gather(1, order[:, :, None].expand(-1, -1, ids.shape[2]))


# -- training --------------------------------------------------------------------------------------


def train_embedded(
    examples: Sequence[Example], settings: Settings = Settings(), seed: int = 0
) -> Trained:
    """Train on labelled evidence.

    Groups are split into training and validation; the epoch with the best validation loss and the
    temperature come from the latter. Raises ModelError where there is too little to learn from.
    """
    if len({e.label for e in examples}) < 2:
        raise ModelError("training the judge needs examples of at least two classes")
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(settings.threads)
    try:
        torch.manual_seed(seed)
        return _train(examples, settings, seed)
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)


def _train(examples: Sequence[Example], settings: Settings, seed: int) -> Trained:
    data, held = _split(examples, settings, seed)
    scale = data.numbers.std(dim=0, unbiased=False).clamp(min=LEAST_SCALE)
    model = Network(settings, data.numbers.mean(dim=0), scale)
    nn.init.normal_(model.embed.weight, std=0.3)
    with torch.no_grad():
        model.embed.weight[tokens.PAD].zero_()
    best, history = _fit(model, data, held, settings)
    model.load_state_dict(best)
    judged = held if len(held) else data
    raw = _raw(model, judged)
    temperature = _temperature(raw, judged.labels) if len(held) else 1.0
    metrics = {**_metrics(raw, judged.labels, temperature), "history": history}
    metrics |= {"examples": len(data), "validation_examples": len(held)}
    weights = {name: value.numpy().astype(np.float32) for name, value in best.items()}
    return Trained(weights, settings, seed, temperature, metrics)


def _split(examples: Sequence[Example], settings: Settings, seed: int) -> tuple[_Data, _Data]:
    """Training and validation data, by group."""
    groups = sorted({e.group for e in examples})
    shuffled = np.random.default_rng(seed).permutation(len(groups))
    most = round(settings.validation * len(groups))
    held = {groups[i] for i in shuffled[:most]}
    chosen = np.array([e.group in held for e in examples])
    data = _data(examples, settings.vocabulary)
    return (
        data.at(torch.from_numpy(np.flatnonzero(~chosen))),
        data.at(torch.from_numpy(np.flatnonzero(chosen))),
    )


def _data(examples: Sequence[Example], vocabulary: int) -> _Data:
    index = {name: i for i, name in enumerate(CLASSES)}
    if unknown := sorted({e.label for e in examples} - index.keys()):
        raise ModelError(f"not in the taxonomy: {', '.join(unknown)}")
    return _Data(
        torch.from_numpy(tokens.encode_all([e.text for e in examples], vocabulary)),
        torch.from_numpy(np.stack([e.numbers for e in examples])),
        torch.tensor([index[e.label] for e in examples]),
    )


def _fit(
    model: Network, data: _Data, held: _Data, settings: Settings
) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The weights of the epoch with the best validation loss, and all epochs' losses."""
    loss = nn.CrossEntropyLoss(_class_weights(data.labels), label_smoothing=settings.smoothing)
    optimizer = torch.optim.AdamW(model.parameters(), settings.rate, weight_decay=settings.decay)
    rounds = settings.epochs * math.ceil(len(data) / settings.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.rate, rounds)
    best, history = _copy(model), []
    for _ in range(settings.epochs):
        model.train()
        for index in _parts(torch.randperm(len(data)), settings.batch):
            batch = data.at(index)
            optimizer.zero_grad()
            loss(model(_trimmed(batch.ids), batch.numbers), batch.labels).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        history.append(_validation_loss(model, held))
        if history[-1] <= min(history):
            best = _copy(model)
    return best, [round(value, 4) for value in history]


def _parts(index: torch.Tensor, size: int) -> list[torch.Tensor]:
    return [index[i : i + size] for i in range(0, len(index), size)]


def _validation_loss(model: Network, held: _Data) -> float:
    """Cross entropy with balanced classes; without held-out data the last epoch counts as best."""
    if not len(held):
        return 0.0
    weights = _class_weights(held.labels)
    return float(nn.functional.cross_entropy(_raw(model, held), held.labels, weights))


def _copy(model: Network) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _class_weights(labels: torch.Tensor) -> torch.Tensor:
    """Inverse root of the frequency, with mean 1: rare classes count, but not without bound."""
    count = torch.bincount(labels, minlength=len(CLASSES)).float()
    weight = count.clamp(min=1).rsqrt()
    return weight / weight[labels].mean()


def _trimmed(ids: torch.Tensor) -> torch.Tensor:
    """Without the columns of lines that no text of the batch fills."""
    most = int((ids != tokens.PAD).any(dim=2).sum(dim=1).max())
    return ids[:, : max(most, 1)]


def _raw(model: Network, data: _Data) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        batches = [data.at(part) for part in _parts(torch.arange(len(data)), 64)]
        return torch.cat([model(_trimmed(b.ids), b.numbers) for b in batches])


def _temperature(raw: torch.Tensor, labels: torch.Tensor) -> float:
    """The one that makes the held-out answers likeliest."""
    grid = np.geomspace(0.4, 5.0, 60)
    losses = [float(nn.functional.cross_entropy(raw / float(t), labels)) for t in grid]
    return float(grid[int(np.argmin(losses))])


def _metrics(raw: torch.Tensor, labels: torch.Tensor, temperature: float) -> dict[str, Any]:
    """Accuracy, balanced accuracy, top-3 and log loss of the held-out groups."""
    hit = raw.argmax(dim=1) == labels
    top = (raw.topk(min(3, raw.shape[1])).indices == labels[:, None]).any(dim=1)
    by_class = {
        CLASSES[c]: float(hit[labels == c].float().mean()) for c in sorted(set(labels.tolist()))
    }
    loss = nn.functional.cross_entropy(raw / temperature, labels)
    return {
        "accuracy": round(float(hit.float().mean()), 4),
        "balanced_accuracy": round(float(np.mean(list(by_class.values()))), 4),
        "top3": round(float(top.float().mean()), 4),
        "log_loss": round(float(loss), 4),
        "recall": {name: round(value, 3) for name, value in sorted(by_class.items())},
    }


# -- files -----------------------------------------------------------------------------------------


def save_model(
    trained: Trained,
    path: Path,
    trained_on: Mapping[str, Any] | None = None,
    pool: Mapping[str, float] = embedded.POOL,
) -> dict[str, Any]:
    """Write the weights (float16, numbers' scale in float32) and the card; returns the card.

    ``trained_on`` tells the data with hashes; ``pool``: the weights of the judge's and the
    flagger's opinion. Raises ModelError where these are no weights.
    """
    if not embedded.is_pool(pool):
        raise ModelError(f"pool must hold the weights of {' and '.join(embedded.POOL)}")
    small = {
        name: value if name.startswith("dense.") else value.astype(np.float16)
        for name, value in trained.weights.items()
    }
    data = save(small)
    card = {
        **embedded.expected(trained.settings.vocabulary),
        "sha256": hashlib.sha256(data).hexdigest(),
        "layers": trained.settings.layers,
        "heads": trained.settings.heads,
        "temperature": trained.temperature,
        "pool": dict(pool),
        "seed": trained.seed,
        "settings": asdict(trained.settings),
        "metrics": trained.metrics,
        "trained_on": dict(trained_on or {}),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    text = json.dumps(card, indent=1, sort_keys=True) + "\n"
    embedded.card_path(path).write_text(text, "utf-8")
    return card
