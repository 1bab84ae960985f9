"""``trace-scan TRACE…``: reads traces, prints what was found.

Loads next to nothing when imported; whatever a scan needs is loaded when it is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from detector import __version__
from detector.cli.exit_codes import exit_code
from detector.cli.targets import Target, distinct, find_traces, opened
from detector.errors import DetectorError, TraceError

if TYPE_CHECKING:
    from detector.cli.gate import Gate
    from detector.cli.output import Output
    from detector.config import Config
    from detector.scan_file import Stages

FORMATS = ("terminal", "json", "markdown", "sarif")
LEVELS = ("info", "low", "medium", "high", "critical")
EXIT_CODES = """\
exit code: 0 scanned; 1 scanned, and a finding reached --fail-on; 2 could not scan, or under
--fail-on could not be analyzed"""


def main(argv: Sequence[str] | None = None) -> int:
    """Scan; returns the exit code, see ``EXIT_CODES``."""
    arguments = _parser().parse_intermixed_args(argv)
    return exit_code(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    words, overrides = _split(arguments.trace)
    if not words:
        raise DetectorError("no TRACE given: name a file, a folder, a glob or - (see --help)")
    from detector.cli.gate import gate_of
    from detector.config import compose

    wanted = arguments.fail_on, arguments.select, arguments.ignore, arguments.baseline
    gate = gate_of(*wanted, Path.cwd())
    config = compose("scan", [*gate.overrides, *overrides], arguments.config_dir)
    targets, missing = _find(words)
    if len(words) == 1 and missing:
        raise missing[0][1]
    from detector.cli.output import Output

    out = Output(arguments.format, arguments.out, several=len(targets) + len(missing) > 1)
    for target, error in missing:
        out.fail(target, error)
    if targets:
        if len(targets) > 1 and not any(target.readable_once for target in targets):
            _many(targets, [*gate.overrides, *overrides], arguments.config_dir, config, gate, out)
        else:
            from detector.scan_file import stages_of

            stages = stages_of(config)  # what is wrong with it is said before any trace is read
            for target in targets:
                _one(target, stages, gate, out)
    out.close()
    if out.errors:
        return 2
    if gate.level is None:
        return 0
    # no finding in a trace that cannot be analyzed must not look like a pass
    return 2 if out.complain_unanalyzable() else int(out.complain_failing(gate))


def _find(words: Sequence[str]) -> tuple[list[Target], list[tuple[Target, TraceError]]]:
    """The traces that the words name, and the words that name none."""
    targets: list[Target] = []
    missing: list[tuple[Target, TraceError]] = []
    for word in words:
        try:
            targets += find_traces(word)
        except TraceError as error:  # noqa: PERF203 (a handful of words)
            missing.append((Target(word, None), error))
    return distinct(targets), missing


def _one(target: Target, stages: Stages, gate: Gate, out: Output) -> None:
    """Scan one trace; what goes wrong with it is said and does not stop the others."""
    from detector.scan_file import internal, scan

    try:
        with opened(target, keep=out.folder is not None) as (file, again):
            with _progress(target.label) as progress:
                report = scan(file, target.label, stages, progress).report
            out.add(target, gate.chosen(report), again)
    except (DetectorError, OSError) as error:
        out.fail(target, error)
    except Exception as error:  # noqa: BLE001 - the other traces have done nothing wrong, and exit
        # code 1 has another meaning
        out.fail(target, internal(error))


def _many(
    targets: Sequence[Target],
    overrides: Sequence[str],
    config_dir: Path | None,
    config: Config,
    gate: Gate,
    out: Output,
) -> None:
    """Scan several files; those that are ranks of one job give one report."""
    from detector.batch.scan_all import scan_all
    from detector.cli.output import remark

    outcomes, notes = scan_all(targets, overrides, config_dir, config.build("executor"))
    for note in notes:
        remark(note)
    out.several = len(outcomes) + len(out.results) > 1  # the ranks of one job are one
    for outcome in outcomes:
        try:
            if isinstance(outcome.result, Exception):
                out.fail(outcome.target, outcome.result)
            else:
                out.add(outcome.target, gate.chosen(outcome.result), outcome.target.path)
        except (DetectorError, OSError) as error:
            out.fail(outcome.target, error)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="trace-scan",
        usage="%(prog)s TRACE… [group=option | key=value …] [options]\n"
        "       %(prog)s diff BEFORE AFTER | comm PATH… | rules | rule PATTERN | mcp",
        description="Find performance anti-patterns in PyTorch profiler traces.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "trace",
        nargs="*",
        metavar="TRACE",
        help="a trace, plain or gzipped whatever its name; a folder to search; a glob; or - for "
        "standard input. KEY=VALUE arguments are config overrides",
    )
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="what to print")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="also write report.json, report.html, report.sarif and annotated.json.gz (the trace "
        "with the findings as tracks, for ui.perfetto.dev); a folder each for several traces",
    )
    _add_gate(parser)
    parser.add_argument(
        "--config-dir", type=Path, metavar="DIR", help="a folder with config options of your own"
    )
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def _add_gate(parser: argparse.ArgumentParser) -> None:
    """What fails a build, and what counts for that."""
    parser.add_argument(
        "--fail-on",
        choices=(*LEVELS, "never"),
        help="exit with 1 when a finding is at least this severe: it saves 1 (info), 3, 5, 10 or "
        "20 %% (critical) of the analyzed time",
    )
    parser.add_argument(
        "--select",
        action="append",
        default=[],
        metavar="PATTERN,…",
        help="report these patterns or families (input, sync, …) alone",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="PATTERN,…",
        help="leave these patterns or families out",
    )
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="REPORT",
        help="a report.json of before: under --fail-on only findings that it lacks count",
    )


class _Parser(argparse.ArgumentParser):
    """Reads conf/ for the end of the help, and only when the help is shown."""

    def format_help(self) -> str:
        """The help, with the groups and options that exist."""
        from detector.config import groups

        rows = [f"  {group}={'|'.join(options)}" for group, options in _own(groups())]
        self.epilog = "\n".join(
            [
                "config overrides, a group's option or a single key (see the files of conf/):",
                *rows,
                "  window.parts=16, limits.max_bytes=1000000000, …",
                "",
                "--fail-on, --select, --ignore, --baseline and overrides may stand in",
                "pyproject.toml, as keys of [tool.trace-scan]",
                "",
                EXIT_CODES,
            ]
        )
        return super().format_help()


def _own(groups: dict[str, tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    """The groups that a scan has, of all that conf/ holds."""
    chosen = ("window", "flagger", "confidence", "judge", "report", "executor")
    return [(name, groups[name]) for name in chosen]


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(traces, overrides): a word with = that is no existing path is an override."""
    overrides = [w for w in words if "=" in w and not Path(w).exists()]
    return [w for w in words if w not in overrides], overrides


@contextlib.contextmanager
def _progress(label: str) -> Iterator[Callable[[float], None] | None]:
    """A bar on standard error when that is a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from detector.render.clean import clean

    what = TextColumn("{task.description}", markup=False)
    columns = (what, BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"reading {clean(label, 60)}", total=1.0)

        def advance(share: float) -> None:
            if share < 1:
                bar.update(task, completed=share)
            else:  # no total, so the bar pulses: how long the judge takes is not known
                bar.update(task, description=f"analyzing {clean(label, 60)}", total=None)

        yield advance


if __name__ == "__main__":
    sys.exit(main())
