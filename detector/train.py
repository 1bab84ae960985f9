"""Train what ships: ``python -m detector.train experiment=flagger|confidence data=FOLDER``."""

from __future__ import annotations

import sys

import hydra
from omegaconf import DictConfig

from detector.cli.output import exit_on_error
from detector.config import CONF_DIR, checked, job, plain
from detector.lab.experiments.record import conducted


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="train")
def run(config: DictConfig) -> None:
    """Train what Hydra composed."""
    settings = plain("train", config)
    with exit_on_error():
        this = job()
        if this.folder:
            print(f"{this.folder}: {' '.join(this.overrides)}")
        act = settings.build("experiment").train
        outcome = conducted("train", act, this, settings.values)
    for line in outcome:
        print(line)


def main() -> None:
    """Entry point; exits 2 with one line where the data or a setting does not fit."""
    with exit_on_error():
        checked("train", sys.argv[1:])
    run()


if __name__ == "__main__":
    main()
