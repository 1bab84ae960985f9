"""What was probably meant by a word that names nothing."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def hint(word: str, known: Sequence[str]) -> str:
    """The end of an error about a pattern: the one that is nearest, or where to look."""
    close = difflib.get_close_matches(word, known, n=1)
    close = close or [name for name in known if word and word in name][:1]
    return f": did you mean {close[0]}?" if close else ": `trace-scan rules` lists them"
