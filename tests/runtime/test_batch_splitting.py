"""Batches that steps expand are processed in parts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import streams
from riot_ops import tasks as t
from riot_ops.core.buffering import Buffering
from riot_ops.core.rejected_records import json_text
from riot_ops.runtime import input_buffer, local
from riot_ops.runtime.input_buffer import BufferedBatch


@pytest.mark.parametrize("cores", [1, 2])
def test_no_batch_exceeds_the_limit(cores, monkeypatch):
    monkeypatch.setattr(local, "MAX_STEP_ROWS", 1000)
    monkeypatch.setattr(local, "FIRST_ROWS", 16)
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
def test_batches_of_rejected_records(cores):
    flow = ro.Dataflow("none")
    rows = flow.source("rows", schema={"value": "double"})
    flow.sink("sums_sink", rows.to(t.NoOp(), id="same"))
    result = flow.run(ro.MemorySource([{"value": "none"}] * 200), cores=cores, batch_size=50)
    assert result.errors.num_rows == 200 and result["same"].num_rows == 0


def test_split_batch_keeps_times_and_offset():
    batch = pa.record_batch({"value": np.arange(5)})
    whole = BufferedBatch("source", {"stream": [batch]}, {"at": 7}, 1.0, 2.0, full=True)
    first, rest = whole.split(2)
    assert (first.rows, first.offset, first.full, first.first_us, first.last_us) == (2, None, True, 1.0, 2.0)
    assert (rest.rows, rest.offset, rest.full, rest.first_us, rest.last_us) == (3, {"at": 7}, True, 1.0, 2.0)
    assert pa.concat_batches([*first.inputs["stream"], *rest.inputs["stream"]]).equals(batch)
    pieces = [batch.slice(0, 1), batch.slice(1, 3), batch.slice(4)]
    for rows in range(1, 5):
        first, rest = BufferedBatch("source", {"stream": pieces}, {"at": 7}).split(rows)
        assert (first.rows, rest.rows, first.offset, rest.offset) == (rows, 5 - rows, None, {"at": 7})
        assert pa.concat_batches([*first.inputs["stream"], *rest.inputs["stream"]]).equals(batch)
    assert BufferedBatch("source", {"stream": [batch, batch.slice(0, 0)]}, None).split(2) is None
    assert whole.split(5) is None and whole.split(0) is None
    assert BufferedBatch("source", {"a": [batch], "b": [batch]}, None).split(2) is None


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("apart", [1, 300, 1 << 40])
def test_long_lines_are_read_in_place(cores, apart, tmp_path, monkeypatch):
    """However many pieces of files a batch has, later steps see one batch, and results are the same."""
    monkeypatch.setattr(input_buffer, "LARGE_BYTES", apart)
    lines = [f"{'ab c'[i % 4]},{i}" if i % 11 else f"?{i}" for i in range(200)]
    for number, begin in enumerate((0, 3, 60, 61, 140)):
        end = (3, 60, 61, 140, 200)[number]
        (tmp_path / f"{number}.txt").write_text("".join(line + "\n" for line in lines[begin:end]))
    seen = []

    def look(batch):
        seen.append(batch.num_rows)
        return batch

    flow = ro.Dataflow("pieces")
    fields = {"key": (0, "string"), "n": (1, "int64")}
    parsed = flow.source("lines").to(t.ParseLines(schema=fields, cells=2), id="parsed")
    some = parsed.to(t.Filter("key in ('a', 'b', 'c')"), id="some").to(ro.map_batches(look), id="look")
    flow.sink("counts_sink", some.to(t.RunningCount(by=("key",)), id="counts"))
    found = flow.run(streams.replay(tmp_path), cores=cores, batch_size=90, buffering=Buffering(flush_after="10s"))
    counted, wanted = Counter(), []
    for seq, line in enumerate(lines):
        key = line.split(",")[0]
        if "," in line and key.strip():
            counted[key] += 1
            wanted.append((seq, key, counted[key]))
    assert [(row["seq"], row["key"], row["count"]) for row in found["counts"].to_pylist()] == wanted
    assert sorted(row["raw"] for row in found.errors.to_pylist()) == sorted(
        json_text({"seq": i, "event_time": None, "payload": line + "\n"})
        for i, line in enumerate(lines)
        if "," not in line
    )
    assert len(seen) <= 6  # not one batch per file
