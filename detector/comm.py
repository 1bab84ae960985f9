"""``python -m detector.comm``: reads communication logs, dumps and tables; says what is wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from detector.cli.exit_codes import exit_code
from detector.errors import DetectorError


def main(argv: Sequence[str] | None = None) -> int:
    """Read and print; 0: read, 1: an anomaly under --fail-on-anomaly, 2: nothing to read."""
    arguments = _parser().parse_args(argv)
    return exit_code(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    from detector.cli.output import complain, emit
    from detector.jobs.logs import report
    from detector.logs.read import files, read
    from detector.render import comm

    paths, lost = files(arguments.path)
    logs = read(paths, named=[Path(word) for word in arguments.path])
    found = report(logs)
    for note in lost:
        complain(DetectorError(note))
    if not found.sources:
        for note in found.notes:
            complain(DetectorError(note))
        if not lost and not found.notes:
            raise DetectorError(f"{arguments.path[0]}: no communication log, dump or table")
        return 2
    json = arguments.format == "json"
    emit(comm.to_json(found) if json else comm.render(found), json)
    if lost:
        return 2
    return int(arguments.fail_on_anomaly and bool(found.anomalies))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trace-scan comm",
        description="Profile and anomalies of communication: NCCL and RCCL debug logs, NCCL "
        "Inspector records, PyTorch flight-recorder dumps, nccl-tests tables.",
    )
    parser.add_argument("path", nargs="+", metavar="PATH", help="a file, or a folder to search")
    parser.add_argument("--format", choices=("terminal", "json"), default="terminal")
    parser.add_argument(
        "--fail-on-anomaly", action="store_true", help="exit with 1 when anything is wrong"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
