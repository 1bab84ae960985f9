"""The package in Python: scan a trace or a profiler, compare two, record and report.

Settings are those of the command line: ``judge="none"`` is ``judge=none``, and a key with a dot
goes in ``overrides``: ``overrides=["window.parts=4"]``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from detector import report as plain
from detector.errors import DetectorError, TraceError
from detector.report_diff import difference

if TYPE_CHECKING:
    import pandas


class Profiler(Protocol):
    """What is used of ``torch.profiler.profile``."""

    step_num: int

    def export_chrome_trace(self, path: str) -> None:
        """Write the trace to this file."""


Source = str | Path | Profiler
_Shown = TypeVar("_Shown", bound="Report | Difference")


@dataclass(frozen=True, repr=False)
class Report(plain.Report):
    """A report that shows itself in a notebook and gives its parts as tables."""

    def to_pandas(
        self, what: Literal["findings", "leads", "windows", "ledger"] = "findings"
    ) -> pandas.DataFrame:
        """One part as a table, a row each; of findings without evidence and candidates. Raises
        DetectorError where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise DetectorError("to_pandas() needs pandas: pip install pandas") from error
        rows = [_row(one) for one in getattr(self, what)]
        return pandas.DataFrame(rows, columns=list(_row(_EMPTY[what])))

    def to_html(self) -> str:
        """The page that ``--out`` writes as report.html."""
        from detector.render import html_page

        return html_page.render(self)

    def _repr_html_(self) -> str:
        """The page in a frame of its own: its style and its policy hold there alone."""
        return _framed(self.to_html(), height=720)

    def __str__(self) -> str:
        """The report as the terminal shows it."""
        from detector.render import terminal

        return terminal.render(self)

    def __repr__(self) -> str:
        """The verdict on one line."""
        from detector.render.wording import verdict

        return f"<Report of {self.source.path!r}: {verdict(self)}>"


@dataclass(frozen=True, repr=False)
class Difference(difference.Difference):
    """A comparison that shows itself in a notebook."""

    def to_html(self) -> str:
        """The page that ``trace-scan diff --out`` writes as diff.html."""
        from detector.render import difference as page

        return page.html(self)

    def _repr_html_(self) -> str:
        """The page in a frame of its own."""
        return _framed(self.to_html(), height=480)

    def __str__(self) -> str:
        """The comparison as the terminal shows it."""
        from detector.render import difference as text

        return text.render(self)

    def __repr__(self) -> str:
        """What it says first, on one line."""
        from detector.render.difference import verdict

        paths = f"{self.before.path!r} and {self.after.path!r}"
        return f"<Difference of {paths}: {verdict(self)}>"


# For the columns of a table without rows.
_FINDING: Final = plain.Finding("", "", "cpu", 0.0, 0.0)
_EMPTY: Final[dict[str, plain.Finding | plain.WindowScore | plain.LedgerRow]] = {
    "findings": _FINDING,
    "leads": _FINDING,
    "windows": plain.WindowScore(0.0, 0.0),
    "ledger": plain.LedgerRow("", "", "", 0.0, 0.0),
}


def _framed(page: str, *, height: int) -> str:
    """A page in a frame: its style and its policy hold there alone, and its script sees nothing of
    the notebook."""
    shown = f'srcdoc="{escape(page)}" width="100%" height="{height}"'
    return f'<iframe sandbox="allow-scripts" {shown}></iframe>'


def scan_trace(trace: Source, *, overrides: Sequence[str] = (), **settings: object) -> Report:
    """Scan a trace file, or what a stopped profiler of torch recorded.

    Raises TraceError where it cannot be read, ConfigError for a setting that does not exist.
    """
    from detector.config import compose
    from detector.scan_file import report_of, stages_of

    stages = stages_of(compose("scan", _overrides(overrides, settings)))
    if isinstance(trace, str | Path):
        return _of(Report, report_of(Path(trace), str(trace), stages))
    with tempfile.TemporaryDirectory(prefix="trace-") as folder:
        file = Path(folder, "trace.json")
        _export(trace, file)
        return _of(Report, report_of(file, "<profiler>", stages))


def diff_traces(
    before: Source | plain.Report,
    after: Source | plain.Report,
    *,
    overrides: Sequence[str] = (),
    **settings: object,
) -> Difference:
    """What changed between two recordings of a program: traces, profilers or reports."""
    sides = [
        side
        if isinstance(side, plain.Report)
        else scan_trace(side, overrides=overrides, **settings)
        for side in (before, after)
    ]
    return _of(Difference, difference.compare(*sides))


