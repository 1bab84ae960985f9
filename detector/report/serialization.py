"""Reports to and from JSON: numpy's values, texts that are no UTF-8 and NaN are made to fit."""

from __future__ import annotations

import math
import re
from typing import Literal, cast

import msgspec

from detector.errors import DetectorError
from detector.report.report import SCHEMA, Report

# Characters that a terminal obeys or that turn the direction of writing; JSON itself escapes those
# below a blank. Names keep them, as escapes: whoever reads the JSON gets the same text.
_UNSEEN = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

# A list of numbers goes on one line. A line break of the indented text is never inside a string.
_NUMBERS = re.compile(r"\[\n\s+([-+.\deE]+(?:,\n\s+[-+.\deE]+)*)\n\s+\]")
_BREAK = re.compile(r",\n\s+")
# The parts whose keys a later version may add to: numbers there may be missing, hence null.
_FREE = frozenset({"evidence", "config"})


def to_json(report: Report) -> str:
    """``report.json``, indented. Never writes NaN or infinity.

    A number that is not finite becomes null in ``evidence`` and ``config``; anywhere else it is a
    fault of this program and raises ValueError naming the field.
    """
    encoded = msgspec.json.encode(_plain(report, "report"))
    text = msgspec.json.format(encoded, indent=2).decode() + "\n"
    text = _NUMBERS.sub(lambda m: f"[{_BREAK.sub(', ', m[1])}]", text)
    return _UNSEEN.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


class _Marked(msgspec.Struct):
    """What every report says of itself; a Report alone would take any object for an empty one."""

    schema: Literal[2]


def from_json(text: str | bytes) -> Report:
    """Read what ``to_json`` wrote. Raises DetectorError when it is no report of version 2."""
    try:
        msgspec.json.decode(text, type=_Marked)
        return msgspec.json.decode(text, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DetectorError(f"not a report of schema {SCHEMA}: {error}") from error


def _plain(value: object, name: str) -> object:
    """A dataclass as lists, dicts and single values. Raises ValueError naming the field of a number
    that is not finite; in free parts it becomes null."""
    return _clean(msgspec.to_builtins(value, enc_hook=_foreign), name, free=False)


def _foreign(value: object) -> object:
    """Numpy's scalars and arrays, known by their methods, so that numpy is not needed here."""
    for way in ("tolist", "item"):
        if callable(method := getattr(value, way, None)):
            return cast(object, method())
    return str(value)


def _clean(value: object, place: str, *, free: bool) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        if free:
            return None
        raise ValueError(f"{place} is {value}, which JSON cannot hold")
    if isinstance(value, str):
        # A lone surrogate is a byte that was no UTF-8 in the trace; JSON cannot hold it either.
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 2**1023 else str(value)
    if isinstance(value, dict):
        return {
            cast(str, _clean(str(key), place, free=True)): _clean(
                item, f"{place}.{key}", free=free or key in _FREE
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_clean(item, f"{place}[{i}]", free=free) for i, item in enumerate(value)]
    return value
