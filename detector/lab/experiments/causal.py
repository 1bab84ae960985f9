"""A small causal language model, made here and trained on evidence texts: the honest local judge.

It starts from random weights and a tokenizer of the training texts; nothing is downloaded. What it
learns is the id that follows a text. It sees no program of the part ``test``, no device that
``unseen_device`` measures on, and nothing that was labeled by hand. ``OUT/causal`` is a model for
``judge=transformers judge.rules=false judge.calibrate=false``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from detector.judge.transformers import TransformersJudge, without_bars
from detector.lab.experiments.record import Outcome, write_figures
from detector.lab.metrics import Estimate, by_cluster
from detector.lab.scoring.truth import EVERYTHING
from detector.lab.tables import clusters, table
from detector.taxonomy import NONE

if TYPE_CHECKING:
    import pandas as pd

_PIECES: Final = r"\n|\d+(?:\.\d+)?|[^\d\n]+"  # a label, a number
_ORIGINS: Final = ("recorded", "injected")  # all of them; simulated ones fill up
_SPECIAL: Final = ["<pad>", "<s>"]


@dataclass(frozen=True)
class CausalExperiment:
    """``positions``: tokens that it reads; ``texts``: so many at most are learned from, real ones
    first; ``none``: at most this share of them is of healthy places."""

    seed: int = 0
    vocabulary: int = 4_096
    positions: int = 512
    width: int = 64
    layers: int = 2
    heads: int = 4
    texts: int = 2_500
    none: float = 0.3
    epochs: int = 10
    batch: int = 8
    learning_rate: float = 2e-3

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """Train, write the model, score it on texts of programs and devices it never saw."""
        rows = _read(data)
        begun = time.process_time()
        folder = out / "causal"
        self._train(self._chosen(rows), folder)
        spent = time.process_time() - begun
        results = _figures(rows[rows["split"] == "test"], folder)
        lines = write_figures(out / "causal.json", results)
        return Outcome(
            [f"{folder}: trained in {spent:.0f} s of CPU", *lines], metrics=results, fit_s=spent
        )

    def _chosen(self, rows: pd.DataFrame) -> pd.DataFrame:
        """What is learned from, in a random order."""
        mine = rows[(rows["split"] == "train") & (rows["unseen_device"] == "train")]
        mine = mine.sample(frac=1.0, random_state=self.seed)
        mine = mine.sort_values("origin", key=lambda o: ~o.isin(_ORIGINS), kind="stable")
        healthy = mine["pattern"] == NONE
        most = int(self.none * self.texts)
        import pandas as pd

        kept = [mine[healthy].head(most), mine[~healthy].head(self.texts - most)]
        return pd.concat(kept).sample(frac=1.0, random_state=self.seed)

    def _train(self, rows: pd.DataFrame, folder: Path) -> None:
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel

        without_bars()
        tokenizer = _tokenizer(list(rows["text"]), sorted(set(rows["pattern"])), self)
        tokenizer.save_pretrained(folder)
        torch.manual_seed(self.seed)
        config = GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=self.positions,
            n_embd=self.width,
            n_layer=self.layers,
            n_head=self.heads,
            resid_pdrop=0.1,
            attn_pdrop=0.0,  # with it attention is slow on a CPU
            bos_token_id=1,
            eos_token_id=0,
        )
        model = GPT2LMHeadModel(config)
        model.save_pretrained(folder)
        judge = TransformersJudge(str(folder), rules=False, calibrate=False)
        asked = [judge.question_of(text) for text in rows["text"]]
        said = [tokenizer(p, add_special_tokens=False)["input_ids"] for p in rows["pattern"]]
        _fit(model, list(zip(asked, said, strict=True)), self)
        model.save_pretrained(folder)


def _read(data: Path) -> pd.DataFrame:
    """Evidence of all parts, each row with its trace's parts."""
    rows = table(data, "evidence", EVERYTHING)
    schemes = ["split", "unseen_device"]
    parts = table(data, "traces", EVERYTHING, ["trace", *schemes])
    return rows.drop(columns=[c for c in schemes if c in rows]).merge(parts, on="trace")


