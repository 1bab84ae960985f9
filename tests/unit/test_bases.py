"""Bases: found in a folder or fetched from a host, and never taken for another file."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import threading
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dataset import bases
from dataset.bases import BaseError, Manifest, Source, fetch, in_folder, manifest

ONE, TWO, THREE = (b'{"traceEvents": [%d]}' % i for i in (1, 2, 3))
COMMIT = "0123abcd"


def source(name: str, path: str, content: bytes, **more: Any) -> Source:
    about = {"workload": "w", "device": "d", "repository": "some/one", "commit": COMMIT}
    about |= {"licence": "MIT", "sha256": sha256(content).hexdigest(), "bytes": len(content)}
    return Source(name=name, path=path, **(about | more))


def tar_of(**members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"dir/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


class Host:
    """A server on this machine, which counts what it is asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.short: set[str] = set()  # paths of which half comes before the line breaks
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802
                host.asked.append(self.path)
                content = host.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                half = len(content) // 2 if self.path in host.short else len(content)
                self.wfile.write(content[:half])

            def log_message(self, *_: object) -> None:
                """Nothing on the terminal."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def template(self) -> str:
        return self.url + "/{repository}/{commit}/{path}"

    def holds(self, path: str, content: bytes) -> None:
        self.files[f"/some/one/{COMMIT}/{path}"] = content


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    thread = threading.Thread(target=host.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield host
    host.server.shutdown()
    host.server.server_close()
    thread.join()


def content(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes())


# -- fetching --------------------------------------------------------------------------------------


def test_it_fetches_files_and_members_of_archives(host: Host, tmp_path: Path) -> None:
    host.holds("a b/one.json", ONE)  # no word of it here
    host.files[f"/some/one/{COMMIT}/a%20b/one.json"] = ONE
    host.holds("all.tar", tar_of(two=TWO, three=THREE))
    listed = Manifest(
        host.template,
        (
            source("one", "a b/one.json", ONE),
            source("two", "all.tar!dir/two", TWO),
            source("three", "all.tar!dir/three", THREE),
        ),
    )
    found = fetch(tmp_path, listed)
    assert [f.name for f in found] == ["one", "two", "three"]
    assert [content(f.file) for f in found] == [ONE, TWO, THREE]
    assert len(host.asked) == 2  # the archive once
    assert {p.name for p in tmp_path.iterdir()} == {f"{n}.json.gz" for n in ("one", "two", "three")}


def test_an_archive_is_recognized_by_its_content(host: Host, tmp_path: Path) -> None:
    packed = gzip.compress(ONE, mtime=7)
    host.holds("one.json.gz", packed)
    listed = Manifest(host.template, (source("one", "one.json.gz", ONE, bytes=len(packed)),))
    (found,) = fetch(tmp_path, listed)
    assert content(found.file) == ONE


def test_a_second_run_asks_only_for_what_is_missing_or_broken(host: Host, tmp_path: Path) -> None:
    sources = []
    for name, text in zip(("one", "two", "three"), (ONE, TWO, THREE), strict=True):
        host.holds(f"{name}.json", text)
        sources.append(source(name, f"{name}.json", text))
    listed = Manifest(host.template, tuple(sources))
    fetch(tmp_path, listed)
    kept = tmp_path / "one.json.gz"
    when = kept.stat().st_mtime_ns
    broken = tmp_path / "two.json.gz"
    broken.write_bytes(broken.read_bytes()[:-5])
    (tmp_path / "three.json.gz").unlink()
    host.asked.clear()
    found = fetch(tmp_path, listed)
    assert [path.rsplit("/", 1)[1] for path in host.asked] == ["two.json", "three.json"]
    assert [content(f.file) for f in found] == [ONE, TWO, THREE]
    assert kept.stat().st_mtime_ns == when


def refused(listed: Manifest, folder: Path) -> str:
    """The line that a failed fetch leaves, and no file with it."""
    with pytest.raises(BaseError) as caught:
        fetch(folder, listed)
    assert not list(folder.iterdir())
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_another_file_at_the_place_is_refused(host: Host, tmp_path: Path) -> None:
    host.holds("one.json", TWO)
    line = refused(Manifest(host.template, (source("one", "one.json", ONE),)), tmp_path)
    assert line.startswith(f"{host.url}/some/one/{COMMIT}/one.json: one is not the trace")


def test_more_bytes_than_there_should_be_are_not_read_to_the_end(host: Host, tmp_path: Path):
    host.holds("one.json", ONE * 1_000)
    line = refused(Manifest(host.template, (source("one", "one.json", ONE),)), tmp_path)
    assert f"more than the {len(ONE)} bytes" in line


def test_a_line_that_breaks_leaves_nothing(host: Host, tmp_path: Path) -> None:
    host.holds("one.json", ONE)
    host.short = set(host.files)
    refused(Manifest(host.template, (source("one", "one.json", ONE),)), tmp_path)


def test_a_missing_file_and_a_missing_host_are_reported(host: Host, tmp_path: Path) -> None:
    gone = source("one", "gone.json", ONE)
    assert "gone.json: 404 Not Found" in refused(Manifest(host.template, (gone,)), tmp_path)
    nowhere = "http://127.0.0.1:1/{repository}/{commit}/{path}"
    assert "refused" in refused(Manifest(nowhere, (gone,)), tmp_path)


@pytest.mark.parametrize(
    ("archive", "member", "cause"),
    [
        (tar_of(two=TWO), "dir/one", "dir/one: filename 'dir/one' not found"),
        (b"no archive" * 100, "dir/one", "dir/one: file could not be opened"),
    ],
    ids=["no member", "no archive"],
)
def test_an_archive_without_the_member_is_reported(
    host: Host, tmp_path: Path, archive: bytes, member: str, cause: str
) -> None:
    host.holds("all.tar", archive)
    listed = Manifest(host.template, (source("one", f"all.tar!{member}", ONE),))
    assert f"all.tar: {cause}" in refused(listed, tmp_path)


# -- folders ---------------------------------------------------------------------------------------


def test_bases_of_a_folder_are_recognized_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = source("one", "one.json", ONE, workload="language-x", device="A100", licence="MIT")
    monkeypatch.setattr(bases, "known", lambda: {"one": mine})
    (tmp_path / "one.json.gz").write_bytes(gzip.compress(ONE))
    (tmp_path / "other.json").write_bytes(TWO)
    (tmp_path / "notes.txt").write_text("no trace")
    found = in_folder(tmp_path)
    assert [(f.name, f.workload, f.device) for f in found] == [("one", "language-x", "A100")]
    (tmp_path / "one.json.gz").write_bytes(gzip.compress(TWO))
    with pytest.raises(BaseError, match=r"not the trace that .* knows"):
        in_folder(tmp_path)


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "gone"):
        with pytest.raises(BaseError, match="none of the base traces"):
            in_folder(folder)


# -- the manifest ----------------------------------------------------------------------------------


def test_the_manifest_s_rows_are_whole() -> None:
    listed = manifest()
    assert listed.url.startswith("https://")
    assert len({s.name for s in listed.sources}) == len(listed.sources) > 30
    for row in listed.sources:
        assert re.fullmatch("[0-9a-f]{64}", row.sha256), row.name
        assert re.fullmatch("[0-9a-f]{40}", row.commit), row.name
        assert row.licence in {"MIT", "BSD-3-Clause", "Apache-2.0"}, row.name
        assert row.bytes > 1_000, row.name
        assert row.url(listed.url).endswith(row.path.split("!")[0]), row.name
    one, two = (s for s in listed.sources if s.name in ("a100_switch_moe_a", "a100_switch_moe_b"))
    assert one.workload == two.workload  # traces of one program never part


def test_a_broken_manifest_names_the_entry(tmp_path: Path) -> None:
    file = tmp_path / "bases.yaml"
    file.write_text("url: x\nbases:\n  here:\n    workload: w\n")
    with pytest.raises(BaseError, match=r"bases\.yaml: here: "):
        manifest(file)


def test_the_shared_folder_holds_what_the_manifest_says() -> None:
    folder = Path(__file__).resolve().parents[3] / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip("the real traces of others are not here")
    small = [s for s in manifest().sources if s.bytes < 1_000_000]
    assert len(small) > 5
    for row in small:
        assert bases.digest(folder / f"{row.name}.json.gz") == row.sha256, row.name
