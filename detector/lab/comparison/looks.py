"""The log of looks at test data: one line for each run, and what was decided after it, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

HEADS: Final = ("date", "commit", "command", "parts read", "what was decided after it")
TITLE: Final = """# Looks at the test set

Each run that measures on test data adds a line. The last column is filled in by hand: what was
changed, chosen or left because of what was seen. A figure that a choice was made by is no longer
one of unseen data.
"""


def add(file: Path, date: str, commit: str, command: str, parts: Sequence[str]) -> int:
    """Append a look; returns how many there are now."""
    text = file.read_text("utf-8") if file.is_file() else f"{TITLE}\n{_row(HEADS)}\n{_rule()}\n"
    row = _row((date, commit, f"`{command}`", ", ".join(parts), ""))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text.rstrip()}\n{row}\n", "utf-8")
    return count(file)


def count(file: Path) -> int:
    """How many looks a log holds; 0 where there is none."""
    if not file.is_file():
        return 0
    rows = [line for line in file.read_text("utf-8").splitlines() if line.startswith("|")]
    return max(0, len(rows) - 2)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _rule() -> str:
    return _row(["---"] * len(HEADS))
