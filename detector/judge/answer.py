"""A model's text -> the patterns that it names. Nothing of it is believed before it is checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

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


class _Item(msgspec.Struct):
    """One pattern as a model has to give it; claims and places are checked one by one."""

    pattern: str
    confidence: Annotated[float, Meta(ge=0, le=1)]
    explanation: Annotated[str, Meta(pattern=r"\S", max_length=schema.EXPLANATION_CHARS)]
    fix: Annotated[str, Meta(max_length=schema.FIX_CHARS)] = ""
    claims: list[Any] = []
    place: Any = ""


class _Claim(msgspec.Struct):
    label: str
    value: float


def _named(item: object, evidence: Evidence) -> tuple[Named, int]:
    try:
        said = msgspec.convert(item, _Item)
    except msgspec.ValidationError as error:
        raise InvalidAnswerError(str(error)) from error
    if said.pattern not in schema.allowed(evidence):
        named = words.bounded(said.pattern)
        raise InvalidAnswerError("unknown pattern", f"not one of the listed ids: {named}")
    claims, wrong = _claims(said.claims, evidence)
    is_known = said.place in ("", *places(evidence))
    fix = words.bounded(said.fix, schema.FIX_CHARS) or feedback.advise(evidence, said.pattern)
    explanation = words.bounded(said.explanation, schema.EXPLANATION_CHARS)
    place = said.place if is_known else ""
    found = Named(said.pattern, said.confidence, explanation, fix, claims, place)
    return found, wrong + (not is_known)


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


def _claims(
    listed: Sequence[object], evidence: Evidence
) -> tuple[tuple[tuple[str, float], ...], int]:
    """The claims that the evidence supports, with its own values, and how many it does not."""
    known: dict[str, list[tuple[str, float, bool]]] = {}
    for row in evidence.table():
        measure = (row.label, row.value, row.unit == "share")
        known.setdefault(row.label.lower(), []).append(measure)
    kept: list[tuple[str, float]] = []
    wrong = 0
    for claim in listed[: schema.MOST_CLAIMS]:
        supported = _supported(claim, known)
        kept += [supported] if supported else []
        wrong += supported is None
    return tuple(kept), wrong


def _supported(
    claim: object, known: Mapping[str, list[tuple[str, float, bool]]]
) -> tuple[str, float] | None:
    try:
        made = msgspec.convert(claim, _Claim)
    except msgspec.ValidationError:
        return None
    for true_label, true, share in known.get(made.label.strip().rstrip(":").lower(), []):
        said = (made.value, made.value / 100) if share else (made.value,)
        if any(abs(n - true) <= max(TOLERANCE * abs(true), 1e-3) for n in said):
            return true_label, true
    return None
