"""Copies of the working tree, as a fresh clone would be."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def clone(to: Path) -> Path:
    """Copies the working tree without an environment and without build leftovers."""
    left_out = shutil.ignore_patterns(
        ".git", ".venv*", "build", "dist", "outputs", "*.egg-info", "__pycache__", ".*_cache"
    )
    return Path(shutil.copytree(ROOT, to, ignore=left_out))
