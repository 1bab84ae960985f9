"""The row of an earlier product beside today's."""

from __future__ import annotations

import json
from pathlib import Path

from detector.lab.comparison import page


def test_the_earlier_product_is_a_row_of_the_groups_that_it_was_measured_on(tmp_path: Path) -> None:
    file = tmp_path / page.EARLIER
    file.write_text(json.dumps({"commit": "abcdef0123", "findings": {"a": {"x": 1}}}))
    results = {"findings": {"a": {"product": {"x": 2}}, "b": {"product": {"x": 3}}}}
    joined = page._with_before(results, file)
    assert joined["findings"] == {
        "a": {"product": {"x": 2}, "product before (abcdef0)": {"x": 1}},
        "b": {"product": {"x": 3}},
    }
    assert page._with_before(results, tmp_path / "none.json") is results
