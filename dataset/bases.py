"""Base traces: real traces of others, found in a folder or fetched from where they were published.

    python -m dataset.bases FOLDER

``bases.yaml`` says of each where it lies, what it must hold and what it ran. A fetched trace lies
in the folder as ``NAME.json.gz``. One that is there and whole is not fetched again; a killed or
failed run leaves no half file.
"""

from __future__ import annotations

import gzip
import http.client
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

import yaml
from rich.progress import track

from dataset.labels import TRACE_SUFFIX
from detector.cli.output import exit_on_error

MANIFEST: Final = Path(__file__).resolve().with_name("bases.yaml")
BLOCK: Final = 1 << 20
WAIT_S: Final = 60.0  # without a byte from the host
GZIP: Final = b"\x1f\x8b"


class BaseError(ValueError):
    """A base trace that cannot be had: the message names it and says why."""


@dataclass(frozen=True)
class Source:
    """A row of ``bases.yaml``. ``sha256`` and ``bytes`` are those of the JSON, unpacked."""

    name: str
    workload: str
    device: str
    repository: str
    path: str  # in the repository; "archive.tar!member" for a file in an archive
    commit: str
    licence: str
    sha256: str
    bytes: int

    def url(self, template: str) -> str:
        """Where the file, or the archive that holds it, is served."""
        return template.format(
            repository=self.repository,
            commit=self.commit,
            path=urllib.parse.quote(self.path.split("!")[0]),
        )

    @property
    def member(self) -> str:
        """Its name in the archive; "" for a file of its own."""
        return self.path.partition("!")[2]


@dataclass(frozen=True)
class Found:
    """A base in a folder, with what is known about it."""

    name: str
    file: Path
    workload: str
    device: str
    licence: str
    sha256: str  # of the JSON
    recorded: bool = False  # a healthy run of this project's: nothing is wrong in it


@dataclass(frozen=True)
class Manifest:
    """Where bases are served, and which."""

    url: str
    sources: tuple[Source, ...]


def manifest(file: Path = MANIFEST) -> Manifest:
    """Read a manifest. Raises BaseError naming the file and the entry."""
    name = ""
    try:
        raw = yaml.safe_load(file.read_text(encoding="utf-8"))
        sources = []
        for name, values in raw["bases"].items():
            sources.append(Source(name=name, **values))
        return Manifest(raw["url"], tuple(sources))
    except (yaml.YAMLError, TypeError, KeyError, AttributeError) as error:
        raise BaseError(f"{file}: {name or 'no manifest'}: {error}") from error


@lru_cache(maxsize=1)
def known() -> dict[str, Source]:
    """This project's bases by name."""
    return {source.name: source for source in manifest().sources}


# -- in a folder -----------------------------------------------------------------------------------


def in_folder(folder: Path) -> list[Found]:
    """The bases that a folder holds, by name, as if they had been fetched: other traces in it are
    no bases. Raises BaseError where there is none, or where one holds something else."""
    files = sorted(p for p in folder.glob("*") if p.name.endswith((TRACE_SUFFIX, ".json")))
    found = [_found(known()[_name(file)], file) for file in files if _name(file) in known()]
    if not found:
        raise BaseError(f"{folder}: none of the base traces that bases.yaml names")
    return found


def _name(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".json")


def _found(source: Source, file: Path) -> Found:
    if digest(file) != source.sha256:
        raise BaseError(f"{file}: not the trace that bases.yaml knows by this name")
    return _known(source, file)


def _known(source: Source, file: Path) -> Found:
    about = (source.workload, source.device, source.licence, source.sha256)
    return Found(source.name, file, *about)


def digest(file: Path) -> str:
    """sha256 of the JSON in a file, packed or not; "" where it cannot be read to its end."""
    found = sha256()
    try:
        with _unpacked(file) as stream:
            while block := stream.read(BLOCK):
                found.update(block)
    except (OSError, EOFError, zlib.error):
        return ""
    return found.hexdigest()


def read(file: Path) -> bytes:
    """The JSON in a file, packed or not."""
    with _unpacked(file) as stream:
        return stream.read()


@contextmanager
def _unpacked(file: Path) -> Iterator[BinaryIO]:
    with file.open("rb") as raw:
        packed = raw.read(2) == GZIP
        raw.seek(0)
        yield gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[misc]


# -- from their hosts ------------------------------------------------------------------------------


def fetch(folder: Path, listed: Manifest | None = None) -> list[Found]:
    """Fetch what the folder lacks of a manifest. Raises BaseError naming the address."""
    listed = listed or manifest()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as scratch:
        archives: dict[str, Path] = {}
        hidden = not sys.stderr.isatty()
        for source in track(listed.sources, "fetching bases", disable=hidden):
            target = folder / f"{source.name}{TRACE_SUFFIX}"
            if digest(target) != source.sha256:
                _fetch_one(source, source.url(listed.url), target, archives, Path(scratch))
    return [_known(s, folder / f"{s.name}{TRACE_SUFFIX}") for s in listed.sources]


def _fetch_one(
    source: Source, url: str, target: Path, archives: dict[str, Path], scratch: Path
) -> None:
    """Fetch one base, by way of a temporary file. An archive is fetched once."""
    if source.member and url not in archives:
        archives[url] = _download(url, scratch / f"{len(archives)}.tar", None)
    if source.member:
        file = _extracted(archives[url], source.member, scratch / source.name, url)
    else:
        file = _download(url, scratch / source.name, source.bytes)
    if digest(file) != source.sha256:
        raise BaseError(f"{url}: {source.name} is not the trace that was published there")
    part = scratch / target.name
    with _unpacked(file) as json, part.open("wb") as raw:
        with gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
            shutil.copyfileobj(json, packed, BLOCK)
    part.replace(target)
    file.unlink()


def _download(url: str, file: Path, limit: int | None) -> Path:
    """Save what ``url`` serves. ``limit``: bytes that the file cannot exceed."""
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer, file.open("wb") as out:
            length = 0
            while block := answer.read(BLOCK):
                length += len(block)
                if limit is not None and length > limit:
                    raise BaseError(f"{url}: more than the {limit} bytes that it should have")
                out.write(block)
    except urllib.error.HTTPError as error:
        error.close()
        raise BaseError(f"{url}: {error.code} {error.reason}") from error
    except (http.client.HTTPException, OSError) as error:
        raise BaseError(f"{url}: {getattr(error, 'reason', None) or error}") from error
    return file


def _extracted(archive: Path, member: str, file: Path, url: str) -> Path:
    try:
        with tarfile.open(archive) as tar:
            stream = tar.extractfile(member)
            if stream is None:
                raise BaseError(f"{url}: {member} is no file")
            with stream, file.open("wb") as out:
                shutil.copyfileobj(stream, out, BLOCK)
    except (tarfile.TarError, KeyError, EOFError) as error:
        cause = " ".join(str(error.args[0]).split()[:8])  # tarfile speaks in many lines
        raise BaseError(f"{url}: {member}: {cause}") from error
    return file


def main() -> None:
    """Entry point: fetch this project's bases into a folder."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m dataset.bases FOLDER")
    with exit_on_error(BaseError):
        print(f"{len(fetch(Path(sys.argv[1])))} base traces -> {sys.argv[1]}")


if __name__ == "__main__":
    main()
