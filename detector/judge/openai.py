"""A judge on any OpenAI-compatible server. Evidence texts leave the machine for ``base_url``.

Chosen by the configuration alone: the address is never read from the environment, the key only
from the variable that the configuration names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from detector.errors import JudgeError
from detector.evidence import Evidence, words
from detector.judge import Answers, Verdict, feedback, rounds, schema

if TYPE_CHECKING:
    from openai import OpenAI

DEFAULT_URL: Final = "https://api.openai.com/v1"
FORMATS: Final = ("json_schema", "json_object", "none")  # tried in turn, as the server allows
NO_KEY: Final = "none"  # what local servers get, which ask for no key


class OpenAIJudge:
    """Asks ``model`` about each region, at temperature 0, ``concurrency`` regions at a time.

    ``api_key_env`` names the variable that holds the key; without it only a server other than
    OpenAI's own can be asked (JudgeError). ``client`` replaces the SDK's, for tests.
    """

    names_more = True

    def __init__(
        self,
        model: str,
        base_url: str = DEFAULT_URL,
        api_key_env: str = "OPENAI_API_KEY",
        timeout_s: float = 60.0,
        retries: int = 2,
        max_tokens: int = 900,
        budget_tokens: int = 1_500,
        concurrency: int = 4,
        client: OpenAI | None = None,
    ) -> None:
        self.name = f"openai {model}"
        self.model, self.base_url = model, base_url
        self.max_tokens, self.budget_tokens = max_tokens, budget_tokens
        self.concurrency = concurrency
        self._format = FORMATS[0]
        self._down: str | None = None
        self._client = client or self._connect(api_key_env, timeout_s, retries)

    def _connect(self, api_key_env: str, timeout_s: float, retries: int) -> OpenAI:
        key = os.environ.get(api_key_env, "")
        if not key and self.base_url.rstrip("/") == DEFAULT_URL:
            raise JudgeError(f"judge=openai: no API key in the variable {api_key_env}")
        try:
            from openai import OpenAI
        except ImportError as error:
            raise JudgeError("judge=openai needs the package openai (extra: openai)") from error
        return OpenAI(
            api_key=key or NO_KEY, base_url=self.base_url, timeout=timeout_s, max_retries=retries
        )

    def judge(self, evidence: Sequence[Evidence]) -> Answers:
        """See ``Judge``. The first region is asked alone: a server that is down costs one wait."""
        self._down = None
        verdicts = [self._one(one) for one in evidence[:1]]
        with ThreadPoolExecutor(max_workers=max(1, self.concurrency)) as pool:
            verdicts += pool.map(self._one, evidence[1:])
        return Answers(tuple(verdicts), (self._down,) if self._down else ())

    def _one(self, evidence: Evidence) -> Verdict:
        if self._down is None:
            try:
                return rounds.settle(evidence, self._ask)
            except JudgeError as error:
                self._down = str(error)
        return feedback.unclear(evidence, "the judge's server gave no answer")

    # -- one request -----------------------------------------------------------------------------

    def _ask(self, evidence: Evidence, retry: rounds.Retry | None) -> str:
        ids = schema.allowed(evidence)
        messages = self._messages(evidence, ids, retry)
        while True:
            form = self._format
            try:
                return self._complete(messages, _response_format(form, ids))
            except _FormatRefusedError as error:
                later = FORMATS[FORMATS.index(form) + 1 :]
                if not later:
                    raise JudgeError(f"{self.base_url}: {error}") from error
                if self._format == form:  # another thread may have gone on already
                    self._format = later[0]

    def _messages(
        self, evidence: Evidence, ids: Sequence[str], retry: rounds.Retry | None
    ) -> list[dict[str, str]]:
        messages = [
            {"role": "system", "content": schema.system_prompt(ids)},
            {"role": "user", "content": schema.user_prompt(evidence, self.budget_tokens)},
        ]
        if retry is not None:
            messages.append({"role": "assistant", "content": retry.answer[:4_000]})
            messages.append({"role": "user", "content": schema.complaint(retry.error)})
        return messages

    def _complete(self, messages: list[dict[str, str]], response_format: dict[str, Any]) -> str:
        """The text of one completion. Raises JudgeError, or _FormatRefusedError on status 400."""
        import openai

        create: Any = self._client.chat.completions.create
        try:
            answer = create(
                model=self.model,
                messages=messages,
                temperature=0,
                max_tokens=self.max_tokens,
                **response_format,
            )
            return str(answer.choices[0].message.content or "")
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            raise _FormatRefusedError(_line(error)) from error
        except openai.OpenAIError as error:
            raise JudgeError(f"{self.base_url}: {_line(error)}") from error
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            # A server may answer 200 with something that is no completion at all.
            raise JudgeError(f"{self.base_url}: not a chat completion") from error


class _FormatRefusedError(Exception):
    """The server did not take the request as it was."""


def _response_format(form: str, ids: Sequence[str]) -> dict[str, Any]:
    if form == "json_schema":
        named = {"name": "verdict", "strict": True, "schema": schema.answer_schema(ids)}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if form == "json_object":
        return {"response_format": {"type": "json_object"}}
    return {}


def _line(error: Exception) -> str:
    """An SDK error as one line, with its cause where that tells more (connection refused)."""
    cause = error.__cause__
    told = f"{error} ({cause})" if cause and str(cause) not in str(error) else str(error)
    return words.bounded(told, 200)
