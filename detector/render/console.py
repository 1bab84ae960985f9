"""What the terminal's views share: rich's layout as plain or coloured text."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def printed(what: RenderableType, width: int, colour: bool) -> str:
    """The text of a layout, without trailing blanks."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, 40),
        color_system="standard" if colour else None,
        no_color=not colour,
        force_terminal=colour,
        force_jupyter=False,  # in a notebook rich would show it by itself
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(what, crop=False)  # code keeps its lines, however narrow the terminal
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
