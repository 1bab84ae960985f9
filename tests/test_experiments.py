"""The benchmark's way to a scan: build, train both models, scan with them, measure."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dataset import labels
from detector.flagger.confidence import LightGBMConfidence
from detector.flagger.lightgbm import LightGBMFlagger
from detector.lab.tables import table
from detector.report import from_json
from tests.bad_servers import answer
from tests.chat_server import Reply, serving
from tests.entry_points import Ended, called

pytest.importorskip("pandas", reason="training needs the train extra")

ROOT = Path(__file__).resolve().parent.parent
LOADING = ("detector", "language", "translator")  # each has a right candidate and a wrong one
# (pair, pattern) of the recorded traces that take part, healthy and faulty.
TAKEN = {
    ("classifier-compiled-1", ()),
    ("classifier-compiled-1", ("compile-graph-break",)),
    ("classifier-plain-1", ()),
    ("classifier-plain-1", ("memory-dtype-churn",)),
    ("detector-plain-1", ()),
    ("detector-plain-1", ("host-python-overhead",)),
    ("detector-plain-1", ("memory-zero-grad-fill",)),
    ("language-plain-1", ()),
    ("language-plain-1", ("memory-redundant-copy",)),
    ("language-plain-1", ("host-loop-indexing",)),
    *((f"{name}-loader-1", ()) for name in LOADING),
    *((f"{name}-loader-1", ("input-main-thread-preprocessing",)) for name in LOADING),
}
ONE = "+experiment.settings.parameters.num_threads=1"  # more only get in each other's way here
FLAGGER = [ONE, "experiment.settings.rounds=3"]
CONFIDENCE = [
    "experiment=confidence",
    ONE,
    "experiment.settings.rounds=3",
    "+experiment.settings.parameters.min_data_in_leaf=2",
]
FIGURE = re.compile(r"\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\]$")


def python(module: str, *words: object, folder: Path, **env: str) -> Ended:
    """``python -m module`` in a folder of its own, with this checkout's code."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def worked(run: Ended) -> list[str]:
    """The lines that a run printed; it must have ended well, without a word of complaint."""
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return run.stdout.splitlines()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    for trace, label in labels.labeled(ROOT / "dataset" / "recorded"):
        if (label.pair, label.patterns) in TAKEN:
            shutil.copy(trace, folder)
            shutil.copy(labels.label_path(trace), folder)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that everything runs in: no checkout, and empty."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def data(place: Path, recorded: Path) -> Path:
    lines = worked(
        python(
            "dataset.build",
            f"benchmark.recorded=['{recorded}']",
            "benchmark.simulated.per_pattern=0",
            "benchmark.simulated.healthy=3",
            "out=benchmark",
            folder=place,
        )
    )
    assert re.fullmatch(r"\d+ traces \(.*'bad': \d+.*\) -> .*benchmark", lines[-1])
    return place / "benchmark"


@pytest.fixture(scope="module")
def models(place: Path, data: Path) -> Path:
    """Both models, trained by their entry point."""
    (flagger, *figures) = worked(
        python("detector.train", f"data={data}", "out=models", *FLAGGER, folder=place)
    )
    assert flagger.startswith("flagger: ")
    assert all(FIGURE.search(line) for line in figures)
    (confidence, *_) = worked(
        called("detector.train", *CONFIDENCE, f"data={data}", "out=models", folder=place)
    )
    assert confidence.startswith("confidence: ")
    return place / "models"


def test_the_trained_models_load_and_say_what_they_learned_from(models: Path, data: Path) -> None:
    flagger = LightGBMFlagger(str(models / "flagger"))
    confidence = LightGBMConfidence(str(models / "confidence"))
    counts = {"recorded": len(list_of(data, "recorded")), "simulated": 3}
    assert flagger.card["traces_by_origin"] == counts
    # a trace without a candidate is none of its rows
    mine = confidence.card["traces_by_origin"]
    assert all(0 < n <= counts[origin] for origin, n in mine.items())
    assert confidence.card["data_sha256"] == flagger.card["data_sha256"]


