"""Answers on disk, keyed by everything that was sent: a second scan asks nothing.

Only the model's answers lie there, never the evidence.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Final

from detector.judge.wire import Reply

_NAME: Final = "trace-antipattern-detector"
_PRUNED_TO: Final = 0.8  # of the limit, so that not every answer prunes again


def default_folder() -> Path:
    """Where caches of the user belong."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / _NAME / "judge"


class Cache:
    """Replies by key in ``folder``, at most ``most_bytes`` of them: the oldest leave first.

    A folder that cannot be written or a file that cannot be read is as if it were not there.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder, self.most_bytes = folder, most_bytes

    def key(self, *sent: str | bytes) -> str:
        """A hash of everything that was sent: where, how, what."""
        parts = [p.encode() if isinstance(p, str) else p for p in sent]
        whole = b"".join(len(p).to_bytes(8, "big") + p for p in parts)
        return hashlib.sha256(whole).hexdigest()

    def get(self, key: str) -> Reply | None:
        """The reply kept under a key."""
        try:
            found = json.loads(self._file(key).read_bytes())
            reply = Reply(**found)
        except (OSError, ValueError, TypeError):
            return None
        valid = isinstance(reply.text, str) and type(reply.input_tokens) is int
        return reply if valid and type(reply.output_tokens) is int else None

    def put(self, key: str, reply: Reply) -> None:
        """Keep a reply: complete or not at all."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, partial = tempfile.mkstemp(dir=self.folder, suffix=".part")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(asdict(reply), file)
            Path(partial).replace(self._file(key))
            self._prune()

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _prune(self) -> None:
        files = [(f.stat().st_mtime, f.stat().st_size, f) for f in self.folder.iterdir()]
        total = sum(size for _, size, _ in files)
        if total <= self.most_bytes:
            return
        for _, size, file in sorted(files, key=lambda row: row[0]):
            if total <= _PRUNED_TO * self.most_bytes:
                return
            file.unlink(missing_ok=True)
            total -= size
