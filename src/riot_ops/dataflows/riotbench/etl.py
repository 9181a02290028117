"""ETL: clean, complete and annotate the messages of a sensor stream, store and publish them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, Natural, Positive, check_arguments
from riot_ops.core.schema import StreamSchema, stream_schema
from riot_ops.core.secret import Secret
from riot_ops.dataflow import Dataflow, Stream
from riot_ops.dataflows.riotbench.learning import LEARNING
from riot_ops.dataflows.riotbench.results import publisher

__all__ = ["ROW_KEY", "etl"]

KEY = ("sensor_id", "obs_type")
#: Window of the interpolation, where a stream departs from the usual 5; 0: none.
WINDOW = {"taxi": 0}
#: Rows per transaction of a database, where it is not the usual 100.
SQL_BATCH = {"taxi": 10, "fit": 10}
#: Rows of the table sort by time.
ROW_KEY = "{event_time:ms}|{sensor_id}|{seq}"


def etl(
    schema: str = "city",
    *,
    known_sensors: str | Path | Sequence[str] | None = None,
    annotations: str | Path | Mapping[str, Any] | None = None,
    annotated: Sequence[str] | StreamSchema | str | Path | None = None,
    window: Natural | None = None,
    timeout_s: Positive = 60.0,
    partial: Literal["drop", "emit"] = "emit",
    store: str | None = None,
    table: str = "readings",
    variant: Literal["table", "sql"] = "table",
    batch: Count | None = None,
    credential: Secret | None = None,
    publish: dict[str, object] | None = None,
) -> Dataflow:
    """Build ETL: parse → range filter → Bloom filter → interpolation → join → annotate → {insert, SenML → publish}.

    Every observation that is no number, out of range, or of an unknown sensor, becomes null; the interpolation
    fills it from the last ones of its sensor and type; the join puts a message together again.

    Parameters
    ----------
    schema : str, default "city"
        Stream to read: city, taxi, fit or grid.
    known_sensors : path or sequence of str, optional
        Sensors whose values count: a trained Bloom filter's file, or their ids. Without it the filter is
        left out.
    annotations : path or mapping, optional
        What to add to the messages of a sensor: a file of lines ``id:value,value,…``, or the values of each
        id, see :class:`riot_ops.tasks.Annotate`. Without it that step is left out.
    annotated : sequence of str, schema, or path of one, optional
        The fields for these values: names of texts; or the stream's schema with these fields behind its own
        and their units and kinds, as a file see :meth:`riot_ops.StreamSchema.from_file`. By default
        ``annotation``, or ``annotation_1`` and so on.
    window : int, default 5 (taxi: 0)
        Values that the interpolation averages; 0 leaves it out.
    timeout_s : float, default 60
        Event time after which a message that is not complete goes on as it is, or not.
    partial : "emit" or "drop", default "emit"
        Which of the two.
    store, table : str, optional
        Address and name of the table to insert into; without ``store`` nothing is inserted.
    variant : "table" or "sql", default "table"
        Insert by partition and row key (the row key is made of time and sensor, so that TRAIN can
        fetch a span of time), or into columns of a database.
    batch : int, default 100 (of taxi and fit in columns of a database: 10)
        Most rows per transaction.
    credential : Secret, optional
        Of the store.
    publish : dict, optional
        Parameters of :class:`riot_ops.tasks.PublishMQTT`, such as ``url`` and ``topic``. Without it
        messages end in the sink alone.

    Examples
    --------
    >>> etl("grid", known_sensors=["1", "2"]).diagram().count("-->")
    8
    """
    check_arguments(etl, locals())
    stream = stream_schema(schema)
    flow = Dataflow("etl")
    obs = flow.source(schema).shuffle().to(t.ParseSenML(schema=schema, meta=True, on_bad="null"), id="parse")
    obs = obs.partition_by(*KEY).to(t.RangeFilter(bounds=schema, on_fail="null"), id="range")
    if known_sensors is not None:
        obs = obs.partition_by(*KEY).to(_known(known_sensors), id="bloom")
    window = WINDOW.get(schema, 5) if window is None else window
    if window:
        obs = obs.partition_by(*KEY).to(t.Interpolation(by=KEY, window=window, fields=stream.numeric), id="interpolate")
    message = obs.partition_by("seq").to(
        t.AssembleMessage(schema=schema, layout="both", timeout=timedelta(seconds=timeout_s), partial=partial),
        id="join",
    )
    whole = stream
    if annotations is not None:
        annotate, whole = _annotation(annotations, annotated, stream)
        message = message.shuffle().to(annotate, id="annotate")
    elif annotated is not None:
        raise ConfigError(f"annotated names fields for annotations, and there are none; got {annotated!r}")
    columns = (*stream.observed, *_added(whole, stream))
    stored = message
    if store is not None:
        derived = LEARNING[schema].time_fields if variant == "table" else ()
        if derived:  # TRAIN reads them from the table
            stored = stored.to(t.TimeFields(fields=derived), id="time")
        batch = (SQL_BATCH.get(schema, 100) if variant == "sql" else 100) if batch is None else batch
        insert = _insert(variant, schema, store, table, (*columns, *derived), batch, credential)
        stored = stored.shuffle().to(insert, id="insert")
    senml = message.shuffle().to(t.CSVToSenML(schema=schema if whole is stream else whole), id="senml")
    if publish is not None:
        senml = senml.shuffle().to(publisher(publish), id="publish")
    flow.sink("sink", *_different(stored, senml))
    return flow


def _known(known: str | Path | Sequence[str]) -> t.Task:
    model = str(known) if isinstance(known, (str, Path)) else tuple(known)
    return t.CheckBloomFilters(models={"sensor_id": model}, on_fail="null")


def _annotation(table: Any, annotated: Any, stream: StreamSchema) -> tuple[t.Annotate, StreamSchema]:
    """The step that adds the values as fields and to the line of a message, and what the line then holds."""
    whole = None if annotated is None else _annotated(annotated, stream)
    task = t.Annotate(
        table=table if isinstance(table, Mapping) else str(table),
        columns=None if whole is None else _added(whole, stream),
        line="payload",
    )
    return task, whole or stream.extended(task.names)


def _annotated(annotated: Any, stream: StreamSchema) -> StreamSchema:
    """The schema of a stream with its annotations behind its own columns."""
    if isinstance(annotated, (str, Path)):
        annotated = StreamSchema.from_file(
            annotated, name=stream.name, id_field=stream.id_field, time_field=stream.time_field, meta=stream.meta
        )
    if not isinstance(annotated, StreamSchema):
        return stream.extended(annotated)
    n = len(stream.columns)
    if annotated.columns[:n] != stream.columns:
        raise ConfigError(
            f"annotated: the schema must begin with the columns of {stream.name}: {', '.join(stream.columns)}; "
            f"it has {', '.join(annotated.columns)}"
        )
    return stream.extended(*(values[n:] for values in (annotated.columns, annotated.units, annotated.kinds)))


def _added(whole: StreamSchema, stream: StreamSchema) -> tuple[str, ...]:
    return whole.columns[len(stream.columns) :]


def _insert(
    variant: str, schema: str, store: str, table: str, columns: tuple[str, ...], batch: int, credential: Secret | None
) -> t.Task:
    if variant == "sql":
        fields = ("seq", "event_time", "sensor_id", *columns)
        return t.InsertSQL(store=store, table=table, key=("seq",), fields=fields, batch=batch, credential=credential)
    return t.InsertTable(
        store=store,
        table=table,
        partition=schema,
        row=ROW_KEY,
        fields=("event_time", "sensor_id", *columns),
        batch=batch,
        credential=credential,
    )


def _different(*streams: Stream) -> list[Stream]:
    return list({s.nodes: s for s in streams}.values())
