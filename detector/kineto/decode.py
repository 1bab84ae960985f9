"""A block of whole events -> groups of typed events, by the fastest decoder that accepts it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from detector.kineto import events as kinds
from detector.kineto.categories import (
    ANNOTATIONS_2021,
    CATEGORIES,
    OTHER_CATEGORIES,
    unknown,
)
from detector.trace import Cat, Int64

# Beyond this many microseconds a float64 is coarser than half a nanosecond.
_EXACT_US = float(1 << 43)
_LARGEST_US = 9.2e15  # int64 nanoseconds end here
# How the time stamp is decoded: relative times fit a float; absolute ones (before 2024-04) are
# whole, and fit an int, or have a fraction (a few weeks of 2024), and only their text is exact.
_TIMES = (float, int, msgspec.Raw)
_PATIENCE = 3
_Text = bytes | memoryview


@dataclass
class Group:
    """Duration events of one category, their exact times in ns."""

    cat: Cat
    events: list[Any]
    start: Int64
    dur: Int64


@dataclass
class Decoded:
    """One block."""

    groups: list[Group]
    count: int  # events of any phase
    other: Counter[str] = field(default_factory=Counter)


@cache
def _by_category(level: int) -> tuple[msgspec.json.Decoder[Any], dict[type, str], dict[type, str]]:
    words, others = kinds.by_category(_TIMES[level])
    return _decoder([*words.values(), *others]), {s: w for w, s in words.items()}, others


@cache
def _by_phase(level: int) -> tuple[msgspec.json.Decoder[Any], Any, dict[type, str]]:
    complete, others = kinds.by_phase(_TIMES[level])
    return _decoder([complete, *others]), complete, others


def _decoder(structs: list[Any]) -> msgspec.json.Decoder[Any]:
    union: Any = structs[0]
    for struct in structs[1:]:
        union = union | struct
    return msgspec.json.Decoder(list[union])


class Decoders:
    """Typed decoders from the fastest to the most exact; keeps to the one that fits the file."""

    def __init__(self) -> None:
        self._level = 0
        self._misses = 0

    def decode(self, text: _Text) -> Decoded:
        """``text`` is a JSON array of events.

        Raises msgspec.MsgspecError or RecursionError where some event needs repair.
        """
        if self._misses < _PATIENCE:
            try:
                decoded = self._exactly(_decode_by_category, text)
            except msgspec.ValidationError:
                # An event without a category (metadata; 2021's instants), or of an unknown one.
                self._misses += 1
            else:
                self._misses = 0
                return decoded
        return self._exactly(_decode_by_phase, text)

    def _exactly(self, decode: Any, text: _Text) -> Decoded:
        for level in range(self._level, len(_TIMES)):
            try:
                decoded: Decoded | None = decode(level, text)
            except msgspec.DecodeError as error:
                if level == len(_TIMES) - 1 or not isinstance(error, msgspec.ValidationError):
                    raise
                continue
            if decoded is not None:
                self._level = level
                return decoded
        raise msgspec.ValidationError("no exact time stamp")


def _decode_by_category(level: int, text: _Text) -> Decoded | None:
    decoder, words, others = _by_category(level)
    events = decoder.decode(text)
    sorted_out: defaultdict[type, list[Any]] = defaultdict(list)
    for event in events:
        sorted_out[type(event)].append(event)
    decoded = Decoded([], len(events))
    for kind, members in sorted_out.items():
        if kind in others:
            decoded.other[others[kind]] += len(members)
        elif not _add(decoded, words[kind], members, level):
            return None
    return decoded


def _decode_by_phase(level: int, text: _Text) -> Decoded | None:
    decoder, complete, others = _by_phase(level)
    events: list[Any] = decoder.decode(text)
    sorted_out: defaultdict[str, list[Any]] = defaultdict(list)
    decoded = Decoded([], len(events))
    for event in events:
        if type(event) is not complete:
            decoded.other[others[type(event)]] += 1
            continue
        kinds.tidy(event.args)
        sorted_out[event.cat].append(event)
    for word, members in sorted_out.items():
        if word in OTHER_CATEGORIES:
            decoded.other[OTHER_CATEGORIES[word]] += len(members)
        elif not _add(decoded, word, members, level):
            return None
    return decoded


def _add(decoded: Decoded, word: str, members: list[Any], level: int) -> bool:
    """Add one category's events; False where ``level`` cannot hold their times exactly."""
    start = _starts(members, level)
    if start is None:
        return False
    dur = to_ns(np.fromiter([e.dur for e in members], np.float64, len(members)))
    keep(decoded, word, members, start, dur)
    return True


