"""The rows of a batch DataFrame in files, read as a log, without any Spark."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from riot_ops.spark.batch_source import Part, Written

#: Rows of the batches of each file; one has none.
FILES = ((3, 1), (), (4,), (2, 2))
TOTAL = 12


@pytest.fixture
def log(tmp_path):
    def make(numbered=True):
        schema = pa.schema([("value", pa.int64())] if numbered else [("seq", pa.int64()), ("value", pa.int64())])
        at, parts = itertools.count(100), []
        for i, sizes in enumerate(FILES):
            with pa.ipc.new_file(str(tmp_path / f"{i}.arrow"), schema) as out:
                for size in sizes:
                    values = list(itertools.islice(at, size))
                    columns = {"value": values} if numbered else {"seq": [2 * v for v in values], "value": values}
                    out.write_batch(pa.RecordBatch.from_pydict(columns, schema=schema))
            parts.append(Part(f"{i}.arrow", sum(sizes)))
        return Written(tmp_path, parts, schema)

    return make


def rows(source, start, end):
    return [row for batch in source.read({"start": start, "end": end}) for row in batch.to_pylist()]


def test_any_range(log):
    source = log()
    assert source.schema.names == ["seq", "value"] and not source.schema.field("seq").nullable
    every = [{"seq": i, "value": 100 + i} for i in range(TOTAL)]
    for start, end in itertools.combinations(range(TOTAL + 1), 2):
        assert rows(source, start, end) == every[start:end]
        assert all(batch.num_rows for batch in source.read({"start": start, "end": end}))


def test_numbers_of_ones_own_stay(log):
    source = log(numbered=False)
    assert source.schema.names == ["seq", "value"]
    assert rows(source, 3, 9) == [{"seq": 2 * v, "value": v} for v in range(103, 109)]


def test_offsets(log):
    source = log()
    assert source.initial() == {"row": 0}
    assert source.latest({"row": 0}) == {"row": TOTAL} == source.latest({"row": 5}, 7) == source.latest({"row": 5}, 99)
    assert source.latest({"row": 5}, 2) == {"row": 7}
    assert not source.finished({"row": TOTAL - 1})
    assert source.finished({"row": TOTAL})
    assert source.count({"row": 3}, {"row": 9}) == 6


@pytest.mark.parametrize("n", [1, 2, 5, 12, 40])
def test_splits_are_even_and_whole(log, n):
    splits = log().splits({"row": 2}, {"row": 12}, n)
    assert [i for s in splits for i in range(s["start"], s["end"])] == list(range(2, 12))
    sizes = [s["end"] - s["start"] for s in splits]
    assert len(sizes) == min(n, 10) and max(sizes) - min(sizes) <= 1