def test_what_a_language_model_doubts_teaches_the_confidence(
    models: Path, data: Path, recorded: Path, place: Path, tmp_path: Path
) -> None:
    """Scanned with a model that doubts everything: what it doubts of a trace without a label is
    learned from, of a labeled one nothing is."""
    example = ROOT / "examples" / "train_image_classifier.json.gz"
    labeled = recorded / "language-loader-1-1989.json.gz"
    assert labeled.is_file()
    with serving(lambda _: Reply(answer(pattern="none", confidence=1.0))) as chat:
        judge = ["judge=openai", "judge.model=m", f"judge.base_url={chat.url}", "judge.cache=false"]
        words = [example, labeled, *judge, "--out", tmp_path / "reports"]
        run = python("detector.scan", *words, folder=tmp_path)
        assert run.returncode == 0, run.stderr
    reports = sorted(tmp_path.glob("reports/*/report.json"))
    doubted = [from_json(file.read_bytes()).judging.doubted for file in reports]
    assert [len(one) > 0 for one in doubted] == [True, True]
    files = ",".join(map(str, reports))
    words = [f"data={data}", "out=taught", f"record={tmp_path}", f"experiment.doubted=[{files}]"]
    lines = worked(called("detector.train", *CONFIDENCE, *words, folder=place))
    (file,) = (f for f in reports if f.parent.name == "train_image_classifier")
    of_example = {one.pattern for one in from_json(file.read_bytes()).judging.doubted}
    assert lines[1] == f"  besides: {len(of_example)} candidates that a model doubted"
    taught = LightGBMConfidence(str(place / "taught" / "confidence"))
    assert taught.card["doubted"] == len(of_example)
    trees = [(f / "confidence" / "trees.txt").read_text() for f in (models, place / "taught")]
    assert trees[0] != trees[1]


def list_of(data: Path, origin: str) -> list[str]:
    """The names of the traces of this origin in the manifest."""
    traces = json.loads((data / "manifest.json").read_text())["traces"]
    return [about["name"] for about in traces if about["origin"] == origin]


def test_a_scan_runs_with_the_trained_models(models: Path, recorded: Path, place: Path) -> None:
    trace = next(recorded.glob("*.json.gz"))
    run = python(
        "detector.scan",
        trace,
        f"flagger.path={models / 'flagger'}",
        f"confidence.path={models / 'confidence'}",
        "--format",
        "json",
        folder=place,
    )
    assert run.returncode == 0, run.stderr
    report = from_json(run.stdout)
    flagger = LightGBMFlagger(str(models / "flagger"))
    confidence = LightGBMConfidence(str(models / "confidence"))
    assert (report.tool.flagger, report.tool.confidence) == (flagger.name, confidence.name)
    assert report.source.path == str(trace)


@pytest.mark.parametrize(
    ("words", "file", "wanted"),
    [
        (FLAGGER, "flagger.json", "window AUC-ROC, cpu side, LightGBM"),
        (
            CONFIDENCE,
            "confidence.json",
            "every candidate, recorded, wrong_per_healthy",
        ),
    ],
    ids=["flagger", "confidence"],
)
def test_evaluating_prints_figures_with_intervals_and_writes_them(
    data: Path, place: Path, words: list[str], file: str, wanted: str
) -> None:
    lines = worked(called("detector.evaluate", *words, f"data={data}", "out=figures", folder=place))
    found = json.loads((place / "figures" / file).read_text())
    assert lines[-1] == f"-> {Path('figures') / file}"
    assert len(lines) == len(found) + 1
    for line, (name, figure) in zip(lines, found.items(), strict=False):
        assert line.startswith(name)
        if figure["value"] is None:  # not defined in so small a set
            assert "nan" in line
        else:
            assert FIGURE.search(line)
            assert figure["low"] <= figure["value"] <= figure["high"]
    assert found[wanted]["value"] is not None


def test_nothing_is_written_but_what_was_asked_for(data: Path, models: Path, place: Path) -> None:
    assert {p.name for p in place.iterdir()} <= {
        "benchmark",
        "models",
        "taught",
        "figures",
        "outputs",
    }
    # "outputs" has the records of training; those of measuring lie beside the figures
    made = {p.relative_to(place).as_posix() for p in place.glob("outputs/**/*") if p.is_file()}
    assert made <= {f"outputs/training/train-{name}.run.json" for name in EXPERIMENTS}


EXPERIMENTS = ("flagger", "confidence")


