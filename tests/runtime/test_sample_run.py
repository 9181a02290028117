"""``ro.show``: what each step makes of a sample, against runs and against counts by hand."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.runtime.trace import Origin
from tests.core.test_display import Elements
from tests.random_flows import assert_same, everything, ordered, random_flow, random_input

FIELDS = {"bed": "string", "event_time": "timestamp[us, tz=UTC]", "moisture": "double"}


def _second(seconds):
    return datetime.fromtimestamp(seconds, UTC)


def _greenhouse():
    """Six steps: of the five readings one is of a wrong type, and one is not dry."""
    flow = ro.Dataflow("greenhouse")
    dry = flow.source("readings", FIELDS).filter("moisture < 20", id="dry")
    keyed = dry.key_by("bed")
    flow.sink(
        "out",
        keyed.apply(t.MovingAverage(value="moisture", window=2), id="avg"),
        keyed.window("1min").agg(mean=("moisture", "mean"), id="minute").filter("mean > 17.6", id="warm"),
    )
    rows = [
        {"bed": "a", "event_time": _second(40 * i), "moisture": m}
        for i, m in enumerate((40.5, 18.0, "n/a", 17.0, 16.0))
    ]
    return flow, rows


def _counts(trace):
    return {step.id: (step.read, step.written, step.rejected, step.at_end) for step in trace.values()}


def test_counts_of_each_step_by_hand():
    trace = ro.show(*_greenhouse())
    assert _counts(trace) == {
        "readings": (5, 4, 1, 0),
        "dry": (4, 3, 0, 0),
        "avg": (3, 1, 0, 0),  # blocks of two: 18 and 17; 16 waits for the next
        "minute": (3, 2, 0, 1),  # 18 in the minute from 0:00, closed at 2:00; 17 and 16 in that from 2:00
        "warm": (2, 1, 0, 0),
    }
    assert trace["minute"].records["mean"].to_pylist() == [18.0, 16.5]
    assert trace["warm"].records["mean"].to_pylist() == [18.0]


def test_notes_say_why_there_is_little_or_no_output():
    trace = ro.show(*_greenhouse())
    assert {step.id: step.note for step in trace.values() if step.note} == {
        "readings": "rejected: wrong_type 1",
        "dry": "filtered out 1",
        "minute": "1 only at the end of the sample: until then stream time had come to 1970-01-01 00:02:00 "
        "(in steps of 0:01:00), and their windows were open",
        "warm": "filtered out 1",
    }
    flow, rows = _greenhouse()
    few = ro.show(flow, rows[:2])
    assert few["avg"].note == "no output: all is kept in the state of 1 key"
    none = ro.show(flow, rows[:1])
    assert (none["dry"].note, none["avg"].note) == ("filtered out 1", "got no records: dry gave none")


def test_text_follows_each_record():
    text = repr(ro.show(*_greenhouse()))
    assert max(map(len, text.splitlines())) <= 80
    assert text == EXPECTED


EXPECTED = """\
dataflow greenhouse, records: 5 of readings

