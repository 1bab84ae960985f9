"""What the tools of a language model answer: bounded, quoted, and over the SDK's own protocol."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from detector import mcp_server
from detector.config import compose
from detector.errors import DetectorError
from detector.evidence.views import VIEWS
from detector.report import to_json
from detector.scan_file import stages_of
from tests.sample_reports import HOSTILE, NOT_ANALYZABLE, TYPICAL

EXAMPLE = str(Path(__file__).resolve().parents[2] / "examples/train_image_classifier.json.gz")
PLAIN = ["flagger=rules", "confidence=constant", "confidence.cpu=0.9", "judge=none"]


@pytest.fixture(scope="module")
def desk():
    return mcp_server.Desk(stages_of(compose("scan", PLAIN)))


def test_a_scan_gives_ids_that_evidence_and_views_take(desk):
    found = json.loads(desk.scan(EXAMPLE))
    loader = next(f for f in found["findings"] if f["pattern"] == "input-dataloader-sync")
    evidence = json.loads(desk.evidence(EXAMPLE, loader["id"]))
    assert "num_workers" in evidence["code"]
    assert evidence["measures"]
    for view in VIEWS:
        assert desk.view(EXAMPLE, view, loader["id"])
    assert "data loader" in desk.view(EXAMPLE, "timeline")


def test_reports_are_read_too_and_compared(desk, tmp_path):
    (tmp_path / "a.json").write_text(to_json(TYPICAL))
    path = str(tmp_path / "a.json")
    assert json.loads(desk.scan(path))["findings"][0]["pattern"] == "sync-scalar-readback"
    assert "takes as long as before" in desk.diff(path, path)
    (tmp_path / "b.json").write_text(to_json(NOT_ANALYZABLE))
    answer = json.loads(desk.scan(str(tmp_path / "b.json")))
    assert answer["verdict"].startswith("Cannot be analyzed")
    assert answer["record_instead"]


def test_answers_are_bounded_and_say_so(desk, tmp_path):
    many = replace(TYPICAL, findings=HOSTILE.findings * 50, leads=HOSTILE.leads * 50)
    (tmp_path / "c.json").write_text(to_json(many))
    text = desk.scan(str(tmp_path / "c.json"))
    assert len(text) <= mcp_server.MOST_CHARS
    assert json.loads(text)["shortened"]
    assert "\x1b" not in text
    assert "\x1b" not in desk.evidence(str(tmp_path / "c.json"), HOSTILE.findings[0].id)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda d: d.scan("gone.json"), "gone.json: no such file"),
        (lambda d: d.evidence(EXAMPLE, "nothing"), "no finding 'nothing'"),
        (lambda d: d.view(EXAMPLE, "sky"), "no view 'sky': there are timeline"),
        (lambda d: d.rule("nothing"), "no pattern 'nothing'"),
    ],
)
def test_what_is_not_there_is_one_line(desk, call, said):
    with pytest.raises(DetectorError, match=said):
        call(desk)


def test_the_sdks_own_client_scans_over_standard_input():
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    import anyio
    from mcp import ClientSession, StdioServerParameters, stdio_client

    async def ask() -> tuple[set[str], str]:
        words = ["-m", "detector", "mcp", *PLAIN]
        root = str(Path(EXAMPLE).parents[1])
        server = StdioServerParameters(command=sys.executable, args=words, cwd=root)
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            tools = await session.list_tools()
            answer = await session.call_tool("scan", {"trace": EXAMPLE})
            return {tool.name for tool in tools.tools}, answer.content[0].text

    names, text = anyio.run(ask)
    assert names == {"scan", "evidence", "view", "diff", "rule"}
    assert json.loads(text)["findings"]
