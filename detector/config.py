"""Settings from ``conf/``: Hydra composes, this module checks, the rest sees plain values.

Besides the entry points this is the only module that knows Hydra, and it loads Hydra late: not at
all where nothing is set, since that takes as long as the scan of a small trace.
"""

from __future__ import annotations

import difflib
import functools
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detector.errors import ConfigError, DetectorError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

_HERE = Path(__file__).resolve().parent
# A wheel holds conf/ as detector/conf (pyproject.toml); a checkout has it beside the package.
CONF_DIR = next(
    (d for d in (_HERE / "conf", _HERE.parent / "conf") if (d / "scan.yaml").is_file()),
    _HERE / "conf",
)


@dataclass(frozen=True)
class Config:
    """A composed and checked configuration: ``values`` are plain dicts, lists and scalars."""

    name: str
    values: dict[str, Any]

    def build(self, key: str, **more: object) -> Any:
        """The object that section ``key`` describes with ``_target_``, with ``more`` arguments.

        Raises ConfigError naming the section: unknown class, unknown or unfit argument.
        """
        if key not in self.values:
            raise ConfigError(f"{self.name} has no section '{key}'")
        try:
            return _built({**self.values[key], **more})
        except DetectorError:
            raise  # a missing model file speaks for itself
        except Exception as error:
            # The class may be a user's own: whatever it raises, the setting is to be named.
            raise ConfigError(f"{key}: {_first_line(error)}") from error


