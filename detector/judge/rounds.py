"""One region's conversation: ask, serve the views that are asked for, check, ask once more.

What a region ends with is an ``Outcome``: a verdict that holds, or why there is none.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from detector.evidence import Evidence, words
from detector.evidence.views import VIEWS
from detector.judge import EVEN, UNSURE, Named, Verdict, schema
from detector.judge.answer import Answer, InvalidAnswerError, parse
from detector.judge.client import Got
from detector.judge.grounding import ground
from detector.judge.transport import CallError
from detector.judge.wire import NoTextError
from detector.report.judging import JudgeRound, Judging
from detector.taxonomy import NONE, UNCLEAR

Message = dict[str, str]
Ask = Callable[[list[Message], Mapping[str, object], int], Got]
Look = Callable[[str], str]

NS_PER_US: Final = 1_000
ANSWERED: Final = "answered"
ASKED: Final = "asked for a view"
BUDGET: Final = "token budget of the trace is spent"
MOST_VIEWS: Final = 2  # so three rounds
_MORE: Final = 3  # times the limit, for an answer that was cut short
_ECHO: Final = 4_000  # characters of a bad answer that are sent back


@dataclass(frozen=True)
class Limits:
    """``evidence``: tokens of one region's evidence; ``trace``: of all that is sent and received
    for a trace; ``views``: how many views may be asked for in one region."""

    evidence: int = 1_500
    trace: int = 1_000_000
    views: int = MOST_VIEWS


class Spending:
    """Tokens of one trace, counted by the threads that spend them, and since when."""

    def __init__(self, most: int) -> None:
        self.most, self.begun = most, time.monotonic()
        self._spent = 0
        self._lock = threading.Lock()

    def add(self, tokens: int) -> None:
        """Count what was sent and received."""
        with self._lock:
            self._spent += tokens

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self._spent >= self.most


@dataclass(frozen=True)
class Failure:
    """Why a region has no answer; ``detail`` may hold the server's own words."""

    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of one region: a verdict or a failure, and how it came."""

    verdict: Verdict | None = None
    failure: Failure | None = None
    rounds: tuple[JudgeRound, ...] = ()
    invalid: tuple[str, ...] = ()
    struck: int = 0


def settle(
    evidence: Evidence,
    ask: Ask,
    keep: Callable[[Got], None],
    limits: Limits,
    spending: Spending,
    look: Look | None = None,
    count: Callable[[str], int] | None = None,
) -> Outcome:
    """Ask until there is an answer that holds; a second bad answer ends it. Never raises for what
    a server or a model does. ``count``: tokens by the model's own tokenizer."""
    conversation = _Conversation(evidence, limits, look, count)
    while not spending.over:
        outcome = conversation.round(ask, keep, spending)
        if outcome is not None:
            return outcome
    return conversation.end(Failure(BUDGET))


