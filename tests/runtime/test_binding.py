"""Binding: sources deliver the declared fields, and each sink node has one sink; or the run is refused."""

from __future__ import annotations

import json
import pickle
import threading
import time

import pandas as pd
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.reuse import LocalBackend, ReuseManager
from riot_ops.runtime import binding
from riot_ops.runtime.binding import bind_sources
from riot_ops.testing import EOF, PAUSE, ScriptedSource

WIDE = pa.table(
    {
        "extra": [[1], None, [2, 3]],
        "value": [1.0, None, 3.0],
        "seq": pa.array([4, 5, 6], pa.int64()),
        "größe`": [1, 2, 3],
        "device": ["a", "b", "ü"],
    }
)
DECLARED = {"device": "string", "value": "double"}


def flow(schema=DECLARED) -> ro.Dataflow:
    made = ro.Dataflow("bound")
    source = made.source("readings", schema=schema)
    made.sink("out", source, source.to(t.KalmanFilter(by=("device",)), id="smooth"))
    return made


def test_undeclared_fields_are_dropped():
    result = flow().run(WIDE)
    assert result["readings"].schema.names == ["seq", "device", "value"]
    assert result["smooth"].schema.names == ["seq", "device", "value"]
    assert result["readings"].to_pylist() == WIDE.select(["seq", "device", "value"]).to_pylist()
    for source in (WIDE.to_batches()[0], WIDE.to_pylist(), ro.MemorySource(WIDE)):
        again = flow().run(source)
        assert again["readings"].schema.names == ["seq", "device", "value"]
        assert again["readings"].to_pylist() == result["readings"].to_pylist()


def test_fitting_source_is_bound_unchanged():
    source = ro.MemorySource(WIDE)
    assert bind_sources(flow(), source)["readings"] is source


def test_bound_source_keeps_offsets_and_splits():
    script = [WIDE.to_batches()[0].slice(0, 2), PAUSE(), WIDE.to_batches()[0].slice(2), EOF, WIDE.to_batches()[0]]
    for wide in (ro.MemorySource(WIDE), ScriptedSource(script)):
        bound = pickle.loads(pickle.dumps(bind_sources(flow(), wide)["readings"]))
        start = wide.initial()
        assert bound.initial() == start
        assert bound.waits() == wide.waits()
        end = wide.latest(start, 2)
        assert bound.latest(start, 2) == end
        assert bound.count(start, end) == wide.count(start, end) == 2
        assert bound.finished(end) == wide.finished(end)
        assert bound.splits(start, end, 2) == wide.splits(start, end, 2)
        assert [b for s in bound.splits(start, end, 2) for b in bound.read(s)] == [
            b for s in wide.splits(start, end, 2) for b in wide.read(s)
        ]
        bound.commit(end)
        bound.close()


def test_commits_reach_source(tmp_path):
    class Counting(ro.MemorySource):
        committed = None
        closed = 0

        def commit(self, end):
            self.committed = end

        def close(self):
            self.closed += 1

    source = Counting(WIDE)
    flow().run(source, checkpoint=tmp_path)
    assert source.closed
    bind_sources(flow(), source)["readings"].commit({"row": 2})
    assert source.committed == {"row": 2}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (
            {"divice": "string"},
            r"'readings' lacks the field 'divice'; it has extra, value, .*did you mean \"device\"\?",
        ),
        (
            {"device": "string", "value": "float"},
            "'readings': the field 'value' is double, the dataflow declares float",
        ),
        ({"device": "double", "extra": "string"}, "'extra' is list<.*>, the dataflow declares string"),
    ],
)
def test_other_fields_are_refused(schema, text):
    made = ro.Dataflow("wrong")
    made.sink("out", made.source("readings", schema=schema))
    for source in (WIDE, ro.MemorySource(WIDE)):
        with pytest.raises(ConfigError, match=text):
            made.run(source)


