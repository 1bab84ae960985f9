"""Measure on held-out workloads: ``python -m detector.evaluate experiment=… data=FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from detector.config import CONF_DIR, checked, plain
from detector.output import told


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="evaluate")
def run(config: DictConfig) -> None:
    """Measure what Hydra composed."""
    settings = plain("evaluate", config)
    with told():
        experiment = settings.build("experiment")
        for line in experiment.evaluate(
            Path(settings.values["data"]), Path(settings.values["out"])
        ):
            print(line)


def main() -> None:
    """Entry point; exits 2 with one line where the data or a setting does not fit."""
    with told():
        checked("evaluate", sys.argv[1:])
    run()


if __name__ == "__main__":
    main()