class _Conversation:
    """What was said about one region so far, and what the model may still ask to see."""

    def __init__(
        self,
        evidence: Evidence,
        limits: Limits,
        look: Look | None,
        count: Callable[[str], int] | None,
    ) -> None:
        self.evidence, self.look = evidence, look
        self.views_left = limits.views if look is not None else 0
        self.offered = tuple(VIEWS) if self.views_left else ()
        ids = schema.allowed(evidence)
        self.shape = schema.answer_schema(ids, self.offered)
        self.messages: list[Message] = [
            {"role": "system", "content": schema.system_prompt(ids, self.offered)},
            {"role": "user", "content": schema.user_prompt(evidence, limits.evidence, count)},
        ]
        self.more = 1  # times the limit of an answer's length
        self.seen = ""  # the view that was shown last
        self.rounds: list[JudgeRound] = []
        self.invalid: list[str] = []

    def round(self, ask: Ask, keep: Callable[[Got], None], spending: Spending) -> Outcome | None:
        """Ask once; None where there is more to ask."""
        since, got = time.monotonic(), None
        try:
            got = ask(self.messages, self.shape, self.more)
            spending.add(0 if got.cached else _tokens(self.messages, got))
            answer = _checked(got, self.evidence)
        except CallError as error:
            self._note(error.reason, since)
            return self.end(Failure(error.reason, error.detail))
        except (InvalidAnswerError, NoTextError) as error:
            return self._complain(error, since, got)
        if answer.look in self.offered:
            self._note(ASKED, since, got)
            keep(got)
            self._show(answer.look, got)
            return None
        if not answer.named:
            self._note("only a view that it cannot have", since, got)
            return self.end(Failure("only asked for more"))
        self._note(ANSWERED, since, got)
        keep(got)
        return self._outcome(answer)

    def end(self, failure: Failure) -> Outcome:
        """No answer."""
        return Outcome(None, failure, tuple(self.rounds), tuple(self.invalid))

    def _note(self, outcome: str, since: float, got: Got | None = None) -> None:
        """One more round."""
        region = self.evidence.region
        self.rounds.append(
            JudgeRound(
                region.start / NS_PER_US,
                region.end / NS_PER_US,
                len(self.rounds) + 1,
                self.seen,
                outcome,
                got is not None and got.cached,
                got.reply.input_tokens if got else 0,
                got.reply.output_tokens if got else 0,
                round(time.monotonic() - since, 3),
            )
        )

    def _complain(self, error: Exception, since: float, got: Got | None) -> Outcome | None:
        """Say what was wrong with an answer; the second time that ends it."""
        reason = error.reason if isinstance(error, InvalidAnswerError) else str(error)
        self._note(reason, since, got)
        self.invalid.append(reason)
        if len(self.invalid) > 1:
            return self.end(Failure(reason))
        self.more = _MORE if reason == "truncated" else 1
        if got is not None and got.reply.text:
            self.messages.append({"role": "assistant", "content": got.reply.text[:_ECHO]})
        self.messages.append({"role": "user", "content": schema.complaint(str(error))})
        return None

    def _show(self, view: str, got: Got) -> None:
        """Give the model the view that it asked for; what was shown may be cited."""
        assert self.look is not None  # else none was offered
        text = self.look(view)
        context = self.evidence.context
        context = replace(context, views=(*context.views, text))
        self.evidence, self.seen = replace(self.evidence, context=context), view
        self.views_left -= 1
        still = tuple(v for v in self.offered if v != view)
        self.offered = still if self.views_left else ()
        self.messages += [
            {"role": "assistant", "content": got.reply.text[:_ECHO]},
            {"role": "user", "content": schema.view_prompt(view, text, self.offered)},
        ]

    def _outcome(self, answer: Answer) -> Outcome:
        verdict, struck = ground(Verdict(answer.named), self.evidence)
        is_clear = verdict.first.pattern != UNCLEAR
        return Outcome(
            verdict if is_clear else None,
            None if is_clear else Failure(UNSURE),
            tuple(self.rounds),
            tuple(self.invalid),
            struck + answer.struck,
        )


def _checked(got: Got, evidence: Evidence) -> Answer:
    try:
        return parse(got.reply.text, evidence)
    except InvalidAnswerError:
        if got.reply.truncated:
            raise InvalidAnswerError("truncated") from None
        raise


def _tokens(messages: list[Message], got: Got) -> int:
    """Tokens by the server's count, or by the rule of ``words.tokens`` where it does not count."""
    counted = got.reply.input_tokens + got.reply.output_tokens
    if counted:
        return counted
    return sum(words.tokens(m["content"]) for m in messages) + words.tokens(got.reply.text)


def combined(own: Verdict, outcome: Outcome) -> Verdict:
    """The model's verdict beside the embedded judge's, so that none of its patterns is lost.

    A pattern that both name has the higher confidence; what the model does not name keeps the
    embedded judge's probability among the candidates. Without an answer the embedded verdict
    stands, marked.
    """
    verdict = outcome.verdict
    if verdict is None:
        reason = outcome.failure.reason if outcome.failure else "no answer"
        return replace(own, fallback=reason)
    chance = dict(own.candidates)
    for one in own.named:
        chance[one.pattern] = max(chance.get(one.pattern, 0.0), one.confidence)
    named = tuple(_surer(one, chance.get(one.pattern, 0.0)) for one in verdict.named)
    chance.pop(UNCLEAR, None)
    chance |= {one.pattern: one.confidence for one in named}
    confirmed = {one.pattern for one in verdict.named if one.confidence >= EVEN}
    known = {*confirmed, NONE, UNCLEAR}
    return replace(
        verdict,
        named=named,
        unconfirmed=tuple(one.pattern for one in own.named if one.pattern not in known),
        candidates=tuple(sorted(chance.items(), key=lambda item: -item[1])),
    )


def joined(first: Judging, again: Judging, clear: int) -> Judging:
    """The questions of two goes at the same places; ``clear`` of those that were unclear in the
    first are answered in the second."""
    costs = [cost for cost in (first.cost, again.cost) if cost is not None]
    left = Counter(first.fallbacks)
    left[UNSURE] -= clear
    return replace(
        first,
        answered=first.answered + clear,
        fallbacks={reason: count for reason, count in left.items() if count > 0},
        invalid=dict(Counter(first.invalid) + Counter(again.invalid)),
        struck=first.struck + again.struck,
        input_tokens=first.input_tokens + again.input_tokens,
        output_tokens=first.output_tokens + again.output_tokens,
        cost=sum(costs) if costs else None,
        doubted=(*first.doubted, *again.doubted),
        rounds=(*first.rounds, *again.rounds),
    )


def _surer(one: Named, own: float) -> Named:
    return one if one.pattern == NONE else replace(one, confidence=max(one.confidence, own))
