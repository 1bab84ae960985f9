"""Shell completion: the scripts know every command, option and pattern, and bash runs one."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from detector import completion
from detector.__main__ import COMMANDS, main
from detector.patterns import IDS


def script(shell: str, capsysbinary: pytest.CaptureFixture[bytes]) -> str:
    assert main(["completion", shell]) == 0
    return capsysbinary.readouterr().out.decode()


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_script_knows_commands_options_and_patterns(shell, capsysbinary):
    text = script(shell, capsysbinary)
    assert all(word in text for word in (*COMMANDS, *IDS, "critical", "markdown"))
    assert all(option in text for option in ("fail-on", "expect-fixed", "baseline", "out"))


def test_an_unknown_shell_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["completion", "cmd"])
    assert "invalid choice" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["di"], ["diff"]),
        (["rule", "sync-sc"], ["sync-scalar-readback"]),
        (["trace.json", "--fail"], ["--fail-on"]),
        (["trace.json", "--fail-on", "crit"], ["critical"]),
        (["diff", "a", "b", "--exp"], ["--expect-fixed"]),
        (["diff", "a", "b", "--expect-fixed", "comm-str"], ["comm-straggler"]),
        (["trace.json", "somewhere"], []),  # bash goes on with files
    ],
)
def test_bash_completes(words, offered, capsysbinary):
    quoted = " ".join(f"'{word}'" for word in ("trace-scan", *words))
    asked = f"""{script("bash", capsysbinary)}
COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _trace_scan; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == offered
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_script(shell, capsysbinary):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    text = script(shell, capsysbinary)
    subprocess.run([shell, "-n"], input=text, text=True, check=True, capture_output=True)
