"""What each trace gave, kept in files, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from detector import __version__, scan_file
from detector.errors import DetectorError
from detector.jobs.rank import RankTrace
from detector.report import from_json, to_json
from detector.scan_file import Scanned


class _Kept(msgspec.Struct):
    """What a file holds of a ``Scanned``; errors are not kept."""

    report: str
    rank: RankTrace | None


def scan_path(
    keep: str, path: str, label: str, overrides: Sequence[str], config_dir: Path | None
) -> Scanned | Exception:
    """``scan_file.scan_path``, or what an earlier run kept of the same file, settings and version
    in the folder ``keep``. A file that cannot be read is as none."""
    file = Path(keep, _key(path, label, overrides, config_dir))
    try:
        kept = msgspec.msgpack.decode(file.read_bytes(), type=_Kept, dec_hook=_array)
        return Scanned(from_json(kept.report), kept.rank)
    except (OSError, msgspec.DecodeError, DetectorError):
        pass
    found = scan_file.scan_path(path, label, overrides, config_dir)
    if isinstance(found, Scanned):
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")  # a run that is killed leaves no half file
        kept = _Kept(to_json(found.report), found.rank)
        part.write_bytes(msgspec.msgpack.encode(kept, enc_hook=_plain))
        part.replace(file)
    return found


def _key(path: str, label: str, overrides: Sequence[str], config_dir: Path | None) -> str:
    state = Path(path).stat()
    said = [__version__, path, label, *overrides, config_dir, state.st_size, state.st_mtime_ns]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:32] + ".scanned"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.tobytes())
    raise NotImplementedError(type(value).__name__)


def _array(kind: Any, value: Any) -> Any:
    dtype, raw = value
    return np.frombuffer(raw, np.dtype(dtype))
