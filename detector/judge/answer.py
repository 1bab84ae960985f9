"""A model's text -> the patterns that it names. Nothing of it is believed before it is checked."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from detector.evidence import Evidence, words
from detector.evidence.views import VIEWS
from detector.judge import Named, feedback, schema
from detector.taxonomy import NONE, UNCLEAR

TOLERANCE: Final = 0.02  # models round; a claim may be off by this part
_MOST_CHARS: Final = 200_000
_MOST_TRIES: Final = 200  # places where a JSON object may begin
_THOUGHT: Final = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.S | re.I)
_THOUGHT_END: Final = re.compile(r"</think(?:ing)?>", re.I)


class InvalidAnswerError(ValueError):
    """An answer that breaks the contract; the message is fit to be sent back.

    ``reason`` is the same for all answers with this fault.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass(frozen=True)
class Answer:
    """``named``: the patterns, the likeliest first; ``look``: the view asked for, mostly empty;
    ``struck``: how many claims, places and patterns were taken out."""

    named: tuple[Named, ...]
    look: str = ""
    struck: int = 0


def parse(text: str, evidence: Evidence) -> Answer:
    """Read an answer. Raises InvalidAnswerError where nothing in it holds.

    Of several patterns those that break the contract are left out. A single pattern without the
    list around it is taken, too: models that no schema binds answer so.
    """
    fields = _fields(text)
    look = fields.get("look")
    listed = fields.get("patterns", [fields] if "pattern" in fields else None)
    if isinstance(look, str) and look in VIEWS and not listed:
        return Answer((), look)
    if not isinstance(listed, list):
        raise InvalidAnswerError("patterns must be a list")
    named, faults, struck = [], [], 0
    for item in listed[: schema.MOST_PATTERNS]:
        try:
            one, lost = _named(item, evidence)
            named.append(one)
            struck += lost
        except InvalidAnswerError as error:  # noqa: PERF203 - a handful
            faults.append(error)
    if not named and faults:
        raise faults[0]
    asked = look if isinstance(look, str) and look in VIEWS else ""
    return Answer(_ordered(named), asked, struck + len(faults))


def _ordered(named: list[Named]) -> tuple[Named, ...]:
    """Each pattern once, the likeliest first; "none" and "unclear" only alone. An empty list says
    "none"."""
    best: dict[str, Named] = {}
    for one in sorted(named, key=lambda n: -n.confidence):
        best.setdefault(one.pattern, one)
    real = [one for one in best.values() if one.pattern not in (NONE, UNCLEAR)]
    alone = [best[p] for p in (NONE, UNCLEAR) if p in best]
    return tuple(real or alone[:1] or [Named(NONE, 0.5, _NOTHING, "")])


_NOTHING: Final = "The model names no pattern here."


def _named(item: object, evidence: Evidence) -> tuple[Named, int]:
    if not isinstance(item, dict):
        raise InvalidAnswerError("a pattern must be an object")
    pattern = item.get("pattern")
    if not isinstance(pattern, str) or pattern not in schema.allowed(evidence):
        raise InvalidAnswerError("unknown pattern", f"not one of the listed ids: {_short(pattern)}")
    confidence = _confidence(item.get("confidence"))
    explanation = _text(item, "explanation", schema.EXPLANATION_CHARS)
    fix = _text(item, "fix", schema.FIX_CHARS, missing=True)
    claims, wrong = _claims(item.get("claims", []), evidence)
    place = item.get("place", "")
    known = isinstance(place, str) and (not place or place in places(evidence))
    return (
        Named(
            pattern,
            confidence,
            explanation,
            fix or feedback.advise(evidence, pattern),
            claims,
            place if known and isinstance(place, str) else "",
        ),
        wrong + (not known),
    )


def places(evidence: Evidence) -> frozenset[str]:
    """What a place may be called: names and file:line of the evidence."""
    lines = (f"{line.file}:{line.line}" for line in evidence.where)
    return frozenset((*(item.name for item in evidence.items), *lines))


def _fields(text: str) -> Mapping[str, object]:
    """The answer's JSON object. Models put thoughts before it and prose and fences around it."""
    text = _THOUGHT.sub("", text[:_MOST_CHARS])
    ends = list(_THOUGHT_END.finditer(text))  # a chat template may have opened the thought
    text = text[ends[-1].end() :] if ends else text
    single = '"patterns"' not in text  # else it is a piece of a list that broke
    found = [o for o in _objects(text) if "patterns" in o or (single and "pattern" in o)]
    if found:
        return found[-1]
    raise InvalidAnswerError("no valid JSON" if "{" in text else "no JSON object")


def _objects(text: str) -> Iterator[Mapping[str, object]]:
    """The JSON objects that stand in a text, outermost ones, in order."""
    decoder, at = json.JSONDecoder(), 0
    for _ in range(_MOST_TRIES):
        at = text.find("{", at)
        if at < 0:
            return
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if isinstance(found, dict):
            yield found


def _confidence(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidAnswerError("confidence must be a number", _short(value))
    if not (isinstance(value, int) or math.isfinite(value)) or not 0 <= value <= 1:
        raise InvalidAnswerError("confidence must be between 0 and 1")
    return float(value)


def _text(fields: Mapping[str, object], name: str, most: int, *, missing: bool = False) -> str:
    value = fields.get(name, "" if missing else None)
    if not isinstance(value, str) or not (value.strip() or missing):
        raise InvalidAnswerError(f"{name} must be a text")
    if len(value) > most:
        raise InvalidAnswerError(f"{name} is longer than {most} characters")
    return words.bounded(value, most)


def _claims(value: object, evidence: Evidence) -> tuple[tuple[tuple[str, float], ...], int]:
    """The claims that the evidence supports, with its own values, and how many it does not."""
    if not isinstance(value, list):
        raise InvalidAnswerError("claims must be a list")
    known: dict[str, list[tuple[str, float, bool]]] = {}
    for row in evidence.table():
        measure = (row.label, row.value, row.unit == "share")
        known.setdefault(row.label.lower(), []).append(measure)
    kept: list[tuple[str, float]] = []
    wrong = 0
    for claim in value[: schema.MOST_CLAIMS]:
        supported = _supported(claim, known)
        kept += [supported] if supported else []
        wrong += supported is None
    return tuple(kept), wrong


def _supported(
    claim: object, known: Mapping[str, list[tuple[str, float, bool]]]
) -> tuple[str, float] | None:
    label = claim.get("label") if isinstance(claim, dict) else None
    number = claim.get("value") if isinstance(claim, dict) else None
    if not isinstance(label, str) or isinstance(number, bool):
        return None
    if not isinstance(number, int | float) or abs(number) > 1e300 or not math.isfinite(number):
        return None
    for true_label, true, share in known.get(label.strip().rstrip(":").lower(), []):
        said = (number, number / 100) if share else (number,)
        if any(abs(n - true) <= max(TOLERANCE * abs(true), 1e-3) for n in said):
            return true_label, true
    return None


def _short(value: object) -> str:
    return words.bounded(repr(value), 80)
