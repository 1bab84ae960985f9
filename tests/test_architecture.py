"""The rules that keep the code's shape: layers, an import-light start, sizes and names."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detector.taxonomy import BY_ID, PATTERNS

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


def test_the_start_is_import_light() -> None:
    code = f"import sys, detector.scan; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


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


@pytest.mark.parametrize("path", sorted(ROOT.glob("[!.]*/**/*.label.json")), ids=name_of)
def test_every_label_names_a_pattern_and_its_side(path: Path) -> None:
    for region in json.loads(path.read_text())["regions"]:
        assert BY_ID[region["pattern"]].side == region["side"]
        assert region["start_us"] < region["end_us"]