def test_duplicate_field_is_refused():
    twice = pa.Table.from_arrays([*WIDE.columns, WIDE["value"]], names=[*WIDE.schema.names, "value"])
    with pytest.raises(ConfigError, match="'readings' has 2 fields 'value'"):
        flow().run(twice)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ([1.0], "a list as source must hold dicts"),
        (iter([1.0]), r"an iterator as source must give dicts, got 1.0 \(float\)"),
        (5, "cannot read from int; a source is a riot_ops source, an Arrow table .* an iterator of dicts"),
        (pa.array([1.0]), "cannot read from DoubleArray"),
        ([{"device": "a", "vlaue": 1.0}] * 2, "lacks the field 'value'; it has device, vlaue; did you mean \"vlaue\""),
        (iter([{"device": "a", "vlaue": 1.0}]), "lacks the field 'value'; .* did you mean \"vlaue\""),
        ([{}], "lacks the field 'device'; it has no fields"),
        (pa.table({}), "lacks the field 'device'"),
        (pd.DataFrame({"device": ["a"]}), "lacks the field 'value'"),
        ("readings.txt", "no such file: readings.txt"),
        ({0: [{"device": "a", "value": 1.0}]}, "has no source 0$"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_other_values_are_refused_as_sources(source, text):
    with pytest.raises((ConfigError, ConnectorError), match=text):
        flow().run(source)


def test_event_time_is_optional_but_not_misspelt():
    made = ro.Dataflow("messages")
    made.sink("out", made.source("raw"))
    for one in ([{"payload": b"x"}], iter([{"payload": b"x"}])):
        assert made.run(one)["raw"].to_pylist() == [{"seq": 0, "event_time": None, "payload": b"x"}]
    with pytest.raises(ConfigError, match=r"lacks the field 'event_time'.*did you mean \"event_tmie\""):
        made.run([{"payload": b"x", "event_tmie": 1}])


class Frame:
    """A frame of an unknown library with Arrow's stream interface."""

    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Lazy:
    """A result that is read lazily."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Single:
    """One batch of an unknown library."""

    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


PLAIN = WIDE.select(["device", "value"])
KINDS = {
    "table": lambda: PLAIN,
    "chunks": lambda: pa.concat_tables([PLAIN.slice(0, 1), PLAIN.slice(1)]),
    "batch": lambda: PLAIN.to_batches()[0],
    "reader": PLAIN.to_reader,
    "frame": lambda: Frame(PLAIN),
    "lazy": lambda: Lazy(PLAIN),
    "single": lambda: Single(PLAIN.to_batches()[0]),
    "list": PLAIN.to_pylist,
    "tuple": lambda: tuple(PLAIN.to_pylist()),
    "iterator": lambda: iter(PLAIN.to_pylist()),
    "generator": lambda: (record for record in PLAIN.to_pylist()),
    "pandas": PLAIN.to_pandas,
    "pandas index": lambda: PLAIN.to_pandas().set_index("device"),
    "source": lambda: ro.MemorySource(PLAIN),
    "polars": lambda: pytest.importorskip("polars").from_arrow(PLAIN),
}
ONCE = ("reader", "lazy", "iterator", "generator")


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_of_source_gives_same_records(kind, tmp_path):
    wanted = [{"seq": i, **record} for i, record in enumerate(PLAIN.to_pylist())]
    for batch_size in (1, 65_536):
        source = KINDS[kind]()
        assert flow().run(source, batch_size=batch_size)["readings"].to_pylist() == wanted
    # a run with a checkpoint must be able to read the records again
    if kind in ONCE:
        with pytest.raises(ConfigError, match=r"the source 'readings' is an iterator.* a run with a checkpoint reads"):
            flow().run(KINDS[kind](), checkpoint=tmp_path)
    else:
        assert flow().run(source, checkpoint=tmp_path)["readings"].to_pylist() == wanted


EMPTY = PLAIN.schema.empty_table()


@pytest.mark.parametrize(
    "source",
    [[], (), iter([]), EMPTY, EMPTY.to_reader(), Frame(EMPTY), Lazy(EMPTY), EMPTY.to_pandas(), ro.MemorySource(EMPTY)],
    ids=lambda s: type(s).__name__,
)
def test_empty_sources(source):
    result = flow().run(source)
    assert (result["readings"].num_rows, result["smooth"].num_rows, result.summary.messages) == (0, 0, 0)


def test_records_without_fields_are_counted():
    made = ro.Dataflow("bare")
    made.sink("out", made.source("ticks", schema={}))
    for source in ([{}, {}], iter([{}, {}]), [{"x": 1}] * 2, pd.DataFrame(index=range(2)), pa.table({"x": [1, 2]})):
        assert made.run(source)["ticks"].to_pylist() == [{"seq": 0}, {"seq": 1}]


def test_unread_pandas_columns_may_hold_anything():
    frame = pd.DataFrame({"device": ["a", None], "value": [1, float("nan")], "junk": [{}, 5]})
    frame[7] = 1
    assert flow().run(frame)["readings"].to_pylist() == [
        {"seq": 0, "device": "a", "value": 1.0},
        {"seq": 1, "device": None, "value": None},
    ]
    with pytest.raises(ConfigError, match=r"several types, .* in the column 'junk'"):
        ro.MemorySource(frame)
    with pytest.raises(ConfigError, match="several types in the field 'v'"):
        ro.MemorySource([{"v": 1.0}, {"v": "n/a"}])


# -- message numbers of the user --------------------------------------------------------------------------


def test_given_numbers_are_used_and_must_not_decrease():
    good = [3, 3, 7, 2**40]
    for column in (pa.array(good), pa.array(good, pa.uint64()), pa.array(map(float, good)), pa.array(map(str, good))):
        table = pa.table({"seq": column, "device": ["a"] * 4, "value": [1.0] * 4})
        for source in (table, table.to_reader(max_chunksize=2)):
            assert flow().run(source)["readings"]["seq"].to_pylist() == good
    records = [{"seq": s, "device": "a", "value": 1.0} for s in (5, 9, 7)]
    table = pa.Table.from_pylist(records)
    for source in (table, table.to_reader(max_chunksize=1), records, iter(records), pd.DataFrame(records)):
        with pytest.raises(
            ConfigError,
            match=r"seq falls from 9 to 7 in row 2: .* sort the records by it \(pandas: sort_values\('seq'\), .*, or leave it",
        ):
            flow().run(source)
    with pytest.raises(ConfigError, match="seq must be whole numbers, got timestamp"):
        flow().run(table.set_column(0, "seq", pa.nulls(3, pa.timestamp("us"))))
    with pytest.raises(ConfigError, match="the records have 2 fields 'seq'"):
        flow().run(pa.Table.from_arrays([table["seq"], *table.columns], ["seq", *table.column_names]))


def test_records_without_number_are_rejected():
    records = [{"seq": s, "device": "a", "value": 1.0} for s in (5, None, "x", 9, 2**70)]
    for source in (records, iter(records), pd.DataFrame(records)):
        result = flow().run(source)
        assert result["readings"]["seq"].to_pylist() == [5, 9]
        errors = sorted(zip(result.errors["reason"].to_pylist(), result.errors["message"].to_pylist(), strict=True))
        assert [reason for reason, _ in errors] == ["missing", "out_of_range", "wrong_type"]
        assert errors[0][1] == "seq is null"


# -- iterators -------------------------------------------------------------------------------------


def test_iterators_are_read_incrementally():
    """At most a few batches of records wait."""
    read, ahead = 0, 0

    def records():
        nonlocal read
        for i in range(20_000):
            read += 1
            yield {"device": "a", "value": float(i)}

    class Behind(ro.CallbackSink):
        pass

    done = 0

    def count(stream, batch):
        nonlocal done, ahead
        if stream == "readings":
            done += batch.num_rows
            ahead = max(ahead, read - done)

    flow().run(
        records(),
        sinks=Behind(count),
        batch_size=100,
        buffering=ro.Buffering(queue=1 << 16, capacity=1 << 16),
        epoch_rows=100,
    )
    assert done == read == 20_000
    assert ahead <= 2 * 8192 + 300


def test_records_of_slow_iterator_are_processed_at_once():
    """A record is processed before the next one arrives."""
    seen = []

    def records():
        for i in range(3):
            yield {"device": "a", "value": float(i)}
            if i < 2:
                deadline = time.monotonic() + 20
                while len(seen) <= i and time.monotonic() < deadline:
                    time.sleep(0.01)
                assert len(seen) == i + 1

    def note(stream, batch):
        if stream == "readings":
            seen.extend(batch.to_pylist())

    flow().run(records(), sinks=ro.CallbackSink(note), epoch="0s")
    assert len(seen) == 3


def test_iterator_is_read_once():
    source = bind_sources(flow(), iter(PLAIN.to_pylist()))["readings"]
    end = source.latest(source.initial())
    (split,) = source.splits(source.initial(), end, 1)
    assert sum(b.num_rows for b in source.read(split)) == 3
    assert source.latest(end) == end
    assert source.finished(end)
    with pytest.raises(ConfigError, match="an iterator can be read only once, and this one has been read"):
        source.latest(source.initial())


class Silent:
    """An iterator that gives nothing before it may."""

    def __init__(self, *records):
        self.may, self.records = threading.Event(), iter(records)

    def __iter__(self):
        return self

    def __next__(self):
        assert self.may.wait(60)
        return next(self.records)


@pytest.fixture
def impatient(monkeypatch):
    """Runs do not wait for the first record of an iterator."""
    monkeypatch.setattr(binding, "FIRST_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
def test_run_starts_before_the_first_record_of_an_iterator():
    records = Silent({"device": "a", "value": 1.0}, {"device": "b", "value": 2.0})
    run = flow().launch(records)
    assert run.active
    records.may.set()
    assert run.wait().messages == 2
    assert run["readings"].select(["seq", "device"]).to_pylist() == [
        {"seq": 0, "device": "a"},
        {"seq": 1, "device": "b"},
    ]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"device": "a", "vlaue": 1.0}, "lacks the field 'value'.*did you mean"),
        ({"device": "a", "value": 1.0, "seq": 7}, "records have seq, but its first one came during the run"),
        (1.0, "an iterator as source must give dicts, got 1.0"),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_late_first_record_is_checked_when_it_comes(record, message):
    records = Silent(record)
    run = flow().launch(records)
    records.may.set()
    with pytest.raises(ConfigError, match=message):
        run.wait()


def test_error_before_the_first_record_is_raised():
    def records():
        raise OSError("the sensor is gone")
        yield

    with pytest.raises(OSError, match="the sensor is gone"):
        flow().launch(records())


def test_iterator_error_fails_run():
    def records():
        yield {"device": "a", "value": 1.0}
        raise OSError("the sensor is gone")

    with pytest.raises(OSError, match="the sensor is gone"):
        flow().run(records())


def two_sinks():
    """A dataflow with a sink of its own, ``own``, and one that each run names, ``out``."""
    own = ro.MemorySink()
    made = flow()
    made.stream("smooth").to(own, id="own")
    return made, own


BAD = [{"device": "a", "value": "n/a"}, {"device": "a", "value": 1.0}]


def test_bound_sink_gets_its_stream_alone(tmp_path):
    made, own = two_sinks()
    result = made.run(BAD)
    assert own.table("smooth").num_rows == 1 and own.table("readings").num_rows == own.table("errors").num_rows == 0
    assert result["readings"].num_rows == result["smooth"].num_rows == result.errors.num_rows == 1
    made, own = two_sinks()
    made.run(BAD, out=tmp_path)
    assert own.table("smooth").num_rows == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["errors", "readings", "smooth"]
    made, own = two_sinks()
    other, errors = ro.MemorySink(), ro.MemorySink()
    made.run(BAD, sinks={"out": other, "errors": errors})
    assert own.table("smooth").num_rows == other.table("smooth").num_rows == errors.table("errors").num_rows == 1
    assert other.table("errors").num_rows == 0


def test_run_replaces_a_bound_sink_by_name():
    made, own = two_sinks()
    other, rest = ro.MemorySink(), ro.MemorySink()
    made.run(BAD, sinks={"own": other, "out": rest})
    assert own.table("smooth").num_rows == 0
    assert other.table("smooth").num_rows == other.table("errors").num_rows == rest.table("readings").num_rows == 1


def test_bound_sink_alone_gets_the_errors(tmp_path):
    source = ro.Dataflow("alone").source("readings", DECLARED)
    result = source.to(ro.CSVSink(tmp_path / "a"), id="own").run(BAD)
    assert result["readings"].num_rows == result.errors.num_rows == 1
    made = source.filter(lambda row: True).to(kept := ro.MemorySink())
    with pytest.raises(
        ConfigError, match=r"'alone' has its own sink for 'own', 'memory_sink', so that out would get n"
    ):
        made.run(BAD, out=tmp_path / "b")
    with pytest.raises(ConfigError, match="so that sinks would get nothing; a mapping of name to sink replaces one"):
        made.run(BAD, sinks=ro.MemorySink())
    made.run(BAD, sinks={"own": kept})
    assert kept.table("readings").num_rows == kept.table("filter").num_rows == 1


@pytest.mark.parametrize("sinks", ["results", [ro.MemorySink()], 5])
def test_sinks_are_a_sink_or_a_mapping(sinks):
    with pytest.raises(ConfigError, match="sinks must be a riot_ops sink, or a mapping of name to sink, got"):
        flow().run(BAD, sinks=sinks)


def test_bound_sinks_of_shared_dataflows():
    backend = LocalBackend()
    manager = ReuseManager(backend)
    (one, first), (two, second) = two_sinks(), two_sinks()
    one.name, two.name = "one", "two"
    manager.submit(one, sources=(source := ro.MemorySource(WIDE)), sinks=(rest := ro.MemorySink()))
    submitted = manager.submit(two, sources=source)
    backend.run()
    assert first.table("smooth").num_rows == second.table("smooth").num_rows == rest.table("smooth").num_rows == 3
    assert {"readings", "smooth"} <= set(submitted.reused)


@pytest.mark.spark
def test_sources_and_frames_on_spark_have_declared_fields(spark):
    declared = {"device": "string", "größe`": "int64", "value": "double"}
    wanted = flow(declared).run(WIDE)
    made, lock = flow(declared), threading.Lock()  # which cannot be pickled, nor need it
    made.stream("smooth").to(ro.CallbackSink(lambda stream, batch: lock and rows.append((stream, batch))))
    rows = []
    query = made.start(spark, WIDE)
    query.wait(timeout="2min")
    assert sum(batch.num_rows for stream, batch in rows) == 3 and {stream for stream, _ in rows} == {"smooth"}
    for stream in ("readings", "smooth"):
        assert query[stream].sort_by("seq").select(wanted[stream].schema.names).equals(wanted[stream])
        assert set(query[stream].schema.names) == set(wanted[stream].schema.names)

    frame = (
        spark.readStream.format("rate")
        .load()
        .selectExpr("'a' as device", "double(value) as value", "value as `größe```", "timestamp as extra")
    )
    bound = bind_sources(flow(declared), frame)["readings"]
    assert bound.columns == ["device", "größe`", "value"]
    with pytest.raises(ConfigError, match="lacks the field 'device'"):
        flow(declared).start(spark, frame.drop("device"))
    with pytest.raises(ConfigError, match=r"'value' is timestamp.*, the dataflow declares double"):
        flow(declared).start(spark, frame.withColumn("value", frame["extra"]))


def test_path_for_messages_is_file_of_lines(tmp_path):
    path = tmp_path / "cards.csv"
    path.write_text("a,b\nc\n")
    flow = ro.Dataflow("lines")
    flow.sink("out", flow.source("lines").to(ro.map(lambda row: row), id="same"))
    assert flow.run(path)["same"]["payload"].to_pylist() == [b"a,b\n", b"c\n"]
    assert flow.run(str(path))["same"].num_rows == 2


def words(ordinals, schema=None):
    made = ro.Dataflow("words", ordinals=ordinals)
    texts = made.source("texts", schema=schema or {"text": "string"})
    split = t.Tokenize(field="text")
    return made.sink("out", texts.to(split, id="words"))


def wordy_faces(made, folder):
    """The names of the fields of the stream of words on each face in process."""
    seen = []
    rows = [{"seq": 0, "ordinal": 7, "text": "on off"}]
    yield made.run(rows)["words"].schema.names
    made.run(rows, sinks=ro.CallbackSink(lambda stream, batch: seen.append(batch.schema.names)))
    yield from seen
    yield made.run(rows, out=folder / "parquet")["words"].schema.names
    made.run(rows, sinks=ro.JSONLinesSink(folder / "lines"))
    (lines,) = (folder / "lines" / "words").rglob("*.jsonl")
    yield list(json.loads(lines.read_text().splitlines()[0]))
    backend = LocalBackend()
    sink = ro.MemorySink()
    ReuseManager(backend).submit(made, sources=ro.MemorySource(rows), sinks=sink)
    backend.run()
    yield sink.table("words").schema.names


@pytest.mark.parametrize(
    ("ordinals", "declared", "wanted"),
    [
        (False, {}, []),
        (True, {}, ["ordinal"]),
        (False, {"ordinal": "int64"}, ["ordinal"]),
        (True, {"ordinal": "int64"}, ["ordinal", "ordinal_2"]),
    ],
)
def test_results_have_declared_or_requested_ordinals(tmp_path, ordinals, declared, wanted):
    made = words(ordinals, {"seq": "int64", **declared, "text": "string"})
    faces = list(wordy_faces(made, tmp_path))
    assert len(faces) >= 5
    for names in faces:
        assert [name for name in names if name.startswith("ordinal")] == wanted, names
    again = ro.Dataflow.from_json(made.to_json())
    assert again.ordinals is ordinals
    assert made.run([])["words"].schema.names == again.run([])["words"].schema.names


def test_checkpoint_of_results_with_ordinals_is_refused_without(tmp_path):
    words(True).run([{"text": "on"}], checkpoint=tmp_path / "state", out=tmp_path / "out")
    with pytest.raises(ro.StateError, match="ordinals"):
        words(False).run([{"text": "on"}], checkpoint=tmp_path / "state", out=tmp_path / "out")
    with pytest.raises(ConfigError, match="ordinals must be True or False, got 1"):
        ro.Dataflow("words", ordinals=1)


def test_undeclared_source_says_how_to_declare_fields():
    flow = ro.Dataflow("x")
    flow.sink("out", flow.source("readings"))
    with pytest.raises(
        ConfigError, match=r"lacks the field 'payload'; it has value; .*declare the fields, as in schema="
    ):
        flow.run([{"value": 1.0}])