def _tokenizer(texts: list[str], ids: list[str], settings: CausalExperiment) -> Any:
    """Byte pairs within labels and numbers; so a label is a token or two."""
    from tokenizers import Regex, Tokenizer, decoders, models, trainers
    from tokenizers import pre_tokenizers as pre
    from transformers import PreTrainedTokenizerFast

    made: Any = Tokenizer(models.BPE())
    made.pre_tokenizer = pre.Sequence(
        [
            pre.Split(Regex(_PIECES), "isolated"),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary,
        special_tokens=_SPECIAL,
        initial_alphabet=sorted(pre.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator([*texts, *ids * 20], trainer)
    pad, begin = _SPECIAL
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=made, pad_token=pad, bos_token=begin)


def _fit(model: Any, pairs: list[tuple[list[int], list[int]]], settings: CausalExperiment) -> None:
    """Learn the answers, and nothing of the questions."""
    import torch

    order = np.random.default_rng(settings.seed)
    steps = settings.epochs * -(-len(pairs) // settings.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, steps, pct_start=0.1
    )
    model.train()
    for _ in range(settings.epochs):
        shuffled = order.permutation(len(pairs))
        for first in range(0, len(pairs), settings.batch):
            batch = [pairs[i] for i in shuffled[first : first + settings.batch]]
            loss = _loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    model.eval()


def _loss(model: Any, batch: list[tuple[list[int], list[int]]]) -> Any:
    """Of the answers' tokens alone; the head reads no other position."""
    import torch

    longest = max(len(asked) + len(said) for asked, said in batch)
    tokens = torch.zeros((len(batch), longest), dtype=torch.long)
    at: list[tuple[int, int]] = []
    for i, (asked, said) in enumerate(batch):
        tokens[i, : len(asked) + len(said)] = torch.tensor([*asked, *said])
        at += [(i, len(asked) + j - 1) for j in range(len(said))]
    row, before = (torch.tensor(x) for x in zip(*at, strict=True))
    hidden = model.transformer(tokens).last_hidden_state  # padding follows: nothing looks at it
    logits = model.lm_head(hidden[row, before])
    return torch.nn.functional.cross_entropy(logits, tokens[row, before + 1])


def _figures(rows: pd.DataFrame, folder: Path) -> dict[str, Estimate]:
    """The share of places that get their pattern, beside "none" for all of them."""
    judge = TransformersJudge(str(folder), rules=False, calibrate=False)
    chosen = [_best(judge, *pair) for pair in zip(rows["text"], rows["visible"], strict=True)]
    truth, said = rows["pattern"].to_numpy(), np.array(chosen, object)
    faulty, amd = truth != NONE, (rows["unseen_device"] == "test").to_numpy()
    groups = {"unseen programs": faulty | True, "unseen programs and devices": amd}
    found: dict[str, Estimate] = {}
    for name, mine in groups.items():
        found[f"{name}, right"] = _share(said == truth, mine, rows)
        found[f"{name}, right where something is wrong"] = _share(
            said == truth, mine & faulty, rows
        )
        found[f"{name}, none where nothing is wrong"] = _share(said == truth, mine & ~faulty, rows)
        found[f"{name}, always none"] = _share(~faulty, mine, rows)
    return found


def _best(judge: TransformersJudge, text: str, visible: list[str]) -> str:
    return visible[int(np.argmax(judge.scores(judge.question_of(text), visible)))]


def _share(
    right: npt.NDArray[np.bool_], mine: npt.NDArray[np.bool_], rows: pd.DataFrame
) -> Estimate:
    """Of the rows that are ``mine``; intervals by program."""
    if not mine.any():
        return Estimate(float("nan"), float("nan"), float("nan"))
    kept = right[mine]
    return by_cluster(lambda i: float(kept[i].mean()), clusters(rows[mine]), rounds=200)
