"""The notebooks run from top to bottom, and their results match their text."""

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from riot_ops.models import ModelStore

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def same_on_spark(output, folder):
    """Each stream is the same on Spark."""
    assert output("query[stream]") == ["avg", "kalman", "slr", "dac"]


def better_with_the_second_model(output, folder):
    """Every reading has been predicted, and more accurately with the model loaded during the run."""
    rows, rejected = output("result = pred.run")
    assert rows == {"classes": 4 * 4800, "error": 4 * 4800}
    assert rejected == 0
    old, new = sorted(ModelStore.open(folder / "models").names("MLR"))
    hours = [(int(name.split("-")[2].removesuffix(".model")) - 1247509800000) / 3.6e6 for name in (old, new)]
    assert hours == [6, 48]
    used = output(".value_counts")
    assert list(used) == [old, new]
    assert sum(used.values()) == 4 * 4800
    assert used[old] >= 2 * 4800  # TRAIN ran after two days, and PRED switched soon after
    assert used[new] > 4800
    distance = output("distance = ")
    assert distance["after"] < distance["before"] / 2


def as_the_ready_made_one(output, folder):
    """Spikes and lines that are none are there, and the application built by hand is that of the library."""
    rows = output("result.summary.rows")
    assert 0 < rows["spikes"] < rows["errors"] * 3
    assert sum(reason["reason_count"] for reason in output('result["errors"]')) == rows["errors"]
    assert output("average = ") == [20.0, 20.5, 23.0]
    assert output("ready = ") is True


def shared_while_they_come_and_go(output, folder):
    """New dataflows share running steps, removed ones end unused steps, and results equal separate runs."""
    assert output('["city"] > 0') is True
    assert output(".warm") == ["kalman_filter"]
    stopped, kept = output("gone = ")
    assert [name.partition(".")[0] for name in stopped] == ["adas"]
    assert [name.partition(".")[0] for name in kept] == ["city", "parse_senml", "range_filter", "kalman_filter"]
    assert output("alone = ") is True
    assert output("manager.close()") == []


CLAIMS = {
    "01_sensor_stream_to_predictions": same_on_spark,
    "02_sensor_file_to_live_prediction": better_with_the_second_model,
    "03_lines_to_alerts": as_the_ready_made_one,
    "04_dataflows_that_share": shared_while_they_come_and_go,
}
#: Number of pictures where it is not two: the dataflow and its results.
PICTURES = {"04_dataflows_that_share": 4}


@pytest.mark.spark
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()

    def output(source):
        """Return the output of the cell whose source contains a text."""
        [cell] = [c for c in notebook.cells if c.cell_type == "code" and source in c.source]
        return ast.literal_eval(cell.outputs[-1]["data"]["text/plain"])

    CLAIMS[path.stem](output, tmp_path)
    outputs = [o.get("data", {}) for c in notebook.cells for o in c.get("outputs", [])]
    pictures = {
        str(o.get("image/png") or o.get("image/svg+xml")) for o in outputs if {"image/png", "image/svg+xml"} & {*o}
    }
    assert len(pictures) == PICTURES.get(path.stem, 2)
