"""What the entry points of experiments share: their overrides, checked before Hydra's own entry
point sees them, and the run that Hydra describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from detector.cli.output import exit_on_error
from detector.config import compose, parsed, plain
from detector.errors import ConfigError
from detector.lab.experiments.record import run_and_record

if TYPE_CHECKING:
    from omegaconf import DictConfig

MULTIRUN: Final = {"-m", "--multirun"}


def run(
    name: Literal["train", "evaluate"], config: DictConfig, say: Callable[[str], object]
) -> None:
    """Do what Hydra composed, and say what came out; exits 2 with one line where the data or a
    setting does not fit."""
    settings = plain(name, config)
    with exit_on_error():
        this = job()
        if this.folder:
            say(f"{this.folder}: {' '.join(this.overrides)}")
        outcome = run_and_record(
            name, getattr(settings.build("experiment"), name), this, settings.values
        )
    for line in outcome:
        say(line)


def checked(name: str, words: Sequence[str]) -> None:
    """Refuse what ``compose`` refuses before Hydra's own entry point says it in many lines.

    Of a multirun each value of each setting is tried. Other options of Hydra are left to it.
    """
    options = {word for word in words if word.startswith("-")}
    if not options:
        compose(name, words)
    elif options <= MULTIRUN:
        for job in _jobs([word for word in words if word not in options]):
            compose(name, job)


@dataclass(frozen=True)
class Job:
    """What Hydra says of the run: the experiment's name, what was set, and a multirun's folder."""

    experiment: str
    overrides: tuple[str, ...]
    folder: Path | None


def job() -> Job:
    """The job that runs. Raises ConfigError where a multirun sets where it writes: each of its jobs
    has a folder of its own."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    hydra = HydraConfig.get()
    several = hydra.mode == RunMode.MULTIRUN
    given = tuple(str(word) for word in hydra.overrides.task)
    if several and any(word.split("=")[0].lstrip("+") in ("out", "record") for word in given):
        raise ConfigError("each job of a multirun has its own folder: set hydra.sweep.dir=FOLDER")
    folder = Path(hydra.sweep.dir) / str(hydra.sweep.subdir) if several else None
    return Job(hydra.runtime.choices["experiment"], given, folder)


def _jobs(words: Sequence[str]) -> Iterator[list[str]]:
    """Overrides without lists of values, in which each value of each list stands once."""
    tried = [_values(word) for word in words]
    first = [values[0] for values in tried]
    yield first
    for i, values in enumerate(tried):
        yield from ([*first[:i], value, *first[i + 1 :]] for value in values[1:])


def _values(text: str) -> list[str]:
    """An override for each of its values."""
    override = parsed(text, several=True)
    if not override.is_sweep_override():
        return [text]
    key = override.get_key_element()
    return [f"{key}={value}" for value in override.sweep_string_iterator()]
