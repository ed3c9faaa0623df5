"""Notebooks run from top to bottom, in a small form, and are fit to be shown as they are."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BADGE = "https://colab.research.google.com/github/jaxenvs/jaxenvs/blob/main/notebooks"


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell):
    return "".join(cell["source"])


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path):
    """`metadata.quick` of a cell has the values of a small form, which follow those of the cell."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(path, nbformat.NO_CONVERT)
    for cell in notebook.cells:
        for name, value in cell.metadata.get("quick", {}).items():
            assert re.search(rf"^{name}\b|, {name}\b", cell.source, re.MULTILINE)
            cell.source += f"\n{name} = {value!r}"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_opens_in_colab_and_installs_itself(path):
    title, install, *_ = read(path)["cells"]
    assert source(title).startswith("# ") and f"({BADGE}/{path.name})" in source(title)
    assert "notebooks/install.py" in source(install)
    assert (ROOT / "notebooks" / "install.py").exists()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_of_a_notebook_name_no_place_or_moment(path):
    cells = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    assert not any("execution" in cell["metadata"] for cell in cells)
    outputs = json.dumps([cell["outputs"] for cell in cells])
    assert not re.search(r"/(home|root|tmp|usr)/", outputs)
    assert "Traceback" not in outputs and '"stderr"' not in outputs
