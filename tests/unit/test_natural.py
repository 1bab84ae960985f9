"""Hand-written labels: valid, reasoned, inside their traces, matched by content."""

import gzip
import json
from pathlib import Path

import pytest

from dataset import natural as module
from dataset.bases import Found, digest, in_folder, known
from dataset.costs import cost_faults
from dataset.labels import UNKNOWN, LabelError
from dataset.natural import LABELS, Natural, by_base, read, read_all
from detector import kineto
from detector.patterns import BY_ID
from detector.trace import NS_PER_US

TRACES = Path(__file__).parents[3] / "shared" / "traces"
NEED_TRACES = pytest.mark.skipif(not TRACES.is_dir(), reason="no folder ../shared/traces")
FILES = sorted(LABELS.glob("*.json"))


def spans(label: Natural) -> list[tuple[float, float]]:
    verdicts = (*label.regions, *label.healthy)
    return [span for verdict in verdicts for span in verdict.spans_us]


@pytest.fixture
def base(tmp_path: Path) -> Found:
    """A made-up base in a folder."""
    file = tmp_path / "traces" / "made_up.json.gz"
    file.parent.mkdir()
    with gzip.open(file, "wt") as stream:
        json.dump({"traceEvents": []}, stream)
    return Found("made_up", file, "w", "cuda:X", "MIT", digest(file))


@pytest.fixture
def one(base: Found) -> dict[str, object]:
    """Its raw label."""
    verdict = {"side": "cpu", "reason": "waits for 3 of 5 ms", "spans_us": [[10.0, 13.0]]}
    return {
        "base": base.name,
        "sha256": base.sha256,
        "source": {"repository": "a/b", "path": "c.json", "commit": "d", "licence": "MIT"},
        "labeller": "by hand",
        "date": "2026-01-01",
        "pair": "made-up",
        "workload": "w",
        "device": "cuda:X",
        "framework": "torch",
        "step_us": 5.0,
        "remark": "",
        "regions": [{"pattern": "sync-explicit", "cost_us": 2.0, "steps": 1, **verdict}],
        "healthy": [{**verdict, "spans_us": [[0.0, 4.0], [12.0, 15.0]]}],
    }


def write(raw: dict[str, object], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "made_up.json"
    path.write_text(json.dumps(raw))
    return path


def test_a_base_is_known_by_its_name_and_its_content_however_it_is_packed(
    one: dict[str, object], base: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = write(one, tmp_path / "labels").parent
    monkeypatch.setattr(module, "read_all", lambda: read_all(labels))
    content = gzip.decompress(base.file.read_bytes())
    base.file.write_bytes(gzip.compress(content, 1, mtime=99))
    again = Found("made_up", base.file, "w", "cuda:X", "MIT", digest(base.file))
    other = Found("other", base.file, "w", "cuda:X", "MIT", "0")
    assert list(by_base([other, again])) == ["made_up"]
    label = by_base([again])["made_up"].label
    assert (label.origin, label.quality, label.pair) == ("natural", "bad", "natural-made-up")
    assert [
        (r.start_us, r.end_us, r.pattern, r.side, r.cost_us, r.cost_from) for r in label.regions
    ] == [(10.0, 13.0, "sync-explicit", "cpu", 2.0, "hand")]


def test_sound_is_what_somebody_called_healthy_and_did_not_name(
    one: dict[str, object], tmp_path: Path
) -> None:
    sound = read(write(one, tmp_path)).sound
    assert sound["cpu"].start.tolist() == [0, 13_000]
    assert sound["cpu"].end.tolist() == [4_000, 15_000]
    assert not len(sound["gpu"])


@pytest.mark.parametrize(
    ("cost", "steps", "harmless"), [(2.0, 1, False), (0.049, 1, True), (0.2, 5, True)]
)
def test_a_cost_by_hand_is_split_by_length_and_under_one_percent_harmless(
    one: dict[str, object], tmp_path: Path, cost: float, steps: int, harmless: bool
) -> None:
    one["regions"][0] |= {  # type: ignore[index]
        "cost_us": cost,
        "steps": steps,
        "spans_us": [[0.0, 1.0], [2.0, 5.0]],
    }
    label = read(write(one, tmp_path)).label
    assert [r.cost_us for r in label.regions] == [round(cost / 4, 3), round(3 * cost / 4, 3)]
    assert {r.harmless for r in label.regions} == {harmless}
    assert list(cost_faults(label)) == []


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
            {
                "regions": [
                    {"pattern": "unknown", "side": "cpu", "reason": "r", "spans_us": [[2, 1]]}
                ]
            },
            "end",
        ),
        ({"regions": [{"pattern": "x", "side": "cpu", "spans_us": []}]}, "reason"),
        ({"source": {"repository": "a/b"}}, "path"),
        ({"step_us": "long"}, "long"),
        (
            {
                "regions": [
                    {"pattern": "x", "side": "cpu", "reason": "r", "spans_us": [[1, 2]], "steps": 1}
                ]
            },
            "x without cost_us",
        ),
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


def test_every_label_names_a_base_by_the_content_that_is_fetched() -> None:
    for path, label in zip(FILES, read_all(), strict=True):
        assert label.base == path.stem
        assert label.sha256 == known()[label.base].sha256


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_labels_are_valid_and_reasoned(path: Path) -> None:
    label = read(path)
    for verdict in label.regions:
        if verdict.pattern != UNKNOWN:
            assert verdict.side == BY_ID[verdict.pattern].side, verdict.pattern
            assert "Cost: " in verdict.reason
            assert verdict.cost_us
    assert list(cost_faults(label.label)) == []
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
    assert label.labeler
    assert label.date


@NEED_TRACES
def test_every_label_finds_its_trace() -> None:
    assert set(by_base(in_folder(TRACES))) == {path.stem for path in FILES}


@NEED_TRACES
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_regions_lie_inside_the_trace(path: Path) -> None:
    trace = kineto.read(TRACES / f"{path.stem}.json.gz")
    first, last = trace.start.min() / NS_PER_US, trace.end.max() / NS_PER_US
    for start, end in spans(read(path)):
        assert first <= start < end <= last
