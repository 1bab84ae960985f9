"""Hand-written labels: valid, reasoned, inside their traces, matched by content."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from dataset import natural as module
from dataset.labels import UNKNOWN, LabelError
from dataset.natural import LABELS, Natural, natural, read, read_all, sha256
from detector import kineto
from detector.taxonomy import BY_ID
from detector.trace import NS_PER_US

TRACES = Path(__file__).parents[3] / "shared" / "traces"
NEED_TRACES = pytest.mark.skipif(not TRACES.is_dir(), reason="no folder ../shared/traces")
FILES = sorted(LABELS.glob("*.json"))


def spans(label: Natural) -> list[tuple[float, float]]:
    verdicts = (*label.regions, *label.healthy)
    return [span for verdict in verdicts for span in verdict.spans_us]


@pytest.fixture
def one(tmp_path: Path) -> dict[str, object]:
    """The raw label of a made-up trace that lies in ``tmp_path``."""
    trace = tmp_path / "traces" / "renamed.json.gz"
    trace.parent.mkdir()
    with gzip.open(trace, "wt") as file:
        json.dump({"traceEvents": []}, file)
    verdict = {"side": "cpu", "reason": "waits for 3 of 5 ms", "spans_us": [[10.0, 13.0]]}
    return {
        "sha256": sha256(trace),
        "source": {"repository": "a/b", "path": "c.json", "commit": "d", "licence": "MIT"},
        "labeller": "by hand",
        "date": "2026-01-01",
        "pair": "made-up",
        "workload": "w",
        "device": "cuda:X",
        "framework": "torch",
        "step_us": 5.0,
        "remark": "",
        "regions": [{"pattern": "sync-explicit", **verdict}],
        "healthy": [{**verdict, "spans_us": [[0.0, 4.0]]}],
    }


def write(raw: dict[str, object], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "made_up.json"
    path.write_text(json.dumps(raw))
    return path


def test_a_trace_is_found_by_its_content_whatever_its_name(
    one: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = write(one, tmp_path / "labels").parent
    monkeypatch.setattr(module, "read_all", lambda: read_all(labels))
    (tmp_path / "traces" / "other.json").write_text("{}")
    shutil.copy(tmp_path / "traces" / "renamed.json.gz", tmp_path / "traces" / "again.json.gz")
    found = list(natural(tmp_path / "traces"))
    assert [path.name for path, _ in found] == ["again.json.gz", "renamed.json.gz"]
    label = found[0][1]
    assert (label.origin, label.quality, label.pair) == ("natural", "bad", "natural-made-up")
    assert [(r.start_us, r.end_us, r.pattern, r.side) for r in label.regions] == [
        (10.0, 13.0, "sync-explicit", "cpu")
    ]


def test_a_trace_with_nothing_but_unknown_regions_is_good(
    one: dict[str, object], tmp_path: Path
) -> None:
    one["regions"][0]["pattern"] = UNKNOWN  # type: ignore[index]
    label = read(write(one, tmp_path)).label
    assert label.quality == "good"
    assert [r.pattern for r in label.regions] == [UNKNOWN]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"regions": [{"pattern": "x", "side": "cpu", "reason": "r", "spans_us": [[2, 1]]}]},
            "end",
        ),
        ({"regions": [{"pattern": "x", "side": "cpu", "spans_us": []}]}, "reason"),
        ({"source": {"repository": "a/b"}}, "path"),
        ({"step_us": "long"}, "step_us"),
    ],
)
def test_a_broken_label_is_refused_by_name(
    one: dict[str, object], tmp_path: Path, change: dict[str, object], message: str
) -> None:
    with pytest.raises(LabelError, match=rf"made_up\.json: .*{message}"):
        read(write({**one, **change}, tmp_path))


def test_there_are_fourteen_labels_or_more_and_some_are_of_healthy_traces() -> None:
    labels = read_all()
    assert len(labels) >= 14
    assert sum(label.label.quality == "good" for label in labels) >= 2
    assert len({label.sha256 for label in labels}) == len(labels)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_labels_are_valid_and_reasoned(path: Path) -> None:
    label = read(path)
    for verdict in label.regions:
        if verdict.pattern != UNKNOWN:
            assert verdict.side == BY_ID[verdict.pattern].side, verdict.pattern
    assert all(verdict.pattern == "" for verdict in label.healthy)
    for verdict in (*label.regions, *label.healthy):
        assert verdict.side in ("cpu", "gpu")
        assert verdict.spans_us
        assert len(verdict.reason.split()) >= 5, verdict
        assert list(verdict.spans_us) == sorted(verdict.spans_us)
    assert all(start < end for start, end in spans(label))
    assert label.source.licence in ("MIT", "BSD-3-Clause", "Apache-2.0")
    assert len(label.source.commit) == 40
    assert label.source.path
    assert label.labeller
    assert label.date


@NEED_TRACES
def test_every_label_finds_its_trace() -> None:
    found = {path.name.removesuffix(".json.gz") for path, _ in natural(TRACES)}
    assert found == {path.stem for path in FILES}


@NEED_TRACES
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_regions_lie_inside_the_trace(path: Path) -> None:
    trace = kineto.read(TRACES / f"{path.stem}.json.gz")
    first, last = trace.start.min() / NS_PER_US, trace.end.max() / NS_PER_US
    for start, end in spans(read(path)):
        assert first <= start < end <= last
