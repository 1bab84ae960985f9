"""The rules that keep the code's shape: layers, an import-light start, sizes and names."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from dataset.splits import Member, schemes
from detector.patterns import BY_ID, PATTERNS

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "detector").rglob("*.py"))
ALL_CODE = [
    *MODULES,
    *sorted((ROOT / "dataset").rglob("*.py")),
    *sorted((ROOT / "scripts").rglob("*.py")),
]
HEAVY = ("torch", "transformers", "lightgbm", "datasets", "pandas")
ENTRY_POINTS = ("scan.py", "train.py", "evaluate.py", "compare.py")
# detector.trace is the one word of the domain that the standard library also has; it is only ever
# imported through its package.
SHARED_WITH_STDLIB = {"trace"}
FAMILIES = "|".join(sorted({pattern.id.split("-")[0] for pattern in PATTERNS}))
PATTERN_ID = re.compile(rf"(?<![\w./-])(?:{FAMILIES})(?:-[a-z0-9]+)+(?![\w./-])")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_imports_go_in_one_direction() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or any(path.with_suffix(end).is_file() for end in (".py", ".pyi"))


def runtime_imports(path: Path) -> Iterator[str]:
    """The modules of this project that a file loads, wherever in it, but not for types alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("detector"):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if is_module(submodule) else str(node.module)


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): set(
            runtime_imports(path)
        )
        for path in MODULES
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_the_start_is_import_light() -> None:
    code = f"import sys, detector.scan; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_scan_without_settings_loads_neither_hydra_nor_a_learning_library() -> None:
    late = (*HEAVY, "hydra", "omegaconf", "scipy", "sklearn")
    code = (
        "import sys; from detector.scan import main;"
        f"main([{str(ROOT / 'examples' / 'train_image_classifier.json.gz')!r}]);"
        f"print([m for m in {late} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("path", ALL_CODE, ids=name_of)
def test_a_module_is_short_and_well_named(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 450
    assert path.stem not in sys.stdlib_module_names - SHARED_WITH_STDLIB
    assert path.stem not in ("utils", "common", "helpers", "misc")


def prints(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        ):
            yield node.lineno


def test_only_entry_points_and_renderers_print() -> None:
    allowed = {
        path for path in MODULES if path.name in ENTRY_POINTS or path.parent.name == "render"
    }
    found = {
        name_of(path): lines
        for path in MODULES
        if path not in allowed and (lines := list(prints(ast.parse(path.read_text()))))
    }
    assert found == {}


def test_every_pattern_named_in_the_configuration_exists() -> None:
    named = {
        (name_of(path), match)
        for path in (ROOT / "conf").rglob("*.yaml")
        for match in PATTERN_ID.findall(path.read_text())
    }
    assert {(where, word) for where, word in named if word not in BY_ID} == set()


# Who may spell a pattern's id outside detector/patterns, and why.
SPELL_PATTERNS = {
    "detector/flagger/rules.py",  # a baseline: published thresholds, each names a pattern
    "detector/ledger",  # a cause of waiting goes by the name that a pattern has, too
}


def test_a_pattern_stands_in_one_place() -> None:
    spelled = {
        name_of(path)
        for path in MODULES
        if path.parent.name != "patterns"
        for word in PATTERN_ID.findall(path.read_text())
        if word in BY_ID
    }
    allowed = {name for name in spelled if {name, name.rpartition("/")[0]} & SPELL_PATTERNS}
    assert spelled == allowed


# What a label looks like and how a cost is written down; nothing that says how long work takes.
SHARED_BY_MAKERS = {"dataset.labels", "dataset.costs", "detector.patterns", "detector.taxonomy"}


def imports(path: Path) -> Iterator[str]:
    """The modules of this project that a file imports, packages by their name."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in getattr(node, "names", ())]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [str(node.module), *(f"{node.module}.{name}" for name in names)]
        elif not isinstance(node, ast.Import):
            continue
        for name in names:
            file = ROOT / name.replace(".", "/")
            if file.with_suffix(".py").is_file() or (file / "__init__.py").is_file():
                yield name


def imported(package: str) -> set[str]:
    """The modules of this project that a package imports from outside itself."""
    found = {name for path in (ROOT / package).rglob("*.py") for name in imports(path)}
    own = package.replace("/", ".")
    return {name for name in found if name != own and not name.startswith(f"{own}.")}


def test_the_simulator_knows_nothing_of_the_injectors() -> None:
    simulator = imported("dataset/simulate")
    assert simulator - {"dataset", "detector"} <= SHARED_BY_MAKERS
    for name in simulator & {"dataset.labels", "dataset.costs"}:  # nor through these
        others = {m for m in imports(ROOT / f"{name.replace('.', '/')}.py") if "dataset." in m}
        assert others <= SHARED_BY_MAKERS


def test_the_injectors_take_no_duration_from_the_simulator() -> None:
    """Models learn from simulated traces and are scored on injected ones: a common way to draw how
    long a fault takes would be learned, and scored, and be true of nothing real. What kernels are
    called and the public figures of devices are no such thing."""
    found = {name for name in imported("dataset/inject") if name.startswith("dataset.simulate.")}
    assert found <= {"dataset.simulate.kernels", "dataset.simulate.devices"}
    for path in sorted((ROOT / "dataset" / "inject").rglob("*.py")):
        text = path.read_text()
        read = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
        assert not read & {"us", "matrix_rate"}, name_of(path)
        assert not re.search(r"device\.(latency|gap|floor)\b", text), name_of(path)


def test_simulated_traces_are_in_no_part_that_is_scored() -> None:
    devices = ("simulated:A100", "simulated:MI300X")
    real = [Member("recorded", "language", "cpu"), Member("injected", "graph-x", "rocm:MI300X")]
    made_up = [Member("simulated", w, d) for w in ("lm-train", "convnet-train") for d in devices]
    for scheme, parts in schemes([*real, *made_up]).items():
        assert set(parts[len(real) :]) <= {"train", "excluded"}, scheme


@pytest.mark.parametrize("path", sorted(ROOT.glob("[!.]*/**/*.label.json")), ids=name_of)
def test_every_label_names_a_pattern_and_its_side(path: Path) -> None:
    for region in json.loads(path.read_text())["regions"]:
        assert BY_ID[region["pattern"]].side == region["side"]
        assert region["start_us"] < region["end_us"]
