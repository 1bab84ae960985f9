"""Writes docs/patterns/: a page for each pattern, and their index, from detector/patterns/.

Pictures are those that pattern_pictures.py has made.

python scripts/pattern_pages.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout whose patterns are described, installed or not

from detector.patterns import PATTERNS  # noqa: E402  the path first
from detector.render import pattern_page  # noqa: E402

FOLDER = ROOT / "docs" / "patterns"


def pages() -> dict[str, str]:
    """The files of the folder by name."""
    found = {f"{p.id}.md": pattern_page.page(p, picture=_picture(p.id)) for p in PATTERNS}
    return {"README.md": pattern_page.index(PATTERNS), **found}


def _picture(pattern: str) -> str:
    """Where `pattern_pictures.py` put one; empty where there is no recorded pair."""
    name = f"images/patterns/{pattern}.svg"
    return f"../{name}" if (FOLDER.parent / name).exists() else ""


def main() -> None:
    """Write the pages, and remove those of patterns that are gone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