def report_to(
    folder: str | Path, *, overrides: Sequence[str] = (), **settings: object
) -> Callable[[Profiler], None]:
    """A handler for ``torch.profiler.profile(on_trace_ready=…)``: keeps each trace in ``folder``,
    and beside it a folder with its report.json, report.html and report.sarif.

    A trace that cannot be scanned is named on standard error; the training goes on.
    """

    def ready(profiler: Profiler) -> None:
        from detector.cli.output import complain, say, write_all

        name = f"rank{_rank()}-step{profiler.step_num}"
        file = Path(folder, f"{name}.pt.trace.json.gz")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            _export(profiler, file)
            report = scan_trace(file, overrides=overrides, **settings)
            write_all(file.parent / name, report, file)
        except (DetectorError, OSError) as error:
            complain(error)
        else:
            from detector.render import wording

            say(f"{file}: {wording.verdict(report)} See {file.parent / name}/report.html")

    return ready


class profile:  # noqa: N801 (as torch.profiler.profile is called)
    """Records what runs inside ``with``, with the settings that a scan needs, and reports at the
    end: device and host activities, shapes and stacks.

        with detector.profile() as prof:
            for batch in loader:
                train_step(batch)
                prof.step()

    ``path``: where the trace is kept, by default nowhere; ``schedule``: as of ``torch.profiler``,
    by default every step is recorded; ``show``: whether the report is printed. ``prof.report`` is
    the report. An exception inside goes its way, and nothing is reported.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        schedule: Callable[[int], Any] | None = None,
        show: bool = True,
        overrides: Sequence[str] = (),
        **settings: object,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.show, self._overrides, self._settings = show, overrides, settings
        self.report: Report | None = None
        self._profiler = _recorder(schedule)

    def __enter__(self) -> profile:
        """Start to record."""
        self._profiler.__enter__()
        return self

    def step(self) -> None:
        """Mark the end of a step: steps separate warm-up from the rest."""
        self._profiler.step()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, scan and report."""
        self._profiler.__exit__(kind, error, trace)
        if kind is not None:
            return
        scanned: Source = self._profiler
        if self.path is not None:
            _export(self._profiler, self.path)
            scanned = self.path
        self.report = scan_trace(scanned, overrides=self._overrides, **self._settings)
        if self.show:
            from detector.cli.output import emit

            emit(str(self.report), machine=False)


def _recorder(schedule: Callable[[int], Any] | None) -> Any:
    """The profiler of torch; without a schedule it records and marks every step."""
    import torch
    from torch import profiler

    def always(_: int) -> profiler.ProfilerAction:
        return profiler.ProfilerAction.RECORD

    activities = [profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():  # ROCm, too
        activities.append(profiler.ProfilerActivity.CUDA)
    return profiler.profile(
        activities=activities,
        schedule=schedule or always,
        record_shapes=True,
        with_stack=True,
    )


def _export(profiler: Profiler, file: Path) -> None:
    """Write a profiler's trace. Raises TraceError where it has none, or gave it away before."""
    try:
        profiler.export_chrome_trace(str(file))
    except (RuntimeError, AssertionError) as error:
        raise TraceError(f"{file}: the profiler gives no trace: {error}") from error


def _rank() -> int:
    """The rank of this process in its job; 0 without a job."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _overrides(overrides: Sequence[str], settings: dict[str, object]) -> list[str]:
    return [*(f"{key}={value}" for key, value in settings.items()), *overrides]


def _of(kind: type[_Shown], plainer: Any) -> _Shown:
    """The same values as one that shows itself."""
    return kind(**{field.name: getattr(plainer, field.name) for field in fields(plainer)})


def _row(one: plain.Finding | plain.WindowScore | plain.LedgerRow) -> dict[str, object]:
    """The single values of a part of a report, and of its places the first."""
    row: dict[str, object] = {
        field.name: value
        for field in fields(one)
        if isinstance(value := getattr(one, field.name), str | int | float | None)
    }
    places = one.fix.where if isinstance(one, plain.Finding) else getattr(one, "where", ())
    if isinstance(one, plain.Finding):
        row |= {"change": one.fix.summary}
    if not isinstance(one, plain.WindowScore):
        at = places[0] if places else None
        row |= {"file": at and at.file, "line": at and at.line, "function": at and at.function}
    return row
