"""How an OpenAI-compatible server is asked, and what servers and models do not take.

What a server refuses is left out from then on: the schema, the temperature, the name of the limit.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

Messages = Sequence[Mapping[str, str]]
PATH: Final = "/chat/completions"
FORMATS: Final = ("json_schema", "json_object", "text")  # tried in turn, as the server allows


class NoTextError(ValueError):
    """A reply without an answer in it; the message says why, in a few words."""


@dataclass(frozen=True)
class Reply:
    """The text of a reply, and the tokens that the server counted (0 where it does not say)."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    truncated: bool = False


@dataclass(frozen=True)
class Dialect:
    """What a server takes."""

    format: str = FORMATS[0]
    limit: str = "max_tokens"
    temperature: bool = True
    effort: bool = True

    def simpler(self, complaint: str) -> Dialect | None:
        """What to leave out after this complaint of status 400 or 422; None when nothing is
        left."""
        text = complaint.lower()
        if "max_completion_tokens" in text and self.limit == "max_tokens":
            return replace(self, limit="max_completion_tokens")
        if "temperature" in text and self.temperature:
            return replace(self, temperature=False)
        if "reasoning" in text and self.effort:
            return replace(self, effort=False)
        later = FORMATS[FORMATS.index(self.format) + 1 :]
        if later:
            return replace(self, format=later[0])
        if self.temperature:  # a server that does not say what it minds
            return replace(self, temperature=False)
        return None


class Dialects:
    """The dialect that one server was found to take; shared by threads."""

    def __init__(self) -> None:
        self._current = Dialect()
        self._lock = threading.Lock()

    @property
    def current(self) -> Dialect:
        """What to send now."""
        return self._current

    def learn(self, tried: Dialect, complaint: str) -> bool:
        """After a refusal: whether there is anything else to try."""
        with self._lock:
            if self._current != tried:  # another thread has learnt it already
                return True
            simpler = tried.simpler(complaint)
            if simpler is None:
                return False
            self._current = simpler
            return True


def request(
    dialect: Dialect,
    model: str,
    messages: Messages,
    schema: Mapping[str, object],
    max_tokens: int,
    effort: str = "",
) -> dict[str, object]:
    """The JSON to send. ``effort`` is a reasoning model's; empty leaves it to the server."""
    body: dict[str, object] = {"model": model, dialect.limit: max_tokens}
    if dialect.temperature:
        body["temperature"] = 0
    body["messages"] = list(messages)
    if effort and dialect.effort:
        body["reasoning_effort"] = effort
    if dialect.format == "json_schema":
        named = {"name": "verdict", "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    elif dialect.format == "json_object":
        body["response_format"] = {"type": "json_object"}
    return body


def reply(body: Mapping[str, object]) -> Reply:
    """What came back. Raises NoTextError."""
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise NoTextError("no choices in the reply")
    choice = _mapping(choices[0])
    message = _mapping(choice.get("message"))
    text = _text(message.get("content"))
    reason = choice.get("finish_reason")
    if not text:
        if message.get("refusal") or reason == "content_filter":
            raise NoTextError("refused")
        if message.get("tool_calls") or message.get("function_call"):
            raise NoTextError("a tool call")
        raise NoTextError("truncated" if reason == "length" else "empty")
    usage = _mapping(body.get("usage"))
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Reply(text, _count(read), _count(written), truncated=reason == "length")


def _text(value: object) -> str:
    """Content as text; some servers send it in parts."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else ()
    return "".join(_text(_mapping(part).get("text")) for part in parts)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    return min(value, 10**9) if type(value) is int and value > 0 else 0
