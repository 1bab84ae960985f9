"""The second half of a large plain file, read by a second process.

It starts where the first would cut the file anyway: behind the last event that ends in the piece
before ``Second.after``. That is a guess, as the second process has not seen what comes before; it
holds if the first process, which has, arrives at the same byte. The rows then are those of one
process to the last number. Whatever goes wrong with the second process, the first reads alone.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import IO, Any, BinaryIO

from detector.errors import TraceError
from detector.kineto.blocks import Blocks
from detector.kineto.columns import Builder
from detector.kineto.intake import Counts, Intake
from detector.kineto.limits import Limits
from detector.kineto.stream import GZIP, PIECE

LARGE = 64 << 20  # bytes from which the second process pays for its start
_HEAD_START = 30 << 20  # bytes that this process reads while the other starts
_CODE = "from detector.kineto import halves; halves.serve()"


class Lost(Exception):
    """The second process did not deliver: read again, in one."""


class Second:
    """The second process, seen from the first."""

    def __init__(self, process: subprocess.Popen[bytes], after: int) -> None:
        assert process.stdout is not None
        self.after = after
        self._answer: IO[bytes] = process.stdout

    def began(self) -> int:
        """How many bytes before ``after`` it began; -1 where it found no place to."""
        try:
            return int(self._load())
        except Lost:
            return -1

    def counts(self, size: int) -> Counts:
        """Beside the rows. Raises Lost; also where it saw the file end elsewhere than ``size``."""
        end, counts = self._load()
        if end != size:
            raise Lost
        return Counts(*counts)

    def columns(self, builder: Builder) -> None:
        """Append its rows. Raises Lost."""
        try:
            builder.extend(self._load(), self._answer)
        except EOFError:
            raise Lost from None

    def _load(self) -> Any:
        try:
            return pickle.load(self._answer)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise Lost from None


@contextmanager
def begin(file: BinaryIO, path: str | Path | BinaryIO, limits: Limits) -> Iterator[Second | None]:
    """A second process at work on ``file``, ended on exit; None where there is no use for one."""
    size = os.fstat(file.fileno()).st_size if path is not file and _may_start() else 0
    if size < LARGE or os.pread(file.fileno(), len(GZIP), 0) == GZIP:
        yield None
        return
    after = (size + min(_HEAD_START, size // 4)) // 2 // PIECE * PIECE
    process = _started(file, after, limits)
    if process is None:
        yield None
        return
    try:
        yield Second(process, after)
    finally:
        process.kill()
        process.communicate()


def _may_start() -> bool:
    """Not where cores are lacking or already divided, nor where this Python is not a program."""
    return (
        hasattr(os, "pread")
        and hasattr(os, "sched_getaffinity")
        and len(os.sched_getaffinity(0)) > 1
        and not _is_worker()
        and "python" in Path(sys.executable or "").name
    )


def _is_worker() -> bool:
    # Asked of the module only where somebody imported it: a worker's process has.
    known = sys.modules.get("multiprocessing.process")
    return known is not None and known.parent_process() is not None


def _started(file: BinaryIO, after: int, limits: Limits) -> subprocess.Popen[bytes] | None:
    # A fresh interpreter, without site: forking a process that has threads is not safe.
    root = str(Path(__file__).parents[2])
    search = os.pathsep.join([root, *filter(None, sys.path)])
    try:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", _CODE, str(after), *map(str, astuple(limits))],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=root,
            env={**os.environ, "PYTHONPATH": search, "OPENBLAS_NUM_THREADS": "1"},
        )
    except (OSError, ValueError):
        return None


class _Rest:
    """The pieces of standard input from one place on; like Stream, which needs the beginning."""

    path = "<second half>"

    def __init__(self, at: int) -> None:
        self.at = at

    def __iter__(self) -> Iterator[bytes]:
        # The place in the file is shared with the other process: it is never moved here.
        while piece := os.pread(0, PIECE, self.at):
            self.at += len(piece)
            yield piece


def serve() -> None:
    """The second process: reads standard input from a place on, answers on standard output."""
    after, *limits = map(int, sys.argv[1:])
    answer = sys.stdout.buffer
    blocks = Blocks(_Rest(0), Limits(*limits))
    blocks.open()
    rest = _Rest(after)
    if not blocks.jump(os.pread(0, PIECE, after - PIECE), iter(rest)):
        return
    pickle.dump(blocks.held, answer)
    answer.flush()
    intake = Intake(blocks, Limits(*limits), rest.path)
    try:
        for block, last in blocks:
            intake.take(block, last)
    except TraceError:
        return
    intake.counts.tail = blocks.tail
    counts = intake.counts
    pickle.dump((rest.at, [getattr(counts, key) for key in counts.__dataclass_fields__]), answer)
    intake.builder.send(answer)
    answer.flush()
