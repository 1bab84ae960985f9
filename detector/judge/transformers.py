"""A judge on a local causal language model: it scores every allowed id as the answer.

Scoring needs no parsing and cannot leave the taxonomy; the words for the user are the patterns'
own. With ``generate`` the model writes an answer of its own as a server's would: several patterns,
its words as far as the evidence holds them; xgrammar, where installed, keeps it to the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from detector.errors import JudgeError
from detector.evidence import Evidence, words
from detector.evidence.text import as_text
from detector.judge import Answers, Judge, Serve, Verdict, doubt, feedback, schema, usage
from detector.judge.client import Got
from detector.judge.embedded import EmbeddedJudge
from detector.judge.rounds import Failure, Limits, Message, Outcome, Spending, combined, settle
from detector.judge.wire import Reply
from detector.patterns import IDS
from detector.taxonomy import NONE, UNCLEAR

MOST_CANDIDATES: Final = 5
AT_ONCE: Final = 16  # ids scored in one batch
TRAINED_TOKENS: Final = 2_200  # of the texts that a model is trained on, as ``dataset`` cuts them
_QUESTION: Final = "\nThe id of the pattern is: "
_ENDLESS: Final = 1 << 62  # tokens: a local model costs nothing but time
_EMPTY: Final = "<evidence>\nnot recorded\n</evidence>"


class TransformersJudge:
    """Judges with ``model``, a folder or a name that transformers knows.

    ``local_files_only`` keeps it from downloading. ``rules``: whether the prompt explains the task
    and the patterns; a model that was trained on evidence texts (``experiment=causal``) reads the
    evidence alone. ``calibrate`` takes off what the model thinks of each id without evidence.
    ``fallback`` judges what gets no finite score, and its patterns are
    never lost (the embedded judge by default). Raises JudgeError when the model cannot be loaded.
    """

    names_more = True

    def __init__(
        self,
        model: str,
        device: str = "cpu",
        dtype: str = "float32",
        local_files_only: bool = True,
        budget_tokens: int = 1_500,
        rules: bool = True,
        calibrate: bool = True,
        generate: bool = False,
        max_tokens: int = 1_000,
        fallback: Judge | None = None,
    ) -> None:
        self.name = f"transformers {words.base_name(model.rstrip('/'))}"
        self.device, self.budget_tokens, self.rules = device, budget_tokens, rules
        self.calibrate, self.generate, self.max_tokens = calibrate, generate, max_tokens
        self._cut = False
        self._fallback = fallback or EmbeddedJudge()
        self._tokenizer, self._model = _load(model, device, dtype, local_files_only)

    def judge(self, evidence: Sequence[Evidence], serve: Serve | None = None) -> Answers:
        """See ``Judge``."""
        if not evidence:
            return Answers(())
        self._cut = False
        own = self._fallback.judge(evidence).verdicts
        outcomes = doubt.in_turn(evidence, lambda places: [self._outcome(one) for one in places])
        verdicts = tuple(map(combined, own, outcomes))
        warnings = usage.warnings(self.name, outcomes)
        cut = f"{self.name} reads only {self._room} tokens: its prompts were cut"
        warnings = (*warnings, cut) if self._cut else warnings
        return Answers(verdicts, warnings, usage.judging(self.name, evidence, outcomes))

    def _outcome(self, evidence: Evidence) -> Outcome:
        if self.generate:
            return self._written(evidence)
        verdict = self._one(evidence)
        return Outcome(verdict) if verdict else Outcome(failure=Failure("no finite score"))

    def _one(self, evidence: Evidence) -> Verdict | None:
        ids = tuple(i for i in schema.allowed(evidence) if i != UNCLEAR)
        scores = self.scores(self._question(ids, evidence), ids)
        if self.calibrate:
            prior = self._prior
            scores = scores - np.array([prior[i] for i in ids])
        if not np.isfinite(scores).all():
            return None
        weight = np.exp(scores - scores.max())
        order = np.argsort(-weight, kind="stable")[:MOST_CANDIDATES]
        candidates = tuple((ids[i], float(weight[i] / weight.sum())) for i in order)
        return feedback.verdict(evidence, *candidates[0], candidates)

    # -- scores ----------------------------------------------------------------------------------

    @cached_property
    def _prior(self) -> dict[str, float]:
        """Each id's score when there is no evidence."""
        ids = (*IDS, NONE)
        prompt = self._prompt(ids, _EMPTY) if self.rules else self._coded(_QUESTION)
        return dict(zip(ids, self.scores(prompt, ids).tolist(), strict=True))

    def _question(self, ids: Sequence[str], evidence: Evidence) -> list[int]:
        """The prompt about a place. Without rules it is the text that ``dataset`` publishes, as
        far as the model can read."""
        if self.rules:
            return self._prompt(ids, schema.user_prompt(evidence, self.budget_tokens, self._count))
        return self.question_of(as_text(evidence, TRAINED_TOKENS, user_names=False))

    def question_of(self, text: str) -> list[int]:
        """The prompt of a model that was trained on texts: the beginning of one, and what is
        asked."""
        asked = self._coded(_QUESTION)
        room = self._room - len(asked) - max(len(self._coded(i)) for i in (*IDS, NONE))
        return [*self._coded(text)[:room], *asked]

    def _coded(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _count(self, text: str) -> int:
        """Tokens by the model's own tokenizer."""
        return len(self._coded(text))

    def _prompt(self, ids: Sequence[str], user: str) -> list[int]:
        """Token ids up to where the answer begins; with the model's chat template if it has one."""
        system = schema.system_prompt(ids)
        tokenizer = self._tokenizer
        if getattr(tokenizer, "chat_template", None):
            asked = [{"role": "system", "content": system}, {"role": "user", "content": user}]
            text = _chat(tokenizer, asked) + _QUESTION.lstrip()
            return self._coded(text)
        return list(tokenizer(f"{system}\n\n{user}\n{_QUESTION}")["input_ids"])

    def scores(self, prompt: list[int], answers: Sequence[str]) -> npt.NDArray[np.float64]:
        """Log-likelihood of each answer after the prompt, which is read once."""
        import torch

        coded = [self._coded(a) for a in answers]
        room = self._room - max(map(len, coded))
        if len(prompt) > room:  # the evidence stands at the end, so the rules go first
            self._cut, prompt = True, prompt[:1] + prompt[-(room - 1) :]
        with torch.inference_mode():
            ids = torch.tensor([prompt], device=self.device)
            first = self._model(ids[:, :-1], use_cache=True) if len(prompt) > 1 else None
            parts = [
                self._continued(first, ids[:, -1:], coded[i : i + AT_ONCE])
                for i in range(0, len(coded), AT_ONCE)
            ]
        return np.concatenate(parts)

    def _continued(
        self, first: Any, last: Any, answers: Sequence[Sequence[int]]
    ) -> npt.NDArray[np.float64]:
        """Log-likelihoods of answers after the read prompt and its last token."""
        import copy

        import torch

        longest = max(map(len, answers))
        padded = torch.zeros((len(answers), longest), dtype=torch.long, device=self.device)
        mask = torch.zeros((len(answers), longest), dtype=torch.bool, device=self.device)
        for i, answer in enumerate(answers):
            padded[i, : len(answer)] = torch.tensor(answer, device=self.device)
            mask[i, : len(answer)] = True
        cache = None
        if first is not None:
            cache = copy.deepcopy(first.past_key_values)
            cache.batch_repeat_interleave(len(answers))
        inputs = torch.cat([last.expand(len(answers), 1), padded[:, :-1]], dim=1)
        logits = self._model(inputs, past_key_values=cache, use_cache=True).logits
        chance = torch.log_softmax(logits.float(), dim=-1).gather(2, padded[:, :, None])[:, :, 0]
        total = (chance * mask).sum(dim=1).double().cpu().numpy()
        return np.asarray(total, np.float64)

    @cached_property
    def _room(self) -> int:
        """How many tokens the model can read at once."""
        most = getattr(self._model.config, "max_position_embeddings", None)
        return int(most) if isinstance(most, int) and most > 0 else 1 << 20

    # -- answers ---------------------------------------------------------------------------------

    def _written(self, evidence: Evidence) -> Outcome:
        """The model's own answer, asked for and checked as a server's is; no views."""
        limits = Limits(self.budget_tokens, _ENDLESS, views=0)
        spent = Spending(_ENDLESS)
        return settle(evidence, self._generated, _kept, limits, spent, count=self._count)

    def _generated(self, messages: list[Message], shape: Mapping[str, object], more: int) -> Got:
        import torch

        limit = min(self.max_tokens * more, self._room // 2)
        prompt = self._begun(messages)
        if len(prompt) > self._room - limit:
            self._cut, prompt = True, prompt[-(self._room - limit) :]
        with torch.inference_mode():
            ids = torch.tensor([prompt], device=self.device)
            made = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=limit,
                do_sample=False,
                logits_processor=self._constraint(shape),
                pad_token_id=self._tokenizer.pad_token_id or 0,
            )
        said = made[0, len(prompt) :]
        text = self._tokenizer.decode(said, skip_special_tokens=True)
        return Got(Reply(text, len(prompt), len(said), len(said) >= limit), "", cached=False)

    def _begun(self, messages: list[Message]) -> list[int]:
        """A conversation up to where the answer begins."""
        if getattr(self._tokenizer, "chat_template", None):
            return self._coded(_chat(self._tokenizer, messages))
        text = "\n\n".join(message["content"] for message in messages)
        return list(self._tokenizer(f"{text}\n\n")["input_ids"])

    def _constraint(self, shape: Mapping[str, object]) -> list[Any]:
        """What keeps an answer to its schema, where xgrammar is installed."""
        if self._grammars is None:
            return []
        from xgrammar.contrib.hf import LogitsProcessor

        grammar = self._grammars.compile_json_schema(json.dumps(shape), any_whitespace=False)
        return [LogitsProcessor(grammar)]

    @cached_property
    def _grammars(self) -> Any:
        try:
            import xgrammar
        except ImportError:
            return None
        ends = self._model.generation_config.eos_token_id
        info = xgrammar.TokenizerInfo.from_huggingface(
            self._tokenizer,
            vocab_size=self._model.config.vocab_size,
            stop_token_ids=[ends] if isinstance(ends, int) else ends,
        )
        return xgrammar.GrammarCompiler(info)


def _kept(_: Got) -> None:
    """There is no cache."""


def _chat(tokenizer: Any, messages: list[Message]) -> str:
    """The chat template's text; some templates know no system role."""
    system, user, *rest = messages
    merged = {"role": "user", "content": f"{system['content']}\n\n{user['content']}"}
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception:  # noqa: BLE001 - templates raise what they like, jinja2's errors among them
        text = tokenizer.apply_chat_template(
            [merged, *rest], tokenize=False, add_generation_prompt=True
        )
    return str(text)


def without_bars() -> None:
    """No progress bars of transformers: a scan has its own."""
    from transformers.utils import logging

    quiet: Any = logging.disable_progress_bar
    quiet()


def _load(model: str, device: str, dtype: str, local_files_only: bool) -> tuple[Any, Any]:
    """Tokenizer and model, ready to judge."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise JudgeError("judge=transformers needs torch and transformers") from error
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise JudgeError(f"judge.dtype: {dtype!r} is no type of torch")
    without_bars()
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=local_files_only)
        network: Any = AutoModelForCausalLM.from_pretrained(
            model, dtype=kind, local_files_only=local_files_only
        )
        return tokenizer, network.to(device).eval()
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise JudgeError(f"judge.model: {model}: {words.bounded(str(error), 160)}") from error
