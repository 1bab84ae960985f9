"""Asking one server: its dialect, retries, the breaker, the cache. Safe to use from threads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from detector.judge import wire
from detector.judge.cache import Cache
from detector.judge.circuit_breaker import Breaker
from detector.judge.transport import CallError, Transport

DRY_RUN: Final = "dry run"
RESTING: Final = "not asked after failures in a row"
OUT_OF_TIME: Final = "no time left for this trace"
_REFUSED: Final = (400, 415, 422)  # statuses after which less is asked for
_RETRIED: Final = (408, 409, 425, 429, 500, 502, 503, 504)
_RETRIED_REASONS: Final = ("no connection", "answer cut off")
_PAUSE_S: Final = 0.3  # before the first retry; doubles


@dataclass(frozen=True)
class Model:
    """What is asked: ``effort`` is a reasoning model's, empty where there is none."""

    name: str
    api: wire.Api = "chat"
    max_tokens: int = 2_000
    effort: str = ""


@dataclass(frozen=True)
class Got:
    """A reply; ``key`` is its place in the cache, ``cached`` whether it came from there."""

    reply: wire.Reply
    key: str
    cached: bool


class Client:
    """``timeout_s`` bounds a whole answer, with its retries. ``show`` gets what would be sent in a
    dry run, which sends nothing."""

    def __init__(
        self,
        transport: Transport,
        model: Model,
        breaker: Breaker,
        cache: Cache | None = None,
        timeout_s: float = 60.0,
        retries: int = 2,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self.transport, self.model, self.breaker, self.cache = transport, model, breaker, cache
        self.timeout_s, self.retries, self.show = timeout_s, retries, show
        self._dialects = wire.Dialects(model.api)

    def ask(
        self,
        messages: wire.Messages,
        schema: Mapping[str, object],
        until: float,
        more: int = 1,
    ) -> Got:
        """The reply to a conversation. Raises CallError, and NoTextError for a reply without text.

        ``until``: when the time of the trace is up, by ``time.monotonic``; ``more`` multiplies the
        limit of an answer that was cut short.
        """
        if time.monotonic() >= until:
            raise CallError(OUT_OF_TIME)
        if not self.breaker.allows():
            raise CallError(RESTING)
        deadline = min(time.monotonic() + self.timeout_s, until)
        try:
            got = self._retried(messages, schema, deadline, more)
        except CallError as error:
            if error.reason != DRY_RUN:
                self.breaker.record(success=False)
            raise
        except wire.NoTextError:
            self.breaker.record(success=True)
            raise
        self.breaker.record(success=True)
        return got

    def keep(self, got: Got) -> None:
        """A reply that proved valid need not be asked for again."""
        if self.cache is not None and not got.cached:
            self.cache.put(got.key, got.reply)

    def _retried(
        self, messages: wire.Messages, schema: Mapping[str, object], deadline: float, more: int
    ) -> Got:
        pause, left = _PAUSE_S, self.retries
        while True:
            try:
                return self._adapted(messages, schema, deadline, more)
            except CallError as error:
                wait = max(pause, error.wait_s)
                again = error.status in _RETRIED or error.reason in _RETRIED_REASONS
                if not again or not left or time.monotonic() + wait >= deadline:
                    raise
            time.sleep(wait)
            left, pause = left - 1, 2 * pause

    def _adapted(
        self, messages: wire.Messages, schema: Mapping[str, object], deadline: float, more: int
    ) -> Got:
        """A reply; asked more simply as long as the server refuses the request."""
        while True:
            dialect, model = self._dialects.current, self.model
            limit = model.max_tokens * more
            request = wire.request(
                model.api, dialect, model.name, messages, schema, limit, model.effort
            )
            try:
                return self._exchanged(json.dumps(request).encode(), deadline)
            except CallError as error:
                refused = error.status in _REFUSED
                if not refused or not self._dialects.learn(dialect, error.detail):
                    raise

    def _exchanged(self, body: bytes, deadline: float) -> Got:
        path, where = wire.path(self.model.api), str(self.transport.where)
        if self.show is not None:
            self.show(f"POST {where}{path}\n{body.decode()}")
            raise CallError(DRY_RUN)
        key = self.cache.key(where, path, body) if self.cache else ""
        if self.cache is not None and (kept := self.cache.get(key)) is not None:
            return Got(kept, key, cached=True)
        answer = self.transport.post(path, body, deadline - time.monotonic())
        return Got(wire.reply(self.model.api, answer), key, cached=False)
