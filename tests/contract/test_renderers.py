"""What every renderer must do with any report, each in the ways its own format can be attacked."""

from __future__ import annotations

import gzip
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detector.kineto import read
from detector.render import overlay
from detector.render.formats import FORMATS, View
from detector.report import LEVELS, LedgerPlace, LedgerRow, Report, occurrences, to_json
from detector.scan import FORMATS as OFFERED
from detector.scan import LEVELS as OFFERED_LEVELS
from detector.trace import Cat
from tests.sample_reports import (
    CLEAN,
    CPU_ONLY,
    EVIL,
    HOSTILE,
    HOSTILE_NOT_ANALYZABLE,
    NOT_ANALYZABLE,
    TYPICAL,
)

REPORTS = {
    "typical": TYPICAL,
    "clean": CLEAN,
    "cpu only": CPU_ONLY,
    "not analyzable": NOT_ANALYZABLE,
    "empty": Report(),
}
HOSTILES = pytest.mark.parametrize(
    "hostile", [HOSTILE, HOSTILE_NOT_ANALYZABLE], ids=["hostile", "not analyzable"]
)
BARE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(params=FORMATS, ids=lambda f: f.name)
def form(request):
    return request.param


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_can_be_rendered_and_names_its_trace(form, name):
    text = form.one(REPORTS[name], View())
    assert text.endswith("\n")
    assert "worker0" in text or name == "empty"


def test_the_same_report_gives_the_same_text(form):
    assert form.one(TYPICAL, View()) == form.one(TYPICAL, View())


def test_every_finding_is_named(form):
    text = form.one(TYPICAL, View())
    for finding in TYPICAL.findings:
        assert finding.pattern in text


@HOSTILES
def test_a_hostile_trace_puts_no_control_code_into_a_text(form, hostile):
    text = form.one(hostile, View())
    if form.name == "json":  # there as escapes, for programs
        assert "\x1b" not in text
        return
    assert BARE.search(text.replace("\n", "")) is None


@given(text=st.text(max_size=30))
@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_no_text_at_all_breaks_a_renderer(form, text):
    finding = replace(
        TYPICAL.findings[0],
        explanation=text,
        assumes=text,
        evidence={text: text},
        fix=replace(TYPICAL.findings[0].fix, code=text, summary=text),
    )
    cause = LedgerRow(text, text, "host", 1.0, 1.0, (LedgerPlace(text, text, 1),))
    report = replace(
        TYPICAL, findings=(finding,), leads=(finding,), ledger=(cause,), unexplained=(cause,),
        warnings=(text,),
    )  # fmt: skip
    assert form.one(report, View()).endswith("\n")


def test_the_command_line_offers_what_the_table_holds():
    assert set(OFFERED) <= {f.name for f in FORMATS}
    assert OFFERED_LEVELS == LEVELS


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def _page(report: Report) -> _Page:
    page = _Page()
    page.feed(next(f for f in FORMATS if f.name == "html").one(report, View()))
    return page


@pytest.mark.parametrize(
    "report", [TYPICAL, HOSTILE, HOSTILE_NOT_ANALYZABLE], ids=["typical", "hostile", "blind"]
)
def test_the_page_loads_nothing_and_runs_its_own_script_only(report):
    page = _page(report)
    tags = {tag for tag, _ in page.tags}
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    assert tags.isdisjoint({"img", "link", "iframe", "object", "embed", "form", "base"})
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style", "the policy would not show it"
            if name in ("href", "src"):
                assert (value or "").startswith("#"), (tag, value)


