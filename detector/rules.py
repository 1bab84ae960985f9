"""``trace-scan rules`` and ``trace-scan rule PATTERN``: what is looked for, without a trace."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from detector.errors import DetectorError


def list_all(argv: Sequence[str]) -> int:
    """Every pattern: id, kind, title."""
    parser = argparse.ArgumentParser(
        prog="trace-scan rules", description="List the patterns that a scan looks for."
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    form = parser.parse_args(argv).format
    from detector.cli.output import emit
    from detector.patterns import PATTERNS

    if form == "json":
        keys = ("id", "family", "kind", "side", "needs", "title", "what")
        rows = [{key: getattr(p, key) for key in keys} for p in PATTERNS]
        emit(json.dumps(rows, indent=2) + "\n", machine=True)
        return 0
    width = max(len(p.id) for p in PATTERNS)
    lines = [f"{p.id:<{width}}  {p.kind:<11}  {p.title}" for p in PATTERNS]
    emit("\n".join(lines) + "\n", machine=False)
    return 0


def show(argv: Sequence[str]) -> int:
    """One pattern's page: what it is, how to see it, what to change."""
    parser = argparse.ArgumentParser(
        prog="trace-scan rule",
        description="Say what a pattern is, how to see it in a trace, what it costs and what to "
        "change. `trace-scan rules` lists them.",
    )
    parser.add_argument("pattern", metavar="PATTERN", help="its id, as reports name it")
    wanted = parser.parse_args(argv).pattern
    from detector.cli.hints import hint
    from detector.cli.output import complain, emit
    from detector.patterns import BY_ID
    from detector.render import pattern_page

    if wanted not in BY_ID:
        return complain(DetectorError(f"no pattern '{wanted}'{hint(wanted, list(BY_ID))}"))
    emit(pattern_page.page(BY_ID[wanted], linked=False), machine=False)
    return 0
