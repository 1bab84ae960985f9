"""Lines of a log file, plain or gz, with bounded memory whatever the file holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from detector import gz

LONGEST: Final = 1 << 16  # a longer line is cut into pieces: no message is that long


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes, as many as there are. Raises OSError."""
    with path.open("rb") as file:
        return next(gz.pieces(file, size), b"")


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from gz.pieces(file)


def is_cut(path: Path) -> bool:
    """Whether it ends within a line, as the log of a running job may. Raises OSError."""
    last = b""
    for chunk in _chunks(path):
        last = chunk[-1:] or last
    return last not in (b"", b"\n")


def lines(path: Path) -> Iterator[str]:
    """Lines without their end. Raises OSError."""
    rest = b""
    for chunk in _chunks(path):
        whole = (rest + chunk).split(b"\n")
        rest = whole.pop()
        for line in whole:
            yield from _pieces(line)
        while len(rest) > LONGEST:
            yield from _pieces(rest[:LONGEST])
            rest = rest[LONGEST:]
    if rest:
        yield from _pieces(rest)


def _pieces(line: bytes) -> Iterator[str]:
    text = line.decode("utf-8", "replace").rstrip("\r")
    if len(text) <= LONGEST:
        yield text
    else:
        yield from (text[at : at + LONGEST] for at in range(0, len(text), LONGEST))
