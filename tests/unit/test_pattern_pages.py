"""The patterns' pages: generated, complete, up to date."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from detector.patterns import BY_ID, IDS, PATTERNS, Pattern
from detector.render import pattern_page
from scripts import pattern_pages


def test_the_pages_are_up_to_date() -> None:
    written = {path.name: path.read_text("utf-8") for path in pattern_pages.FOLDER.iterdir()}
    assert written == pattern_pages.pages(), "run python scripts/pattern_pages.py"


def test_the_index_links_every_pattern_once() -> None:
    links = re.findall(r"\]\(([\w-]+)\.md\)", pattern_pages.index())
    assert links == list(IDS)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.id)
def test_a_page_says_all_there_is_to_say(pattern: Pattern) -> None:
    page = pattern_page.page(pattern)
    said = (pattern.title, pattern.what, pattern.look, pattern.costs, pattern.assumes)
    assert all(text in page for text in (*said, pattern.harmless))
    assert all(advice.text in page for advice in pattern.advice)
    assert page.count("```") == 2 * len(pattern.advice)
    assert "None" not in page.replace("to None", "")  # a condition without words


def test_pictures_are_of_patterns_small_and_inert() -> None:
    pictures = list((pattern_pages.FOLDER.parent / "images" / "patterns").glob("*.svg"))
    assert pictures
    assert {picture.stem for picture in pictures} <= BY_ID.keys()
    assert sum(picture.stat().st_size for picture in pictures) < 1_000_000
    for picture in pictures:
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(picture).iter()}
        assert tags == {"svg", "rect", "text"}
