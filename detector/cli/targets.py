"""The traces that the words of a command line name: files, folders, globs, standard input."""

from __future__ import annotations

import contextlib
import glob
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from detector import gz
from detector.errors import TraceError

STDIN = "-"

_SUFFIXES = (".json", ".gz", ".tmp", ".trace", ".pt")  # looked into when a folder is searched
_HEAD = 1 << 16  # bytes of a file that show whether it is a trace
_MARKS = (b'"traceEvents"', b'"ph"', b'"schemaVersion"', b'"deviceProperties"')


@dataclass(frozen=True)
class Target:
    """One trace to scan: what the user calls it, and its file (None: standard input)."""

    label: str
    path: Path | None

    @property
    def readable_once(self) -> bool:
        """A pipe: whatever reads it twice needs a copy."""
        return self.path is None or not self.path.is_file()


def distinct(targets: Sequence[Target]) -> list[Target]:
    """Each file once, as it was first named."""
    found: dict[str, Target] = {}
    for target in targets:
        found.setdefault(str(target.path.resolve()) if target.path else STDIN, target)
    return list(found.values())


def find_traces(word: str) -> list[Target]:
    """The traces of one word. Raises TraceError when there are none."""
    if word == STDIN:
        return [Target("<stdin>", None)]
    path = Path(word)
    if path.is_dir():
        return _in_folder(path)
    if path.exists():
        return [Target(word, path)]
    if not glob.has_magic(word):
        raise TraceError(f"{word}: no such file")
    matches = [Path(m) for m in sorted(glob.glob(word, recursive=True))]  # noqa: PTH207 (absolute patterns)
    targets = [Target(str(m), m) for m in matches if m.is_file()]
    if not targets:
        raise TraceError(f"{word}: nothing matches")
    return targets


def _in_folder(folder: Path) -> list[Target]:
    files = sorted(
        Path(root, name)
        for root, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(_SUFFIXES) and not name.startswith(".")
    )
    targets = [Target(str(file), file) for file in files if _looks_like_trace(file)]
    if not targets:
        looked = f"{len(files)} with a name in {' '.join(_SUFFIXES)}"
        raise TraceError(f"{folder}: no trace among the files of this folder ({looked})")
    return targets


def _looks_like_trace(path: Path) -> bool:
    """Whether the first bytes are JSON, plain or gzipped, with a mark of a trace; not our copy. An
    empty file counts, as an export that failed: reading it will say so."""
    if path.name == "annotated.json.gz" and (path.parent / "report.json").exists():
        return False
    try:
        with path.open("rb") as file:
            head = next(gz.pieces(file, 4 * _HEAD), None)
    except OSError:
        return True  # reading it will say why
    if head is None:
        return path.suffix in (".json", ".gz") and not path.stat().st_size
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") and any(
        m in head for m in _MARKS
    )


@contextlib.contextmanager
def opened(target: Target, *, keep: bool) -> Iterator[tuple[Path | BinaryIO, Path | None]]:
    """What to read, and the file to read a second time; a pipe is copied when ``keep`` is set."""
    if not target.readable_once:
        yield target.path or sys.stdin.buffer, target.path
    elif not keep:
        yield target.path or sys.stdin.buffer, None
    else:
        import shutil

        with tempfile.NamedTemporaryFile(prefix="trace-") as copy:
            with contextlib.ExitStack() as stack:
                pipe = stack.enter_context(target.path.open("rb")) if target.path else None
                shutil.copyfileobj(pipe or sys.stdin.buffer, copy)
            copy.flush()
            yield Path(copy.name), Path(copy.name)
