"""report.html in a real browser: its policy lets its own style and script in, and nothing out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from detector.render import html_page
from detector.report import Report
from tests.browser.chromium import CHROMIUM
from tests.sample_reports import CPU_ONLY, HOSTILE, NOT_ANALYZABLE, TYPICAL

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


def opened(folder: Path, html: str, *more: str) -> tuple[str, str]:
    """(the document after loading, what the browser logged)."""
    page = folder / "report.html"
    page.write_text(html, "utf-8")
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--dump-dom",
    ]  # fmt: skip
    command = [str(CHROMIUM), *flags, *more, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr


def refusals(log: str) -> list[str]:
    """What the page's policy stopped."""
    return [line for line in log.splitlines() if re.search("Content Security Policy", line)]


REPORTS = {"typical": TYPICAL, "hostile": HOSTILE, "cpu": CPU_ONLY, "blind": NOT_ANALYZABLE}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_the_page_opens_without_a_refusal_and_without_a_foreign_script(tmp_path, report: Report):
    document, log = opened(tmp_path, html_page.render(report))
    assert refusals(log) == []
    assert document.count("<script") == 2  # the data and the page's own
    assert "<img" not in document
    assert ("Where the analyzed time went" in document) == report.analyzable


def test_the_policy_would_stop_a_script_and_a_foreign_style(tmp_path):
    html = html_page.render(TYPICAL)
    html = html.replace("</main>", "<script>document.title = 'taken'</script></main>")
    html = html.replace("<style>", "<style>body { color: red } ")
    document, log = opened(tmp_path, html)
    assert "<title>taken" not in document
    assert len(refusals(log)) >= 2


@pytest.mark.parametrize("report", [TYPICAL, HOSTILE], ids=["typical", "hostile"])
def test_nothing_sticks_out_of_a_narrow_window(tmp_path, report: Report):
    """As narrow as a headless window gets: 500 px, where the page is laid out as on a phone."""
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html_page.render(report))
    measure = "<script>document.title = document.documentElement.scrollWidth + ' px'</script>"
    html = html.replace("</body>", f"{measure}</body>")
    document, _ = opened(tmp_path, html, "--window-size=500,900", "--hide-scrollbars")
    assert "<title>500 px" in document
