"""The files through which others run the command: action, hook, container, shown settings."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from detector import diff, scan

ROOT = Path(__file__).resolve().parent.parent


def options(help_text: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", help_text))


KNOWN = options(scan._parser().format_help()) | options(diff._parser().format_help())


def test_the_action_names_options_that_exist_and_puts_no_input_into_the_script():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = action["runs"]["steps"]
    scripts = "\n".join(step.get("run", "") for step in steps)
    assert options(scripts.replace("--quiet", "")) <= KNOWN
    assert "${{" not in scripts
    given = re.findall(r"inputs\.([a-z-]+)", (ROOT / "action.yml").read_text())
    assert set(given) == set(action["inputs"])


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_the_actions_script_passes_the_words_on(tmp_path):
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (script,) = [s["run"] for s in action["runs"]["steps"] if "trace-scan" in s.get("run", "")]
    fake = tmp_path / "trace-scan"
    fake.write_text(f'#!{sys.executable}\nimport sys; print(*sys.argv[1:], sep="|")\n')
    fake.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TRACES": "a*.json b.json", "FAIL_ON": "low",
           "BASELINE": "my known.json", "OUT": "out", "ARGS": "judge=none"}  # fmt: skip
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    said = done.stdout.strip().split("|")
    assert said == ["a*.json", "b.json", "--fail-on", "low", "--baseline", "my known.json",
                    "--out", "out", "judge=none"]  # fmt: skip


def test_the_hook_runs_the_command():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"].split()[0] == "trace-scan"
    assert options(hook["entry"]) <= KNOWN
    files = re.compile(hook["files"])
    assert files.search("runs/rank0.pt.trace.json.gz")
    assert not files.search("package.json")


def has_docker() -> bool:
    """Whether a daemon answers: the client alone builds nothing."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_docker(), reason="no docker daemon here")
def test_the_container_builds(checkout):
    subprocess.run(["docker", "build", "-q", "."], cwd=checkout, check=True, timeout=900)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) < 1_200


def test_the_shown_table_of_settings_is_accepted(tmp_path):
    from detector.cli.gate import gate_of
    from detector.report import Report, to_json

    (table,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (tmp_path / "pyproject.toml").write_text(table)
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "report.json").write_text(to_json(Report()))
    gate = gate_of(None, [], [], None, tmp_path)
    assert (gate.level, gate.overrides) == ("high", ("judge=none",))
