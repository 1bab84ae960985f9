"""The page's script in a browser driven by Playwright: timelines, jumps, copying, small screens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detector.render import html_page, index_page
from detector.report import Report
from tests.browser.chromium import CHROMIUM
from tests.sample_reports import CLEAN, CPU_ONLY, EVIL, HOSTILE, NOT_ANALYZABLE, TYPICAL

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

REPORTS = {"typical": TYPICAL, "hostile": HOSTILE, "cpu": CPU_ONLY, "clean": CLEAN,
           "blind": NOT_ANALYZABLE}  # fmt: skip
EACH = pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Opened:
    """A page with everything it logged and asked for."""

    def __init__(self, browser, folder: Path, html: str, **context) -> None:
        file = folder / "report.html"
        file.write_text(html, "utf-8")
        self.page = browser.new_context(**context).new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())

    def quiet(self) -> bool:
        """Whether nothing was logged and nothing but the file itself was asked for."""
        return not self.said and len(self.asked) == 1


@pytest.fixture
def opened(browser, tmp_path):
    made: list[Opened] = []

    def open_page(report: Report, **context) -> Opened:
        made.append(Opened(browser, tmp_path, html_page.render(report), **context))
        return made[-1]

    yield open_page
    for one in made:
        one.page.context.close()


@EACH
def test_a_page_logs_nothing_and_asks_for_nothing(opened, report):
    assert opened(report).quiet()


@EACH
def test_nothing_sticks_out_of_a_phone(opened, report):
    page = opened(report, **PHONE).page
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def picture(page) -> str:
    """What the first timeline shows, after what is under way."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate("document.querySelector('canvas').toDataURL()")


def test_keys_zoom_move_and_go_to_what_is_at_fault(opened):
    one = opened(TYPICAL)
    page = one.page
    page.locator("canvas").focus()
    seen = [picture(page)]
    for key in ("+", "ArrowRight", "n"):
        page.keyboard.press(key)
        seen.append(picture(page))
    assert len(set(seen)) == 4
    status = page.locator(".tip").first
    assert "cudaStreamSynchronize: 800 µs at +100" in status.inner_text()
    assert "at fault" in status.inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    assert picture(page) == seen[0]
    assert one.quiet()


def test_every_button_is_reached_by_tab_and_works_by_enter(opened):
    page = opened(TYPICAL).page
    first = page.locator("button[data-act=in]").first
    first.focus()
    before = picture(page)
    page.keyboard.press("Enter")
    assert picture(page) != before
    labels = []
    for _ in range(6):
        page.keyboard.press("Tab")
        labels.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert labels == ["Zoom out", "Move left", "Move right", "Show the whole excerpt",
                      "Previous event at fault", "Next event at fault"]  # fmt: skip
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"


def test_pointing_at_an_event_names_it(opened):
    page = opened(TYPICAL).page
    canvas = page.locator("canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20 + 18 + 17 + 5)
    bubble = page.locator(".bubble").first
    assert bubble.is_visible()
    assert bubble.inner_text().startswith("cudaStreamSynchronize: 800 µs")
    before = picture(page)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    assert picture(page) != before
    page.mouse.move(0, 0)
    assert not bubble.is_visible()


def test_joined_events_say_how_many_they_are(opened):
    page = opened(TYPICAL).page
    canvas = page.locator("canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 5, box["y"] + box["height"] - 12)
    shown = page.locator(".bubble").first.inner_text()
    assert shown.startswith("40 short events, 120 µs of 400 µs")
    assert shown.endswith("longest: vectorized_elementwise_kernel")


def test_a_click_on_the_scores_jumps_to_the_nearest_finding(opened):
    page = opened(TYPICAL).page
    strip = page.locator(".overview svg.strip").nth(1)
    starts = sorted((f.start_us, n) for n, f in enumerate(TYPICAL.findings, 1))
    strip.click(position={"x": 1, "y": 5})
    assert page.evaluate("location.hash") == f"#finding-{starts[0][1]}"
    width = strip.bounding_box()["width"]
    last = max((f.end_us, n) for n, f in enumerate(TYPICAL.findings, 1))[1]
    strip.click(position={"x": width - 1, "y": 5})
    assert page.evaluate("location.hash") == f"#finding-{last}"


def test_the_fix_can_be_copied(opened):
    page = opened(TYPICAL, permissions=["clipboard-read", "clipboard-write"]).page
    button = page.locator("button.copy").first
    button.click()
    page.wait_for_function("document.querySelector('button.copy').textContent === 'Copied'")
    code = page.locator(".code pre").first.inner_text()
    assert page.evaluate("navigator.clipboard.readText()") == code


def test_hostile_names_are_shown_as_text(opened):
    one = opened(HOSTILE)
    one.page.locator("canvas").focus()
    one.page.keyboard.press("n")
    shown = one.page.locator(".tip").first.inner_text()
    assert "</script><script>alert(1)" in shown
    assert one.page.locator("img").count() == 0
    assert one.quiet()


def test_paper_and_dark_screens_have_their_own_colors(opened):
    page = opened(TYPICAL, color_scheme="dark").page
    dark = picture(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    paper = picture(page)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert paper != dark
    assert picture(page) == dark


@EACH
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened, report, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    page = opened(report, color_scheme=scheme, bypass_csp=True).page
    for details in page.locator("details").all():
        details.evaluate("it => { it.open = true }")
    found = axe.Axe().run(page).response["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []


def test_the_index_leads_to_the_pages(browser, tmp_path):
    rows = [("runs/a.json", TYPICAL, "a"), ("runs/b.json", EVIL, ""), ("runs/c", CLEAN, "c")]
    one = Opened(browser, tmp_path, index_page.render(rows), **PHONE)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "report.html").write_text(html_page.render(TYPICAL), "utf-8")
    assert one.quiet()
    assert one.page.evaluate("document.documentElement.scrollWidth") == 390
    one.page.get_by_role("link", name="a.json").click()
    assert f"{len(TYPICAL.findings)} findings" in one.page.locator("h1").inner_text()
    one.page.context.close()