def _built(value: Any) -> Any:
    """A section as the object that its ``_target_`` names, those inside it first."""
    if isinstance(value, list):
        return [_built(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    inside = {name: _built(item) for name, item in value.items()}
    if "_target_" not in inside:
        return inside
    made = pkgutil.resolve_name(inside.pop("_target_"))
    if inside.pop("_partial_", False):
        return functools.partial(made, **inside)
    return made(**inside)


def compose(name: str, overrides: Sequence[str] = (), config_dir: Path | None = None) -> Config:
    """Compose ``conf/NAME.yaml`` with Hydra overrides (``group=option``, ``key=value``).

    ``config_dir`` is searched for further options of any group. Raises ConfigError, one line that
    names the key: unknown key or option, a value of the wrong kind, or one that must be set.
    """
    if config_dir is not None and not config_dir.is_dir():
        raise ConfigError(f"{config_dir}: no such folder of settings")
    if not overrides and config_dir is None and (usual := _usual(name)) is not None:
        return Config(name, usual)
    given = [parsed(text) for text in overrides]
    with _hydra(name):
        values = _compose(name, overrides, config_dir)
        settings = [o for o in given if not o.is_delete() and not o.is_add()]
        keys = [o.key_or_group for o in settings if not _is_group(o.key_or_group, config_dir)]
        if keys:
            rest = [o.input_line or "" for o in given if o.key_or_group not in keys]
            _same_kinds(keys, values, _compose(name, rest, config_dir, missing=True))
    return Config(name, values)


def _usual(name: str) -> dict[str, Any] | None:
    """What Hydra composes of a file where nothing is set (a test compares); None for a file that
    does more than choose options."""
    import yaml  # type: ignore[import-untyped]

    def load(path: Path) -> Any:
        text = path.read_text("utf-8")
        if "${" in text or "???" in text:
            return None
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    try:
        own = load(CONF_DIR / f"{name}.yaml")
        *chosen, last = own.pop("defaults")
        options = {group: option for entry in chosen for group, option in entry.items()}
        values = {g: load(CONF_DIR / g / f"{option}.yaml") for g, option in options.items()}
    except (OSError, ValueError, AttributeError, KeyError, TypeError, yaml.YAMLError):
        return None
    plain = last == "_self_" and all(map(str.isidentifier, options))
    sections = [*values.values(), own]
    if not plain or not all(isinstance(s, dict) and "defaults" not in s for s in sections):
        return None
    return values | own if not values.keys() & own.keys() else None


def plain(name: str, config: DictConfig) -> Config:
    """What one of Hydra's own entry points composed, as this project's plain values."""
    from omegaconf import OmegaConf

    values = OmegaConf.to_container(config, resolve=True)
    assert isinstance(values, dict)
    return Config(name, {str(key): value for key, value in values.items()})


def groups(config_dir: Path = CONF_DIR) -> dict[str, tuple[str, ...]]:
    """Each group of settings and its options, as they lie in ``conf/``."""
    folders = sorted(d for d in config_dir.iterdir() if d.is_dir() and not d.name.startswith("_"))
    named = {d.name: tuple(sorted(f.stem for f in d.glob("*.yaml"))) for d in folders}
    return {group: options for group, options in named.items() if options}


@contextmanager
def _hydra(name: str) -> Iterator[None]:
    """Hydra's errors, as one line."""
    import yaml
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    # ValueError: what Hydra raises for a group that is set to null
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        raise ConfigError(_one_line(name, error)) from error


def _compose(
    name: str, overrides: Sequence[str], config_dir: Path | None, *, missing: bool = False
) -> dict[str, Any]:
    """Plain values; unless ``missing`` is allowed, a ``???`` left over is an error."""
    import hydra
    from omegaconf import OmegaConf

    # quoted, as a folder may hold what Hydra's grammar gives a meaning to
    path = str(config_dir.resolve()).replace("'", r"\'") if config_dir else ""
    search = [f"hydra.searchpath=['file://{path}']"] if config_dir else []
    with hydra.initialize_config_dir(config_dir=str(CONF_DIR), version_base="1.3"):
        config = hydra.compose(name, [*search, *overrides])
    if not missing and (left := sorted(OmegaConf.missing_keys(config))):
        raise ConfigError(f"{left[0]} must be set: add {left[0]}=VALUE")
    return plain(name, config).values


def parsed(text: str, *, several: bool = False) -> Override:
    """One override; ConfigError when Hydra's grammar does not know it or it is a sweep."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise ConfigError(f"invalid override '{text}': write key=value") from error
    if override.is_sweep_override() and not several:
        raise ConfigError(f"'{override.key_or_group}' has several values: give one")
    return override


def _is_group(key: str, config_dir: Path | None) -> bool:
    """Whether ``key=value`` chooses an option of a group (``judge``, ``judge@second``)."""
    folder = key.split("@")[0]
    return any((d / folder).is_dir() for d in (CONF_DIR, config_dir) if d) or "hydra" in folder


def _same_kinds(keys: Sequence[str], values: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Refuse a word where the files have a number, and the like; null and ??? take anything."""
    for key in keys:
        new, old = _at(values, key), _at(usual, key)
        if old in (None, "???") or new is None or type(new) is type(old):
            continue
        if type(old) is float and type(new) is int:
            continue
        raise ConfigError(f"{key} must be {_KINDS[type(old)]}, not {new!r}")


# How each kind of value is called in an error.
_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a section",
}


def _at(values: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key; None where there is none."""
    here: Any = values
    for part in key.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    return here


def _one_line(name: str, error: Exception) -> str:
    """What went wrong, without Hydra's advice on its own grammar."""
    text = str(error)
    first = _first_line(error)
    if first.startswith("Could not override"):
        key = first.split("'")[1]
        if options := groups().get(key):
            return f"{key} takes the name of an option: {', '.join(options)}"
        return f"invalid override: no key '{key}'{_near(name, key)}"
    if "Available options in" in text:
        option = text.split("Could not find '")[1].split("'")[0].replace("/", "=")
        listed = text.split("Available options in")[1].split("Config search path")[0]
        there = ", ".join(line.strip() for line in listed.splitlines()[1:] if line.strip())
        return f"no option {option}: there are {there}"
    return first


def _near(name: str, key: str) -> str:
    """A hint at the key that was probably meant."""
    known: list[str] = []

    def walk(here: Mapping[str, Any], prefix: str) -> None:
        for part, value in here.items():
            known.append(prefix + part)
            if isinstance(value, Mapping):
                walk(value, f"{prefix}{part}.")

    walk(_compose(name, [], None, missing=True), "")
    close = difflib.get_close_matches(key, known, n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _first_line(error: BaseException) -> str:
    """The first line, with the next one where it only announces it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
