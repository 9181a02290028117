"""Batches of which steps make much are done in parts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.runtime import local
from riot_ops.runtime.inbound import Arrival


@pytest.mark.parametrize("cores", [1, 2])
def test_no_step_takes_much_more_than_it_should(cores, monkeypatch):
    monkeypatch.setattr(local, "WIDEST", 1000)
    monkeypatch.setattr(local, "FIRST", 16)
    taken = []

    def look(batch):
        taken.append(batch.num_rows)
        return batch

    flow = ro.Dataflow("words")
    words = flow.source("lines").to(t.Tokenize(), id="words").to(ro.map_batches(look), id="look")
    flow.sink("counts_sink", words.to(t.RunningCount(by=("word",)), id="counts"))
    lines = [" ".join(f"w{(7 * i + k) % 90}" for k in range(50)) for i in range(300)]
    text = pa.table({"payload": lines, "event_time": pa.nulls(300)})
    found = flow.run(text, cores=cores)["counts"]
    assert (max(taken), sum(taken)) == (1000, 15_000)
    monkeypatch.undo()
    assert found.equals(flow.run(text, cores=1)["counts"])


@pytest.mark.parametrize("cores", [1, 2])
def test_batches_of_which_every_record_is_rejected(cores):
    flow = ro.Dataflow("none")
    rows = flow.source("rows", schema={"value": "double"})
    flow.sink("sums_sink", rows.to(t.NoOp(), id="same"))
    result = flow.run(ro.MemorySource([{"value": "none"}] * 200), cores=cores, batch_size=50)
    assert result.errors.num_rows == 200 and result["same"].num_rows == 0


def test_what_is_parted_keeps_its_times_and_ends_with_its_offset():
    batch = pa.record_batch({"value": np.arange(5)})
    whole = Arrival("source", {"stream": [batch]}, {"at": 7}, 1.0, 2.0, full=True)
    first, rest = whole.parted(2)
    assert (first.rows, first.offset, first.full, first.first_us, first.last_us) == (2, None, True, 1.0, 2.0)
    assert (rest.rows, rest.offset, rest.full, rest.first_us, rest.last_us) == (3, {"at": 7}, True, 1.0, 2.0)
    assert pa.concat_batches([*first.inputs["stream"], *rest.inputs["stream"]]).equals(batch)
    assert whole.parted(5) is None and whole.parted(0) is None
    assert Arrival("source", {"a": [batch], "b": [batch]}, None).parted(2) is None
