"""The judge: evidence in, a named pattern out. The only stage that sees a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from detector.evidence import Evidence


@dataclass(frozen=True)
class Verdict:
    """What a judge says of one region.

    ``pattern`` is an id of the taxonomy, "none" or "unclear"; ``confidence`` is in [0, 1].
    ``claims`` are (label, value) pairs out of the evidence's table that the explanation rests on.
    ``candidates`` are (id or "none", probability), likeliest first.
    """

    pattern: str
    confidence: float
    explanation: str
    fix: str
    claims: tuple[tuple[str, float], ...] = ()
    candidates: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Answers:
    """One verdict per evidence, in order, and what the user should know about how they came."""

    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...] = ()


class Judge(Protocol):
    """Names the patterns of suspicious places.

    ``names_more``: whether it can name what no candidate has; only then is it shown the flagger's
    regions beside the candidates' own places.
    """

    names_more: bool

    @property
    def name(self) -> str:
        """Backend and model, for the report."""
        ...

    def judge(self, evidence: Sequence[Evidence]) -> Answers:
        """A verdict for each region.

        A backend that cannot be reached gives "unclear" and one warning; JudgeError is raised
        only for what the user has to mend first (no such model, no key).
        """
        ...
