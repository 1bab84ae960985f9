"""JSON bytes -> header, blocks of whole events, tail.

A block is cut where one event ends and the next begins, which is recognized by how the file's first
event begins. If that follows a newline, the cut is safe: JSON strings have no raw newline, and
deeper objects are indented more. In a file of one line it is a guess, which parsing the block
checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from detector.errors import TraceError
from detector.kineto.limits import Limits
from detector.kineto.stream import PIECE

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_OPENING = re.compile(rb'([ \t\r\n]*)(\{\s*"[^"\\]{0,40}")')
_LIST = re.compile(rb"\[\s*(?:[\[\]{\"\d-]|\Z)")  # not a log line: "[W1105 ..."
_BOM = b"\xef\xbb\xbf"
_GUESSES = (b'}, {"', b'},{"', b"},\n", b"},\r\n")


class Pieces(Protocol):
    """Where the bytes come from, and what to call it."""

    @property
    def path(self) -> str: ...

    def __iter__(self) -> Iterator[bytes | memoryview]: ...


class Blocks:
    """Iterate for blocks; ``header`` and ``tail`` are the bytes around the event array.

    The buffer is reused: a block is valid until the next one is requested.
    """

    def __init__(self, stream: Pieces, limits: Limits) -> None:
        self.header = b""
        self.tail = b""
        self.found = False  # an array of events
        self._pieces = iter(stream)
        self._path = stream.path
        self._limit = limits.max_event_bytes
        self._markers: tuple[bytes, ...] = _GUESSES
        self._ended = False
        self._buffer = bytearray(2 * PIECE)
        self._floor = 0  # bytes after the start among which there is no good cut
        self._start = 1  # of what is in the buffer; the byte before it is free for a bracket
        self._stop = 1

    def __iter__(self) -> Iterator[tuple[memoryview, bool]]:
        """(a JSON array of whole events, False), then (a bracket and the rest, True).

        The rest reaches past the end of the array, unless that ended before.
        """
        if not self.found:
            self.open()
        while self.found and not self._ended:
            cut = self._cut()
            if cut < 0:
                if self._more():
                    continue
                self._buffer[self._start - 1] = ord("[")
                begin, self._start = self._start - 1, self._stop
                yield memoryview(self._buffer)[begin : self._stop], True
                return
            self._floor = 0
            self._buffer[self._start - 1] = ord("[")
            self._buffer[cut] = ord("]")
            begin, self._start = self._start - 1, cut + 1
            yield memoryview(self._buffer)[begin : cut + 1], False
        for piece in self._pieces:
            self._keep_tail(bytes(piece))

    def end(self, tail: bytes) -> None:
        """The array ended inside the block just given; ``tail`` is what came after it there."""
        self._ended = True
        self._keep_tail(tail + bytes(self._buffer[self._start : self._stop]))

    def give_back(self, count: int) -> None:
        """The block just given ended inside an event, of which it had ``count`` bytes."""
        self._buffer[self._start - 1] = ord(",")
        self._start -= count + 1
        self._floor = 2 * (count + 1)  # twice the text, so that not every piece is parsed again

    def release(self) -> None:
        """Free the memory; nothing can be read after this."""
        self._ended = True
        self._buffer = bytearray()

    def _keep_tail(self, piece: bytes) -> None:
        self.tail += piece
        if len(self.tail) > self._limit:
            raise self._too_long("the metadata after the events")

    def _too_long(self, what: str) -> TraceError:
        return TraceError(
            f"{self._path}: {what} is longer than {self._limit} bytes (max_event_bytes)"
        )

    def _more(self) -> bool:
        """Append the next piece to what is in the buffer."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        left = self._stop - self._start
        if left + len(piece) > self._limit + PIECE:
            raise self._too_long("an event, or what stands before the first,")
        if self._stop + len(piece) > len(self._buffer):
            # Move the rest to the front, or into a larger buffer where it is too long.
            size = max(len(self._buffer), 2 * (left + len(piece)))
            target = self._buffer if size == len(self._buffer) else bytearray(size)
            target[1 : 1 + left] = self._buffer[self._start : self._stop]
            self._buffer, self._start, self._stop = target, 1, 1 + left
        self._buffer[self._stop : self._stop + len(piece)] = piece
        self._stop += len(piece)
        return True

    def open(self) -> None:
        """Read up to the first event, and learn how events begin in this file."""
        seen = 0
        while self._more():
            if not seen:
                head = bytes(self._buffer[self._start : self._stop])
                self._start = self._stop - len(head.removeprefix(_BOM).lstrip())
            if self._start == self._stop:
                self._start = self._stop = 1
                continue
            seen = seen or self._start
            if _LIST.match(self._buffer, self._start, self._stop):
                self._start += 1
                break
            match = _ARRAY.search(self._buffer, max(self._start, seen - 64), self._stop)
            if match:
                self.header = bytes(self._buffer[self._start : match.start()])
                self._start = match.end()
                break
            seen = self._stop
        else:
            self.header = bytes(self._buffer[self._start : self._stop])
            return
        self.found = True
        self._learn()

    def _learn(self) -> None:
        match = _OPENING.match(self._buffer, self._start, self._stop)
        while match is None and self._stop - self._start < 4096 and self._more():
            match = _OPENING.match(self._buffer, self._start, self._stop)
        if match is None:
            return
        space, key = match.groups()
        if b"\n" in space:
            newline = b"\r\n" if b"\r\n" in space else b"\n"
            self._markers = (b"}," + newline + space[space.rfind(b"\n") + 1 :] + b"{",)
        else:
            self._markers = (b"}, " + key, b"}," + key)

    def _cut(self) -> int:
        """Index of the comma after the last whole event; -1 where none is whole."""
        begin = self._start + self._floor
        cut = max(self._buffer.rfind(marker, begin, self._stop) for marker in self._markers)
        if cut < 0 and self._stop - begin > PIECE:
            # Events that begin unlike the first: guess, and let the parse check.
            cut = max(self._buffer.rfind(guess, begin, self._stop) for guess in _GUESSES)
        return cut + 1 if cut >= 0 else -1
