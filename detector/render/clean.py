"""Names in a trace are untrusted: ``clean`` makes them harmless as text.

Each renderer escapes what its own format gives a meaning to.
"""

from __future__ import annotations

import unicodedata

LONGEST_NAME = 240
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: object, limit: int = LONGEST_NAME) -> str:
    """One line of visible characters: control codes, bidi marks and the like as ``\\x1b``."""
    out = str(text)[: limit + 1].replace("\n", " ").replace("\t", " ")
    if not out.isprintable():
        out = "".join(_visible(c) if unicodedata.category(c) in _HIDDEN else c for c in out)
    return out if len(out) <= limit else out[: limit - 1] + "…"


def _visible(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def clean_lines(text: str, most: int = 40) -> list[str]:
    """The lines of a piece of code, each cleaned; indentation kept."""
    lines = text.expandtabs(4).splitlines()
    return [clean(line) for line in lines[:most]] + (["…"] if len(lines) > most else [])
