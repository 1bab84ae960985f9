"""Train what ships: ``python -m detector.train experiment=flagger|embedded_judge data=FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from detector.config import CONF_DIR
from detector.errors import DetectorError


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="train")
def main(config: DictConfig) -> None:
    """Entry point; exits 2 with one line where the data or a setting does not fit."""
    try:
        experiment = hydra.utils.instantiate(config.experiment, _convert_="all")
        for line in experiment.train(Path(str(config.data)), Path(str(config.out))):
            print(line)
    except DetectorError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
