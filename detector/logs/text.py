"""Lines of a log file, plain or gz, with bounded memory whatever the file holds."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LONGEST: Final = 1 << 16  # a longer line is cut into pieces: no message is that long
_CHUNK: Final = 1 << 20
_GZ: Final = b"\x1f\x8b"


def chunks(path: Path, size: int = _CHUNK) -> Iterator[bytes]:
    """The file's bytes; gz is recognised by the content, and a damaged one ends where it breaks.

    Raises OSError.
    """
    with path.open("rb") as file:
        packed = file.read(2) == _GZ
        file.seek(0)
        if not packed:
            while chunk := file.read(size):
                yield chunk
            return
        pending, inflate = b"", zlib.decompressobj(wbits=31)
        while pending or (pending := file.read(size)):
            try:
                yield inflate.decompress(pending, size)
            except zlib.error:
                return
            pending = inflate.unconsumed_tail
            if inflate.eof:  # a gz may have several members
                pending, inflate = inflate.unused_data, zlib.decompressobj(wbits=31)


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes, as many as there are. Raises OSError."""
    return next(chunks(path, size), b"")


def is_cut(path: Path) -> bool:
    """Whether it ends within a line, as the log of a running job may. Raises OSError."""
    last = b""
    for chunk in chunks(path):
        last = chunk[-1:] or last
    return last not in (b"", b"\n")


def lines(path: Path) -> Iterator[str]:
    """Lines without their end. Raises OSError."""
    rest = b""
    for chunk in chunks(path):
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
