"""Train what ships: ``python -m detector.train experiment=flagger|embedded_judge data=FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf

from detector.config import CONF_DIR, Config, checked
from detector.output import told


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="train")
def run(config: DictConfig) -> None:
    """Train what Hydra composed."""
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    values = {str(key): value for key, value in plain.items()}
    with told():
        experiment = Config("train", values).build("experiment")
        for line in experiment.train(Path(values["data"]), Path(values["out"])):
            print(line)


def main() -> None:
    """Entry point; exits 2 with one line where the data or a setting does not fit."""
    with told():
        checked("train", sys.argv[1:])
    run()


if __name__ == "__main__":
    main()
