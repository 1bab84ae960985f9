"""What the terminal's views share: rich's layout as plain or colored text."""

from __future__ import annotations

import io
import re
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

# A number and its unit stay on one line: a stand-in for the blank between them until lines are
# broken. rich breaks at every kind of blank; no name holds this character, as names are cleaned.
_JOINED: Final = "\ue000"
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|[µm]?s|[kMGT]?B(?:/s)?|[GT]FLOP/s)(?![A-Za-z]))")


def prose(text: str, style: str = "") -> Text:
    """Text to be wrapped, its numbers never apart from their units."""
    return Text(unbroken(text), style=style, overflow="fold")


def unbroken(text: str) -> str:
    """The text with stand-ins between numbers and units, for ``printed``."""
    return _UNIT.sub(_JOINED, text)


def printed(what: RenderableType, width: int, color: bool) -> str:
    """The text of a layout, without trailing blanks."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, 40),
        color_system="standard" if color else None,
        no_color=not color,
        force_terminal=color,
        force_jupyter=False,  # in a notebook rich would show it by itself
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(what, crop=False)  # code keeps its lines, however narrow the terminal
    text = out.getvalue().replace(_JOINED, " ")
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
