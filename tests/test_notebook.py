"""The notebook of examples/ runs from top to bottom, and shows what it promises."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """This Python as a kernel, whatever is installed for the user."""
    folder = tmp_path / "jupyter" / "kernels" / "this"
    folder.mkdir(parents=True)
    command = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    spec = f'{{"argv": {command}, "display_name": "this", "language": "python"}}'
    (folder / "kernel.json").write_text(spec)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return "this"


@pytest.mark.filterwarnings("ignore")  # of the notebook's own libraries
def test_the_notebook_runs_and_shows_reports_tables_and_a_comparison(tmp_path, kernel):
    for name in ("tour.ipynb", "train_image_classifier.json.gz"):
        shutil.copy(EXAMPLES / name, tmp_path)
    book = nbformat.read(tmp_path / "tour.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells), "kept without outputs"
    client = nbclient.NotebookClient(
        book, timeout=300, kernel_name=kernel, resources={"metadata": {"path": str(tmp_path)}}
    )
    asyncio.run(client.async_execute())
    shown = [
        output.data["text/html"]
        for cell in book.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    assert ['<iframe sandbox="allow-scripts"' in html for html in shown] == [
        True, False, False, False, True,
    ]  # fmt: skip
    assert "input-dataloader-sync" in shown[1]
    assert "data loader" in shown[2]
    assert "diff" in shown[4] or "before" in shown[4]
