"""Names out of a trace, made fit to show: quoted, bounded, short, and without private details.

A trace is somebody else's text. Control and formatting characters are escaped, quotes cannot close
a quotation, folders of a path are left out, and what is long keeps its telling ends.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache
from typing import Final

from detector import vocabulary

LIMIT: Final = 80  # characters of one name

# A path begins where a word does: tried at every letter, a long name would take quadratic time.
_FOLDERS: Final = re.compile(
    r"(?:[A-Za-z]:|(?<![^\s\\/:\"'<>|()]))[\\/]?(?:[^\s\\/:\"'<>|()]+[\\/]){2,}"
)
_ADDRESS: Final = re.compile(r"( object)? at 0x[0-9a-fA-F]+|0x[0-9a-fA-F]{6,}")
_NAMESPACE: Final = re.compile(r"\(anonymous namespace\)::|\b[A-Za-z_]\w*::(?=[A-Za-z_({])")
_LAMBDA: Final = re.compile(r"\{lambda.*?\}(#\d+)?|'lambda\d*'|::operator\(\)")
_PIECES: Final = re.compile(r"[A-Za-z]+|[0-9]|[!-/:-@\[-`{-~]+|[^\s!-~]|\n")
_BRACKETS: Final = re.compile(r"[<>(]")
_WORD: Final = re.compile(r"[A-Za-z_]\w+")
_MACHINERY: Final = re.compile(
    r"^(const|unsigned|signed|char|int|long|bool|array|std|detail|operator|lambda\d*|instance|type"
    r"|true|false|void|auto|struct|class|tuple|TensorIterator\w*|\w*OffsetCalculator|Array"
    r"|gpu_kernel_\w+|(Load|Store)WithoutCast|cuda_utils|opmath_\w+|memory|policies|function_traits)$"
)
_FILE: Final = re.compile(r"\.\w{1,6}$|^<")
_BUILTIN: Final = re.compile(r"^<built-in (?:method|function) (\w+)(?: of (?:type )?(\S+?))?[ >]")


def tokens(text: str) -> int:
    """How many tokens a language model may see in ``text`` at most, roughly.

    The rule is on the safe side of common tokenizers: four letters of a word, two marks in a row,
    one digit or one line break make a token; a character beyond ASCII makes two.
    """
    return sum(_cost(piece) for piece in _PIECES.findall(text))


@lru_cache(maxsize=4_096)
def _cost(piece: str) -> int:
    if not piece.isascii():
        return 2
    return math.ceil(len(piece) / (4 if piece.isalpha() else 2))


def bounded(text: str, limit: int = LIMIT) -> str:
    """``text`` on one line, printable, at most ``limit`` characters: head and tail are kept."""
    clean = " ".join(_shown(text[: 20 * limit]).split())
    if len(clean) <= limit:
        return clean
    head = (limit - 1) * 2 // 3
    return clean[:head] + "…" + clean[len(clean) - (limit - 1 - head) :]


def _shown(text: str) -> str:
    if text.isascii() and text.isprintable():  # nearly every name
        return text.replace('"', "'")
    return "".join(map(_visible, text))


def _visible(char: str) -> str:
    if char == '"':
        return "'"
    if char in " \t\n" or (char.isascii() and char.isprintable()):
        return char
    # Controls, direction marks, surrogates, private use: none may reach a terminal or a prompt.
    if unicodedata.category(char)[0] in "CZ":
        return f"\\x{ord(char):02x}"
    return char


def quoted(text: str) -> str:
    """A name as data: bounded and between quotes that it cannot close."""
    return f'"{bounded(text)}"'


@lru_cache(maxsize=65_536)
def plain(name: str) -> str:
    """Any event's name, without folders and addresses."""
    return bounded(_FOLDERS.sub("…/", _ADDRESS.sub("", name[:2_000])))


@lru_cache(maxsize=65_536)
def kernel(name: str) -> str:
    """The informative part of a kernel's name: no namespaces, no parameters, no lambdas."""
    text = _LAMBDA.sub("", name[:2_000]).removeprefix("void ")
    text = _NAMESPACE.sub("", text)
    text = _without_parameters(text) or text
    return plain(text if len(text) <= LIMIT else _telling(text))


def _telling(text: str) -> str:
    """A long template: the kernel and the names among its arguments, each once, no machinery."""
    head, _, arguments = text.partition("<")
    found = (word for word in _WORD.findall(arguments) if not _MACHINERY.search(word))
    kept = ", ".join(dict.fromkeys(found))
    return f"{head}<{kept}>" if kept else head


def _without_parameters(text: str) -> str:
    """Cut at the first parenthesis outside the template brackets."""
    depth = 0
    for mark in _BRACKETS.finditer(text):
        if mark[0] != "(":
            depth += 1 if mark[0] == "<" else -1
        elif depth <= 0 and mark.start() > 0:
            return text[: mark.start()]
    return text


@lru_cache(maxsize=65_536)
def frame(name: str) -> str:
    """A Python frame as "file.py: function"; a builtin by its name and owner."""
    if match := vocabulary.PYTHON_FRAME.match(name):
        return bounded(f"{file_name(match['file'])}: {match['function']}")
    if match := _BUILTIN.match(name):
        return bounded(".".join(part for part in (match[2], match[1]) if part))
    return plain(name)


def base_name(path: str) -> str:
    """The last part of a path of any system."""
    return re.split(r"[\\/]", path)[-1]


def file_name(path: str) -> str:
    """A source file's name without its folders; what is no file's name may be a person's."""
    name = base_name(path)
    return name if _FILE.search(name) else "…"
