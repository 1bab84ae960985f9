"""Measure on held-out workloads: ``python -m detector.evaluate experiment=… data=FOLDER``."""

from __future__ import annotations

import sys

import hydra
from omegaconf import DictConfig

from detector.cli.output import exit_on_error
from detector.config import CONF_DIR, checked, job, plain
from detector.lab.experiments.record import conducted


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="evaluate")
def run(config: DictConfig) -> None:
    """Measure what Hydra composed."""
    settings = plain("evaluate", config)
    with exit_on_error():
        this = job()
        if this.folder:
            print(f"{this.folder}: {' '.join(this.overrides)}")
        act = settings.build("experiment").evaluate
        outcome = conducted("evaluate", act, this, settings.values)
    for line in outcome:
        print(line)


def main() -> None:
    """Entry point; exits 2 with one line where the data or a setting does not fit."""
    with exit_on_error():
        checked("evaluate", sys.argv[1:])
    run()


if __name__ == "__main__":
    main()
