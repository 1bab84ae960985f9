"""One trace file -> its report, and what a job needs of it. Knows the stages, not the command."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from detector.config import Config, compose
from detector.errors import ConfigError, DetectorError, TraceError

if TYPE_CHECKING:
    from detector.jobs.rank import RankTrace
    from detector.report import Report


@dataclass(frozen=True)
class Stages:
    """The parts of ``pipeline.detect`` as the configuration chose them."""

    parts: dict[str, Any]  # windower, flagger, judge, settings
    limits: Any
    config: dict[str, Any]  # what the report shows of it


@dataclass(frozen=True)
class Scanned:
    """One trace: its report, or why there is none; its rank, where it may be one of several."""

    report: Report | None
    rank: RankTrace | None = None
    error: str = ""
    fault: bool = False
    """Of this program: ``error`` is a traceback."""


def stages_of(config: Config) -> Stages:
    """The stages that this configuration describes. Raises ConfigError."""
    for key, value in config.values["window"].items():
        if type(value) is int and value < 1:  # the windower itself is called much later
            raise ConfigError(f"window.{key} must be positive, not {value}")
    parts = {
        "windower": config.build("window"),
        "flagger": config.build("flagger"),
        "confidence": config.build("confidence"),
        "judge": config.build("judge"),
        "settings": config.build("report"),
    }
    # Where a trace is read changes nothing in its report.
    values = {key: value for key, value in config.values.items() if key != "executor"}
    shown = {key: without_secrets(value) for key, value in values.items()}
    return Stages(parts, config.build("limits"), shown)


def without_secrets(value: Any) -> Any:
    """Settings go into every report: user names and passwords in addresses do not."""
    if isinstance(value, dict):
        return {key: without_secrets(item) for key, item in value.items()}
    return re.sub(r"//[^/@\s]*@", "//***@", value) if isinstance(value, str) else value


def scan(
    file: Path | BinaryIO,
    label: str,
    stages: Stages,
    progress: Callable[[float], None] | None = None,
    *,
    as_rank: bool = False,
) -> Scanned:
    """Scan one trace. ``as_rank``: keep what a job of several ranks needs. Raises DetectorError."""
    from detector.analysis import analyze
    from detector.kineto import read
    from detector.pipeline import report_on

    analysis = analyze(read(file, limits=stages.limits, progress=progress).without_ids())
    report = report_on(analysis, **stages.parts, config=stages.config)
    # not the name of the copy that a pipe was read from
    report = replace(report, source=replace(report.source, path=label))
    rank = None
    if as_rank and analysis.trace.rank is not None:
        from detector.jobs.rank import reduced_from

        rank = replace(reduced_from(analysis.signals, analysis.analyzed), path=label)
    return Scanned(report, rank)


def report_of(file: Path | BinaryIO, label: str, stages: Stages) -> Report:
    """The report of one trace. Raises TraceError where it cannot be read."""
    report = scan(file, label, stages).report
    assert report is not None  # in a process of its own alone an error comes back as words
    return report


@lru_cache(maxsize=1)
def _stages(overrides: tuple[str, ...], config_dir: Path | None) -> Stages:
    return stages_of(compose("scan", overrides, config_dir))


def scan_path(path: str, label: str, overrides: Sequence[str], config_dir: Path | None) -> Scanned:
    """Scan one file in a process of its own, as a rank; errors of the trace come back as words.

    Raises ConfigError, ModelError: what is wrong with the settings is wrong for every trace.
    """
    stages = _stages(tuple(overrides), config_dir)
    try:
        return scan(Path(path), label, stages, as_rank=True)
    except (DetectorError, OSError) as error:
        return Scanned(None, error=words(error, label))
    except Exception:  # noqa: BLE001 - a fault of this program must not stop the other traces
        import traceback

        return Scanned(None, error=traceback.format_exc(), fault=True)


def words(error: Exception, label: str) -> str:
    """The line that an error is; an error of the system names its file."""
    if isinstance(error, OSError) and error.strerror:
        return (
            f"{error.filename if error.filename is not None else label}: {error.strerror.lower()}"
        )
    return str(error)


def failure(scanned: Scanned) -> TraceError:
    """The error that a scan in another process ended with."""
    if scanned.fault:
        return TraceError(f"internal error: {scanned.error.strip().splitlines()[-1]}")
    return TraceError(scanned.error)
