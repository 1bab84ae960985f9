"""``trace-scan completion SHELL``: the script that completes the command in bash, zsh or fish.

The script holds all words, so that completing starts no Python: write it again after an upgrade.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from collections.abc import Sequence
from typing import Final

from detector import diff, scan
from detector.__main__ import COMMANDS
from detector.__main__ import main as run_command
from detector.cli.output import emit
from detector.patterns import IDS

SHELLS: Final = ("bash", "zsh", "fish")
LEVELS: Final = " ".join([*scan.LEVELS, "never"])
FORMATS: Final = " ".join(dict.fromkeys([*scan.FORMATS, *diff.FORMATS]))
_TAKE_PATTERN: Final = "--select|--ignore|--expect-fixed|rule"

_BASH: Final = """\
# trace-scan: eval "$(trace-scan completion bash)"
_trace_scan() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} options words=""
  COMPREPLY=()
  case "${{COMP_WORDS[1]}}" in
{options}
  esac
  case "$before" in
    {take_pattern}) words="{patterns}" ;;
    --fail-on) words="{levels}" ;;
    --format) words="{formats}" ;;
    completion) words="{shells}" ;;
    *)
      if [[ $word == -* ]]; then words=$options
      elif [[ $COMP_CWORD -eq 1 ]]; then words="{commands}"; fi ;;
  esac
  [[ -n $words ]] && COMPREPLY=($(compgen -W "$words" -- "$word"))
  return 0
}}
complete -o default -F _trace_scan trace-scan
"""
_ZSH: Final = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"


def main(argv: Sequence[str]) -> int:
    """Print the script of one shell."""
    parser = argparse.ArgumentParser(
        prog="trace-scan completion",
        description='Print a script that completes trace-scan. bash and zsh: eval "$(trace-scan '
        "completion SHELL)\" in the shell's start file; fish: trace-scan completion fish > "
        "~/.config/fish/completions/trace-scan.fish",
    )
    parser.add_argument("shell", choices=SHELLS)
    shell = parser.parse_args(argv).shell
    script = _fish() if shell == "fish" else _bash()
    emit((_ZSH if shell == "zsh" else "") + script, machine=True)
    return 0


def _bash() -> str:
    options = _options()
    cases = [f'    {name}) options="{" ".join(options[name])}" ;;' for name in COMMANDS]
    cases.append(f'    *) options="{" ".join(options[""])}" ;;')
    return _BASH.format(
        options="\n".join(cases),
        take_pattern=_TAKE_PATTERN,
        patterns=" ".join(IDS),
        commands=" ".join(COMMANDS),
        shells=" ".join(SHELLS),
        levels=LEVELS,
        formats=FORMATS,
    )


def _fish() -> str:
    first = "__fish_is_first_arg"
    lines = ["# trace-scan"]
    for name in COMMANDS:
        lines.append(f"complete -c trace-scan -n {first} -a {name}")
    for name, options in _options().items():
        known = f"'__fish_seen_subcommand_from {name}'"
        where = known if name else f"'not __fish_seen_subcommand_from {' '.join(COMMANDS)}'"
        lines += [f"complete -c trace-scan -n {where} -l {option[2:]}" for option in options]
    patterns = " ".join(IDS)
    for option in ("select", "ignore", "expect-fixed"):
        lines.append(f"complete -c trace-scan -x -l {option} -a '{patterns}'")
    lines.append(f"complete -c trace-scan -x -l fail-on -a '{LEVELS}'")
    lines.append(f"complete -c trace-scan -x -l format -a '{FORMATS}'")
    for name, words in (("rule", patterns), ("completion", " ".join(SHELLS))):
        seen = f"'__fish_seen_subcommand_from {name}'"
        lines.append(f"complete -c trace-scan -f -n {seen} -a '{words}'")
    return "\n".join(lines) + "\n"


def _options() -> dict[str, list[str]]:
    """The long options of each command, out of its help; of a scan under no name."""
    return {name: _long(name) for name in ("", *COMMANDS)}


def _long(name: str) -> list[str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        run_command([*([name] if name else []), "--help"])
    found = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", said.getvalue(), re.M)
    return list(dict.fromkeys(found))
