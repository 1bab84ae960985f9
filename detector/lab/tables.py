"""Tables of a built benchmark, as frames."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from detector import __version__
from detector.errors import DetectorError

if TYPE_CHECKING:
    import pandas as pd

# What may be trained on, in the order of the rows; never traces labeled by hand ("natural").
PARTS: Final = ("train", "validation", "test")
OF_BASE: Final = "base/"  # begins the pair of all that is made of one real trace


def table(
    data: Path, name: str, parts: Sequence[str] = PARTS, columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """A table of a built benchmark, with classes as words; a part has any number of files, and
    none where it has no rows. ``columns``: those to read, all by default.

    Raises DetectorError where the build did not finish, or nothing is there.
    """
    import pandas as pd

    if not (data / "manifest.json").is_file():
        raise DetectorError(f"{data}: no finished benchmark (python -m dataset.build out={data})")
    folder = data / "tables" / name
    files = [file for part in parts for file in sorted(folder.glob(f"{part}*.parquet"))]
    found = [_in_words(file, columns) for file in files]
    if not found:
        raise DetectorError(f"{data}: no {name} in {', '.join(parts)}")
    return pd.concat(found, ignore_index=True)


def _in_words(file: Path, columns: Sequence[str] | None) -> pd.DataFrame:
    """A Parquet file whose ``ClassLabel`` columns, lists of them too, hold their classes' names."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    content = pq.read_table(file, columns=None if columns is None else list(columns))
    described = (content.schema.metadata or {}).get(b"huggingface", b"{}")
    features = json.loads(described).get("info", {}).get("features", {})
    frame = content.to_pandas()
    for column, feature in features.items():
        if column not in frame:
            continue
        if "names" in feature:
            frame[column] = np.array(feature["names"], object)[frame[column]]
        elif "names" in (inner := feature.get("feature", {})):
            names = np.array(inner["names"], object)
            frame[column] = [list(names[row]) for row in frame[column]]
    return frame


def clusters(frame: pd.DataFrame) -> npt.NDArray[np.object_]:
    """What a bootstrap draws as one, of each row of windows or evidence: the base of what was made
    from a real trace, else the workload. Traces of one of them are no independent evidence."""
    pair = frame["pair"].astype(str)
    return np.asarray(pair.where(pair.str.startswith(OF_BASE), frame["workload"]), object)


def provenance(data: Path, frame: pd.DataFrame) -> dict[str, Any]:
    """What a card says of its training data."""
    traces = frame.drop_duplicates("trace")
    return {
        "version": __version__,
        "data_sha256": hashlib.sha256((data / "manifest.json").read_bytes()).hexdigest(),
        "traces_by_origin": {k: int(v) for k, v in traces["origin"].value_counts().items()},
        "rows": len(frame),
    }
