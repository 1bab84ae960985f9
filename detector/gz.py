"""The bytes of a file, plain or gz as its content says, whatever its name."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

_MAGIC: Final = b"\x1f\x8b"


def pieces(file: BinaryIO, size: int = 1 << 20) -> Iterator[bytes]:
    """The unpacked bytes, at most ``size`` at a time; a damaged gz ends where it breaks.

    Raises OSError.
    """
    packed = file.read(2) == _MAGIC
    file.seek(0)
    if not packed:
        while piece := file.read(size):
            yield piece
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
