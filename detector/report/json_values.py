"""Values as JSON can hold them: what a report holds of numpy, of bytes that are no text, of NaN."""

from __future__ import annotations

import math
from typing import cast

import msgspec

# The parts whose keys a later version may add to: numbers there may be missing, hence null.
_FREE = frozenset({"evidence", "config"})


def plain(value: object, name: str) -> object:
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
