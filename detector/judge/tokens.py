"""Evidence text -> what the embedded judge reads: a line is a bag of hashed pieces.

A number becomes its bin, so that 31.2 % and 33 % read alike; a measure's label is one piece; a
name is cut into its words. The pieces know their role: a number in brackets is the rest's.
Everything is a pure function of the text, with a hash that never changes.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

RULE: Final = "lines-1"  # changes whenever a text would read differently
LINES: Final = 112
PIECES: Final = 16  # of a line
PAD: Final = 0
BUDGET: Final = 2_200  # tokens of evidence text, by the rule of ``evidence.words``

_NAMED: Final = re.compile(r'^"(?P<name>[^"]*)" (?:x(?P<count>\d+)|running) (?P<rest>.*)$')
_MEASURE: Final = re.compile(r"^(?P<label>[^:\"]+): (?P<value>[^\[]+?)(?: \[(?P<rest>.*)\])?$")
_NUMBER: Final = re.compile(r"(\[)?(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*(%|µs|MB|GB/s|elements)?")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SHARES: Final = (0.05, 0.5, 1, 2, 4, 7, 11, 16, 22, 30, 40, 50, 60, 70, 80, 90, 97)


def encode(text: str, vocabulary: int) -> npt.NDArray[np.int32]:
    """Piece ids [LINES, PIECES]; 0 pads, and a line of zeros is no line."""
    ids = np.zeros((LINES, PIECES), np.int32)
    filled = (pieces for pieces in _lines(text) if pieces)  # no gaps: the network trims the end
    for i, pieces in enumerate(islice(filled, LINES)):
        hashed = [_hashed(piece, vocabulary) for piece in pieces[:PIECES]]
        ids[i, : len(hashed)] = hashed
    return ids


def encode_all(texts: Sequence[str], vocabulary: int) -> npt.NDArray[np.int32]:
    """Piece ids [n, LINES, PIECES]."""
    return np.stack([encode(text, vocabulary) for text in texts])


@lru_cache(maxsize=100_000)
def _hashed(piece: str, vocabulary: int) -> int:
    return 1 + zlib.crc32(piece.encode()) % (vocabulary - 1)


def _lines(text: str) -> Iterator[list[str]]:
    section = ""
    for line in text.split("\n"):
        if named := _NAMED.match(line):
            yield [section, *_numbers(named), *name_pieces(named["name"])]
        elif measure := _MEASURE.match(line):
            label = f"l:{measure['label']}"
            value = _bins("v", measure["value"])
            rest = _bins("r", measure["rest"] or "")
            yield [label, *value, *rest, *(f"{label}|{v}" for v in value)]
        elif line.endswith(":"):
            section = f"s:{line.split('(')[0].strip(': ')}"
        else:  # the header
            yield [f"h:{part}" for part in re.findall(r"[a-z]+(?: side| device)?", line)[:PIECES]]


def _numbers(named: re.Match[str]) -> list[str]:
    count = [f"c:{_log_bin(float(named['count']))}"] if named["count"] else ["c:running"]
    return [*count, *_bins("v", named["rest"])]


def _bins(role: str, text: str) -> list[str]:
    found = []
    for bracket, number, unit in _NUMBER.findall(text):
        value = float(number)
        place = "r" if bracket else role
        size = _share_bin(value) if unit == "%" else _log_bin(value)
        found.append(f"{place}:{unit}:{size}")
    return found


def _share_bin(percent: float) -> int:
    return sum(percent >= edge for edge in _SHARES)


def _log_bin(value: float) -> int:
    """Powers of two; below four, of the root of two."""
    if value < 1e-6:
        return -99
    power = math.log2(min(value, 1e15))
    return 2 * round(power) if value >= 4 else round(2 * power)


@lru_cache(maxsize=65_536)
def name_pieces(name: str) -> tuple[str, ...]:
    """The words of a name, and the whole of a short one."""
    words = [word.lower() for word in _WORD.findall(name)]
    kept = [f"w:{word}" for word in dict.fromkeys(words) if not word.isdigit()]
    whole = [f"n:{name}"] if len(name) <= 60 else []
    return (*whole, *kept)
