"""``trace-scan``: scans traces, or runs the command that its first word names.

Loads only the module of the command that runs.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Sequence
from typing import Final

# A command's word, and the function that takes the words after it.
COMMANDS: Final = {
    "comm": "detector.comm:main",
    "completion": "detector.completion:main",
    "diff": "detector.diff:main",
    "mcp": "detector.mcp_server:main",
    "rule": "detector.rules:show",
    "rules": "detector.rules:list_all",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code. A trace that is called like a command is ./NAME."""
    words = list(sys.argv[1:] if argv is None else argv)
    named = COMMANDS.get(words[0]) if words else None
    if named is None:
        from detector.scan import main as scan

        return scan(words)
    code: int = pkgutil.resolve_name(named)(words[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())
