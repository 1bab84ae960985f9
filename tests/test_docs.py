"""Every command of the documents runs, and a shown terminal session shows what really comes out.

``sh`` blocks are commands. In ``console`` blocks the lines after ``$`` are; the others are their
output, of which every line must appear (a lone ``…`` stands for lines left out). A block under
``<!-- not run: reason -->`` is left alone.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]+ -->\s*)?^```(?P<kind>sh|console)\n(?P<body>.*?)^```$",
    re.M | re.S,
)


class Block(NamedTuple):
    script: str
    shown: tuple[str, ...]


def blocks(text: str) -> list[Block]:
    """The commands of a document in order, without those that say why they are not run."""
    found = []
    for match in BLOCK.finditer(text):
        if match["skip"]:
            continue
        lines = match["body"].splitlines()
        if match["kind"] == "sh":
            found.append(Block("\n".join(lines), ()))
        else:
            commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
            shown = [line.rstrip() for line in lines if not line.startswith("$ ")]
            found.append(Block("\n".join(commands), tuple(x for x in shown if x not in ("", "…"))))
    return found


def run_document(name: str, checkout: Path, env: dict[str, str]) -> None:
    found = blocks((ROOT / name).read_text())
    assert found, f"{name} shows no command"
    for block in found:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.script],
            cwd=checkout,
            env=env | {"COLUMNS": "100"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block.script}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        printed = {line.rstrip() for line in done.stdout.splitlines()}
        missing = [line for line in block.shown if line not in printed]
        assert not missing, f"{name} shows what `{block.script}` no longer prints: {missing}"


def lend_environment(checkout: Path) -> None:
    """Gives a copied checkout the running environment as its .venv, already installed for make."""
    venv = checkout / ".venv"
    venv.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith(".installed"):
            (venv / entry.name).symlink_to(entry)
    for stamp in (".installed", ".installed-dev"):
        (venv / stamp).touch()
    known = ROOT / ".mypy_cache"  # a minute's work, done already where `make test` runs this
    if known.is_dir():
        shutil.copytree(known, checkout / known.name)


def test_the_readme_works_on_a_fresh_clone(checkout: Path, plain_env: dict[str, str]) -> None:
    """`make scan` really makes an environment and installs into it, as for a newcomer."""
    run_document("README.md", checkout, plain_env)


def test_the_contributing_guide_works(checkout: Path, plain_env: dict[str, str]) -> None:
    lend_environment(checkout)
    run_document("CONTRIBUTING.md", checkout, plain_env)


def test_every_make_target_is_documented() -> None:
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.M)) - {"help"}
    documented = set(re.findall(r"`?make ([a-z]+)", (ROOT / "CONTRIBUTING.md").read_text()))
    assert documented == targets


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "LOG.md",
        *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
    ],
)
def test_links_inside_the_repository_lead_somewhere(name: str) -> None:
    file = ROOT / name
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text())
    assert [link for link in links if not (file.parent / link).exists()] == []


def test_blocks_are_distinguished() -> None:
    text = (
        "```sh\nmake a\n```\n"
        "<!-- not run: why -->\n```sh\nmake b\n```\n"
        "```console\n$ echo c\nc\n…\n```\n"
    )
    assert blocks(text) == [Block("make a", ()), Block("echo c", ("c",))]
