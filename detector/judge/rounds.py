"""Asking a language model: check the answer, ask once more with the error, then call it unclear."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from detector.evidence import Evidence, words
from detector.judge import Verdict, feedback, schema
from detector.patterns import PATTERNS

Ask = Callable[[Evidence, "Retry | None"], str]  # the raw answer; raises JudgeError

TOLERANCE: Final = 0.02  # models round; a claim may be off by this part
_NUMBER: Final = re.compile(
    r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?=(?:ns|us|µs|ms|s|x|k|KB|kB|MB|GB)?(?![\w]))"
)
_DIGITS: Final = re.compile(r"\d+(?:\.\d+)?")
# "A multiple of 8 (16 in fp8)": the taxonomy's own numbers may be told again.
_TAXONOMY: Final = tuple(n for p in PATTERNS for n in _DIGITS.findall(f"{p.what} {p.look} {p.fix}"))
_SMALL: Final = 10  # "two kernels", "1 of 3": plain counting is no claim


class Retry:
    """A bad answer and what was wrong with it."""

    def __init__(self, answer: str, error: str) -> None:
        self.answer, self.error = answer, error


class InvalidAnswerError(ValueError):
    """An answer that breaks the contract; the message is fit to be sent back."""


def settle(evidence: Evidence, ask: Ask) -> Verdict:
    """Ask, at most twice. Raises what ``ask`` raises; a second bad answer gives "unclear"."""
    retry: Retry | None = None
    for last in (False, True):
        answer = ask(evidence, retry)
        try:
            return validated(answer, evidence, strict=not last)
        except InvalidAnswerError as error:
            retry = Retry(answer, str(error))
    because = retry.error if retry else "no answer"
    return feedback.unclear(evidence, f"the model's answers were not valid ({because})")


def validated(answer: str, evidence: Evidence, *, strict: bool = True) -> Verdict:
    """The verdict in an answer. Raises InvalidAnswerError.

    Claims that the evidence does not hold are dropped. An explanation with numbers that are not
    in the evidence is an error when ``strict``, and otherwise replaced by the taxonomy's own.
    """
    fields = _fields(answer)
    pattern = fields.get("pattern")
    if not isinstance(pattern, str) or pattern not in schema.allowed(evidence):
        raise InvalidAnswerError(f"pattern must be one of the listed ids, not {_short(pattern)}")
    confidence = _confidence(fields.get("confidence"))
    explanation = _text(fields, "explanation", schema.EXPLANATION_CHARS)
    fix = _text(fields, "fix", schema.FIX_CHARS, empty=True)
    invented = unsupported(explanation, evidence)
    if invented and strict:
        raise InvalidAnswerError(f"not in the evidence: {', '.join(invented[:5])}")
    return Verdict(
        pattern,
        confidence,
        feedback.explain(evidence, pattern) if invented else explanation,
        fix or feedback.advise(evidence, pattern),
        _claims(fields.get("claims"), evidence),
        _candidates(pattern, confidence, evidence),
    )


def _fields(answer: str) -> dict[str, object]:
    start, end = answer.find("{"), answer.rfind("}")  # models like to wrap JSON in prose or fences
    try:
        fields = json.loads(answer[start : end + 1]) if start >= 0 else None
    except (ValueError, RecursionError) as error:
        raise InvalidAnswerError(f"no valid JSON: {_short(error)}") from error
    if not isinstance(fields, dict):
        raise InvalidAnswerError("no JSON object")
    return fields


def _confidence(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidAnswerError(f"confidence must be a number, not {_short(value)}")
    if not math.isfinite(value) or not 0 <= value <= 1:
        raise InvalidAnswerError("confidence must be between 0 and 1")
    return float(value)


def _text(fields: dict[str, object], name: str, most: int, *, empty: bool = False) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not (value.strip() or empty):
        raise InvalidAnswerError(f"{name} must be a text")
    if len(value) > most:
        raise InvalidAnswerError(f"{name} is longer than {most} characters")
    return words.bounded(value, most)


def _claims(value: object, evidence: Evidence) -> tuple[tuple[str, float], ...]:
    """Those claims that the evidence holds."""
    if not isinstance(value, list):
        raise InvalidAnswerError("claims must be a list")
    known: dict[str, list[float]] = {}
    for row in evidence.table():
        known.setdefault(row.label.lower(), []).append(row.value)
    kept = []
    for claim in value[: schema.MOST_CLAIMS]:
        label = claim.get("label") if isinstance(claim, dict) else None
        number = claim.get("value") if isinstance(claim, dict) else None
        if not isinstance(label, str) or isinstance(number, bool):
            continue
        if isinstance(number, int | float) and math.isfinite(number):
            true = known.get(label.strip().rstrip(":").lower(), [])
            kept += [(label.strip().rstrip(":"), t) for t in true if _agrees(number, t)][:1]
    return tuple(kept)


def _agrees(claimed: float, true: float) -> bool:
    """Equal after rounding, as a share or as a percentage."""
    return any(abs(c - true) <= max(TOLERANCE * abs(true), 1e-3) for c in (claimed, claimed / 100))


def unsupported(text: str, evidence: Evidence) -> list[str]:
    """Numbers in a text that no number of the evidence rounds to, in any usual unit.

    Small integers may count things, so they always pass.
    """
    known = np.array(_all_numbers(evidence))
    units = np.concatenate([known * scale for scale in (1.0, 100.0, 0.01, 1_000.0, 0.001)])
    return [n for n in _NUMBER.findall(text) if not _small(n) and not _rounded(n, units)]


def _small(text: str) -> bool:
    return text.isdigit() and int(text) <= _SMALL


def _rounded(text: str, known: npt.NDArray[np.float64]) -> bool:
    """Whether one of the numbers, rounded to as many decimals, is this one."""
    decimals = len(text.partition(".")[2])
    half = 0.5 * 10.0**-decimals * (1 + 1e-9)
    return bool((np.abs(known - float(text.replace(",", ""))) <= half).any())


def _all_numbers(evidence: Evidence) -> list[float]:
    values = [v for row in evidence.rows for v in (row.value, row.rest) if v is not None]
    values += [100 * v for row in evidence.rows for v in (row.value, row.rest) if v is not None]
    written = _DIGITS.findall(evidence.text(10_000))
    return values + [float(n) for n in (*written, *_TAXONOMY)]


def _candidates(
    pattern: str, confidence: float, evidence: Evidence
) -> tuple[tuple[str, float], ...]:
    others = [(name, p) for name, p in evidence.region.candidates if name != pattern]
    left = 1 - confidence
    total = sum(p for _, p in others)
    scaled = [(name, p * left / total) for name, p in others] if total > 0 else []
    return ((pattern, confidence), *scaled)


def _short(value: object) -> str:
    return words.bounded(repr(value) if not isinstance(value, Exception) else str(value), 80)
