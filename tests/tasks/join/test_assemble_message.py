"""Message assembly against a naive reference; timeouts, duplicates, lines, and the ETL dataflow."""

import csv
import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import ConfigError, StreamSchema
from riot_ops.core.schema import TIMESTAMP, stream_schema
from riot_ops.runtime.session import Session
from riot_ops.tasks import AssembleMessage, CheckBloomFilter, CSVToSenML, Interpolation, ParseSenML, RangeFilter
from tests.reference.assemble_message import Joiner
from tests.reference.splits import run
from tests.simulated_query import SimulatedQuery

NAMES = ["x", "y", "z"]
PIECES = st.lists(
    st.fixed_dictionaries(
        {
            "message": st.sampled_from(["a", "b", "ü", "", None]),
            "obs_type": st.sampled_from([*NAMES, *NAMES, "other", None]),
            "value": st.one_of(st.none(), st.floats(-1e6, 1e6)),
            "event_time": st.one_of(st.none(), st.integers(0, 40)),
        }
    ),
    max_size=50,
)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("message", pa.string()),
        ("obs_type", pa.string()),
        ("value", pa.float64()),
        ("event_time", TIMESTAMP),
    ]
)


def batch_of(pieces):
    rows = [{**p, "n": i, "event_time": p["event_time"]} for i, p in enumerate(pieces)]
    return pa.RecordBatch.from_arrays([pa.array([r[f.name] for r in rows], f.type) for f in SCHEMA], schema=SCHEMA)


@pytest.mark.long
@given(PIECES, st.lists(st.integers(0, 50), max_size=4), st.sampled_from([None, 1, 10]), st.booleans())
def test_output_equals_the_reference_for_any_batches_and_restarts(pieces, cuts, timeout, emit):
    task = AssembleMessage(
        schema=None,
        fields=tuple(NAMES),
        by=("message",),
        timeout=None if timeout is None else timedelta(microseconds=timeout),
        partial=emit,
    )
    got, errors = run(task, batch_of(pieces), cuts)
    reference = Joiner(NAMES, timeout, emit)
    out, rejected = [], []
    for i, piece in enumerate(pieces):
        records, bad = reference.push({**piece, "n": i})
        out += records
        rejected += bad
    records, bad = reference.end()
    found = [
        (row["message"], {n: row[n] for n in NAMES if row[n] is not None}, row.get("complete", True)) for row in got
    ]
    wanted = [(key, {n: v for n, v in values.items() if v is not None}, whole) for key, values, whole in out + records]
    assert found == wanted
    rejected += bad
    assert Counter((json.loads(e["raw"])["n"], e["reason"]) for e in errors) == Counter(
        (piece["n"], reason) for piece, reason in rejected
    )


def pieces_of(messages, names, start=0):
    n = len(messages) * len(names)
    return pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(np.repeat(messages, len(names)), pa.int64()),
            "event_time": pa.array(np.repeat(np.asarray(messages) * 1_000_000, len(names)), TIMESTAMP),
            "obs_type": pa.array(list(names) * len(messages)),
            "value": pa.array(np.arange(n, dtype=float)),
        }
    )


def test_message_out_of_order_is_assembled_in_time():
    join = AssembleMessage(schema=None, fields=("x", "y"), timeout=timedelta(seconds=60)).session(ordered=False)
    assert len(join.push_batch(pieces_of([1000, 1, 1001, 2], ["x", "y"]))) == 4
    assert join.errors == []


def test_piece_after_the_timeout_starts_its_message_again():
    join = AssembleMessage(schema=None, fields=("x", "y"), timeout=timedelta(seconds=10), partial=True).session()
    first = pieces_of([1], ["x"]).to_pylist() + pieces_of([11], ["x", "y"]).to_pylist()
    assert [row["seq"] for row in join.push_many(first)] == [11]
    given_up = join.push_many(pieces_of([12], ["x"]).to_pylist())  # 11 s after message 1 began
    assert [(row["seq"], row["x"], row["y"], row["complete"]) for row in given_up] == [(1, 0.0, None, False)]
    assert join.push_many(pieces_of([1], ["y"]).to_pylist()) == []  # the message starts again
    assert [(row["seq"], row["complete"]) for row in join.flush()] == [(12, False), (1, False)]


def test_message_times_out_after_more_than_the_timeout():
    """Message 1 begins at 0: at 10 it has not timed out yet, and messages complete by then come first."""
    task = AssembleMessage(schema=None, fields=("x", "y"), timeout="10s", partial=True)
    pieces = [(1, "x", 0), (2, "x", 1), (2, "y", 10), (3, "x", 11)]
    rows = [
        {"seq": s, "obs_type": n, "value": 1.0, "event_time": datetime(2024, 5, 1, 0, 0, t, tzinfo=UTC)}
        for s, n, t in pieces
    ]
    whole = task.session().push_batch(pa.RecordBatch.from_pylist(rows)).to_pylist()
    assert [(row["seq"], row["complete"]) for row in whole] == [(2, True), (1, False)]
    session = task.session()
    assert [[row["seq"] for row in session.push(row)] for row in rows] == [[], [], [2], [1]]


