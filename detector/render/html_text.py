"""What every HTML page shares: escaping, and a document that lets in its own parts only."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files

from detector.render.clean import LONGEST_NAME, clean


def text(value: object, limit: int = LONGEST_NAME) -> str:
    """A text of a trace: one line, visible characters, escaped."""
    return escape(clean(value, limit))


def document(title: str, body: Iterable[str], *, data: object = None) -> str:
    """The whole page. ``data`` is what its script works on; without it there is no script.

    The page's own policy holds the hashes of its style and its script: the browser runs nothing
    else and loads nothing at all.
    """
    style = _part("report.css")
    script = _part("report.js") if data is not None else ""
    allowed = f"style-src {_hash(style)}" + (f"; script-src {_hash(script)}" if script else "")
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    inside = "\n".join(body)
    end = f"{_data(data)}\n<script>{script}</script>\n" if script else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{text(title)}</title>
<style>{style}</style>
</head>
<body>
{inside}
{end}</body>
</html>
"""


def _part(name: str) -> str:
    return files("detector.render").joinpath(name).read_text("utf-8")


def _hash(part: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"


def _data(data: object) -> str:
    """A block that no browser runs; nothing in it can end it."""
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for char in "<>&":
        plain = plain.replace(char, f"\\u{ord(char):04x}")
    return f'<script type="application/json" id="data">{plain}</script>'


# -- bars ------------------------------------------------------------------------------------------

WIDTH = 1000.0  # units of a row of bars


def rect(x: float, width: float, kind: str, opacity: float = 1.0) -> str:
    """A bar of a row."""
    faint = "" if opacity >= 1 else f' fill-opacity="{opacity:.2f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="0" width="{width:.1f}" height="20"{faint}/>'


def svg(kind: str, rects: Iterable[str]) -> str:
    """A row of bars as wide as the page."""
    view = f'viewBox="0 0 {WIDTH:.0f} 20" preserveAspectRatio="none"'
    return f'<svg class="{kind}" {view} aria-hidden="true">{"".join(rects)}</svg>'


def strip(name: str, rects: str) -> str:
    """A row of bars with its name before it."""
    label = f'<span class="label">{escape(name)}</span>'
    return f'<div class="row">{label}{svg("strip", [rects])}</div>'
