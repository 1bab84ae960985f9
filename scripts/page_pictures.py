"""Opens report.html files in Chromium: how soon they paint, how fast they zoom, how they look.

    python scripts/page_pictures.py OUT REPORT.html…
    python scripts/page_pictures.py docs/images --readme REPORT.html

Needs the extra `browser` and a Chromium. Writes PNG files at 1440 and 390 px, in dark colors and
as printed (PDF), and prints for each page the time to its first paint and the slowest of ten zooms.
With --readme instead the two pictures of the README, of the example's report.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

SCREENS: dict[str, dict[str, Any]] = {
    "1440": {"viewport": {"width": 1440, "height": 900}},
    "390": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
}
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
ZOOM = """async () => {
  const canvas = document.querySelector('canvas'), times = [];
  if (!canvas) return 0;
  for (let i = 0; i < 10; i++) {
    const key = i % 2 ? '-' : '+', start = performance.now();
    canvas.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    times.push(performance.now() - start);
  }
  return Math.max(...times);
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--readme", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        if arguments.readme:
            readme(browser, arguments.pages[0], arguments.out)
            return
        for number, path in enumerate(arguments.pages, 1):
            for screen, settings in SCREENS.items():
                page = browser.new_context(**settings).new_page()
                page.goto(path.resolve().as_uri())
                page.wait_for_timeout(200)
                name = f"{number}-{screen}"
                page.screenshot(path=arguments.out / f"{name}.png", full_page=True)
                paint, zoom = page.evaluate(PAINT), page.evaluate(ZOOM)
                kb = path.stat().st_size / 1e3
                print(f"{path} {screen}: {kb:.0f} kB, paint {paint:.0f} ms, zoom {zoom:.0f} ms")
                if screen == "1440":
                    page.pdf(path=arguments.out / f"{number}.pdf", format="A4")
                page.context.close()
        browser.close()


def readme(browser: Any, path: Path, out: Path) -> None:
    """The head of the page, and its first finding."""
    size = {"width": 1000, "height": 760}
    page = browser.new_context(viewport=size, device_scale_factor=1.5).new_page()
    page.goto(path.resolve().as_uri())
    page.wait_for_timeout(200)
    page.screenshot(path=out / "report.png")
    page.locator(".card canvas").first.press("n")  # the event at fault, with its name and time
    page.locator(".card").first.screenshot(path=out / "finding.png")
    for name in ("report.png", "finding.png"):
        with Image.open(out / name) as image:
            few = image.convert("RGB").quantize(256)
        few.save(out / name, optimize=True)


if __name__ == "__main__":
    main()