def test_pieces_of_an_incomplete_message_are_rejected():
    join = AssembleMessage(schema=None, fields=("x", "ü", "z"), timeout=timedelta(seconds=10)).session()
    join.push_batch(pieces_of([1, 2], ["x", "ü"]))
    assert join.errors == []
    join.push_batch(pieces_of([12], ["x"]))
    assert [(e["seq"], e["reason"], e["message"]) for e in join.errors] == [
        (1, "incomplete", "the message lacks z")
    ] * 2
    join.flush()
    assert [e["seq"] for e in join.errors] == [1, 1, 2, 2, 12]
    assert join.errors[-1]["message"] == "the message lacks ü, z"
    assert "_arrived" not in join.errors[-1]["raw"]


@pytest.mark.long
@pytest.mark.parametrize("timeout", [None, timedelta(seconds=50)])
def test_state_is_bounded_over_a_million_messages(timeout):
    """One message in a hundred loses a piece; it waits without a timeout, and is rejected with one."""
    session = Session(AssembleMessage(schema=None, fields=("x", "y", "z"), timeout=timeout))
    sizes, out, step = [], 0, 50_000
    for start in range(0, 1_000_000, step):
        batch = pieces_of(np.arange(start, start + step), ["x", "y", "z"])
        if timeout is not None:
            keep = np.ones(batch.num_rows, np.bool_)
            keep[1::300] = False
            batch = batch.filter(pa.array(keep))
        out += session.push_batch(batch).num_rows
        sizes.append(len(session.snapshot()))
    assert max(sizes) < 20_000, sizes
    assert max(sizes[1:]) - min(sizes[1:]) < 2_000, sizes
    assert out == (1_000_000 if timeout is None else 990_000)
    session.flush()
    assert Counter(e["reason"] for e in session.errors) == ({} if timeout is None else {"incomplete": 20_000})


def test_pieces_may_be_spread_over_many_batches():
    rng = np.random.default_rng(3)
    batch = pieces_of(np.arange(2000), NAMES)
    batch = batch.take(pa.array(rng.permutation(batch.num_rows)))
    join = AssembleMessage(schema=None, fields=tuple(NAMES)).session(ordered=False)
    out = [row for i in range(0, batch.num_rows, 97) for row in join.push_batch(batch.slice(i, 97)).to_pylist()]
    assert sorted(row["seq"] for row in out) == list(range(2000))
    assert all(row["y"] == row["x"] + 1 == row["z"] - 1 == 3 * row["seq"] + 1 for row in out)
    assert join.errors == [] and join.flush() == []


def test_lines_are_valid_csv_and_parse_again():
    """A CSV reader and the next task of ETL read the line back."""
    grid = stream_schema("grid")
    own = StreamSchema(
        "own",
        ("id", "note", *grid.columns[1:]),
        ("", "", *grid.units[1:]),
        ("sv", "sv", "v", "v"),
        "id",
        "timestamp",
        ("id", "timestamp"),
    )
    join = AssembleMessage(schema=own, layout="csv").session()
    base = {"seq": 7, "event_time": None, "meta": 'a"b,8000'}
    events = [
        {**base, "obs_type": "energyconsumed", "value": 2.5, "text": None},
        {**base, "obs_type": "note", "value": None, "text": 'x, "ü"\ny'},
    ]
    (row,) = join.push_many(events)
    assert row == {"seq": 7, "event_time": None, "payload": '"a""b","x, ""ü""\ny",8000,2.5'}
    assert next(csv.reader([row["payload"]], strict=True)) == ['a"b', 'x, "ü"\ny', "8000", "2.5"]
    message = CSVToSenML(schema=own).session().push({"payload": row["payload"]})[0]["payload"]
    parsed = ro.tasks.ParseSenML().session().push({"payload": message})
    assert [(o["text"], o["value"]) for o in parsed] == [('a"b', None), ('x, "ü"\ny', None), ("2.5", 2.5)]


