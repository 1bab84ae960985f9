"""Stored bytes -> JSON bytes: plain or gz by content, hashed on the way, in bounded memory."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import chain, cycle
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import TYPE_CHECKING, BinaryIO

from detector.errors import TraceError
from detector.kineto.limits import Limits

if TYPE_CHECKING:
    from zlib import _Decompress as _Inflater

PIECE = 1 << 20  # of JSON: small pieces stay in the cache and parse 1.5 times as fast
_STORED = 2 << 20  # of the file, read at once
_PACKED = 64 << 10  # passed to zlib at once: it copies what it does not use
_AHEAD = 2  # pieces that the working thread may be ahead
_PATIENCE = 1.0  # seconds to wait for it at the end
GZIP = b"\x1f\x8b"
_Piece = bytes | memoryview


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
    ``sha256``, of the stored bytes, is there once the pieces are used up.
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
        self.sha256 = ""
        self._file = file
        self._limit = limits.max_bytes
        self._progress = progress
        self._total = _file_size(file)
        self._room = Semaphore(_AHEAD)
        self._abandoned = False
        self._thread: Thread | None = None

    def __iter__(self) -> Iterator[_Piece]:
        """Pieces of at most PIECE bytes, each valid until the next one is requested."""
        ready: SimpleQueue[tuple[_Piece, int] | BaseException | None] = SimpleQueue()
        self._thread = Thread(target=self._work, args=(ready,), daemon=True)
        self._thread.start()
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            piece, stored = item
            if self._progress is not None and self._total:
                self._progress(min(1.0, stored / self._total))
            for at in range(0, len(piece), PIECE):
                part = piece[at : at + PIECE]
                self.size += len(part)
                if self.size > self._limit:
                    raise TraceError(
                        f"{self.path}: more than {self._limit} bytes of JSON (max_bytes)"
                    )
                yield part
            self._room.release()

    def close(self) -> None:
        """End the working thread, even where pieces are left."""
        self._abandoned = True
        self._room.release()
        if self._thread is not None:
            self._thread.join(_PATIENCE)  # it may be waiting for a pipe

    def _work(self, ready: SimpleQueue[tuple[_Piece, int] | BaseException | None]) -> None:
        """Read, hash and inflate, a few pieces ahead of who parses them."""
        try:
            stored = self._stored_pieces()
            first = next(stored, memoryview(b""))
            pieces = chain((first,), stored)
            for piece in self._inflate(pieces) if first[:2] == GZIP else pieces:
                ready.put((piece, self.stored))
                self._room.acquire()
                if self._abandoned:
                    return
            ready.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again where the pieces are used
            ready.put(error)

    def _stored_pieces(self) -> Iterator[memoryview]:
        from hashlib import sha256  # loads OpenSSL, while the other thread does something else

        digest = sha256()
        # One more than may be ahead, so that a piece in use is never overwritten.
        buffers = cycle([memoryview(bytearray(_STORED)) for _ in range(_AHEAD + 1)])
        for buffer in buffers:
            piece = buffer[: self._fill(buffer)]
            if not piece:
                break
            self.stored += len(piece)
            yield piece
            digest.update(piece)
        self.sha256 = digest.hexdigest()

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

    def _inflate(self, stored: Iterator[memoryview]) -> Iterator[bytes]:
        # Members may follow one another; zeros may pad the end (both legal, gzip(1) takes them).
        member = zlib.decompressobj(wbits=31)
        slices = _slices(stored)
        for data in slices:
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
                    self.unread += sum(map(len, slices))
                    return
                if out:
                    yield out
                data = member.unused_data if member.eof else member.unconsumed_tail
        if not member.eof:
            yield member.flush()
            self.broken = "truncated gz"

    def _trickle(self, member: _Inflater, data: bytes) -> Iterator[bytes]:
        """Decompress byte by byte up to the damage: zlib returns nothing from a failing call."""
        self.broken = "damaged gz"
        for at in range(len(data)):
            try:
                out = member.decompress(data[at : at + 1])
            except zlib.error:
                self.unread = len(data) - at
                return
            if out:
                yield out


def _slices(stored: Iterator[memoryview]) -> Iterator[_Piece]:
    for piece in stored:
        for at in range(0, len(piece), _PACKED):
            yield piece[at : at + _PACKED]


def _file_size(file: BinaryIO) -> int:
    try:
        return os.fstat(file.fileno()).st_size
    except (OSError, AttributeError, ValueError):
        return 0  # a pipe, or a stream that is no file: no progress to tell
