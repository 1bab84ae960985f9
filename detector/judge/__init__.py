"""The judge: evidence in, named patterns out. The only stage that sees a language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from detector.evidence import Evidence
from detector.report.judging import Judging

EVEN: Final = 0.5  # odds from which on a model that names a pattern confirms it
UNSURE: Final = "unclear to the model"  # why a verdict stands in for a model's


@dataclass(frozen=True)
class Named:
    """One pattern that a judge names in a region.

    ``pattern`` is an id of the taxonomy, "none" or "unclear"; ``confidence`` is in [0, 1].
    ``claims`` are (label, value) pairs out of the evidence's table that the explanation rests on.
    ``place`` is a name or a file:line of the evidence, empty where the judge gives none.
    """

    pattern: str
    confidence: float
    explanation: str
    fix: str
    claims: tuple[tuple[str, float], ...] = ()
    place: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a judge says of one region.

    ``named``: the patterns, the likeliest first; at least one, which may be "none" or "unclear".
    ``candidates`` are (id or "none", probability), likeliest first; several patterns may hold at
    once, so they need not add up to one. ``fallback``: why this is the embedded judge's verdict in
    place of the chosen judge's. ``unconfirmed``: patterns that the embedded judge names here and
    the chosen judge does not.
    """

    named: tuple[Named, ...]
    candidates: tuple[tuple[str, float], ...] = ()
    fallback: str = ""
    unconfirmed: tuple[str, ...] = ()

    @property
    def first(self) -> Named:
        """The likeliest of the named patterns."""
        return self.named[0]

    def of(self, pattern: str) -> Named | None:
        """What it says of one pattern; None where it does not name it."""
        return next((one for one in self.named if one.pattern == pattern), None)


@dataclass(frozen=True)
class Answers:
    """One verdict per evidence, in order, and what the user should know about how they came."""

    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...] = ()
    judging: Judging = field(default_factory=Judging)


Serve = Callable[[Evidence, str], str]
"""A view of the place of an evidence, by its name: text that may be sent."""


class Judge(Protocol):
    """Names the patterns of suspicious places.

    ``names_more``: whether it can name what no candidate has; only then is it shown the flagger's
    regions beside the candidates' own places, and of each all named events and the context.
    """

    names_more: bool

    @property
    def name(self) -> str:
        """Backend and model, for the report."""
        ...

    def judge(self, evidence: Sequence[Evidence], serve: Serve | None = None) -> Answers:
        """A verdict for each region. ``serve`` shows more of a region to a judge that asks; it may
        be called from several threads, one at a time.

        Where a backend gives no valid answer the embedded judge's verdict stands, marked as such,
        and one warning says why; JudgeError is raised only for what the user has to fix first
        (no such model, no key).
        """
        ...
