"""A block that typed decoding rejects -> the events that can be recovered from it.

Known damage: NaN and inf (old Kineto's memory bandwidth), unescaped quotes, backslashes
and control characters in names (Kineto before 2026-07), Latin-1 bytes (file paths), log lines of
other processes in the same file, string time stamps (torch_npu), and files cut off anywhere.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_KEY = r'\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|s|bp)"\s*:'
_EVENT = re.compile(_KEY)
# Where a damaged event ends: before the next, or before the end of the array.
_END = re.compile(r"\}(?=[\s,]*" + _KEY + r'|\s*\]\s*(?:,\s*"[^"\n]{1,60}"\s*:|\}?\s*$))')
_CLOSED = re.compile(r'\]\s*(?:,\s*"|\}|$)')
_BETWEEN = re.compile(r"[\s,]*")
_NUMBER = re.compile(r"(?<=[:\[,])(\s*)[+-]?(?:inf|nan|infinity|\d{400,})\b", re.IGNORECASE)
_LOG_LINE = re.compile(r"^[ \t]*(?:[^\s\"{}\[\],\d:-]|\[[A-Za-z])[^\n]*\n", re.MULTILINE)
_IN_TEXT = re.compile(r'["\\]')
_AFTER_TEXT = re.compile(r'\s*(?:[:}\]]|,\s*(?:["{\[\d-]|$)|$)')
_ESCAPE = re.compile(r'["\\/bfnrt]|u[0-9a-fA-F]{4}')
_ARGS = re.compile(r'"args"\s*:\s*(?=[{\[])')
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{\]}]', re.DOTALL)
# Failed parses may read this many times the block's length in all; then the rest is given up.
_EFFORT = 64
_RECURSION = 16 << 10  # bytes that a parse counts as when it ends in too deep nesting
# An event that is intact up to the block's end may continue behind it, unless it is longer.
_LONGEST = 16 << 20


class Fraction(str):
    """A JSON number with a fraction or an exponent, as its text: a float would round it."""


@dataclass
class Salvage:
    """Events as dicts, fractions as text; what was repaired and lost."""

    events: list[Any] = field(default_factory=list)
    repaired: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    lost_bytes: int = 0
    tail: bytes | None = None  # what follows the end of the array, if that is in the block
    rest: int = 0  # bytes of an event that goes on behind the block


def _as_latin_1(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("detector-latin-1", _as_latin_1)


def salvage(block: bytes, last: bool) -> Salvage:
    """Every event of the block that is intact or can be repaired.

    The ``last`` block may end in the middle of an event, and reach past the end of the array.
    """
    return _Salvaging(block, last).run()


class _Salvaging:
    def __init__(self, block: bytes, last: bool) -> None:
        self.out = Salvage()
        self._last = last
        self._breaks_off = False  # what was parsed last, at the end of the text
        self._text = self._decoded(block)
        self._effort = _EFFORT * len(self._text) + _RECURSION
        self._json = json.JSONDecoder(parse_float=Fraction, parse_constant=self._constant)
        self._lenient = json.JSONDecoder(
            strict=False, parse_float=Fraction, parse_constant=self._constant
        )

    def _decoded(self, block: bytes) -> str:
        try:
            return block.decode("utf-8")
        except UnicodeDecodeError:
            self.out.repaired["not UTF-8"] += 1
            return block.decode("utf-8", "detector-latin-1")

    def _constant(self, _: str) -> None:
        self.out.repaired["NaN or infinity"] += 1

    def run(self) -> Salvage:
        text, at = self._text, 0
        while True:
            between = _BETWEEN.match(text, at)
            at = between.end() if between else at
            if at >= len(text):
                return self.out
            if text[at] == "]" and _CLOSED.match(text, at):
                self.out.tail = text[at + 1 :].encode("utf-8", "surrogatepass")
                return self.out
            following = self._event(at) if text[at] == "{" else self._skip(at)
            if following < 0:
                self.out.rest = len(text[at:].encode("utf-8", "surrogatepass"))
                return self.out
            at = following

    def _skip(self, at: int) -> int:
        """Text that is no event."""
        found = _EVENT.search(self._text, at)
        end = found.start() if found else len(self._text)
        self.out.repaired["text between events"] += 1
        self.out.lost_bytes += end - at
        return end

    def _event(self, at: int) -> int:
        """Take the event at ``at``; returns where to go on, or -1 where the block cuts it."""
        event, end = self._parse(self._text, at)
        if end >= 0:
            self.out.events.append(event)
            return end
        if not self._last and self._breaks_off and len(self._text) - at < _LONGEST:
            return -1
        found = _END.search(self._text, at) if self._effort > 0 else None
        if found is None and not self._last and self._effort > 0:
            return -1
        end = found.end() if found else len(self._text)
        event = self._repair(self._text[at:end])
        if event is None:
            end = self._within(at, end)
        if event is not None:
            self.out.events.append(event)
        else:
            self.out.dropped["unreadable event" if found else "cut off event"] += 1
            self.out.lost_bytes += end - at
        return end

    def _within(self, at: int, end: int) -> int:
        """Where an intact event begins inside a damaged one that was never closed; else its end."""
        for found in _EVENT.finditer(self._text, at + 1, end):
            event, _ = self._parse(self._text, found.start())
            if isinstance(event, dict) and "ph" in event:
                return found.start()
            if self._effort <= 0:
                break
        return end

    def _parse(self, text: str, at: int = 0) -> tuple[Any, int]:
        """An object and its end; (None, -1) where there is none."""
        self._breaks_off = False
        try:
            return self._json.raw_decode(text, at)
        except json.JSONDecodeError as error:
            self._effort -= error.pos - at
            self._breaks_off = error.pos == len(text)
            if error.msg.startswith("Invalid control character"):
                return self._parse_lenient(text, at)
        except (ValueError, RecursionError):  # an integer of too many digits; deep nesting
            self._effort -= _RECURSION
        return None, -1

    def _parse_lenient(self, text: str, at: int) -> tuple[Any, int]:
        try:
            event, end = self._lenient.raw_decode(text, at)
        except (ValueError, RecursionError):
            self._effort -= _RECURSION
            return None, -1
        self.out.repaired["control character"] += 1
        return event, end

    def _repair(self, text: str) -> dict[str, Any] | None:
        """One damaged event, by the first set of repairs that makes it JSON."""
        for name, repair in _REPAIRS:
            repaired = repair(text)
            if repaired == text:
                continue
            event, end = self._parse(repaired)
            if end >= 0 and isinstance(event, dict):
                self.out.repaired[name] += 1
                return event
            if name in _LASTING:
                text = repaired
        return None


def _repair_numbers(text: str) -> str:
    return _NUMBER.sub(r"\1null", text)


def _repair_lines(text: str) -> str:
    return _LOG_LINE.sub("", text)


def _repair_quotes(text: str) -> str:
    """Escape the quotes that do not end their string, and backslashes that escape nothing."""
    out: list[str] = []
    inside, done = False, 0
    for found in _IN_TEXT.finditer(text):
        at = found.start()
        if at < done:
            continue
        if not inside:
            inside = text[at] == '"'
        elif text[at] == "\\":
            escape = _ESCAPE.match(text, at + 1)
            out += text[done:at], "\\" if escape else "\\\\"
            done = at + 1
            if escape:
                out.append(escape[0])
                done = escape.end()
        elif _AFTER_TEXT.match(text, at + 1):
            inside = False
        else:
            out += text[done:at], '\\"'
            done = at + 1
    return "".join(out) + text[done:]


def _repair_depth(text: str) -> str:
    """The event without arguments: so deep a nesting would exhaust the parser's stack."""
    args = _ARGS.search(text)
    if args is None:
        return text
    depth = 0
    for found in _BRACKET.finditer(text, args.end()):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return text[: args.end()] + "{}" + text[found.end() :]
    return text


_REPAIRS = (
    ("number", _repair_numbers),
    ("log line", _repair_lines),
    ("unescaped quote or backslash", _repair_quotes),
    ("arguments nested too deeply", _repair_depth),
)
_LASTING = ("number", "log line")
