"""Train what ships: ``python -m detector.train experiment=flagger|embedded_judge data=FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from detector.config import CONF_DIR, checked, plain
from detector.output import told


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="train")
def run(config: DictConfig) -> None:
    """Train what Hydra composed."""
    settings = plain("train", config)
    with told():
        experiment = settings.build("experiment")
        for line in experiment.train(Path(settings.values["data"]), Path(settings.values["out"])):
            print(line)


def main() -> None:
    """Entry point; exits 2 with one line where the data or a setting does not fit."""
    with told():
        checked("train", sys.argv[1:])
    run()


if __name__ == "__main__":
    main()