def test_every_run_is_recorded(data: Path, models: Path, place: Path) -> None:
    for name in EXPERIMENTS:
        file = place / "outputs" / "training" / f"train-{name}.run.json"
        run = json.loads(file.read_text())
        assert (run["experiment"], run["verb"]) == (name, "train")
        assert run["config"]["data"] == str(data)
        manifest = (data / "manifest.json").read_bytes()
        assert run["data"]["manifest_sha256"] == hashlib.sha256(manifest).hexdigest()
    flagger = json.loads((place / "outputs/training/train-flagger.run.json").read_text())
    assert flagger["card"]["name"] == "flagger"
    assert flagger["fit_s"] > 0


def test_a_multirun_gives_each_job_a_folder_and_compare_shows_what_differs(
    data: Path, tmp_path: Path
) -> None:
    quick = [ONE, "experiment.settings.columns=2000"]
    words = ["-m", f"data={data}", *quick, "experiment.settings.rounds=1,2"]
    lines = worked(called("detector.train", *words, "hydra.sweep.dir=jobs", folder=tmp_path))
    assert {p.name for p in tmp_path.iterdir()} == {"jobs"}
    assert sum(line.startswith("jobs/") for line in lines) == 2
    for job in ("0", "1"):
        LightGBMFlagger(str(tmp_path / "jobs" / job / "flagger"))
    shown = worked(called("detector.compare", "jobs/*", "--out", "seen", folder=tmp_path))
    assert [line.split()[1] for line in shown[1:]] == [
        f"experiment.settings.rounds={n}" for n in (1, 2)
    ]
    assert (tmp_path / "seen" / "compare.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads((tmp_path / "seen" / "compare.json").read_text())
    assert [set(row["figures"]) for row in rows] == [
        {f"{kind} {side}" for kind in ("AUC", "AP") for side in ("cpu", "gpu")}
    ] * 2


def rewound(folder: Path, out: Path, *words: str) -> list[str]:
    whole = [folder, out, "--workers", "1", *words]
    return worked(called("scripts.rewindow", *whole, folder=out.parent))


def test_judges_are_measured_beside_models_of_known_skill(data: Path, place: Path) -> None:
    words = ["experiment=judges", f"data={data}", "out=judges", "experiment.held_out=false"]
    few = [*words, "experiment.origin=recorded", "experiment.every=4"]
    lines = worked(called("detector.evaluate", *few, folder=place))
    assert re.fullmatch(r"\d+ traces, \d+ labels", lines[0])
    row = re.compile(r"(.+?) +(\d+) named +(\d+) wrong.*")
    named = {m[1]: (int(m[2]), int(m[3])) for m in map(row.fullmatch, lines[1:]) if m}
    assert named["oracle, several"][0] >= named["oracle, one pattern"][0] > 0
    assert named["oracle, several"][0] >= named["embedded"][0]
    assert named["random"][1] > named["oracle, several"][1]
    kept = (place / "judges" / "judges.jsonl").read_text()
    assert worked(called("detector.evaluate", *few, folder=place)) == lines
    assert (place / "judges" / "judges.jsonl").read_text() == kept  # nothing is asked again


def test_a_small_language_model_is_trained_and_judges(data: Path, place: Path) -> None:
    tiny = [f"experiment.{k}" for k in ("texts=12", "epochs=1", "width=8", "heads=1", "layers=1")]
    words = ["experiment=causal", f"data={data}", "out=small", "experiment.vocabulary=400", *tiny]
    first, *figures = worked(called("detector.evaluate", *words, folder=place))
    assert first.startswith("small/causal: trained in ")
    assert any(line.startswith("unseen programs, right") for line in figures)
    trace = ROOT / "examples" / "train_image_classifier.json.gz"
    judge = ["judge=transformers", "judge.model=small/causal", "judge.rules=false"]
    run = called("detector.scan", str(trace), *judge, "judge.calibrate=false", "--format", "json",
                 folder=place)  # fmt: skip
    judging = json.loads(run.stdout)["judging"]
    assert judging["answered"] + sum(judging["fallbacks"].values()) == judging["places"] > 0


def test_windows_can_be_cut_anew(data: Path, tmp_path: Path) -> None:
    before, out = table(data, "windows"), tmp_path / "coarse"
    rewound(data, out, "--parts", "2")
    coarse = table(out, "windows")
    assert list(coarse) == list(before)
    assert set(coarse["trace"]) == set(before["trace"])
    assert len(coarse) * 4 == len(before)
    assert table(out, "evidence").equals(table(data, "evidence"))
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["windows"]["parts"] == 2
    assert sum(manifest["tables"]["windows"].values()) == len(coarse)
    assert all((out / about["file"]).is_file() for about in manifest["traces"])
    rewound(out, out, "--evidence")  # in place, and back
    for name in ("windows", "candidates", "evidence", "regions", "traces"):
        assert table(out, name).equals(table(data, name)), name


def test_nothing_but_a_benchmark_is_cut_or_written_over(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for folder, out in ((tmp_path, tmp_path / "new"), (data, tmp_path / "mine")):
        script = [sys.executable, str(ROOT / "scripts" / "rewindow.py"), str(folder), str(out)]
        done = subprocess.run(script, capture_output=True, text=True, timeout=60)
        assert "no finished benchmark" in refused(done)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


# -- what does not fit -----------------------------------------------------------------------------

ENTRIES = ("dataset.build", "detector.train", "detector.evaluate")


def refused(run: Ended) -> str:
    """The one line that a refused run leaves."""
    assert run.returncode == 2, run.stderr
    assert run.stdout == ""
    (line,) = run.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize("module", ENTRIES)
def test_an_unknown_setting_is_one_line_that_names_the_key(module: str, tmp_path: Path) -> None:
    line = refused(python(module, "wrkers=1", folder=tmp_path))
    assert line.startswith("error: invalid override: no key 'wrkers'")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "key"),
    [("dataset.build", "out"), ("detector.train", "data"), ("detector.evaluate", "data")],
)
def test_a_setting_that_must_be_given_is_named(module: str, key: str, tmp_path: Path) -> None:
    line = refused(called(module, folder=tmp_path))
    assert line == f"error: {key} must be set: add {key}=VALUE"