def keep(decoded: Decoded, word: str, members: list[Any], start: Int64, dur: Int64) -> None:
    """Add the events of one category, whatever it is."""
    decoded.groups += _by_cat(word, members, start, dur)
    if word not in CATEGORIES:
        decoded.other[unknown(word)] += len(members)


def _by_cat(word: str, members: list[Any], start: Int64, dur: Int64) -> list[Group]:
    """One group; two for 2021's operators, among which are annotations."""
    if word != "Operator":
        return [Group(CATEGORIES.get(word, Cat.OTHER), members, start, dur)]
    marked = np.fromiter([e.name.startswith(ANNOTATIONS_2021) for e in members], np.bool_)
    groups = []
    for cat, mask in ((Cat.CPU_OP, ~marked), (Cat.USER_ANNOTATION, marked)):
        if mask.any():
            chosen = [members[i] for i in np.flatnonzero(mask)]
            groups.append(Group(cat, chosen, start[mask], dur[mask]))
    return groups


def _starts(members: list[Any], level: int) -> Int64 | None:
    times = [e.ts for e in members]
    if level == 0:
        us = np.fromiter(times, np.float64, len(times))
        exact = max(us.max(), -us.min()) <= _EXACT_US and not _halves(us).any()
        return to_ns(us) if exact else None
    if level == 1:
        try:
            whole = np.fromiter(times, np.int64, len(times))
        except OverflowError:
            return None
        return whole * 1000 if np.abs(whole).max() < _LARGEST_US else None
    return np.fromiter([text_ns(bytes(t)) for t in times], np.int64, len(times))


def to_ns(us: npt.NDArray[np.float64]) -> Int64:
    """Microseconds to nanoseconds; whole and fraction apart, so that no digit is lost.

    Halves are rounded to even by their decimal digits, not by their binary fraction.
    """
    us = np.clip(us, -_LARGEST_US, _LARGEST_US)
    whole = np.floor(us)
    ns = whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
    for i in np.flatnonzero(_halves(us)):
        ns[i] = decimal_ns(repr(float(us[i])))
    return ns


def _halves(us: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which times may be half a nanosecond beside a whole one, as far as a float64 can say."""
    beside = np.abs((us - np.floor(us)) * 1000 % 1 - 0.5)
    return np.asarray(beside <= 1000 * np.spacing(np.abs(us)) + 1e-9)


def text_ns(text: bytes) -> int:
    """Nanoseconds from the text of a JSON number of microseconds.

    Raises msgspec.ValidationError where it is none, or out of range.
    """
    whole, _, fraction = text.partition(b".")
    if len(fraction) == 3 and len(whole) < 17 and whole.isdigit() and fraction.isdigit():
        return int(whole + fraction)
    try:
        return decimal_ns(text.decode())
    except (ArithmeticError, ValueError) as error:
        raise msgspec.ValidationError(f"no time stamp: {error}") from None


def decimal_ns(text: str) -> int:
    """Nanoseconds from any decimal text of microseconds; ValueError where it is none."""
    value = Decimal(text.strip())
    if not value.is_finite() or abs(value) > _LARGEST_US:
        raise ValueError(f"out of range: {text[:40]}")
    return int((value * 1000).to_integral_value())