def test_line_has_null_for_a_missing_value():
    join = AssembleMessage(schema="city", layout="csv").session()
    names = stream_schema("city").observed
    events = [{"seq": 0, "obs_type": n, "value": None if n == "dust" else 8.0, "meta": "1,s,,46.2"} for n in names]
    assert join.push_many(events) == [{"seq": 0, "payload": "1,s,null,46.2,8,8,8,null,8"}]
    assert join.push({**events[0], "meta": "1,s"}) == []
    assert join.errors[-1]["reason"] == "bad_meta"


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"schema": None}, "fields = None needs a schema"),
        ({"schema": None, "fields": ("x",), "layout": "csv"}, 'layout = "csv" needs a schema'),
        ({"fields": ("lihgt",)}, 'did you mean "light"'),
        ({"fields": ("light", "light")}, "none twice"),
        ({"by": ()}, "by must name"),
        ({"timeout": timedelta(0)}, "timeout must be longer"),
        ({"ttl": timedelta(1)}, "does not use ttl"),
        ({"partial": "keep"}, "partial"),
        ({"schema": "citty"}, 'did you mean "city"'),
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong, match):
    with pytest.raises(ConfigError, match=match):
        AssembleMessage(**wrong)


def test_wrong_input_is_refused_by_name():
    fields = pa.schema([("seq", pa.int64()), ("obs_type", pa.string()), ("value", pa.float64())])
    with pytest.raises(ConfigError, match="adds the field 'seq'"):
        AssembleMessage(schema=None, fields=("seq",)).output_schema(fields)
    with pytest.raises(ConfigError, match="reads the field 'meta'"):
        AssembleMessage(schema="city", layout="csv").output_schema(fields)
    with pytest.raises(ConfigError, match="needs a timestamp"):
        AssembleMessage(schema="city", timeout=timedelta(1)).output_schema(
            fields.append(pa.field("event_time", pa.int64()))
        )


# -- the ETL dataflow ------------------------------------------------------------------------------


def etl(name, layout):
    """Parse, range filter, Bloom filter, interpolation, join; a tenth of the sensors are unknown."""
    schema = stream_schema(name)
    parse = ro.Dataflow("parse")
    parse.sink("out", parse.source(name).to(ParseSenML(schema=name, layout="wide"), id="wide"))
    sensors = sorted(set(parse.run(messages(name, 500))["wide"]["sensor_id"].to_pylist()))
    known = [sensor for i, sensor in enumerate(sensors) if i % 10]
    flow = ro.Dataflow("etl-front")
    key = ("sensor_id", "obs_type")
    pieces = flow.source(name).to(ParseSenML(schema=name, meta=True), id="parse")
    pieces = pieces.to(RangeFilter(bounds=name, on_error="null"), id="range")
    pieces = pieces.to(CheckBloomFilter(models={"sensor_id": known}, on_error="null"), id="bloom")
    pieces = pieces.to(Interpolation(by=key, fields=schema.numeric), id="interpolate")
    flow.sink("out", pieces.to(AssembleMessage(schema=name, layout=layout), id="join"))
    return flow


STREAMS = [("city", 9), ("taxi", 17)]


def messages(name, n):
    return {"city": ro.streams.city, "taxi": ro.streams.taxi}[name](messages=n, seed=1)


@pytest.mark.long
@pytest.mark.parametrize(("name", "columns"), STREAMS)
def test_etl_records_are_complete(name, columns):
    result = etl(name, "csv").run(messages(name, 2000), batch_size=150)
    assert result.errors.num_rows == 0
    lines = result["join"]["payload"].to_pylist()
    assert len(lines) == 2000
    assert {len(row) for row in csv.reader(lines)} == {columns}
    wide = etl(name, "wide").run(messages(name, 2000), batch_size=2000)["join"]
    assert wide["seq"].to_pylist() == list(range(2000))
    schema = stream_schema(name)
    assert set(schema.observed) <= set(wide.schema.names)
    by_name = dict(zip(schema.columns, zip(*csv.reader(lines), strict=True), strict=True))
    for field in schema.numeric:
        numbers = [None if text == "null" else float(text) for text in by_name[field]]
        assert numbers == wide[field].to_pylist(), field


def complete(found, flow, name, columns, n):
    assert found["errors"].num_rows == 0
    lines = found["join"]["payload"].to_pylist()
    assert {len(row) for row in csv.reader(lines)} == {columns}
    assert sorted(lines) == sorted(flow.run(messages(name, n))["join"]["payload"].to_pylist())


@pytest.mark.long
@pytest.mark.parametrize(("name", "columns"), STREAMS)
def test_etl_records_are_complete_with_parallel_stages(name, columns):
    flow = etl(name, "csv")
    staged = SimulatedQuery(flow, messages(name, 400), random.Random(columns), max_records=92)
    assert staged.batches == 5
    complete(staged, flow, name, columns, 400)


@pytest.mark.spark
def test_etl_records_are_complete_on_spark(spark):
    name, columns = STREAMS[0]
    flow = etl(name, "csv")
    query = flow.start(spark, messages(name, 3000), max_records=1500)
    query.wait(timeout="3min")
    assert not query.active
    complete(query, flow, name, columns, 3000)
