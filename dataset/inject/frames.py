"""Python frames: names as this trace's tracer writes them, and where programs call ops."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from dataset.inject.base import Base
from dataset.inject.edits import Call
from detector import vocabulary
from detector.trace import Bool, Cat, Int64

_USER: Final = ("train.py", "main.py", "run.py", "src/trainer.py", "engine.py")
_NO_CODE: Final = re.compile(r"^(<|nn\.Module|torch/)")  # a frame whose code is PyTorch's own
_DEPTH: Final = 4  # annotations and built-ins between an op and the code that calls it


def builtin(
    base: Base,
    name: str,
    inside: tuple[Call, ...],
    of: str = "Tensor object",
    own: int = 1_000,
) -> tuple[Call, ...]:
    """A built-in method's frame. The tracer gives every call of one the address it saw first."""
    text = f"<built-in method {name} of {of} at 0x"
    known = _first_frame(base, re.escape(text))
    address = f"7f{zlib.crc32(f'{base.name}{text}'.encode()) << 4:010x}"
    return base.frame(known or f"{text}{address}>", inside, own)


def library(
    base: Base, file: str, function: str, inside: tuple[Call, ...], own: int = 1_000
) -> tuple[Call, ...]:
    """A library's frame: with the line that this trace gives for it, else one that may be."""
    line = 20 + zlib.crc32(f"{file}{function}".encode()) % 700
    known = _first_frame(base, rf"^{re.escape(file)}\(\d+\): {re.escape(function)}$")
    return base.frame(known or f"{file}({line}): {function}", inside, own)


_FRAMES: WeakKeyDictionary[Base, dict[str, str]] = WeakKeyDictionary()


def _first_frame(base: Base, pattern: str) -> str:
    """The first frame of this trace whose name matches; "" where none does."""
    known = _FRAMES.setdefault(base, {})
    if pattern not in known:
        rows = base.activity.of(Cat.PYTHON_FUNCTION)
        rows = base.activity.named(rows, re.compile(pattern), Cat.PYTHON_FUNCTION)
        known[pattern] = base.trace.names[base.trace.name[rows[0]]] if len(rows) else ""
    return known[pattern]


def site(base: Base, functions: Sequence[str], draw: np.random.Generator) -> str:
    """A place in the program's own code, one of the files that this trace shows if it shows any."""
    files = _user_files(base) or _USER
    file, function = (names[int(draw.integers(len(names)))] for names in (files, functions))
    return f"{file}({draw.integers(20, 400)}): {function}"


def _user_files(base: Base) -> list[str]:
    frames = base.activity.of(Cat.PYTHON_FUNCTION)
    names = {base.trace.names[i] for i in np.unique(base.trace.name[frames])}
    own = [
        vocabulary.PYTHON_FRAME.match(n) for n in names if not vocabulary.LIBRARY_FRAME.search(n)
    ]
    return sorted({m["file"] for m in own if m and m["file"].endswith(".py")})[:8]


def in_calling_code(base: Base, times: Int64) -> Bool:
    """For times on the main thread, whether the innermost frame is of code that calls ops: a
    ``forward``, a training loop, rather than some property or container."""
    current = _innermost(base, times)
    calling: Bool = np.isin(current, _callers(base))
    return calling


def _innermost(base: Base, times: Int64) -> Int64:
    """Row of the frame around each time that began last; -1 where there is none."""
    trace, frames = base.trace, _of_main(base)
    if not len(frames):
        return np.full(len(times), -1, np.int64)
    at = np.searchsorted(trace.start[frames], times, side="left") - 1
    current = np.where(at >= 0, frames[np.maximum(at, 0)], -1)
    while (ended := (current >= 0) & (trace.end[current] <= times)).any():
        current[ended] = trace.parent[current[ended]]
    return current


def _callers(base: Base) -> Int64:
    """Frames that call ops, directly or through a built-in."""
    trace, ops = base.trace, base.activity.top_ops
    above = trace.parent[ops[trace.track[ops] == base.main]].astype(np.int64)
    bare = base.activity.named(_of_main(base), _NO_CODE, Cat.PYTHON_FUNCTION)
    own = np.setdiff1d(_of_main(base), bare)
    for _ in range(_DEPTH):
        between = (above >= 0) & ~np.isin(above, own)
        above[between] = trace.parent[above[between]]
    found: Int64 = np.intersect1d(above, own)
    return found


def _of_main(base: Base) -> Int64:
    frames = base.activity.of(Cat.PYTHON_FUNCTION)
    found: Int64 = frames[base.trace.track[frames] == base.main]
    return found
