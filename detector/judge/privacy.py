"""What may leave the machine: names without people, hosts, addresses, keys and folders.

``fit_to_send`` is the last thing done to every text out of a trace. It also breaks the marks with
which chat templates part the roles, so that a name cannot begin a turn of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

GONE: Final = "…"
_SEGMENT: Final = r"[^\s\\/:\"'<>|()\[\],;]+"
_FILE: Final = re.compile(r"^[\w.+-]{1,80}\.(?:py|pyx|pyc|so|c|cc|cpp|cu|cuh|h|hpp|ipynb|hip)$")

_KEY: Final = (
    r"\b(?:sk|pk|rk|hf|ghp|gho|ghs|ghu|github_pat|glpat|xox[abpr]|gsk|npm|pypi|dop_v1|r8|nvapi)"
    r"[-_][A-Za-z0-9_…\-]{8,}"
    r"|\b(?:AKIA|ASIA|AIza)[A-Za-z0-9_…\-]{12,}"
    r"|\beyJ[A-Za-z0-9_…\-]{8,}(?:\.[A-Za-z0-9_…\-]+)*"
    r"|\b(?=[A-Za-z0-9+/=]*[a-z])(?=[A-Za-z0-9+/=]*[A-Z])(?=[A-Za-z0-9+/=]*\d)[A-Za-z0-9+/=]{40,}"
    r"|\b[0-9a-fA-F]{32,}\b"
    # A long name was cut, and a key with it: what is left of it on either side.
    r"|\b(?=(?:[A-Za-z]*\d){3})[A-Za-z0-9]{12,}(?=…)|(?<=…)(?=(?:[A-Za-z]*\d){3})[A-Za-z0-9]{8,}"
)
_HOST_END: Final = (
    "com|org|net|io|dev|ai|edu|gov|mil|info|biz|cloud|local|lan|internal|intranet|corp|home|"
    "cluster|localdomain|de|uk|fr|ch|eu|cn|jp|kr|in|us|ru|nl|se|ca|au"
)
_RULES: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(_KEY), GONE),
    (re.compile(r"(?i)\b(?:bearer|basic)\s+[a-z0-9._~+/=\-]{8,}"), GONE),
    (
        re.compile(
            r"(?i)\b[a-z0-9_\-]*(?:api[_-]?key|token|secret|passw(?:or)?d|authorization)"
            r"\s*[=:]\s*[^\s\"']+"
        ),
        GONE,
    ),
    (re.compile(r"\b[a-zA-Z][\w+.-]*://[^\s\"'<>]+"), GONE),
    (re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)*"), GONE),
    # Paths of Windows, shares of it too; folders may hold blanks.
    (
        re.compile(
            r"(?:\b[A-Za-z]:[\\/]|\\\\)(?:[^\\/\"'<>|:\n]{1,80}[\\/])*[^\\/\"'<>|:()\s]{0,80}"
        ),
        lambda m: _last(m[0]),
    ),
    (
        re.compile(rf"(?:~|\.\.?|(?<![\w.\])…]))/(?:{_SEGMENT}/)*{_SEGMENT}/?"),
        lambda m: _last(m[0]),
    ),
    (re.compile(rf"{GONE}[\\/]({_SEGMENT})"), lambda m: _last(m[0])),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), GONE),
    (re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}(?::?[0-9a-fA-F]{1,4})+(?![\w:])"), GONE),
    (re.compile(r"(?i)\b(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3}):[0-9a-f:]+(?![\w:])"), GONE),
    (re.compile(r"\bip-\d{1,3}(?:-\d{1,3}){3}\b"), GONE),
    (re.compile(rf"(?i)\b(?:[a-z0-9_-]+\.)+(?:{_HOST_END})\b(?!\()"), GONE),
    (re.compile(r"(?i)\b(?:user|host|username|hostname)=[\w.-]+"), GONE),
    (re.compile(r"(?i)\b(?:username|hostname)\s*:\s*[\w.-]+"), GONE),
)

_ROLES: Final = (
    "s|bos|eos|pad|unk|system|user|assistant|tool|human|model|think|thinking|evidence|sep|cls|"
    "start_of_turn|end_of_turn|begin_of_text|end_of_text|tool_call|tool_response|im_start|im_end"
)
_CONTROL: Final = (
    (re.compile(r"<(?=\|)|<(?=[｜])"), "< "),
    (re.compile(r"(?<=\|)>|(?<=[｜])>"), " >"),
    (re.compile(rf"(?i)<(?=/?\s*(?:{_ROLES})\s*/?>)"), "< "),
    (re.compile(r"(?i)<(?=/?\s*evidence)"), "< "),
    (re.compile(r"(?i)\[(?=/?\s*(?:INST|SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS)\b)"), "[ "),
    (re.compile(r"(?i)<<(?=/?\s*SYS)"), "< < "),
    (re.compile(r"(?im)^(\s*)(#{2,}|(?:system|assistant|user|human)\s*:)"), r"\1· \2"),
    (re.compile(r"```"), "'''"),
)


def fit_to_send(text: str) -> str:
    """``text`` without private details and without marks that part the roles of a chat."""
    return broken(redacted(text))


def redacted(text: str) -> str:
    """The text without paths, hosts, addresses, e-mail, keys and user names; the name of a source
    file stays."""
    for rule, instead in _RULES:
        text = rule.sub(instead, text)
    return text


def broken(text: str) -> str:
    """The text without marks that a chat template would read as the end of the evidence."""
    for rule, instead in _CONTROL:
        text = rule.sub(instead, text)
    return text


def _last(path: str) -> str:
    name = re.split(r"[\\/]", path)[-1]
    return f"{GONE}/{name}" if _FILE.match(name) else GONE
