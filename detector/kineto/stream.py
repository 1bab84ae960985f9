"""Stored bytes -> JSON bytes: plain or gz told by content, hashed on the way, bounded memory."""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from detector.errors import TraceError
from detector.kineto.limits import Limits

if TYPE_CHECKING:
    from zlib import _Decompress as _Inflater

PIECE = 512 << 10  # of JSON: small pieces stay in the cache, and parse 1.5 times as fast
# Of the file: large enough that the hashing thread is seldom waited for.
_STORED = 4 << 20
_PACKED = 64 << 10  # given to zlib at once: it copies what it does not use
GZIP = b"\x1f\x8b"


def open_source(source: str | Path | BinaryIO) -> tuple[BinaryIO, str]:
    """The stream to read and the words that name it. ``-`` is standard input."""
    if not isinstance(source, (str, Path)):
        return source, str(getattr(source, "name", "<stream>"))
    if str(source) == "-":
        return sys.stdin.buffer, "<stdin>"
    try:
        return open(source, "rb", buffering=0), str(source)
    except OSError as error:
        raise TraceError(f"{source}: {error.strerror or error}") from None


class Stream:
    """The JSON bytes of one file, piece by piece; read once.

    ``stored`` counts the bytes of the file, ``size`` the bytes of JSON. ``broken`` says why
    decompression stopped before the file did, ``unread`` how many stored bytes lie behind that.
    """

    def __init__(
        self,
        file: BinaryIO,
        path: str,
        limits: Limits,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.path = path
        self.stored = 0
        self.size = 0
        self.broken: str | None = None
        self.unread = 0
        self._file = file
        self._limit = limits.max_bytes
        self._progress = progress
        self._total = _file_size(file)
        self._sha = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Of the stored bytes; complete once the pieces are used up."""
        return self._sha.hexdigest()

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Pieces of at most PIECE bytes, each valid until the next is asked for."""
        stored = self._stored_pieces()
        first = next(stored, memoryview(b""))
        packed = first[:2] == GZIP
        pieces = self._slices(first, stored, _PACKED if packed else PIECE)
        for piece in self._inflate(pieces) if packed else pieces:
            self.size += len(piece)
            if self.size > self._limit:
                raise TraceError(f"{self.path}: more than {self._limit} bytes of JSON (max_bytes)")
            yield piece

    def _stored_pieces(self) -> Iterator[memoryview]:
        # hashlib lets go of the interpreter lock: one thread hashes while this one parses.
        buffers = [memoryview(bytearray(_STORED)) for _ in range(2)]
        with ThreadPoolExecutor(1) as pool:
            pending: Future[None] | None = None
            while True:
                piece = buffers[0][: self._fill(buffers[0])]
                if pending is not None:
                    pending.result()
                if not piece:
                    return
                pending = pool.submit(self._sha.update, piece)
                self.stored += len(piece)
                if self._progress is not None and self._total:
                    self._progress(min(1.0, self.stored / self._total))
                buffers.reverse()
                yield piece

    def _fill(self, buffer: memoryview) -> int:
        """Read until the buffer is full: pipes give little at a time."""
        filled = 0
        try:
            while filled < len(buffer):
                got = self._read_into(buffer[filled:])
                if not got:
                    break
                filled += got
        except (OSError, ValueError) as error:
            raise TraceError(f"{self.path}: {getattr(error, 'strerror', None) or error}") from None
        return filled

    def _read_into(self, buffer: memoryview) -> int:
        into = getattr(self._file, "readinto", None)
        if into is not None:
            return into(buffer) or 0
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _slices(
        self, first: memoryview, rest: Iterator[memoryview], size: int
    ) -> Iterator[memoryview]:
        piece = first
        while piece:
            for at in range(0, len(piece), size):
                yield piece[at : at + size]
            piece = next(rest, memoryview(b""))

    def _inflate(self, stored: Iterator[memoryview]) -> Iterator[bytes]:
        # Members may follow one another; zeros may pad the end (both legal, gzip(1) takes them).
        member = zlib.decompressobj(wbits=31)
        for piece in stored:
            data: bytes | memoryview = piece
            while data:
                if member.eof:
                    data = bytes(data).lstrip(b"\0")
                    if not data:
                        break
                    member = zlib.decompressobj(wbits=31)
                intact = member.copy()
                try:
                    out = member.decompress(data, PIECE)
                except zlib.error:
                    yield from self._trickle(intact, bytes(data))
                    self.unread += sum(map(len, stored))
                    return
                if out:
                    yield out
                data = member.unused_data if member.eof else member.unconsumed_tail
        if not member.eof:
            yield member.flush()
            self.broken = "truncated gz"

    def _trickle(self, member: _Inflater, data: bytes) -> Iterator[bytes]:
        """What still comes out before the damage: zlib gives nothing of a call that fails."""
        self.broken = "damaged gz"
        for at in range(len(data)):
            try:
                out = member.decompress(data[at : at + 1])
            except zlib.error:
                self.unread = len(data) - at
                return
            if out:
                yield out


def _file_size(file: BinaryIO) -> int:
    try:
        return os.fstat(file.fileno()).st_size
    except (OSError, AttributeError, ValueError):
        return 0  # a pipe, or a stream that is no file: no progress to tell
