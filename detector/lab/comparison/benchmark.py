"""A built benchmark as the comparison reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from detector.errors import DetectorError
from detector.lab.programs import program
from detector.lab.scoring.truth import EVERYTHING
from detector.lab.tables import table

if TYPE_CHECKING:
    import pandas as pd

Bools = npt.NDArray[np.bool_]

REAL: Final = ("recorded", "injected", "natural")  # measured on, by origin; simulated ones teach
HAND: Final = "natural"  # labeled by hand: development, never learned from


@dataclass(frozen=True)
class Group:
    """Traces that a table is made of: those of an origin; ``strict``: without the programs of the
    validation part, by which settings were chosen."""

    origin: str
    strict: bool = False


DEVICE: Final = "injected into real device traces"
CPU: Final = "recorded CPU workloads"
BY_HAND: Final = "labeled by hand (development)"
GROUPS: Final = {
    DEVICE: Group("injected"),
    CPU: Group("recorded"),
    f"{DEVICE}, without programs that settings were chosen by": Group("injected", strict=True),
    BY_HAND: Group(HAND),
}
ABOUT: Final = (
    "trace",
    "base",
    "healthy",
    "extent",
)  # columns of the traces that windows are given


@dataclass(frozen=True, eq=False)
class Benchmark:
    """``windows`` by trace and time, with ``cluster`` (the base where there is one, else the
    workload) and ``healthy`` of their trace; ``parts``: by scheme and trace its part."""

    data: Path
    windows: pd.DataFrame
    parts: dict[str, dict[str, str]]

    def part(self, name: str, scheme: str = "split") -> Bools:
        """Which windows lie in a part of a scheme."""
        return np.asarray(self.windows["trace"].map(self.parts[scheme]) == name)

    def members(self, group: Group) -> set[str]:
        """The names of its traces."""
        about = self.windows[["trace", "origin", "workload"]].drop_duplicates("trace")
        mine = about[about["origin"] == group.origin]
        if group.strict:
            chosen = self.windows["workload"][self.part("validation")].unique()
            mine = mine[~mine["workload"].isin(chosen)]
        return set(mine["trace"])

    def of_origin(self, *origins: str) -> Bools:
        """Which windows are of traces of these origins."""
        return np.asarray(self.windows["origin"].isin(origins))


def read(data: Path, same: Mapping[str, str] | None = None) -> Benchmark:
    """``same``: see ``program``. Raises DetectorError where a table or a column is missing."""
    traces = table(data, "traces", EVERYTHING)
    if missing := [name for name in ABOUT if name not in traces]:
        raise DetectorError(f"{data}: its traces have no {', '.join(missing)}: build it anew")
    windows, parts = windows_of(data, traces)
    windows["workload"] = [program(name, same or {}) for name in windows["workload"]]
    return Benchmark(data, windows, parts)


def windows_of(
    data: Path, traces: pd.DataFrame | None = None
) -> tuple[pd.DataFrame, dict[str, dict[str, str]]]:
    """All windows by trace and time, and by scheme the part of each trace."""
    traces = table(data, "traces", EVERYTHING) if traces is None else traces
    windows = table(data, "windows", EVERYTHING)
    windows = windows.merge(traces[list(ABOUT)], on="trace", how="left")
    windows["cluster"] = windows["base"].where(windows["base"] != "", windows["workload"])
    windows = windows.sort_values(["trace", "start_us"], kind="stable").reset_index(drop=True)
    schemes = [c for c in traces.columns if c == "split" or c.startswith("unseen_")]
    return windows, {s: dict(zip(traces["trace"], traces[s], strict=True)) for s in schemes}