step                                                         read  out  rejected
readings  source                                                5    4         1
dry       Filter(condition='moisture < 20')                     4    3         0
avg       MovingAverage(by='bed', value='moisture', window…     3    1         0
minute    Window(by='bed', frame=Tumbling(size=0:01:00), a…     3    2         0
warm      Filter(condition='mean > 17.6')                       2    1         0

  readings: rejected: wrong_type 1
  dry: filtered out 1
  minute: 1 only at the end of the sample: until then stream time had come to
    1970-01-01 00:02:00 (in steps of 0:01:00), and their windows were open
  warm: filtered out 1

readings 0
  readings  bed=a  event_time=1970-01-01 00:00:00  moisture=40.5
  dry       - filtered out

readings 1
  readings  bed=a  event_time=1970-01-01 00:00:40  moisture=18.0
  dry       passes unchanged
  avg       - no output, kept in state
  minute    - held: its window is open

readings 2
  readings  REJECTED wrong_type: moisture = 'n/a' (str) is not of type double

readings 3
  readings  bed=a  event_time=1970-01-01 00:02:00  moisture=17.0
  dry       passes unchanged
  avg       moisture=17.5  count=2
  minute    time passed: event_time=1970-01-01 00:00:59.999999  bed=a
              window_start=1970-01-01 00:00:00  window_end=1970-01-01 00:01:00
              mean=18.0
            - held: its window is open
  warm      time passed: passes unchanged

readings 4
  readings  bed=a  event_time=1970-01-01 00:02:40  moisture=16.0
  dry       passes unchanged
  avg       - no output, kept in state
  minute    - held: its window is open

end of the sample
  minute    event_time=1970-01-01 00:02:59.999999  bed=a
              window_start=1970-01-01 00:02:00  window_end=1970-01-01 00:03:00
              mean=16.5"""


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sources", [1, 2])
def test_steps_make_what_a_run_makes(seed, sources):
    choose = random.Random(100 * sources + seed)
    flow = random_flow(choose, sources=sources)
    ends = {edge.source for node in flow.nodes_of_kind("sink") for edge in flow.inputs(node.id)}
    flow.sink(
        "rest", *(flow.stream(node.id) for node in flow.nodes.values() if node.kind != "sink" and node.id not in ends)
    )
    inputs = {node.id: random_input(choose, 40) for node in flow.nodes_of_kind("source")}
    trace = ro.show(flow, inputs, max_rows=40)
    nodes = ordered(flow)
    made = {step.id: step.records for step in trace.values()}
    made["errors"] = pa.concat_tables([step.errors for step in trace.values()])
    result = flow.run(inputs)
    assert_same(everything(made, flow, nodes), everything(result, flow, nodes), flow)
    for step in trace.values():
        if step.id in nodes:
            assert (step.read, step.rejected) == result.summary.steps.get(step.id, (0, 0)), step.id
            assert step.written == result.summary.rows.get(step.id, 0)


@pytest.mark.parametrize("merging", ["arrival", "number", "sequence"])
def test_records_of_merged_sources_keep_their_origin(merging):
    flow = ro.Dataflow("both", merging=merging)
    north, south, west = (flow.source(name, {"value": "double"}) for name in ("north", "south", "west"))
    some = (south | west).filter("value != 0", id="some")
    _ = (north | some).apply(t.RunningCount(), id="count").to("out")
    data = {"north": [1.0, 2.0], "south": [3.0, 0.0], "west": [5.0, "n/a"]}
    trace = ro.show(flow, {name: [{"value": v} for v in values] for name, values in data.items()})
    assert sorted(trace.origins) == [Origin(name, seq) for name in data for seq in (0, 1)]
    for name, values in data.items():
        for seq, value in enumerate(values):
            cells = trace.cells(Origin(name, seq))
            if value == "n/a":
                assert [cell.kind for cell in cells.pop(name)] == ["rejected"]
                assert not cells
                continue
            assert cells[name][0].text == f"value={value}"
            assert ("some" in cells) == (name != "north")
            assert ("count" in cells) == (value != 0)
            if value == 0:
                assert cells["some"][0].text == "filtered out"
            else:
                row = trace["count"].rows(Origin(name, seq))
                assert [one["value"] for one in row] == [value]


def test_one_record_by_its_number():
    flow, rows = _greenhouse()
    trace = ro.show(flow, rows)
    assert repr(trace.record(0)) == (
        "readings 0\n  readings  bed=a  event_time=1970-01-01 00:00:00  moisture=40.5\n  dry       - filtered out"
    )
    assert "filtered out" in Elements(trace.record(0)._repr_html_()).texts
    with pytest.raises(KeyError, match=r"no record 7 of the source 'readings' .* it has 0, 1, 2, 3, 4"):
        trace.record(7)
    two = ro.Dataflow("two")
    two.sink("out", *(two.source(name, {"value": "double"}) for name in ("a", "b")))
    trace = ro.show(two, {"a": [{"value": 1.0}], "b": [{"value": 2.0}]})
    with pytest.raises(ConfigError, match="source must be one of 'a', 'b'"):
        trace.record(0)
    assert "value=2.0" in repr(trace.record(0, source="b"))


def test_records_of_one_message_are_followed_by_their_numbers():
    flow = ro.Dataflow("words")
    texts = flow.source("texts", {"text": "string", "day": "string"})
    words = texts.flat_map(
        lambda row: [{"word": word, "day": row["day"], "text": row["text"]} for word in row["text"].split()],
        {"word": "string", "day": "string", "text": "string"}, id="words",
    )  # fmt: skip
    long = words.filter(lambda row: len(row["word"]) > 2, id="long")
    long.map(lambda row: {"size": len(row["word"])}, adds={"size": "int64"}, id="size").to("out")
    trace = ro.show(
        flow, [{"text": "on off on the on", "day": "mo"}, {"text": "on", "day": "mo"}, {"text": "off", "day": "mo"}]
    )
    found = {id: [cell.text for cell in cells] for id, cells in trace.cells(Origin("texts", 0)).items()}
    assert found["words"] == ["[0] word=on", "[1] word=off", "[2] word=on", "[3] word=the", "[4] word=on"]
    assert found["long"] == ["[1] passes unchanged", "[3] passes unchanged", "[0], [2], [4] filtered out"]
    assert found["size"] == ["[1] size=3", "[3] size=3"]
    assert [cell.text for cell in trace.cells(Origin("texts", 1))["long"]] == ["filtered out"]
    assert "size" not in trace.cells(Origin("texts", 1))
    one = {id: [cell.text for cell in cells] for id, cells in trace.cells(Origin("texts", 2)).items()}
    assert one == {
        "texts": ["text=off  day=mo"],
        "words": ["word=off"],
        "long": ["passes unchanged"],
        "size": ["size=3"],
    }


def test_message_of_which_a_part_is_rejected_has_the_rest():
    flow = ro.Dataflow("words")
    texts = flow.source("texts", {"text": "string"})
    words = texts.flat_map(lambda row: [{"n": word} for word in row["text"].split()], {"n": "string"}, id="words")
    words.map(lambda row: {"n": int(row["n"])}, {"n": "int64"}, id="numbers").to("out")
    trace = ro.show(flow, [{"text": "1 x 3"}])
    cells = trace.cells(Origin("texts", 0))["numbers"]
    assert [cell.kind for cell in cells] == ["rejected", "record", "record"]
    assert cells[0].text.startswith("function_error: ValueError")
    assert [cell.text for cell in cells[1:]] == ["[0] n=1", "[2] n=3"]
    assert trace["numbers"].note == "rejected: function_error 1"


def test_record_of_a_join_is_kept_until_its_match():
    flow = ro.Dataflow("join")
    common = {"device": "string", "event_time": "timestamp[us, tz=UTC]"}
    left = flow.source("temps", {**common, "temp": "double"}).key_by("device")
    right = flow.source("hums", {**common, "hum": "double"}).key_by("device")
    left.join(right, within="5s", id="joined").to("out")
    rows = {"temps": ("temp", (0, 60)), "hums": ("hum", (1, 90))}
    data = {
        name: [{"device": "a", "event_time": _second(second), field: 1.5} for second in seconds]
        for name, (field, seconds) in rows.items()
    }
    trace = ro.show(flow, data)
    assert trace["joined"].written == 1  # of the records of seconds 0 and 1
    assert [cell.text for cell in trace.cells(Origin("temps", 0))["joined"]] == ["kept, no match so far"]
    (match,) = trace["joined"].rows(Origin("hums", 0))
    assert (match["temp"], match["hum"]) == (1.5, 1.5)
    assert [cell.text for cell in trace.cells(Origin("hums", 1))["joined"]] == ["kept, no match so far"]


def test_many_records_of_one_message_are_cut():
    flow = ro.Dataflow("words")
    split = ro.flat_map(lambda row: [{"word": w} for w in row["text"].split()], {"word": "string"})
    words = flow.source("texts", {"text": "string"}).apply(split, id="words")
    words.filter(lambda row: False, id="none").to("out")
    words.filter(lambda row: row["word"] == "w9", id="one").to("more")
    trace = ro.show(flow, [{"text": " ".join(f"w{i}" for i in range(1200))}])
    cells = trace.cells(Origin("texts", 0))
    assert [cell.text for cell in cells["words"]][5:] == ["[5] word=w5", "… 1,194 more records"]
    assert [cell.text for cell in cells["none"]] == ["filtered out"]
    assert [cell.text for cell in cells["one"]] == [
        "[9] passes unchanged",
        "[0], [1], [2], [3], [4], [5], … filtered out",
    ]


def test_step_by_its_id():
    trace = ro.show(*_greenhouse())
    assert repr(trace["readings"]).splitlines()[-1] == (
        "rejected seq 2: wrong_type: moisture = 'n/a' (str) is not of type double"
    )
    assert trace["dry"].end_rows() == []
    assert [row["mean"] for row in trace["minute"].end_rows()] == [16.5]
    with pytest.raises(KeyError, match=r"no step .*drv"):
        trace["drv"]


def test_steps_need_not_end_in_sinks():
    flow = ro.Dataflow("open")
    flow.source("readings", {"value": "double"}).apply(t.KalmanFilter(), id="kalman")
    trace = ro.show(flow, [{"value": 1.0}])
    assert list(trace) == ["readings", "kalman"]
    assert [node.kind for node in flow.nodes.values()] == ["source", "task"]  # unchanged


def test_sinks_get_nothing():
    flow, written = ro.Dataflow("kept"), []
    flow.source("readings", {"value": "double"}).to(ro.CallbackSink(lambda stream, batch: written.append(stream)))
    assert ro.show(flow, [{"value": 1.0}])["readings"].written == 1
    assert not written


def test_what_a_step_raises_is_shown_with_the_steps_before_it():
    class Broken(t.StatelessTask):
        def apply(self, batch, errors):
            raise ZeroDivisionError("by <b>\n0")

    flow = ro.Dataflow("broken")
    flow.source("readings", {"value": "double"}).filter("value > 1", id="some").apply(Broken(), id="bad").to("out")
    trace = ro.show(flow, [{"value": 1.0}, {"value": 2.0}])
    assert trace["some"].written == 1
    assert isinstance(trace["bad"].failure, ZeroDivisionError)
    assert trace["bad"].note == "failed: ZeroDivisionError: by <b>\\n0"
    assert trace.cells(Origin("readings", 1))["bad"][0].text == "the step has failed"
    assert "failed: ZeroDivisionError: by <b>\\n0" in Elements(trace._repr_html_()).texts


def test_html_has_a_row_per_record_and_a_column_per_step():
    flow, rows = _greenhouse()
    rows[1]["bed"] = "<script>x</script>"
    document = ro.show(flow, rows)._repr_html_()
    found = Elements(document)
    assert "script" not in found.tags
    assert any("bed=<script>x</script>" in text for text in found.texts)
    matrix = document.split("<table>")[2]
    heads = Elements(matrix.split("</tr>")[0]).texts
    assert heads == ["record", "readings", "dry", "avg", "minute", "warm"]
    assert matrix.count("<tr>") == 1 + 5 + 1  # heads, records, end of the sample
    assert len(document) < 6_000


def test_max_rows_limits_what_is_read():
    flow = ro.Dataflow("plain")
    flow.source("readings", {"value": "double"}).to("out")
    rows = [{"value": float(i)} for i in range(200)]
    assert ro.show(flow, rows, max_rows=3)["readings"].records["value"].to_pylist() == [0.0, 1.0, 2.0]
    assert "3 of readings, which may have more" in repr(ro.show(flow, rows, max_rows=3))
    assert len(ro.show(flow, rows).origins) == 20
    assert ro.show(flow, rows[:20]).ended
    assert not ro.show(flow, rows[:21]).ended
    trace = ro.show(flow, rows, max_rows=200)
    assert "190 more records: .record(seq) shows one" in repr(trace)
    assert "100 more records: .record(seq) shows one" in trace._repr_html_()
    with pytest.raises(ConfigError, match="max_rows"):
        ro.show(flow, rows, max_rows=0)


def test_endless_generator_is_read_only_as_far_as_needed():
    flow = ro.Dataflow("plain")
    flow.source("readings", {"value": "double"}).to("out")

    def endless():
        value = 0.0
        while True:
            yield {"value": value}
            value += 1

    assert ro.show(flow, endless(), max_rows=2)["readings"].records["value"].to_pylist() == [0.0, 1.0]
    assert ro.show(t.KalmanFilter(), endless(), max_rows=2)["kalman_filter"].written == 2


def test_timeout_ends_the_wait_for_an_open_source():
    flow = ro.Dataflow("plain")
    flow.source("readings", {"value": "double"}).to("out")
    source = _open_source()
    trace = ro.show(flow, source, timeout="10ms")
    assert (trace["readings"].written, trace.ended) == (1, False)
    with pytest.raises(ConfigError, match="timeout"):
        ro.show(flow, source, timeout="-1s")


def _open_source():
    class Open(ro.MemorySource):
        def finished(self, offset):
            return False

    return Open([{"value": 1.0}])


@pytest.mark.parametrize("kind", ["arrow", "batch", "reader", "pandas", "polars", "csv", "parquet", "source"])
def test_data_of_any_kind(kind, tmp_path):
    table = pa.table({"bed": ["a", "b"], "moisture": [1.5, 2.5]})
    table.to_pandas().to_csv(tmp_path / "data.csv", index=False)
    table.to_pandas().to_parquet(tmp_path / "data.parquet")
    data = {
        "arrow": lambda: table,
        "batch": lambda: table.to_batches()[0],
        "reader": table.to_reader,
        "pandas": lambda: pd.DataFrame(table.to_pydict()),
        "polars": lambda: pl.DataFrame(table.to_pydict()),
        "csv": lambda: tmp_path / "data.csv",
        "parquet": lambda: str(tmp_path / "data.parquet"),
        "source": lambda: ro.MemorySource(table),
    }[kind]
    flow = ro.Dataflow("plain")
    flow.source("readings", {"bed": "string", "moisture": "double"}).to("out")
    assert ro.show(flow, data())["readings"].records["moisture"].to_pylist() == [1.5, 2.5]
    trace = ro.show(t.KalmanFilter(value="moisture", by="bed"), data())
    assert _counts(trace) == {"records": (2, 2, 0, 0), "kalman_filter": (2, 2, 0, 0)}


def test_task_gets_numbers_of_dicts_and_rejects_other_cells():
    trace = ro.show(t.KalmanFilter(), [{"value": 1.5}, {"value": "warm"}, {"value": "2.5"}])
    assert _counts(trace) == {"records": (3, 2, 1, 0), "kalman_filter": (2, 2, 0, 0)}
    assert trace["records"].errors["message"].to_pylist() == ["value = 'warm' (str) is not of type double"]


def test_misuse_is_refused():
    flow, _ = _greenhouse()
    with pytest.raises(ConfigError, match="show takes a dataflow or a task, got 3"):
        ro.show(3, [])
    with pytest.raises(ConfigError, match=r"got .*; a stream has its dataflow as \.flow"):
        ro.show(flow.stream("dry"), [])
    with pytest.raises(ConfigError, match="needs a source"):
        ro.show(flow)
    with pytest.raises(ConfigError, match="needs the records"):
        ro.show(t.KalmanFilter())


class _SparkFrame:
    """The part of a Spark DataFrame that is used."""

    sparkSession = None  # noqa: N815

    def __init__(self, table, streaming=False):
        self.table, self.isStreaming = table, streaming

    def limit(self, rows):
        return _SparkFrame(self.table.slice(0, rows))

    def toArrow(self):  # noqa: N802
        return self.table


def test_spark_frame_gives_its_first_rows_and_a_stream_is_refused():
    table = pa.table({"value": [1.0, 2.0, 3.0]})
    trace = ro.show(t.KalmanFilter(), _SparkFrame(table), max_rows=2)
    assert trace["records"].written == 2
    with pytest.raises(ConfigError, match="DataFrame that is no stream"):
        ro.show(t.KalmanFilter(), _SparkFrame(table, streaming=True))


@pytest.mark.spark
def test_rows_of_a_dataframe_on_spark(spark):
    df = spark.createDataFrame([("a", 1.5), ("b", 2.5), ("c", 3.5)], "bed string, moisture double")
    flow = ro.Dataflow("plain")
    flow.source("readings", {"bed": "string", "moisture": "double"}).filter("moisture > 2", id="wet").to("out")
    trace = ro.show(flow, {"readings": df}, max_rows=2)
    assert trace["readings"].written == 2
    assert set(trace["wet"].records["moisture"].to_pylist()) <= {2.5, 3.5}
    with pytest.raises(ConfigError, match="DataFrame that is no stream"):
        ro.show(flow, spark.readStream.format("rate").load())
