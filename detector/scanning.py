"""One trace file -> its report. Knows the stages, not the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from detector.errors import ConfigError

if TYPE_CHECKING:
    from detector.config import Config
    from detector.report import Report


@dataclass(frozen=True)
class Stages:
    """The parts of ``pipeline.detect`` as the configuration chose them."""

    parts: dict[str, Any]  # windower, flagger, confidence, judge, settings
    limits: Any
    config: dict[str, Any]  # what the report shows of it


def stages_of(config: Config) -> Stages:
    """The stages that a configuration describes. Raises ConfigError naming the section."""
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
    shown = {key: without_secrets(value) for key, value in config.values.items()}
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
) -> Report:
    """Scan one trace, which goes by ``label``. Raises TraceError where it cannot be read."""
    from detector.kineto import read
    from detector.pipeline import detect

    trace = read(file, limits=stages.limits, progress=progress)
    report = detect(trace, **stages.parts, config=stages.config)
    # not the name of the copy that a pipe was read from
    return replace(report, source=replace(report.source, path=label))
