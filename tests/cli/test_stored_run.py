"""``riot-ops run`` with addresses of an object store for input, results and checkpoint."""

from __future__ import annotations

import re

import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops.core.storage import Address
from tests.cli.commands import call, failure

LOCAL = ("--runner", "local")


@pytest.fixture
def place(request):
    return Address.of(f"memory://{re.sub(r'[^a-z0-9]+', '-', request.node.name)}", {})


@pytest.fixture
def descriptor(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flow = ro.Dataflow("plausible")
    readings = flow.source("readings", schema={"room": "string", "value": "double"})
    flow.sink("out", readings.to(ro.tasks.RangeFilter(bounds={"value": (0, 100)}, by=None), id="kept"))
    path = tmp_path / "flow.json"
    path.write_text(flow.to_json(), encoding="utf-8")
    return path


def rows(start, stop):
    return b"room,value\n" + b"".join(b"r%d,%d\n" % (i % 3, i) for i in range(start, stop))


def test_input_results_and_checkpoint_in_a_store(place, descriptor, tmp_path):
    (place / "days" / "a.csv").write(rows(0, 20))
    out, state = place / "out", place / "state"
    args = ("run", descriptor, *LOCAL, "--input", place / "days", "--out", out, "--checkpoint", state)
    text = call(*args)
    assert f"results: {out}/<stream>/*.parquet" in text
    assert "logs and stores stay in out/" in text
    assert state.files()
    (place / "days" / "b.csv").write(rows(20, 30))
    assert "runner local, continued" in call(*args)
    found = ro.ParquetSink(str(out)).table("kept")
    assert sorted(found["value"].to_pylist()) == list(map(float, range(30)))
    assert not list(tmp_path.rglob("*.parquet"))


def test_results_of_an_earlier_run_are_refused_or_replaced(place, descriptor):
    (place / "a.csv").write(rows(0, 20))
    (place / "b.csv").write(rows(20, 25))
    out = place / "out"
    call("run", descriptor, *LOCAL, "--input", place / "a.csv", "--out", out)
    _, _, error = failure("run", descriptor, *LOCAL, "--input", place / "b.csv", "--out", out)
    assert re.search(rf"{out} holds the results of plausible over .*a.csv.*--overwrite", str(error))
    call("run", descriptor, *LOCAL, "--input", place / "b.csv", "--out", out, "--overwrite")
    assert ro.ParquetSink(str(out)).table("kept")["value"].to_pylist() == [20.0, 21.0, 22.0, 23.0, 24.0]


def test_checkpoint_of_other_results_is_refused(place, descriptor, tmp_path):
    (place / "a.csv").write(rows(0, 20))
    state = place / "state"
    call("run", descriptor, *LOCAL, "--input", place / "a.csv", "--out", place / "out", "--checkpoint", state)
    other = tmp_path / "other"
    _, _, error = failure("run", descriptor, *LOCAL, "--input", place / "a.csv", "--out", other, "--checkpoint", state)
    assert f"--checkpoint {state} holds a run to continue, but {other} holds no results of a run" in str(error)


@pytest.mark.long
def test_input_of_messages_in_a_store(place, tmp_path, sample_data, monkeypatch):
    given = sample_data / "riotbench" / "SYS_sample_data_senml.csv"
    (tmp_path / "messages.csv").write_bytes(given.read_bytes() * 20)
    (place / "messages.csv").write(given.read_bytes() * 20)
    monkeypatch.chdir(tmp_path)
    call("run", "stats", *LOCAL, "--input", "messages.csv", "--out", "here", "--no-plot")
    text = call("run", "stats", *LOCAL, "--input", place / "messages.csv", "--out", place / "out")
    assert "no plot: plots are drawn of results in a folder on this machine" in text
    order = [("seq", "ascending"), ("obs_type", "ascending")]
    for stream in ("dac", "slr"):
        found = ro.ParquetSink(str(place / "out")).table(stream).sort_by(order)
        assert found.num_rows
        assert found.equals(pq.read_table(f"here/{stream}").sort_by(order).select(found.column_names))


def test_application_over_lines_in_a_store(place, tmp_path):
    (place / "lines.txt").write(b"one two\ntwo\n")
    out = tmp_path / "out"
    call("run", "word_count", *LOCAL, "--input", place / "lines.txt", "--out", out, "--no-plot")
    assert sum(pq.read_table(path).num_rows for path in out.glob("*/*.parquet")) >= 3
