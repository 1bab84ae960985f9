"""Jobs of several ranks in the benchmark: a folder each, with every rank's trace and a label."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parent / "recorded" / "jobs"


def published(out: Path, recorded: Path = RECORDED) -> list[dict[str, Any]]:
    """Copy the recorded jobs into ``out/jobs``; each as its label says, with its files' hashes."""
    found = []
    for label in sorted(recorded.glob("*/label.json")):
        folder = out / "jobs" / label.parent.name
        shutil.copytree(label.parent, folder, dirs_exist_ok=True)
        files = {f"jobs/{folder.name}/{f.name}": _sha256(f) for f in sorted(folder.iterdir())}
        found.append(json.loads(label.read_text(encoding="utf-8")) | {"files": files})
    return found


def wrong(folder: Path, jobs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Files of jobs that are not there, are not the manifest's, or that it does not know."""
    known = {file: sha256 for job in jobs for file, sha256 in job["files"].items()}
    there = {f.relative_to(folder).as_posix() for f in folder.glob("jobs/*/*")}
    yield from (f"{folder / file}: not in the manifest" for file in sorted(there - {*known}))
    for file, sha256 in known.items():
        if file not in there:
            yield f"{folder / file}: missing"
        elif _sha256(folder / file) != sha256:
            yield f"{folder / file}: not the file of the manifest"


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
