"""Where a pattern's page can be read: at the address that the installed package names.

Without such an address reports name no page: a link that leads nowhere is worse than none.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from typing import Final

DISTRIBUTION: Final = "trace-antipattern-detector"
PAGES: Final = "Patterns"  # the label in [project.urls]


def page_of(pattern: str) -> str | None:
    """The address of a pattern's page."""
    base = _pages()
    return f"{base.rstrip('/')}/{pattern}.md" if base else None


@cache
def _pages() -> str | None:
    try:
        listed = metadata(DISTRIBUTION).get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    named = (entry.partition(",") for entry in listed)
    return next((url.strip() for label, _, url in named if label.strip() == PAGES), None)
