"""Pages of whole scans: the bundled example, 250,000 events, eight ranks of one job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detector import scan
from tests.browser.chromium import CHROMIUM
from tests.browser.recordings import write

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_image_classifier.json.gz"
MOST_BYTES = 1_500_000


def _large(folder: Path) -> Path:
    return write(folder / "large.json.gz", steps=10, ops=8_350)


def _job(folder: Path) -> Path:
    for rank in range(8):
        write(folder / f"rank{rank}.json.gz", steps=4, ops=300, rank=rank, world=8)
    return folder


MADE: dict[str, Callable[[Path], Path]] = {"example": lambda _: EXAMPLE, "large": _large,
                                           "job": _job}  # fmt: skip


@pytest.fixture(scope="module", params=MADE)
def page_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "in").mkdir()
    assert scan.main([str(MADE[request.param](folder / "in")), "--out", str(folder / "out")]) == 0
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def test_a_page_is_small_quiet_and_as_wide_as_a_phone(browser, page_file):
    assert page_file.stat().st_size < MOST_BYTES
    page = browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True).new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    for details in page.locator("details").all():
        details.evaluate("it => { it.open = true }")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert said == []
    assert len(asked) == 1
    page.context.close()


def test_every_control_is_reached_by_the_tab_key(browser, page_file):
    page = browser.new_context().new_page()
    page.goto(page_file.as_uri())
    controls = page.evaluate(
        """() => {
          const found = [...document.querySelectorAll('a[href], button, summary, [tabindex="0"]')]
            .filter((it) => it.checkVisibility());
          found.forEach((it, i) => { it.dataset.order = i; });
          return found.length;
        }"""
    )
    reached = []
    for _ in range(controls):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.dataset.order"))
    assert sorted(reached, key=int) == [str(i) for i in range(controls)]
    page.context.close()


def test_axe_finds_nothing_serious(browser, page_file):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    page = browser.new_context(bypass_csp=True).new_page()
    page.goto(page_file.as_uri())
    for details in page.locator("details").all():
        details.evaluate("it => { it.open = true }")
    found = axe.Axe().run(page).response["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []
    page.context.close()
