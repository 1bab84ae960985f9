"""Rows of earlier products beside today's."""

from __future__ import annotations

import json
from pathlib import Path

from detector.lab.comparison import page


def test_earlier_products_are_rows_of_the_groups_that_they_were_measured_on(tmp_path: Path) -> None:
    files = []
    for name, commit, date, groups in (
        ("product-a.json", "fedcba0123", "2026-11-23 01:00", {"a": {"x": 4}, "b": {"x": 5}}),
        ("product-b.json", "abcdef0123", "2026-11-22 05:16", {"a": {"x": 1}}),
    ):
        files.append(tmp_path / name)
        files[-1].write_text(json.dumps({"commit": commit, "date": date, "findings": groups}))
    results = {"findings": {"a": {"confidence": {"x": 2}}, "b": {"confidence": {"x": 3}}}}
    joined = page._with_earlier(results, files)["findings"]
    assert joined == {
        "a": {
            "confidence": {"x": 2},
            "product before (abcdef0)": {"x": 1},
            "product before (fedcba0)": {"x": 4},
        },
        "b": {"confidence": {"x": 3}, "product before (fedcba0)": {"x": 5}},
    }
    assert list(joined["a"])[1] == "product before (abcdef0)"  # the oldest first
    assert page._with_earlier(results, []) == results


def test_the_kept_rows_have_what_the_pages_show() -> None:
    files = sorted((Path(__file__).parents[2] / "results").glob(page.EARLIER))
    assert len(files) == 2
    for file in files:
        for of in page.kept(file)["findings"].values():
            for way in ("masked", "unmasked"):
                assert of[way]["figures"].keys() >= {"precision", "recall", "sure_precision"}
                assert isinstance(of[way]["findings"], int)
                assert isinstance(of[way]["reliability"], list)
