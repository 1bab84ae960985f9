"""``trace-scan diff BEFORE AFTER``: what a change gained, and which findings it repaired."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from detector.cli.exit_codes import exit_code
from detector.errors import DetectorError, TraceError

if TYPE_CHECKING:
    from detector.report import Report
    from detector.report_diff.difference import Difference

FORMATS = ("terminal", "json", "markdown", "html")
FILES = {"json": "diff.json", "markdown": "diff.md", "html": "diff.html"}
_REPORT = re.compile(rb'^\s*\{\s*"schema"\s*:')


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; 0: compared, 1: not fixed what --expect-fixed names, 2: could not be compared."""
    arguments = _parser().parse_intermixed_args(argv)
    return exit_code(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    from detector.cli.output import complain, emit, view
    from detector.report_diff.difference import compare, expected

    paths = arguments.before, arguments.after
    before, after = (read(path, arguments.overrides) for path in paths)
    found = compare(before, after)
    looks = view()
    emit(_render(found, arguments.format, looks.width, looks.color), arguments.format != "terminal")
    if arguments.out is not None:
        _write(arguments.out, found)
    wrong = expected(found, arguments.expect_fixed)
    for line in wrong:
        complain(DetectorError(f"--expect-fixed {line}"))
    if wrong and not found.comparable:
        return 2  # nobody knows
    return int(bool(wrong))


def read(path: str, overrides: Sequence[str] = ()) -> Report:
    """The report of a trace, or the one that a report.json holds. Raises DetectorError."""
    from detector.report import from_json

    if is_report(Path(path)):
        try:
            return from_json(Path(path).read_bytes())
        except DetectorError as error:
            raise TraceError(f"{path}: {error}") from error
    from detector.cli.targets import find_traces, opened
    from detector.config import compose
    from detector.scan_file import report_of, stages_of

    targets = find_traces(path)
    if len(targets) != 1:
        raise TraceError(f"{path}: {len(targets)} traces; a comparison takes one of each side")
    stages = stages_of(compose("scan", list(overrides)))
    with opened(targets[0], keep=False) as (file, _):
        return report_of(file, targets[0].label, stages)


def is_report(path: Path) -> bool:
    """Whether a file is a report.json rather than a trace."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _REPORT.match(file.read(200)) is not None


def _render(found: Difference, form: str, width: int, color: bool) -> str:
    from detector.render import difference

    if form == "terminal":
        return difference.render(found, width=width, color=color)
    makers: dict[str, Callable[[Difference], str]] = {
        "json": difference.to_json,
        "markdown": difference.markdown,
        "html": difference.html,
    }
    return makers[form](found)


def _write(folder: Path, found: Difference) -> None:
    from detector.cli.output import say, write

    folder.mkdir(parents=True, exist_ok=True)
    for form, name in FILES.items():
        write(folder / name, _render(found, form, 100, False).encode("utf-8", "replace"))
    say(
        f"wrote {folder}: diff.html (open it in a browser), diff.md (for a pull request), diff.json"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trace-scan diff",
        description="Compare two recordings of one program: the time of a step by cause, and the "
        "findings that are gone, new, better or worse.",
        epilog="exit code: 0 compared; 1 a pattern of --expect-fixed is still found, or was not "
        "found before; 2 could not compare",
    )
    parser.add_argument("before", metavar="BEFORE", help="a trace, or a report.json of it")
    parser.add_argument("after", metavar="AFTER", help="the same, recorded after the change")
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],  # without it a usage error calls them required
        metavar="KEY=VALUE",
        help="config overrides, as of a scan",
    )
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="what to print")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="also write diff.html, diff.md and diff.json"
    )
    parser.add_argument(
        "--expect-fixed",
        action="append",
        default=[],
        metavar="PATTERN",
        help="exit with 1 unless this pattern was found before and is gone now",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
