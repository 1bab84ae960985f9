"""The values around the event array: device properties, rank, time base."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Any

_LARGEST = 256 << 10  # a value beyond this is data, not metadata
_BRACE = re.compile(rb"^[ \t]*\{", re.MULTILINE)
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})')
MOST_RANKS = 1 << 24  # a larger number is no rank
_RANK = re.compile(r"(?:^|[^a-z])rank[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE)


def parse(header: bytes, tail: bytes) -> tuple[dict[str, object], bool]:
    """Values beside traceEvents, and whether all of them could be read."""
    values: dict[str, object] = {}
    whole = True
    for text in (_opened(header) + b"}", b"{" + tail.strip().lstrip(b"],")):
        part = _object(text)
        if part is None:
            whole = False
            found = _BASE.search(text)
            part = {"baseTimeNanoseconds": int(found[1])} if found else {}
        values.update(part)
    return values, whole


def _opened(header: bytes) -> bytes:
    """The header without its last comma, and without the log lines before it."""
    start = _BRACE.search(header)
    return header[start.start() if start else 0 :].strip().rstrip(b",")


def _object(text: bytes) -> dict[str, Any] | None:
    if text.strip(b" \t\r\n{}") == b"":
        return {}
    try:
        value = json.JSONDecoder(strict=False).raw_decode(text.decode("utf-8", "replace"))[0]
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def small(values: dict[str, object]) -> dict[str, object]:
    """The fields without values too large to be metadata."""
    return {key: value for key, value in values.items() if _length(value) <= _LARGEST}


def _length(value: object) -> int:
    try:
        return len(repr(value))
    except RecursionError:
        return _LARGEST + 1


def base_ns(values: dict[str, object]) -> int:
    """What to add to the file's times to get absolute ones, ns; 0 where they are absolute."""
    try:
        return int(str(values.get("baseTimeNanoseconds", 0)))
    except ValueError:
        return 0


def rank(values: dict[str, object], path: str) -> int | None:
    """The rank by distributedInfo; else by the file's name."""
    info = values.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    if type(rank) is int and 0 <= rank < MOST_RANKS:
        return rank
    found = _RANK.search(PurePath(path).name)
    return int(found[1]) if found else None
