"""ETL: clean, complete and annotate the messages of a sensor stream, store and publish them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, Natural, check_arguments
from riot_ops.core.schema import StreamSchema, stream_schema
from riot_ops.core.secret import Secret
from riot_ops.dataflow import Dataflow, Stream
from riot_ops.dataflows.riotbench.feature_sets import FEATURE_SETS
from riot_ops.dataflows.riotbench.output_steps import publish_task
from riot_ops.tables import InlineTable, KeyFile

__all__ = ["ROW_KEY", "etl"]

KEY = ("sensor_id", "obs_type")
#: Window of the interpolation where it is not the default 5; 0: no interpolation.
WINDOW = {"taxi": 0}
#: Rows per database transaction where it is not the default 100.
SQL_BATCH = {"taxi": 10, "fit": 10}
#: Row key that sorts the rows of the table by time.
ROW_KEY = "{event_time:ms}|{sensor_id}|{seq}"


def etl(
    schema: str = "city",
    *,
    known_sensors: str | Path | Sequence[str] | None = None,
    annotations: str | Path | Mapping[str, Any] | None = None,
    annotated: Sequence[str] | StreamSchema | str | Path | None = None,
    window: Natural | None = None,
    timeout: timedelta | str = "1min",
    partial: bool = True,
    store: str | None = None,
    table: str = "readings",
    form: Literal["table", "sql"] = "table",
    batch_size: Count | None = None,
    credential: Secret | None = None,
    publish: dict[str, object] | None = None,
    secret: Secret | None = None,
) -> Dataflow:
    """Build ETL: parse → range filter → Bloom filter → interpolation → join → annotate → {insert, SenML → publish}.

    An observation that is not a number, out of range, or from an unknown sensor becomes null; the interpolation
    fills it from the latest observations of its sensor and type; the join reassembles the messages.

    Parameters
    ----------
    schema : str, default "city"
        Stream to read: city, taxi, fit or grid.
    known_sensors : path or sequence of str, optional
        Known sensors: the file of a trained Bloom filter, or their ids. Without it, there is no Bloom filter.
    annotations : path or mapping, optional
        Values to add to the messages of a sensor: a file of lines ``id:value,value,…``, or the values of each
        id, see :class:`riot_ops.tasks.Lookup` and :class:`riot_ops.tables.KeyFile`. Without it, that step is omitted.
    annotated : sequence of str, schema, or path of one, optional
        The fields for these values: names of text fields; or the stream's schema followed by these fields
        with their units and kinds, as a file see :meth:`riot_ops.StreamSchema.from_file`. By default
        ``annotation``, or ``annotation_1`` and so on.
    window : int, default 5 (taxi: 0)
        Number of values that the interpolation averages; 0 omits it.
    timeout : timedelta or text, default "1min"
        Event time after which an incomplete message is emitted or dropped.
    partial : bool, default True
        Whether incomplete messages are emitted.
    store : str, optional
        Address of the store with the table to insert into; without it, nothing is inserted.
    table : str, default "readings"
        Name of that table.
    form : "table" or "sql", default "table"
        Insert by partition and row key (the row key consists of time and sensor, so that TRAIN can
        read a time span), or into the columns of a database table.
    batch_size : int, default 100 (taxi and fit in columns of a database: 10)
        Maximum number of rows per transaction.
    credential : Secret, optional
        Credential of the store.
    publish : dict, optional
        Parameters of :class:`riot_ops.tasks.PublishMQTT`, such as ``url`` and ``topic``. Without it
        messages only go to the sink.
    secret : Secret, optional
        Keys the hash of the Bloom filter, see :class:`riot_ops.tasks.CheckBloomFilter`; the file of a trained filter
        must have been made with it. Only with ``known_sensors``.

    Examples
    --------
    >>> etl("grid", known_sensors=["1", "2"]).diagram().count("-->")
    8
    """
    check_arguments(etl, locals())
    stream = stream_schema(schema)
    flow = Dataflow("etl")
    obs = flow.source(schema).shuffle().to(t.ParseSenML(schema=schema, meta=True, on_error="null"), id="parse")
    obs = obs.partition_by(*KEY).to(t.RangeFilter(bounds=schema, on_error="null"), id="range")
    if known_sensors is not None:
        obs = obs.partition_by(*KEY).to(_bloom_filter(known_sensors, secret), id="bloom")
    elif secret is not None:
        raise ConfigError("secret needs known_sensors: it keys the hash of their Bloom filter")
    window = WINDOW.get(schema, 5) if window is None else window
    if window:
        obs = obs.partition_by(*KEY).to(t.Interpolation(by=KEY, window=window, fields=stream.numeric), id="interpolate")
    message = obs.partition_by("seq").to(
        t.AssembleMessage(schema=schema, layout="both", timeout=timeout, partial=partial),
        id="join",
    )
    whole = stream
    if annotations is not None:
        annotate, whole = _annotation(annotations, annotated, stream)
        message = message.shuffle().to(annotate, id="annotate")
    elif annotated is not None:
        raise ConfigError(f"annotated = {annotated!r} needs annotations")
    columns = (*stream.observed, *_added_columns(whole, stream))
    stored = message
    if store is not None:
        derived = FEATURE_SETS[schema].time_fields if form == "table" else {}
        if derived:  # TRAIN reads them from the table
            stored = stored.to(t.Compute(derived), id="time")
        default = SQL_BATCH.get(schema, 100) if form == "sql" else 100
        insert = _insert(form, schema, store, table, (*columns, *derived), batch_size or default, credential)
        stored = stored.shuffle().to(insert, id="insert")
    senml = message.shuffle().to(t.CSVToSenML(schema=schema if whole is stream else whole), id="senml")
    if publish is not None:
        senml = senml.shuffle().to(publish_task(publish), id="publish")
    flow.sink("sink", *_unique_streams(stored, senml))
    return flow


def _bloom_filter(known: str | Path | Sequence[str], secret: Secret | None) -> t.Task:
    model = str(known) if isinstance(known, (str, Path)) else tuple(known)
    return t.CheckBloomFilter(models={"sensor_id": model}, on_error="null", secret=secret)


def _annotation(table: Any, annotated: Any, stream: StreamSchema) -> tuple[t.Lookup, StreamSchema]:
    """Build the step that adds annotations as fields and to the line of a message; return it with the new schema."""
    whole = None if annotated is None else _annotated_schema(annotated, stream)
    values = InlineTable(table) if isinstance(table, Mapping) else KeyFile(str(table))
    width = values.width()
    names = ("annotation",) if width == 1 else tuple(f"annotation_{i + 1}" for i in range(width))
    columns = names if whole is None else _added_columns(whole, stream)
    task = t.Lookup(table=values, on=("sensor_id",), columns=columns, default="", line="payload")
    return task, whole or stream.extended(task.names)


def _annotated_schema(annotated: Any, stream: StreamSchema) -> StreamSchema:
    """Return the schema of a stream extended by its annotations."""
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


def _added_columns(whole: StreamSchema, stream: StreamSchema) -> tuple[str, ...]:
    return whole.columns[len(stream.columns) :]


def _insert(
    form: str,
    schema: str,
    store: str,
    table: str,
    columns: tuple[str, ...],
    batch_size: int,
    credential: Secret | None,
) -> t.Task:
    if form == "sql":
        fields = ("seq", "event_time", "sensor_id", *columns)
        return t.InsertSQL(
            store=store, table=table, primary_key=("seq",), fields=fields, batch_size=batch_size, credential=credential
        )
    return t.InsertTable(
        store=store,
        table=table,
        partition=schema,
        row=ROW_KEY,
        fields=("event_time", "sensor_id", *columns),
        batch_size=batch_size,
        credential=credential,
    )


def _unique_streams(*streams: Stream) -> list[Stream]:
    return list({s.nodes: s for s in streams}.values())
