"""Example notebook, run by a real kernel on a small dataset, as Jupyter runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from pipeline.core.config import ShardSettings
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset

NOTEBOOK = Path(__file__).parents[2] / "docs/explore.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Cells with code, with their outputs."""
    home = tmp_path_factory.mktemp("jupyter")
    (home / "docs").mkdir()
    write_shards(make_dataset(home / "demo", captioner=MODEL), ShardSettings())
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = {"metadata": {"path": str(home / "docs")}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=folder).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any, kind: str) -> str:
    """Last output of a cell as Jupyter displays it."""
    return str(cell.outputs[-1].data[kind])


@pytest.mark.slow
def test_every_cell_shows_something(cells: list[Any]) -> None:
    assert len(cells) > 8
    assert all(cell.outputs and cell.outputs[-1].output_type == "execute_result" for cell in cells)
    assert "2 films, 20 clips, 15 of them kept" in shown(cells[0], "text/plain")
    assert "海の話.mp4" in shown(cells[1], "text/html")


def test_the_file_holds_no_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert [cell.outputs for cell in notebook.cells if cell.cell_type == "code" and cell.outputs] == []
