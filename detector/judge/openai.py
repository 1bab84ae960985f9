"""A judge on any OpenAI-compatible server. Evidence texts leave the machine for ``base_url``.

Chosen by the configuration alone: the address is never read from the environment, the key only
from the variable that the configuration names, and it goes only to the host it is configured for.
Whatever the server does, a region without a valid answer keeps the embedded judge's verdict.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from detector.errors import JudgeError
from detector.evidence import Evidence
from detector.judge import Answers, Judge, Serve, doubt, rounds, usage, wire
from detector.judge.anonymous import Codes
from detector.judge.cache import Cache, default_folder
from detector.judge.circuit_breaker import REST_S, Breaker
from detector.judge.client import OUT_OF_TIME, Client, Model
from detector.judge.embedded import EmbeddedJudge
from detector.judge.rounds import Failure, Limits, Outcome, Spending
from detector.judge.transport import Address, Transport, address
from detector.judge.workers import spread

DEFAULT_URL: Final = "https://api.openai.com/v1"
DEFAULT_HOST: Final = "api.openai.com"
INTERRUPTED: Final = "interrupted"
_GRACE_S: Final = 0.5  # for a request that ends at its deadline to say so


class OpenAIJudge:
    """Asks ``model`` about each region, ``concurrency`` regions at a time.

    ``timeout_s`` bounds a whole answer with its retries, ``trace_timeout_s`` all answers of one
    trace. ``api_key_env`` names the variable that holds the key; it is sent only to
    ``api_key_host``, over https or on this machine. After ``breaker`` failures in a row the server
    rests for ``breaker_rest_s``. ``views``: how many the model may ask for in one region;
    ``trace_tokens`` bounds the tokens of one trace; ``prices`` are those of a million input and
    output tokens. ``fallback`` judges what gets no valid answer (the embedded judge by default);
    ``say`` gets the line on where data goes, and a dry run's requests (default: standard error).

    Raises JudgeError where something has to be corrected first: no key for OpenAI's own server, an
    address that is none, a key that would travel in the clear.
    """

    names_more = True

    def __init__(
        self,
        model: str,
        base_url: str = DEFAULT_URL,
        api: wire.Api = "chat",
        api_key_env: str = "OPENAI_API_KEY",
        api_key_host: str = DEFAULT_HOST,
        timeout_s: float = 60.0,
        trace_timeout_s: float = 900.0,
        retries: int = 2,
        breaker: int = 3,
        breaker_rest_s: float = REST_S,
        max_tokens: int = 2_000,
        budget_tokens: int = 1_500,
        trace_tokens: int = 1_000_000,
        views: int = rounds.MOST_VIEWS,
        effort: str = "",
        concurrency: int = 4,
        anonymize: bool = False,
        dry_run: bool = False,
        cache: bool = True,
        cache_dir: str | None = None,
        cache_bytes: int = 64_000_000,
        prices: Sequence[float] | None = None,
        fallback: Judge | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if api not in ("chat", "responses"):
            raise JudgeError(f"judge.api: {api!r} is neither chat nor responses")
        self.name = f"openai {model}"
        self.where = address(base_url)
        self.limits = Limits(budget_tokens, trace_tokens, max(0, min(views, rounds.MOST_VIEWS)))
        self.trace_timeout_s, self.concurrency = trace_timeout_s, max(1, concurrency)
        self.anonymize, self.dry_run = anonymize, dry_run
        self.prices = tuple(prices) if prices else ()
        self._say = say or _to_stderr
        folder = Path(cache_dir).expanduser() if cache_dir else default_folder()
        self.client = Client(
            Transport(self.where, _key_header(self.where, api_key_env, api_key_host)),
            Model(model, api, max_tokens, effort),
            Breaker(breaker, breaker_rest_s),
            Cache(folder, cache_bytes) if cache else None,
            timeout_s,
            retries,
            self._say if dry_run else None,
        )
        self._fallback = fallback or EmbeddedJudge()
        self._interrupted = False
        self._announced = False
        self._latest: tuple[Serve, Spending] | None = None

    def judge(self, evidence: Sequence[Evidence], serve: Serve | None = None) -> Answers:
        """See ``Judge``."""
        if not evidence:
            return Answers(())
        own = self._fallback.judge(evidence).verdicts
        self._announce()
        outcomes = doubt.in_turn(evidence, self._asking(evidence, serve))
        verdicts = tuple(map(rounds.combined, own, outcomes))
        warnings = usage.warnings(str(self.where), outcomes)
        judging = usage.judging(self.client.model.name, evidence, outcomes, self.prices)
        return Answers(verdicts, warnings, judging)

    def _announce(self) -> None:
        if self._announced or self.dry_run:
            return
        self._announced = True
        names = "ops and kernels" if self.anonymize else "ops, kernels, files and functions"
        self._say(f"judge: numbers and names of {names} of each trace go to {self.where}")

    # -- all regions -----------------------------------------------------------------------------

    def _asking(
        self, evidence: Sequence[Evidence], serve: Serve | None
    ) -> Callable[[Sequence[Evidence]], list[Outcome]]:
        """How to ask about some places of these."""
        codes = Codes(evidence) if self.anonymize else None
        spent, serving = self._spent(serve), threading.Lock()
        until = spent.begun + self.trace_timeout_s

        def one(mine: Evidence) -> Outcome:
            def look(view: str) -> str:
                with serving:
                    text = serve(mine, view) if serve is not None else ""
                return codes.coded(text) if codes else text

            outcome = rounds.settle(
                codes.evidence(mine) if codes else mine,
                lambda messages, shape, more: self.client.ask(messages, shape, until, more),
                self.client.keep,
                self.limits,
                spent,
                look if serve is not None else None,
            )
            return _restored(outcome, codes)

        def some(places: Sequence[Evidence]) -> list[Outcome]:
            return self._outcomes(places, one, until)

        return some

    def _spent(self, serve: Serve | None) -> Spending:
        """What the trace that ``serve`` shows has cost so far."""
        if serve is None:
            return Spending(self.limits.trace)
        if self._latest is None or self._latest[0] is not serve:
            self._latest = serve, Spending(self.limits.trace)
        return self._latest[1]

    def _outcomes(
        self, places: Sequence[Evidence], one: Callable[[Evidence], Outcome], until: float
    ) -> list[Outcome]:
        """One for each place. What is not known when the time is up, or when the user interrupts,
        has failed; after an interrupt no further trace is asked about."""
        if self._interrupted:
            return [Outcome(failure=Failure(INTERRUPTED))] * len(places)
        found, self._interrupted = spread(
            lambda i: one(places[i]), len(places), self.concurrency, until + _GRACE_S
        )
        reason = INTERRUPTED if self._interrupted else OUT_OF_TIME
        return [outcome or Outcome(failure=Failure(reason)) for outcome in found]


def _restored(outcome: Outcome, codes: Codes | None) -> Outcome:
    if codes is None or outcome.verdict is None:
        return outcome
    return replace(outcome, verdict=codes.restored(outcome.verdict))


def _key_header(where: Address, variable: str, host: str) -> dict[str, str]:
    """The key, if it belongs to this host. Raises JudgeError."""
    key = os.environ.get(variable, "")
    mine = where.host == host.lower()
    if mine and not key and host == DEFAULT_HOST:
        raise JudgeError(f"judge=openai: no API key in the variable {variable}")
    if not mine or not key:
        return {}
    if not where.private:
        raise JudgeError(f"judge.base_url: the key would travel in the clear to {where}; use https")
    if not key.isprintable() or not key.isascii() or " " in key:
        raise JudgeError(f"judge.api_key_env: the variable {variable} does not hold a key")
    return {"Authorization": f"Bearer {key}"}


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
