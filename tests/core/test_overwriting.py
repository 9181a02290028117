"""Columns of a user that a task would overwrite by accident."""

from __future__ import annotations

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import is_ordinal
from riot_ops.core.overwriting import checked_output_schema
from riot_ops.task import registered_tasks

KINDS = {"event_time": pa.timestamp("us", "UTC"), "seq": pa.int64()}


def fields(*names):
    return pa.schema([(name, KINDS.get(name, pa.float64())) for name in names])


@pytest.mark.parametrize(
    ("task", "names", "lost", "way"),
    [
        (t.RunningCount(by="word"), ("word", "count"), "count", r"another name \(output=\), or rename or drop"),
        (t.RunningCount(by="count"), ("count",), "count", r"\(output=\)"),
        (t.MovingAverage(by="word", window=3), ("word", "value", "count"), "count", ": rename or drop that column"),
        (t.RunningSummary(value="x"), ("x", "mean"), "mean", r"\(prefix=\)"),
        (t.RunningSummary(value="mean"), ("mean",), "mean", r"\(prefix=\)"),
    ],
)
def test_default_name_of_a_result_in_the_input_is_refused(task, names, lost, way):
    message = rf"{task.name()} writes the column '{lost}', which its input has already and would lose.*{way}"
    with pytest.raises(ConfigError, match=message):
        checked_output_schema(task, fields(*names))
    flow = ro.Dataflow("lost")
    flow.sink("out", flow.source("rows", schema=fields("seq", *names)).to(task, id="step"))
    with pytest.raises(ConfigError, match=f"step: {message}"):
        flow.run([dict.fromkeys(names, 1.0)])
    with pytest.raises(ConfigError, match=message):
        task.session().push(dict.fromkeys(names, 1.0))


@pytest.mark.parametrize(
    ("task", "names"),
    [
        (t.KalmanFilter(), ("value",)),
        (t.KalmanFilter(value="x", output="value"), ("x", "value")),
        (t.KalmanFilter(value="x", output="y"), ("x", "y")),
        (t.RunningCount(by="word", output="n"), ("word", "n", "count")),
        (t.RunningSummary(value="x", prefix="x_"), ("x", "count", "mean")),
        (
            t.Window(by="key", frame="1min", aggregates={"n": "count"}),
            ("event_time", "key", "window_start", "n"),
        ),
        (t.Compute({"event_time": "floor_time(event_time, '1min')"}), ("event_time",)),
    ],
)
def test_read_and_named_columns_may_be_overwritten(task, names):
    schema = fields(*names)
    assert checked_output_schema(task, schema) == task.output_schema(schema)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            t.KalmanFilter(value="x", output="event_time"),
            "writes double to the field 'event_time', which has the event",
        ),
        (
            t.RunningCount(by="key", output="event_time"),
            "writes int64 to the field 'event_time', which has the event ti",
        ),
        (t.RunningCount(by="key", output="seq"), "output must not be 'seq', which has the order of records"),
        (
            t.KalmanFilter(value="x", output="ordinal_2"),
            "output must not be 'ordinal_2', which has the order of records",
        ),
        (t.Lookup(table={"a": "1"}, on="key", columns="seq"), "writes string to the field 'seq', which has the order"),
        (t.Lookup(table={"a": "1"}, on="key", columns="ordinal"), "writes string to the field 'ordinal', which has"),
        (
            ro.flat_map(lambda row: [], schema={"seq": "string"}),
            "writes string to the field 'seq', which has the order",
        ),
        (ro.map(dict, schema={"event_time": "string"}), "writes string to the field 'event_time', which has the event"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_order_and_time_of_records_are_not_overwritten(task, message):
    schema = pa.schema([*fields("seq", "event_time", "x"), ("key", pa.string())])
    with pytest.raises(ConfigError, match=message):
        checked_output_schema(task, schema)
    flow = ro.Dataflow("lost")
    flow.source("rows", schema=schema).to(task, id="step").to("out")
    with pytest.raises(ConfigError, match=f"step: .*{message}"):
        flow.plan()


def test_columns_of_a_file_do_not_replace_the_order(tmp_path):
    (tmp_path / "table.csv").write_text("key,seq\na,7\n")
    with pytest.raises(ConfigError, match="lookup writes string to the field 'seq'"):
        ro.apply(t.Lookup(table=str(tmp_path / "table.csv"), on="key"), pa.table({"key": ["a"]}))


def test_results_of_earlier_steps_may_be_replaced():
    flow = ro.Dataflow("again")
    rows = flow.source("rows", schema={"a": str, "b": str}).to(t.RunningCount(by="a"))
    flow.sink("out", rows.to(t.RunningCount(by=("a", "b")), id="last"))
    out = flow.run([{"a": "x", "b": b} for b in "pqp"])["last"]
    assert out["count"].to_pylist() == [1, 1, 2]


def test_columns_of_a_parser_belong_to_the_user():
    flow = ro.Dataflow("parsed")
    rows = flow.source("rows", schema={"text": str}).to(
        t.ParseJSON(field="text", schema={"a": ("a", "string"), "count": ("count", "int64")})
    )
    flow.sink("out", rows.to(t.RunningCount(by="a"), id="last"))
    with pytest.raises(ConfigError, match="last: running_count writes the column 'count'"):
        flow.run([{"text": "{}"}])


#: A name under which no task writes and no parameter of a case names a column.
FRESH = "column_of_the_user"


@pytest.mark.parametrize("kind", registered_tasks(), ids=lambda kind: kind.__name__)
def test_no_task_loses_a_column_by_a_default(kind):
    """With any result's name in the input: refused; or the name is given; or the task drops such columns anyway."""
    for case in kind.cases():
        schema = case.batch.schema
        checked_output_schema(case.task, schema)  # the cases themselves lose nothing
        task = case.task
        drops = FRESH not in task.output_schema(schema.append(pa.field(FRESH, pa.int64()))).names
        given = str({n: v for n, v in task.to_dict().items() if v != getattr(kind, n, None)})
        for field in task.output_schema(schema):
            if field.name in (*schema.names, "seq", "event_time") or is_ordinal(field.name):
                continue
            if drops or field.name in given or field.name in task.replaces:
                continue
            with pytest.raises(ConfigError, match=rf"'{field.name}'"):
                checked_output_schema(task, schema.append(field))
