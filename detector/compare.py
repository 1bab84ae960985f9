"""``python -m detector.compare``: runs of train and evaluate in a table and a plot."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from detector.lab import runs


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; returns the exit code: 0 done, 2 with one line where a run cannot be read."""
    return runs.main(argv, print)


if __name__ == "__main__":
    sys.exit(main())
