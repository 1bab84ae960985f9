"""Recorded jobs in the benchmark: copied whole, and what was changed since is found."""

from __future__ import annotations

from pathlib import Path

from dataset import jobs


def test_jobs_are_copied_with_their_labels_and_what_changed_is_found(tmp_path: Path) -> None:
    listed = jobs.published(tmp_path)
    assert {job["ranks"] for job in listed} == {2, 4, 8}
    assert all(len(job["files"]) == job["ranks"] + 1 for job in listed)
    assert list(jobs.wrong(tmp_path, listed)) == []
    first, second, third = list(listed[0]["files"])[:3]
    (tmp_path / first).write_bytes(b"")
    (tmp_path / second).unlink()
    (tmp_path / third).with_name("more.json").write_text("")
    said = sorted(jobs.wrong(tmp_path, listed))
    assert [line.split(": ")[1] for line in said] == [
        "not the file of the manifest", "not in the manifest", "missing",
    ]  # fmt: skip
