"""What fails a build: which patterns count, what was known before, and from which severity on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import msgspec

from detector.cli.hints import hint
from detector.errors import ConfigError, DetectorError
from detector.report import LEVELS, Finding, NotChecked, Report, from_json
from detector.report_diff import matching
from detector.taxonomy import Severity

TABLE: Final = "trace-scan"  # [tool.trace-scan] in pyproject.toml
NEVER: Final = "never"  # --fail-on never: whatever pyproject.toml says
LEFT_OUT: Final = "left out by select or ignore"


@dataclass(frozen=True)
class Gate:
    """``level``: from which severity on a finding fails; None: none does. ``select``, ``ignore``:
    ids of patterns or their families; ``known``: findings of the baseline; ``overrides``: settings
    that the project always scans with."""

    level: Severity | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    known: tuple[Finding, ...] = ()
    overrides: tuple[str, ...] = ()

    def chosen(self, report: Report) -> Report:
        """The report without the patterns that do not count; they are listed as not checked."""
        if not self.select and not self.ignore:
            return report
        from detector.patterns import IDS

        out = {i for i in IDS if self.select and not _named(i, self.select)}
        out |= {i for i in IDS if _named(i, self.ignore)}
        findings = tuple(f for f in report.findings if f.pattern not in out)
        blind = {row.pattern for row in report.not_checked}
        rows = [NotChecked(i, LEFT_OUT) for i in IDS if i in out - blind]
        saved = float(sum(f.estimated_savings_us for f in findings))
        return replace(
            report,
            findings=findings,
            leads=tuple(f for f in report.leads if f.pattern not in out),
            summary=replace(report.summary, estimated_savings_us=saved),
            not_checked=(*report.not_checked, *rows),
        )

    def failing(self, report: Report) -> list[Finding]:
        """The findings that fail a build: severe enough, and not in the baseline."""
        if self.level is None:
            return []
        least = LEVELS.index(self.level)
        severe = [f for f in report.findings if LEVELS.index(f.severity) >= least]
        return matching.new(severe, self.known)


def gate_of(
    fail_on: str | None,
    select: Sequence[str],
    ignore: Sequence[str],
    baseline: Path | None,
    folder: Path,
) -> Gate:
    """What the command line says, and for the rest ``[tool.trace-scan]`` of the pyproject.toml in
    ``folder`` or the nearest folder above. Raises ConfigError naming the key or the file."""
    file, table = _nearest(folder)
    level = fail_on or table.fail_on
    known = baseline or (file.parent / table.baseline if table.baseline else None)
    place = f"{file}: tool.{TABLE}"
    return Gate(
        None if level in (None, NEVER) else level,  # type: ignore[arg-type]
        _patterns(select, "--select") or _patterns(table.select, f"{place}.select"),
        _patterns(ignore, "--ignore") or _patterns(table.ignore, f"{place}.ignore"),
        read_baseline(known) if known else (),
        table.overrides,
    )


def read_baseline(path: Path) -> tuple[Finding, ...]:
    """All findings and leads of a report.json, or of a list of reports as several traces give.

    A lead counts as known: it may be a finding in the next recording, and is nothing new then.
    """
    try:
        read = json.loads(path.read_text("utf-8"))
        several = read if isinstance(read, list) else [read]
        reports = [from_json(json.dumps(one)) for one in several]
    except (ValueError, DetectorError) as error:
        raise ConfigError(f"{path}: no report to compare with: {error}") from error
    return tuple(f for report in reports for f in (*report.findings, *report.leads))


def _named(pattern: str, words: Iterable[str]) -> bool:
    return any(word in (pattern, pattern.partition("-")[0]) for word in words)


def _patterns(words: Sequence[str], place: str) -> tuple[str, ...]:
    """Ids and families, of words that may hold several with commas between."""
    wanted = tuple(part.strip() for word in words for part in word.split(",") if part.strip())
    if not wanted:
        return ()
    from detector.patterns import PATTERNS

    known = sorted({p.id for p in PATTERNS} | {p.family for p in PATTERNS})
    for word in wanted:
        if word not in known:
            raise ConfigError(f"{place}: no pattern or family '{word}'{hint(word, known)}")
    return wanted


class _Table(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """``[tool.trace-scan]``."""

    fail_on: Severity | Literal["never"] | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    baseline: str | None = None
    overrides: tuple[str, ...] = ()


def _nearest(folder: Path) -> tuple[Path, _Table]:
    """The nearest pyproject.toml that has such a table, and the table; an empty one without."""
    for parent in (folder, *folder.parents):
        file = parent / "pyproject.toml"
        if file.is_file() and (values := _read(file)) is not None:
            try:
                return file, msgspec.convert(values, _Table)
            except msgspec.ValidationError as error:
                raise ConfigError(f"{file}: tool.{TABLE}: {error}") from error
    return folder / "pyproject.toml", _Table()


def _read(file: Path) -> object:
    """The table in this file; None without one."""
    text = file.read_text("utf-8", "replace")
    if TABLE not in text:
        return None
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        found = tomllib.loads(text).get("tool", {}).get(TABLE)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}") from error
    return found
