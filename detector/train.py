"""Train what ships: ``python -m detector.train experiment=flagger|confidence data=FOLDER``."""

from __future__ import annotations

import sys

import hydra
from omegaconf import DictConfig

from detector.cli.output import exit_on_error
from detector.config import CONF_DIR
from detector.lab import entry


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="train")
def run(config: DictConfig) -> None:
    """Train what Hydra composed."""
    entry.run("train", config, print)


def main() -> None:
    """Entry point; exits 2 with one line where the data or a setting does not fit."""
    with exit_on_error():
        entry.checked("train", sys.argv[1:])
    run()


if __name__ == "__main__":
    main()
