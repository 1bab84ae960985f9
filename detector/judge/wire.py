"""The two ways to ask an OpenAI-compatible server, and what servers and models do not take.

``chat``: /chat/completions, which every server has. ``responses``: /responses. What a server
refuses is left out from then on: the schema, the temperature, the name of the limit.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

Api = Literal["chat", "responses"]
Messages = Sequence[Mapping[str, str]]
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

    def __init__(self, api: Api) -> None:
        limit = "max_output_tokens" if api == "responses" else "max_tokens"
        self._current = Dialect(limit=limit)
        self._lock = threading.Lock()

    @property
    def current(self) -> Dialect:
        """What to send now."""
        return self._current

    def learn(self, tried: Dialect, complaint: str) -> bool:
        """After a refusal: whether there is anything else to try."""
        with self._lock:
            if self._current != tried:  # another thread has learned it already
                return True
            simpler = tried.simpler(complaint)
            if simpler is None:
                return False
            self._current = simpler
            return True


def path(api: Api) -> str:
    """What is asked for, below the base URL."""
    return "/responses" if api == "responses" else "/chat/completions"


def request(
    api: Api,
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
    named = {"name": "verdict", "strict": True, "schema": schema}
    with_effort = bool(effort) and dialect.effort
    if api == "responses":
        body |= {"input": list(messages), "store": False}
        if with_effort:
            body["reasoning"] = {"effort": effort}
        if dialect.format == "json_schema":
            body["text"] = {"format": {"type": "json_schema", **named}}
        elif dialect.format == "json_object":
            body["text"] = {"format": {"type": "json_object"}}
        return body
    body["messages"] = list(messages)
    if with_effort:
        body["reasoning_effort"] = effort
    if dialect.format == "json_schema":
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    elif dialect.format == "json_object":
        body["response_format"] = {"type": "json_object"}
    return body


def reply(api: Api, body: Mapping[str, object]) -> Reply:
    """What came back. Raises NoTextError."""
    text, truncated = _responses_text(body) if api == "responses" else _chat_text(body)
    usage = _mapping(body.get("usage"))
    return Reply(
        text,
        _count(usage.get("prompt_tokens", usage.get("input_tokens"))),
        _count(usage.get("completion_tokens", usage.get("output_tokens"))),
        truncated,
    )


def _chat_text(body: Mapping[str, object]) -> tuple[str, bool]:
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
    return text, reason == "length"


def _responses_text(body: Mapping[str, object]) -> tuple[str, bool]:
    output = body.get("output")
    if not isinstance(output, list):
        raise NoTextError("no output in the reply")
    items = [_mapping(item) for item in output]
    parts = [part for item in items for part in _parts(item.get("content"))]
    text = "".join(_text(part.get("text")) for part in parts if part.get("type") == "output_text")
    truncated = body.get("status") == "incomplete"
    if not text:
        if any(part.get("type") == "refusal" for part in parts):
            raise NoTextError("refused")
        if any("call" in str(item.get("type")) for item in items):
            raise NoTextError("a tool call")
        raise NoTextError("truncated" if truncated else "empty")
    return text, truncated


def _text(value: object) -> str:
    """Content as text; some servers send it in parts."""
    if isinstance(value, str):
        return value
    return "".join(_text(part.get("text")) for part in _parts(value))


def _parts(value: object) -> list[Mapping[str, object]]:
    return [_mapping(part) for part in value] if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    return min(value, 10**9) if type(value) is int and value > 0 else 0