@pytest.mark.parametrize("module", ENTRIES[1:])
def test_an_unfinished_build_is_one_line(module: str, tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "windows.parquet").write_bytes(b"")
    line = refused(called(module, "data=half", folder=tmp_path))
    assert line.startswith("error: half: no finished benchmark")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["experiment.settings.rounds=5,many"],
            "experiment.settings.rounds must be a whole",
        ),
        (["experiment=flagger,flogger"], "no option experiment=flogger"),
        (["out=here", "experiment.settings.rounds=1,2"], "each job of a multirun has its own"),
    ],
)
def test_what_does_not_fit_in_a_multirun_is_one_line(
    words: list[str], said: str, tmp_path: Path
) -> None:
    line = refused(
        called("detector.train", "-m", "data=half", *words, "hydra.sweep.dir=jobs", folder=tmp_path)
    )
    assert line.startswith(f"error: {said}")


@pytest.mark.parametrize("content", [None, "[]", "{}", "no json"])
def test_what_is_no_record_is_one_line(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "a.run.json").write_text(content)
    line = refused(called("detector.compare", "a.run.json", folder=tmp_path))
    assert line.startswith("error: a.run.json: no ")


def test_a_missing_folder_of_recorded_traces_is_one_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    words = [f"benchmark.recorded=['{gone}']", "out=here"]
    assert refused(called("dataset.build", *words, folder=tmp_path)) == (
        f"error: {gone}: no recorded traces"
    )
    assert not list(tmp_path.iterdir())


def test_an_argument_that_an_experiment_does_not_take_is_one_line(tmp_path: Path) -> None:
    words = ["data=half", "+experiment.settings.leavs=3"]
    line = refused(called("detector.train", *words, folder=tmp_path))
    assert line.startswith("error: experiment: ")
    assert "leavs" in line


def test_the_full_error_is_there_for_those_who_ask(tmp_path: Path) -> None:
    run = python("detector.train", "wrong=1", folder=tmp_path, HYDRA_FULL_ERROR="1")
    assert run.returncode == 1
    assert "Traceback" in run.stderr
    assert "wrong" in run.stderr.splitlines()[-1]


def test_hydra_s_own_options_still_work(tmp_path: Path) -> None:
    run = python("detector.train", "--cfg", "job", "data=some", folder=tmp_path)
    assert "data: some" in worked(run)
