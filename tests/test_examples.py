"""The notebooks run from top to bottom and say what the text says."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.spark
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    same = [c for c in notebook.cells if c.cell_type == "code" and "query[stream]" in c.source]
    assert same[0].outputs[0]["data"]["text/plain"] == "['avg', 'kalman', 'slr', 'dac']"
