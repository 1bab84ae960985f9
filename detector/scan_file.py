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
    """One trace: its report; its rank, where it may be one of several."""

    report: Report
    rank: RankTrace | None = None


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
    return scan(file, label, stages).report


@lru_cache(maxsize=1)
def _stages(overrides: tuple[str, ...], config_dir: Path | None) -> Stages:
    return stages_of(compose("scan", overrides, config_dir))


def scan_path(
    path: str, label: str, overrides: Sequence[str], config_dir: Path | None
) -> Scanned | Exception:
    """Scan one file in a process of its own, as a rank; what is wrong with the trace comes back.

    Raises ConfigError, ModelError: what is wrong with the settings is wrong for every trace.
    """
    stages = _stages(tuple(overrides), config_dir)
    try:
        return scan(Path(path), label, stages, as_rank=True)
    except (DetectorError, OSError) as error:
        return error
    except Exception as error:  # noqa: BLE001 - a fault of this program must not stop the others
        return internal(error)


def internal(error: Exception) -> TraceError:
    """A fault of this program as an error of its trace; the traceback goes to standard error."""
    import traceback

    traceback.print_exception(error)
    return TraceError(f"internal error: {type(error).__name__}: {error}")
