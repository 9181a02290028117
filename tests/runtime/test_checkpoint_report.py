"""What a checkpoint of a run in process holds; for Spark see ``tests/spark/test_remote_sinks.py``."""

from __future__ import annotations

import json
import zlib

import msgspec
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, StateError
from riot_ops.runtime.checkpoint_report import checkpoint_problems, describe_checkpoint


@pytest.fixture
def folder(tmp_path):
    flow = ro.Dataflow("kept")
    rows = flow.source("in", schema={"device": "string", "value": "double"})
    rows.to(t.KalmanFilter(by=("device",)), id="smooth").to("out")
    table = pa.table({"device": ["a", "b", "c", "a"], "value": [1.0, 2.0, 3.0, 4.0]})
    flow.run(table, sinks=ro.MemorySink(), checkpoint=tmp_path / "state", epoch_rows=2, batch_size=2)
    return tmp_path / "state"


def test_content(folder):
    found = json.loads(json.dumps(describe_checkpoint(folder)))
    size = sum(path.stat().st_size for path in folder.iterdir())
    state = found.pop("steps")
    assert state["smooth"]["state_rows"] == 3 and state["smooth"]["task"] == "kalman_filter"
    assert found == {
        "runner": "in process",
        "folder": str(folder),
        "bytes": size,
        "file": "state-000000000003.msgpack",
        "committed": 3,
        "ended": True,
        "dataflow": ["edge 'in' -> 'smooth'", "edge 'smooth' -> 'out'", "sink 'out'", "source 'in'", "step 'smooth'"],
        "positions": {"in": {"row": 4}},
    }
    assert list(checkpoint_problems(folder)) == []


@pytest.mark.parametrize("place", [3, 40, -1], ids=["magic", "head", "state"])
def test_damage_is_named(folder, place):
    path = max(folder.glob("state-*"))
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    (problem,) = checkpoint_problems(folder)
    assert path.name in problem
    with pytest.raises(StateError, match=path.name):
        describe_checkpoint(folder)


def test_no_checkpoint(tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):
        describe_checkpoint(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="is no checkpoint"):
        list(checkpoint_problems(tmp_path))


@pytest.fixture
def query(tmp_path):
    """The files of a query on Spark, without state."""
    plain = {
        "format": 2,
        "partitions": 4,
        "order": "arrival",
        "fuse": "exact",
        "flow": {"source 'in'": {}},
        "state": {},
    }
    checksum = zlib.crc32(msgspec.json.encode({**plain, "checksum": 0}))
    (tmp_path / "riot_ops.json").write_bytes(msgspec.json.encode({**plain, "checksum": checksum}))
    for name, lines in (("offsets", 'v1\n{"batchWatermarkMs":0}\n{"at":7}'), ("commits", "v1\n{}")):
        (tmp_path / name).mkdir()
        for number in (0, 1):
            (tmp_path / name / str(number)).write_text(lines)
    return tmp_path


def test_query(query):
    found = describe_checkpoint(query)
    assert (found["runner"], found["committed"], found["planned"]) == ("spark", 2, 2)
    assert (found["positions"], found["partitions"], found["dataflow"]) == ({"in": {"at": 7}}, 4, ["source 'in'"])
    assert list(checkpoint_problems(query)) == []


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("riot_ops.json", "{}", "riot_ops.json is damaged"),
        ("offsets/1", "", "offsets/1 is damaged: it does not begin with its version"),
        ("commits/0", "v1\n{", "commits/0 is damaged"),
        ("commits/5", "v1\n{}", "offsets lacks micro-batch 5"),
        ("state.zip", "PK", "state.zip is damaged"),
        ("commits/.0.crc", "crc\0\0\0\2\0abcd", "commits/0 is damaged: the checksum does not fit"),
        ("commits/.0.crc", "x", "holds no checksums"),
    ],
)
def test_damaged_query(query, name, text, problem):
    (query / name).write_text(text)
    (found,) = checkpoint_problems(query)
    assert problem in found
