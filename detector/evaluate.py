"""Measure on held-out workloads: ``python -m detector.evaluate experiment=… data=FOLDER``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import hydra
from omegaconf import DictConfig

from detector.config import CONF_DIR, checked, job, plain
from detector.experiment import record
from detector.output import told


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="evaluate")
def run(config: DictConfig) -> None:
    """Measure what Hydra composed."""
    settings = plain("evaluate", config)
    with told():
        this, begun = job(), time.perf_counter()
        values = settings.values
        out, kept = (this.folder or Path(values[key]) for key in ("out", "record"))
        if this.folder:
            print(f"{this.folder}: {' '.join(this.overrides)}")
        data = Path(values["data"])
        outcome = settings.build("experiment").evaluate(data, out)
        about = {
            "experiment": this.experiment,
            "verb": "evaluate",
            "overrides": this.overrides,
            "config": values,
            "data": record.data_of(data),
            "seconds": time.perf_counter() - begun,
        }
        record.write(kept, f"evaluate-{this.experiment}", outcome, about)
    for line in outcome:
        print(line)


def main() -> None:
    """Entry point; exits 2 with one line where the data or a setting does not fit."""
    with told():
        checked("evaluate", sys.argv[1:])
    run()


if __name__ == "__main__":
    main()
