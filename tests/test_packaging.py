"""The wheel holds the product and nothing else, and works where there is no checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import detector
from tests.checkouts import clone

ROOT = Path(__file__).resolve().parent.parent
COMPILER = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
COMPILED = ("detector/kineto/_scan.", "detector/replay/_solve.")
EXAMPLE = ROOT / "examples" / "train_image_classifier.json.gz"


def run(*command: str | Path, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, plain_env: dict[str, str]) -> Path:
    folder = tmp_path_factory.mktemp("built")
    return build(clone(folder / "checkout"), folder / "wheel", plain_env)


def build(checkout: Path, folder: Path, env: dict[str, str]) -> Path:
    """Built from a copy: setuptools leaves a build/ folder whose stale files enter the next one."""
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, ".", cwd=checkout, env=env)
    (built,) = folder.iterdir()
    return built


def is_binary(name: str) -> bool:
    return name.startswith(COMPILED) and name.endswith((".so", ".pyd"))


def files(folder: Path, pattern: str) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob(pattern)}


def test_the_wheel_holds_the_product_and_nothing_else(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    info = f"trace_antipattern_detector-{detector.__version__}.dist-info"
    assert {name.split("/")[0] for name in inside} == {"detector", info}

    shipped = {name for name in inside if name.startswith("detector/") and not is_binary(name)}
    conf = {f"detector/conf/{name}" for name in files(ROOT / "conf", "*.yaml")}
    code = {f"detector/{name}" for name in files(ROOT / "detector", "*.*")}
    left_out = (".pyc", ".c", ".so", ".pyd")
    assert shipped == conf | {name for name in code if not name.endswith(left_out)}
    models = {Path(name).suffix for name in shipped if name.startswith("detector/models/")}
    assert models == {".txt", ".json"}


@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
def test_the_wheel_holds_the_compiled_loops(wheel: Path) -> None:
    built = list(filter(is_binary, zipfile.ZipFile(wheel).namelist()))
    assert sorted(name.split(".")[0] + "." for name in built) == sorted(COMPILED)


def test_without_a_compiler_the_wheel_is_pure_python(
    checkout: Path, tmp_path: Path, plain_env: dict[str, str]
) -> None:
    built = build(checkout, tmp_path / "wheel", plain_env | {"CC": "no-such-compiler"})
    inside = zipfile.ZipFile(built).namelist()
    assert not any(map(is_binary, inside))
    assert {"detector/kineto/scanner.py", "detector/replay/solve.py"} <= set(inside)


def test_the_source_distribution_holds_the_compiled_loops_sources(
    checkout: Path, tmp_path: Path, plain_env: dict[str, str]
) -> None:
    code = "import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", code, tmp_path / "sdist", cwd=checkout, env=plain_env)
    (built,) = (tmp_path / "sdist").iterdir()
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {f"{name}{suffix}" for name in COMPILED for suffix in ("c", "pyi")}


def test_an_installed_wheel_scans_gates_and_compares_where_there_is_no_checkout(
    wheel: Path, tmp_path: Path, plain_env: dict[str, str]
) -> None:
    """A true install with the base dependencies alone: a forgotten one fails here. The folder has
    modules and settings of the same names, which are not this project's."""
    venv, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", venv, cwd=empty, env=plain_env)
    python = venv / "bin" / "python"
    options = ("-qq", "--no-compile", "-c", ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", *options, wheel, cwd=empty, env=plain_env)

    scan = (python, "-m", "detector.scan", EXAMPLE, "--format", "json")
    report = json.loads(run(*scan, cwd=empty, env=plain_env))

    assert report["schema"] == 2
    assert report["tool"]["version"] == detector.__version__
    assert list(empty.iterdir()) == [], "a scan without --out writes nothing"
    for name in ("detector", "conf", "yaml"):
        (empty / name).mkdir()
        (empty / name / "__init__.py").write_text("raise ImportError('of another project')")
    (empty / "conf" / "scan.yaml").write_text("of: another project")
    command = venv / "bin" / "trace-scan"
    models = ("flagger=rules", "confidence=constant", "confidence.cpu=0.9")

    def exits(code: int, *words: str | Path) -> str:
        done = subprocess.run(
            [command, *words], cwd=empty, env=plain_env, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{words}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    assert "open it in a browser" in exits(0, EXAMPLE, *models, "--out", "out")
    known = "out/report.json"
    assert "failed: " in exits(1, EXAMPLE, *models, "--fail-on", "high")
    exits(0, EXAMPLE, *models, "--fail-on", "info", "--baseline", known)
    assert "Findings: " in exits(0, "diff", known, EXAMPLE, *models)
    exits(1, "diff", known, known, "--expect-fixed", "input-dataloader-sync")
    assert "num_workers" in exits(0, "rule", "input-dataloader-sync")
    installed = json.loads(
        run(python, "-m", "pip", "list", "--format=json", cwd=empty, env=plain_env)
    )
    heavy = {"torch", "transformers", "datasets", "pandas"}
    assert heavy.isdisjoint(row["name"] for row in installed), "a scan needs none of them"


AGENT_AND_NOTEBOOK = """
import json, sys
import anyio, nbclient, nbformat
from mcp import ClientSession, StdioServerParameters, stdio_client

async def ask():
    server = StdioServerParameters(command=sys.argv[1], args=["mcp", "flagger=rules"])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        answer = await session.call_tool("scan", {"trace": "train_image_classifier.json.gz"})
        print(json.dumps(json.loads(answer.content[0].text)["findings"][0]["pattern"]))

anyio.run(ask)
book = nbformat.read("tour.ipynb", as_version=4)
anyio.run(nbclient.NotebookClient(book, timeout=300, kernel_name="this").async_execute)
shown = [out.data for cell in book.cells for out in cell.get("outputs", []) if "data" in out]
print(json.dumps([data["text/html"] for data in shown if "text/html" in data]))
"""


def test_an_installed_wheel_serves_an_agent_and_a_notebook(
    wheel: Path, tmp_path: Path, plain_env: dict[str, str]
) -> None:
    """The wheel in an environment of its own; what else it takes is lent by this one."""
    for name in ("mcp", "nbclient", "nbformat", "ipykernel", "torch"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    venv, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", venv, cwd=empty, env=plain_env)
    python = venv / "bin" / "python"
    run(python, "-m", "pip", "install", "-qq", "--no-deps", wheel, cwd=empty, env=plain_env)
    (packages,) = venv.glob("lib/*/site-packages")
    lent = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "lent.pth").write_text("\n".join(lent))
    where = run(python, "-c", "import detector; print(detector.__file__)", cwd=empty, env=plain_env)
    assert where.startswith(str(venv))

    spec = venv / "share" / "jupyter" / "kernels" / "this" / "kernel.json"
    spec.parent.mkdir(parents=True)
    words = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": words, "display_name": "this", "language": "python"}))
    for name in ("tour.ipynb", EXAMPLE.name):
        shutil.copy(EXAMPLE.parent / name, empty)
    said = run(
        python, "-c", AGENT_AND_NOTEBOOK, venv / "bin" / "trace-scan", cwd=empty, env=plain_env
    )
    named, shown = map(json.loads, said.strip().splitlines()[-2:])
    assert named == "input-dataloader-sync"
    is_report = [True, False, False, False, True]
    assert ['<iframe sandbox="allow-scripts"' in html for html in shown] == is_report
    assert "input-dataloader-sync" in shown[1]
    assert "data loader" in shown[2]
    assert "diff" in shown[4] or "before" in shown[4]


def test_the_notebook_is_kept_without_outputs() -> None:
    book = json.loads((EXAMPLE.parent / "tour.ipynb").read_text())
    assert not any(cell.get("outputs") for cell in book["cells"])
