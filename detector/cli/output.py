"""Where results go: standard output, standard error for errors, and the folder of ``--out``."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from detector.cli.targets import Target
from detector.errors import DetectorError, TraceError
from detector.render.formats import ANNOTATED, BY_NAME, FORMATS, View
from detector.report import Report
from detector.units import plural

if TYPE_CHECKING:
    from detector.cli.gate import Gate

# For a terminal that knows no UTF-8.
_PLAIN = str.maketrans({"·": "-", "–": "-", "…": "...", "µ": "u", "█": "#", "−": "-", "×": "x"})


class Output:
    """Where results go: standard output at once or at the end, and the folder of --out."""

    def __init__(self, form: str, folder: Path | None, *, several: bool) -> None:
        self.form, self.view = BY_NAME[form], view()
        self.folder, self.several = folder, several
        self.results: list[tuple[Target, Report | str, str]] = []
        self.errors = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def add(self, target: Target, report: Report, file: Path | None) -> None:
        """One scanned trace; ``file`` is where it can be read again."""
        name = ""
        if self.folder is not None:
            name = self._free_name(target) if self.several else ""
            write_all(self.folder / name, report, file)
        self.results.append((target, report, name))
        # of several traces the terminal shows a table at the end
        at_once = self.form.many is None and self.form.name != "terminal"
        if at_once or not self.several:
            between = "\n" if len(self.reports) > 1 else ""
            emit(between + self.form.one(report, self.view), self.form.machine)

    def fail(self, target: Target, error: Exception) -> None:
        """One trace that could not be scanned."""
        self.errors += 1
        complain(error, target.label)
        self.results.append((target, _message(error).removeprefix(f"{target.label}: "), ""))

    def close(self) -> None:
        """What can be said only when all is known."""
        if self.several:
            self._close_several()
        if self.folder is not None and self.reports:
            say(_written(self.folder, self.several))

    def _close_several(self) -> None:
        if self.form.many is not None:
            emit(self.form.many(self.reports, self.view), self.form.machine)
        if self.form.name == "terminal":
            from detector.render import terminal

            rows = [(target.label, result) for target, result, _ in self.results]
            view = self.view
            emit(terminal.summary(rows, width=view.width, color=view.color), False)
        if self.folder is not None:
            write(self.folder / "summary.json", self._summary())
            write(self.folder / "index.html", self._index())
            if (form := BY_NAME["sarif"]).many is not None and form.file is not None:
                write(self.folder / form.file, form.many(self.reports, self.view).encode())

    @property
    def reports(self) -> list[Report]:
        """The reports so far."""
        return [result for _, result, _ in self.results if not isinstance(result, str)]

    def complain_failing(self, gate: Gate) -> bool:
        """Names on standard error each finding that fails the build; whether there is one."""
        from detector.render import wording

        found = [
            (target.label, finding)
            for target, result, _ in self.results
            if not isinstance(result, str)
            for finding in gate.failing(result)
        ]
        if found:
            new = " that the baseline lacks" if gate.known else ""
            count = plural(len(found), "finding")
            say(f"failed: {count} at or above {gate.level}{new} (--fail-on {gate.level})")
        for label, finding in found:
            say(f"  {wording.one_line(finding)}" + (f"  [{label}]" if self.several else ""))
        return bool(found)

    def complain_unanalyzable(self) -> bool:
        """Names on standard error each trace that cannot be analyzed; whether there is one."""
        from detector.render import wording

        blind = [
            (target, result)
            for target, result, _ in self.results
            if not isinstance(result, str) and not result.analyzable
        ]
        for target, result in blind:
            verdict = wording.verdict(result).rstrip(".")
            complain(TraceError(verdict[0].lower() + verdict[1:]), target.label)
        return bool(blind)

    def _free_name(self, target: Target) -> str:
        stem = re.sub(r"(\.(json|gz|tmp|trace|pt))+$", "", target.path.name if target.path else "")
        stem = re.sub(r"[^\w.-]+", "_", stem).strip(".") or "stdin"
        taken = {name.lower() for _, _, name in self.results}
        tries = (stem, *(f"{stem}-{n}" for n in range(2, len(taken) + 3)))
        return next(name for name in tries if name.lower() not in taken)

    def _index(self) -> bytes:
        from detector.render import index_page

        rows = [(target.label, result, name) for target, result, name in self.results]
        return index_page.render(rows).encode("utf-8", "replace")

    def _summary(self) -> bytes:
        rows: list[dict[str, object]] = []
        for target, result, name in self.results:
            if isinstance(result, str):
                rows.append({"trace": target.label, "error": result})
                continue
            top = max(result.findings, key=lambda f: f.estimated_savings_us, default=None)
            rows.append(
                {
                    "trace": target.label,
                    "folder": name,
                    "findings": len(result.findings),
                    "analyzable": result.analyzable,
                    "why_not": result.why_not,
                    "estimated_savings_us": result.summary.estimated_savings_us,
                    "analyzed_us": result.summary.analyzed_us,
                    "top_finding": top and top.pattern,
                    "severity": top and top.severity,
                }
            )
        return (json.dumps(rows, indent=2, allow_nan=False) + "\n").encode()


def write_all(folder: Path, report: Report, trace: Path | None) -> None:
    """The files of --out for one trace."""
    from detector.render import overlay

    folder.mkdir(parents=True, exist_ok=True)
    files = {form.file: form for form in FORMATS if form.file is not None}
    if trace is not None and trace.resolve() in [
        (folder / f).resolve() for f in (ANNOTATED, *files)
    ]:
        raise TraceError(f"{trace}: --out would write over the trace itself")
    for name, form in files.items():
        view = View(root=Path.cwd())
        write(folder / name, form.one(report, view).encode("utf-8", "replace"))
    if trace is not None:
        with trace.open("rb") as source, _replacing(folder / ANNOTATED) as target:
            overlay.annotate(report, source, target)


def _written(folder: Path, several: bool) -> str:
    """What --out wrote, and what to open."""
    each = "/TRACE" if several else ""
    return (
        f"wrote {folder}{each}: report.html (open it in a browser), report.json, report.sarif, "
        f"{ANNOTATED} (open it in ui.perfetto.dev)"
    )


def write(path: Path, content: bytes) -> None:
    with _replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name only when it is whole."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def view() -> View:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    width = min(shutil.get_terminal_size((100, 24)).columns, 140)
    return View(width, sys.stdout.isatty() and not plain, Path.cwd())


def emit(text: str, machine: bool) -> None:
    """Results to standard output; a reader that has gone away is no error."""
    if not hasattr(sys.stdout, "buffer"):  # of a notebook: takes text alone
        sys.stdout.write(text)
        return
    encoding = "utf-8" if machine else sys.stdout.encoding or "utf-8"
    if codecs.lookup(encoding).name != "utf-8":
        text = text.translate(_PLAIN)
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(encoding, "replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # From here on nobody listens; Python's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _message(error: Exception, label: str = "") -> str:
    """One line: the file, the place, the cause."""
    if isinstance(error, OSError) and error.strerror:
        name = error.filename if error.filename is not None else label
        text = f"{name}: {error.strerror.lower()}"
    else:
        text = " ".join(str(error).split())
    text = text if not label or label in text else f"{label}: {text}"
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


@contextlib.contextmanager
def exit_on_error(*more: type[Exception]) -> Iterator[None]:
    """Ends the program with one line and exit code 2 on what the user can act on, and on ``more``.

    Hydra's switch HYDRA_FULL_ERROR=1 shows the traceback instead.
    """
    kinds: tuple[type[Exception], ...] = (DetectorError, OSError, *more)
    try:
        yield
    except kinds as error:
        if os.environ.get("HYDRA_FULL_ERROR", "0") not in ("", "0"):
            raise
        sys.exit(complain(error))


def remark(text: str) -> None:
    """One line on standard error that is no error."""
    sys.stderr.write(f"note: {_message(DetectorError(text))}\n")


def complain(error: Exception, label: str = "") -> int:
    say(f"error: {_message(error, label)}")
    return 2


def say(line: str) -> None:
    """A line for the person at the terminal; results alone go to standard output."""
    encoding = sys.stderr.encoding or "utf-8"
    if codecs.lookup(encoding).name != "utf-8":
        line = line.translate(_PLAIN)
    sys.stderr.write("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line) + "\n")
