"""A hand label finds its trace by the base's name and its content, by whatever route it came."""

from __future__ import annotations

import gzip
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dataset import bases, inject, labels
from dataset import natural as by_hand
from dataset.bases import BaseError, Manifest, Source
from dataset.build import plan_units
from dataset.inject import injection
from dataset.labels import UNKNOWN, LabelError
from dataset.natural import read_all

STEP, STEPS, OPS = 2_000.0, 4, 6
PLAN = {
    "recorded": [],
    "every": 1,
    "simulated": {"seed": 0, "per_pattern": 0, "healthy": 0},
    "injected": {
        "seed": 0,
        "published": True,
        "files": [],
        "without": [],
        "tries": 2,
        "several": 0,
        "most_events": 45,  # two of the four steps
    },
    "natural": True,
}
HEALTHY = (2 * STEP + 500, 3 * STEP - 500)  # a stretch of the third step


def events() -> list[dict[str, Any]]:
    """A marked step of 2 ms has six ops, each with a launch and its kernel."""
    found: list[dict[str, Any]] = []

    def add(cat: str, name: str, ts: float, dur: float, where: dict[str, int], **args: Any) -> None:
        about = {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur}
        found.append({**about, **where, "args": args})

    host, device = {"pid": 1, "tid": 1}, {"pid": 0, "tid": 7}
    for i in range(STEPS):
        add("user_annotation", f"ProfilerStep#{i}", i * STEP, STEP - 5, host)
        for k in range(OPS):
            at, number = i * STEP + 20 + 320 * k, 1 + i * OPS + k
            shapes = {"Input Dims": [[64, 64]], "Input type": ["float"]}
            add("cpu_op", "aten::mul", at, 60, host, **{"External id": number}, **shapes)
            add("cuda_runtime", "cudaLaunchKernel", at + 10, 8, host, correlation=number)
            on = {"device": 0, "stream": 7, "correlation": number}
            add("kernel", "vectorized_elementwise_kernel<4>", at + 25, 250, device, **on)
    return found


DEVICE = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}
CONTENT = json.dumps(
    {"schemaVersion": 1, "deviceProperties": [DEVICE], "traceEvents": events()}
).encode()
DIGEST = sha256(CONTENT).hexdigest()


def hand_label(digest: str = DIGEST) -> dict[str, Any]:
    verdict = {"side": "cpu", "reason": "the queue is never empty", "spans_us": [list(HEALTHY)]}
    source = {"repository": "a/b", "path": "one.json", "commit": "c", "licence": "MIT"}
    about = {"labeller": "by hand", "date": "2026-01-01", "pair": "one", "workload": "w"}
    about |= {"device": "cuda:A100", "framework": "torch", "remark": "", "step_us": STEP}
    named = {**verdict, "side": "gpu", "pattern": "memory-redundant-copy"}
    named |= {"cost_us": 90.0, "steps": 1}
    return {
        "base": "one",
        "sha256": digest,
        "source": source,
        **about,
        "regions": [named],
        "healthy": [verdict],
    }


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that serves the base as its publisher packed it; the only base and hand label."""
    folder = tmp_path / "published"
    folder.mkdir()
    packed = gzip.compress(CONTENT, 9, mtime=123)
    (folder / "one.json.gz").write_bytes(packed)
    source = Source(
        name="one",
        workload="w",
        device="cuda:A100",
        repository="a/b",
        path="one.json.gz",
        commit="c",
        licence="MIT",
        sha256=DIGEST,
        bytes=len(packed),
    )
    listed = Manifest(f"file://{folder}/{{path}}", (source,))
    monkeypatch.setattr(bases, "manifest", lambda: listed)
    monkeypatch.setattr(bases, "known", lambda: {"one": source})
    say(hand_label(), tmp_path, monkeypatch)
    pause = {"host-gc-pause": injection.injectors()["host-gc-pause"]}
    monkeypatch.setattr(inject, "injectors", lambda: pause)
    return folder


def say(label: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this the only hand label there is."""
    (folder / "labels").mkdir(exist_ok=True)
    (folder / "labels" / "one.json").write_text(json.dumps(label))
    monkeypatch.setattr(by_hand, "read_all", lambda: read_all(folder / "labels"))


def written(out: Path, folder: Path | None) -> dict[str, bytes]:
    """The label files of a plan's units, by name."""
    out.mkdir()
    made = {}
    for unit in plan_units(PLAN, out, folder):
        file = labels.write(unit.make()[1], out / "x.label.json")
        made[unit.name] = file.read_bytes()
    return made


def test_a_fetched_base_has_the_labels_of_one_in_a_folder_byte_for_byte(
    served: Path, tmp_path: Path
) -> None:
    here, fetched = written(tmp_path / "a", served), written(tmp_path / "b", None)
    assert here == fetched
    again = (tmp_path / "b" / "bases" / "one.json.gz").read_bytes()
    assert again != (served / "one.json.gz").read_bytes()  # packed anew
    assert sorted(here) == ["injected/one/000", "injected/one/001", "injected/one/002"] + [
        "natural/one"
    ]


def test_a_hand_label_survives_that_its_base_is_cut_short(served: Path, tmp_path: Path) -> None:
    made = written(tmp_path / "a", served)
    base = json.loads(made["injected/one/000"])
    unknown = sorted(
        (r["start_us"], r["end_us"])
        for r in base["regions"]
        if r["side"] == "cpu" and r["pattern"] == UNKNOWN
    )
    assert unknown == [(2 * STEP, HEALTHY[0]), (HEALTHY[1], unknown[1][1])]  # the kept time alone
    for name in ("injected/one/001", "injected/one/002"):
        label = json.loads(made[name])
        spans = [r for r in label["regions"] if r["side"] == "cpu" and r["pattern"] == UNKNOWN]
        whole = max(r["end_us"] for r in label["regions"]) - 2 * STEP
        assert whole - sum(r["end_us"] - r["start_us"] for r in spans) > 900


def test_a_hand_label_of_another_content_is_an_error_by_both_routes(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = sha256((served / "one.json.gz").read_bytes()).hexdigest()
    say(hand_label(packed), tmp_path, monkeypatch)
    for name, folder in (("a", served), ("b", None)):
        with pytest.raises(LabelError, match=r"one.json.gz: not the trace that .*one\.json labels"):
            written(tmp_path / name, folder)


def test_a_folder_without_a_labeled_trace_is_an_error(served: Path, tmp_path: Path) -> None:
    (served / "one.json.gz").rename(served / "other.json.gz")
    with pytest.raises(BaseError, match="none of the base traces"):
        written(tmp_path / "a", served)