@pytest.mark.parametrize("report", [TYPICAL, HOSTILE], ids=["typical", "hostile"])
def test_the_pages_policy_allows_its_own_style_and_script_and_nothing_else(report):
    import base64
    import hashlib

    html = next(f for f in FORMATS if f.name == "html").one(report, View())
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
    assert script is not None
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert style is not None
    assert policy is not None
    for kind, part in (("style", style[1]), ("script", script[1])):
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy[1]
    assert policy[1].startswith("default-src 'none'")
    assert "unsafe" not in policy[1]
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    for writes_markup in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("):
        assert writes_markup not in script[1]


@HOSTILES
def test_what_the_script_works_on_cannot_end_its_block(hostile):
    html = next(f for f in FORMATS if f.name == "html").one(hostile, View())
    assert html.count("</script>") == 2
    block = html.partition('id="data">')[2].partition("</script>")[0]
    assert not set("<>&") & set(block)
    names = [name for t in json.loads(block)["timelines"].values() for name in t["names"]]
    assert all(BARE.search(name) is None for name in names)


def test_every_tag_of_the_page_is_closed():
    void = {"meta", "br"}
    stack: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag, _):
            if tag not in void:
                stack.append(tag)

        def handle_startendtag(self, tag, _):
            assert tag == "rect"

        def handle_endtag(self, tag):
            assert stack.pop() == tag

    for report in (*REPORTS.values(), HOSTILE, HOSTILE_NOT_ANALYZABLE):
        parser = Balance()
        parser.feed(next(f for f in FORMATS if f.name == "html").one(report, View()))
        assert stack == []


def test_links_of_the_timeline_lead_to_a_card():
    page = _page(TYPICAL)
    targets = {a["id"] for _, a in page.tags if "id" in a}
    links = {a["href"][1:] for tag, a in page.tags if tag == "a" and a.get("href")}
    assert links
    assert links <= targets


@HOSTILES
def test_markdown_holds_no_live_markup_from_a_trace(hostile):
    text = next(f for f in FORMATS if f.name == "markdown").one(hostile, View())
    outside = re.sub(r"(?ms)^(`{3,})python\n.*?^\1$", "", text)  # fences
    outside = re.sub(r"(?<!\\)`[^`\n]*`", "", outside)  # spans of code
    assert "<script" not in outside
    assert "<img" not in outside
    assert re.search(r"(?<!\\)!?(?<!\\)\[[^\]]*\]\(", outside) is None
    assert re.search(r"https?:", outside) is None
    assert not [line for line in outside.splitlines() if line.startswith("# ")]


def test_rich_markup_in_a_name_is_shown_not_obeyed():
    colored = next(f for f in FORMATS if f.name == "terminal").one(HOSTILE, View(200, True))
    assert "[bold]rich[/bold]" in colored
    assert "\x1b]8" not in colored  # a link


def test_the_overlay_of_a_hostile_report_is_whole_json():
    target = io.BytesIO()
    overlay.annotate(HOSTILE, io.BytesIO(b'{"traceEvents": []}'), target)
    events = json.loads(gzip.decompress(target.getvalue()))["traceEvents"]
    assert len(events) == len(overlay.events(HOSTILE))
    assert BARE.search(json.dumps(events, ensure_ascii=False)) is None


def test_the_hostile_report_really_is_hostile():
    """Guards the tests above against a sample that lost its teeth."""
    assert BARE.search(EVIL)
    assert "\\u001b" in to_json(HOSTILE)


SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
REAL = ("a100_alexnet", "mi300_qwen_infer", "sampled_train_rank0", "mtia_infer")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not beside the checkout")
@pytest.mark.parametrize("name", REAL)
def test_a_real_trace_reads_the_same_with_the_findings_in_it(name, tmp_path):
    original = SHARED / f"{name}.json.gz"
    copy = tmp_path / "annotated.json.gz"
    with original.open("rb") as source, copy.open("wb") as target:
        overlay.annotate(TYPICAL, source, target)
    before, after = read(original), read(copy)
    for cat in set(Cat) - {Cat.OTHER}:
        assert list(before.start[before.cat == cat]) == list(after.start[after.cat == cat])
    assert before.steps == after.steps
    assert before.coverage.repaired == after.coverage.repaired
    assert before.coverage.dropped == after.coverage.dropped
    slices = sum(len(occurrences(finding)) for finding in TYPICAL.findings)
    assert len(after) == len(before) + slices
