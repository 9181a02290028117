"""The contract of sources: what a position may be."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.core.source import initial_offset


class Numbers(ro.Source):
    """Ten numbers; an offset is made of the number of records before it."""

    schema = pa.schema([pa.field("seq", pa.int64(), nullable=False), ("value", pa.int64())])

    def __init__(self, make, rows_before):
        self._make, self._rows_before = make, rows_before

    def initial(self):
        return self._make(0)

    def latest(self, start, limit=None):
        return self._make(min(10, self._rows_before(start) + (limit or 10)))

    def finished(self, offset):
        return self._rows_before(offset) == 10

    def splits(self, start, end, n):
        return [{"from": self._rows_before(start), "to": self._rows_before(end)}]

    def read(self, split):
        rows = range(split["from"], split["to"])
        yield pa.RecordBatch.from_pydict({"seq": rows, "value": rows}, schema=self.schema)


def flow():
    made = ro.Dataflow("numbers")
    made.sink("out", made.source("numbers", schema=Numbers.schema))
    return made


@pytest.mark.parametrize(
    ("make", "rows_before"),
    [
        (lambda n: n, lambda offset: offset),
        (lambda n: (n,), lambda offset: offset[0]),
        (lambda n: {"row": (n,)}, lambda offset: offset["row"][0]),
        (lambda n: {n: n}, lambda offset: next(iter(offset))),
        (lambda n: {"row": {n}}, lambda offset: next(iter(offset["row"]))),
        (lambda n: {"row": b"%d" % n}, lambda offset: int(offset["row"])),
    ],
    ids=["number", "tuple", "tuple within", "key", "set", "bytes"],
)
def test_positions_that_a_checkpoint_cannot_hold_are_refused_at_the_start(make, rows_before, tmp_path):
    source = Numbers(make, rows_before)
    message = r"source 'numbers': initial\(\) of Numbers must return a mapping of texts to values of JSON.*got "
    with pytest.raises(ConfigError, match=message):
        initial_offset("numbers", source)
    with pytest.raises(ConfigError, match=message):
        flow().run(source, checkpoint=tmp_path / "kept")
    assert not list((tmp_path / "kept").glob("*.msgpack"))


def test_positions_of_mappings_are_kept(tmp_path):
    source = Numbers(lambda n: {"at": {"row": [n]}}, lambda offset: offset["at"]["row"][0])
    assert initial_offset("numbers", source) == {"at": {"row": [0]}}
    assert flow().run(source, checkpoint=tmp_path, batch_size=3)["numbers"].num_rows == 10
    assert flow().run(source, checkpoint=tmp_path, batch_size=3)["numbers"].num_rows == 0


def test_positions_of_our_own_sources_are_kept(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "a.txt").write_text("0,x\n1,y\n")
    for source in (
        ro.read(tmp_path / "a.csv"),
        ro.streams.replay(tmp_path / "a.txt"),
        ro.streams.city(messages=5),
        ro.MemorySource([{"a": 1}]),
        ro.HeartbeatSource(ro.MemorySource([{"a": 1}]), "1s"),
    ):
        start = initial_offset("in", pickle.loads(pickle.dumps(source)))
        assert isinstance(start, dict)
