"""Lines of a log file, plain or gz, with bounded memory whatever the file holds."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, cast

from detector.errors import TraceError

LONGEST: Final = 1 << 16  # a longer line is cut into pieces: no message is that long
_GZ: Final = b"\x1f\x8b"


def opened(path: Path) -> IO[bytes]:
    """The file's bytes; gz is told by the content."""
    file = path.open("rb")
    if file.read(2) == _GZ:
        file.seek(0)
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    file.seek(0)
    return file


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes, as far as they can be read. Raises OSError."""
    with opened(path) as file:
        try:
            return file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TraceError(f"{path}: damaged gz, nothing readable") from error


def lines(path: Path) -> Iterator[str]:
    """Lines without their end; a damaged gz ends where it breaks. Raises OSError."""
    with opened(path) as file:
        buffered = io.BufferedReader(cast(io.RawIOBase, file), 1 << 20)
        while True:
            try:
                line = buffered.readline(LONGEST)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                return
            if not line:
                return
            yield line.decode("utf-8", "replace").rstrip("\r\n")
