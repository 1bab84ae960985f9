"""The names that a report gives files, as paths of the checkout that the scan runs in.

Traces name a source file as the machine knew it that recorded them, and reports keep its base name.
Code scanning wants paths from the root of the repository.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from detector.report import Finding, Report

MOST_FILES: Final = 50_000  # looked at; a larger tree is not searched to its end
_SKIPPED: Final = frozenset({"node_modules", "site-packages", "__pycache__", "build", "dist"})


def located(reports: Iterable[Report], root: Path) -> list[Report]:
    """The reports with their traces' paths from ``root``, and source files that it holds once."""
    reports = list(reports)
    wanted = {w.file for r in reports for f in r.findings for w in f.fix.where if w.file}
    found = _find(root, wanted) if wanted else {}
    return [
        replace(
            report,
            source=replace(report.source, path=_from(root, report.source.path)),
            findings=tuple(_moved(finding, found) for finding in report.findings),
        )
        for report in reports
    ]


def _moved(finding: Finding, found: dict[str, str]) -> Finding:
    where = tuple(replace(w, file=found.get(w.file, w.file)) for w in finding.fix.where)
    return replace(finding, fix=replace(finding.fix, where=where))


def _from(root: Path, path: str) -> str:
    """A path inside ``root`` from there; of any other the name alone: reports travel."""
    if path.startswith("<"):
        return path  # standard input
    whole = Path(path).resolve()
    if whole.is_relative_to(root.resolve()):
        return whole.relative_to(root.resolve()).as_posix()
    return whole.name


def _find(root: Path, names: set[str]) -> dict[str, str]:
    """The one path in ``root`` of each name; none where several files are called so."""
    found: dict[str, list[str]] = {name: [] for name in names}
    seen = 0
    for folder, folders, files in os.walk(root):
        folders[:] = [d for d in folders if not d.startswith(".") and d not in _SKIPPED]
        seen += len(files)
        if seen > MOST_FILES:
            break
        for name in names.intersection(files):
            found[name].append(Path(folder, name).relative_to(root).as_posix())
    return {name: paths[0] for name, paths in found.items() if len(paths) == 1}
