"""Binding: the sources and sinks that a user passes to a run, for the nodes of the graph."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from riot_ops.core.errors import ConfigError, did_you_mean, value_text
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.schema import ERRORS_STREAM, RAW
from riot_ops.core.sink import MemorySink, Sink
from riot_ops.core.source import Source
from riot_ops.core.storage import open_place
from riot_ops.graph.graph import Graph
from riot_ops.ingest.files import read
from riot_ops.ingest.first_item import FirstItem
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.ingest.replay import replay
from riot_ops.ingest.step import check_source_fields
from riot_ops.ingest.stream_source import StreamSource
from riot_ops.ingest.tables import RECORD_FORMATS, batched_records, check_names, is_frame, prefetched_batches
from riot_ops.runtime.spark_schema import to_arrow_schema

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ReadableStreams", "bind_sinks", "bind_sources", "end_sinks", "read_stream", "sinks_by_node"]

#: How long a run waits at its start for the first record of an iterator.
FIRST_SECONDS = 2.0


def bind_sources(flow: Graph, sources: Any, *, again: str | None = None) -> dict[str, Any]:
    """Return the source of each source node by id, with the fields that the node declares.

    Parameters
    ----------
    again : str, optional
        The runner that reads records more than once, for the message that refuses an iterator.
    """
    names = [n.id for n in flow.nodes_of_kind("source")]
    if sources is None:
        raise ConfigError(f"the dataflow {flow.name!r} needs a source for {', '.join(map(repr, names))}")
    if not isinstance(sources, Mapping):
        if len(names) != 1:
            raise ConfigError(
                f"the dataflow {flow.name!r} has {len(names)} sources "
                f"({', '.join(names)}): pass a mapping of name to source"
            )
        sources = {names[0]: sources}
    for name in sources:
        if name not in names:
            raise ConfigError(f"the dataflow {flow.name!r} has no source {name!r}{did_you_mean(name, names)}")
    missing = [n for n in names if n not in sources]
    if missing:
        raise ConfigError(f"the dataflow {flow.name!r} needs a source for {', '.join(map(repr, missing))}")
    bound = {}
    for name in names:
        schema = flow.nodes[name].schema
        assert schema is not None
        source = sources[name] if hasattr(sources[name], "sparkSession") else _as_source(name, sources[name], schema)
        if isinstance(source, Source):
            source = _projected(name, source, schema)
            if again is not None and not source.replayable:
                raise ConfigError(
                    f"the source {name!r} is an iterator, which can be read once, but {again} reads records again; "
                    "pass a list, a table or a path"
                )
        else:
            source = _fit_frame(name, source, schema)
        bound[name] = source
    return bound


def _projected(name: str, source: Source, schema: pa.Schema) -> Source:
    """Return a source of the declared fields; the error for one that is missing names all that the source has."""
    projected = source.project(schema)
    try:
        check_source_fields(name, projected.schema, schema)
    except ConfigError:
        check_source_fields(name, source.schema, schema)
        raise
    return projected


def _as_source(name: str, source: Any, schema: pa.Schema) -> Source:
    if isinstance(source, Source):
        return source
    if isinstance(source, str | Path):
        lines = set(schema.names) == set(RAW.names) and Path(source).suffix != ".parquet"
        return replay(source) if lines else read(source)  # text messages are lines, with any content
    if isinstance(source, list | tuple):
        if not all(isinstance(record, Mapping) for record in source):
            raise ConfigError("a list as source must hold dicts, one per record")
        if source:
            check_names(name, [str(key) for record in source for key in record], schema)
        return MemorySource(source, schema)
    if is_frame(source):
        return MemorySource(source, schema)
    if hasattr(source, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(source)
        return StreamSource(lambda _: prefetched_batches(reader), reader.schema, replayable=False)
    if isinstance(source, Iterator):
        return _iterated(name, source, schema)
    raise ConfigError(
        f"cannot read from {type(source).__name__}; a source is a riot_ops source, {RECORD_FORMATS}, an iterator "
        "of dicts, a record batch reader, a path or, on Spark, a DataFrame"
    )


def _iterated(name: str, source: Iterator[Any], schema: pa.Schema) -> Source:
    """Return an iterator of dicts as a source; the first dict names the fields, also if it comes during the run."""
    reader = FirstItem(source)
    first = reader.wait(FIRST_SECONDS)
    if first:
        _check_first(name, first[0], schema)
    if "seq" in schema.names and not (first and "seq" in first[0]):
        schema = schema.remove(schema.get_field_index("seq"))
    if first is not None:
        return StreamSource(lambda _: batched_records(source, schema, first), schema, replayable=False)
    return StreamSource(lambda _: batched_records(_late(name, reader, schema), schema), schema, replayable=False)


def _late(name: str, reader: FirstItem[Any], schema: pa.Schema) -> Iterator[Any]:
    """Yield the records of an iterator whose first one had not come at the start, when it was taken to lack ``seq``."""
    records = reader.all_items()
    for first in itertools.islice(records, 1):
        _check_first(name, first, schema)
        if "seq" in first and "seq" not in schema.names:
            raise ConfigError(
                f"the source {name!r} is an iterator whose records have seq, but its first one came during the run, "
                "when they were to be numbered; let the first one come sooner, or leave seq out"
            )
        yield first
    yield from records


def _check_first(name: str, record: Any, schema: pa.Schema) -> None:
    if not isinstance(record, Mapping):
        raise ConfigError(f"an iterator as source must give dicts, got {value_text(record)}")
    check_names(name, map(str, record), schema)


def _fit_frame(name: str, frame: Any, schema: pa.Schema) -> Any:
    """Return the declared columns of a Spark DataFrame; rows without ``seq`` are numbered later."""
    from pyspark.sql.types import StructType

    declared = schema if "seq" in frame.columns else pa.schema([f for f in schema if f.name != "seq"])
    names = pa.schema([pa.field(column, pa.null()) for column in frame.columns])
    check_source_fields(name, names, declared)
    # not by select, whose fields a declarative pipeline does not report
    picked = frame.to(StructType([frame.schema[n] for n in declared.names]))
    check_source_fields(name, to_arrow_schema(picked.schema), declared)
    return picked


def sinks_by_node(flow: Graph, sinks: Any, out: str | Path | None) -> dict[str, Sink]:
    """Return the sink of each sink node, and the one for ``errors`` if it is given.

    A sink node gets the sink that the run gives by its name, or else the one bound to it. All others share the one that
    the run gives without a name: by default Parquet files below ``out``, or memory.
    """
    nodes = flow.nodes_of_kind("sink")
    names = [node.id for node in nodes]
    own = {node.id: node.sink for node in nodes if node.sink is not None}
    if sinks is not None and out is not None:
        raise ConfigError("give either sinks or out, not both")
    if isinstance(out, Sink):
        raise ConfigError(f"out must be a path or an address, got {type(out).__name__}: give a sink as sinks=")
    if (out is not None or isinstance(sinks, Sink)) and own and len(own) == len(nodes):
        raise ConfigError(
            f"the dataflow {flow.name!r} has its own sink for {', '.join(map(repr, own))}, so that "
            f"{'sinks' if out is None else 'out'} would get nothing; a mapping of name to sink replaces one"
        )
    if sinks is None:
        sinks = ParquetSink(open_place(out, None, "out")) if out is not None else MemorySink()
    if isinstance(sinks, Sink):
        sinks = dict.fromkeys((name for name in names if name not in own), sinks)
    if not isinstance(sinks, Mapping):
        raise ConfigError(f"sinks must be a riot_ops sink, or a mapping of name to sink, got {value_text(sinks)}")
    for name, sink in sinks.items():
        if name not in names and name != ERRORS_STREAM:
            raise ConfigError(f"the dataflow {flow.name!r} has no sink {name!r}{did_you_mean(name, names)}")
        if not isinstance(sink, Sink):
            raise ConfigError(f"sink {name!r}: expected a riot_ops sink, got {type(sink).__name__}")
    found = {**sinks, **{name: sink for name, sink in own.items() if name not in sinks}}
    missing = [n for n in names if n not in found]
    if missing:
        raise ConfigError(f"the dataflow {flow.name!r} needs a sink for {', '.join(map(repr, missing))}")
    return found


def bind_sinks(flow: Graph, sinks: Any, out: str | Path | None) -> tuple[dict[str, Sink], dict[str, list[str]]]:
    """Return the distinct sinks by name, and the names of the sinks of each stream.

    See :func:`sinks_by_node`. The errors stream goes to the sink named ``errors``, or else to the first that the run
    gives, or else to the first that is bound to a node.
    """
    names = [n.id for n in flow.nodes_of_kind("sink")]
    sinks = sinks_by_node(flow, sinks, out)
    label = {id(sink): name for name, sink in reversed(sinks.items())}
    distinct = {label[id(sink)]: sink for sink in sinks.values()}
    routes: dict[str, list[str]] = {}
    for name in names:
        for edge in flow.inputs(name):
            targets = routes.setdefault(edge.source, [])
            if label[id(sinks[name])] not in targets:
                targets.append(label[id(sinks[name])])
    last = sinks[ERRORS_STREAM] if ERRORS_STREAM in sinks else next(iter(sinks.values()), None)
    routes[ERRORS_STREAM] = [] if last is None else [label[id(last)]]
    ending = {name: [s for s, targets in routes.items() if name in targets] for name in distinct}
    schemas = flow.result_schemas()
    bound = {name: sink.bind({stream: schemas[stream] for stream in ending[name]}) for name, sink in distinct.items()}
    return bound, routes


def sink_nodes(flow: Graph, sinks: Any, out: str | Path | None) -> dict[str, set[str]]:
    """Return, by the name that :func:`bind_sinks` gives to a sink, the sink nodes that share it."""
    found: dict[int, tuple[str, set[str]]] = {}
    for name, sink in sinks_by_node(flow, sinks, out).items():
        found.setdefault(id(sink), (name, set()))[1].add(name)
    return dict(found.values())


def end_sinks(flow: Graph, sinks: Mapping[str, Sink], routes: Mapping[str, list[str]]) -> None:
    """Notify the sinks of the end of a run, with the streams that end in them."""
    schemas = flow.result_schemas()
    for name, sink in sinks.items():
        sink.end({stream: schemas[stream] for stream, targets in routes.items() if name in targets})


class ReadableStreams:
    """The streams of a run that can be read by name: those that end in memory or in Parquet files."""

    flow: Graph
    sinks: Mapping[str, Sink]
    routes: Mapping[str, list[str]]

    def __getitem__(self, stream: str) -> pa.Table:
        return read_stream(self.flow, self.sinks, self.routes, stream)

    def __iter__(self) -> Iterator[str]:
        readable = {name for name, sink in self.sinks.items() if type(sink).table is not Sink.table}
        return (stream for stream, targets in self.routes.items() if readable.intersection(targets))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def plot(
        self,
        stream: str | None = None,
        value: str | None = None,
        *,
        by: str | tuple[str, ...] | None = None,
        time: str = "event_time",
        max_lines: int = 10,
        y_label: str | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the records of a stream as lines over event time, by matplotlib (``pip install 'riot-ops[plot]'``).

        A line of more than 5,000 points is drawn by the lowest and the highest of each part of it; a null is a gap.
        Records without event time are drawn over their numbers (``seq``).

        Parameters
        ----------
        stream : str, optional
            By default the only one that can be read.
        value : str, optional
            Field with the numbers; by default ``value``, or else the first field of floating point numbers that is not
            part of the key, or else the first with numbers.
        by : str or tuple of str, optional
            Fields whose values get a line each; by default the key of the step that made the stream, or of the nearest
            keyed step before it. ``()`` draws one line.
        time : str, default "event_time"
            Field with times or numbers for the horizontal axis.
        max_lines : int, >= 1, default 10
            Maximum number of lines: those of the keys with most records. If there are more, the title says so.
        y_label : str, optional
            Label of the axis of values, such as ``"temperature (°C)"``; by default the name of the field, with the
            text ``unit`` of its metadata in Arrow.
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure of pyplot.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ConfigError
            If the stream is not clear, or a field is missing or has no numbers.
        KeyError
            If the stream cannot be read.
        MissingExtraError
            Without matplotlib.

        Examples
        --------
        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("rooms")
        >>> readings = flow.source("readings", {"room": "string", "value": "double"})
        >>> _ = readings.key_by("room").apply(ro.tasks.KalmanFilter(), id="smooth").to("out")
        >>> result = flow.run([{"room": room, "value": 20.5} for room in ("hall", "attic", "hall")])
        >>> ax = result.plot()
        >>> [line.get_label() for line in ax.lines], ax.get_ylabel(), ax.get_title()
        (['hall', 'attic'], 'value', 'smooth')
        """
        from riot_ops.runtime.stream_plot import default_stream, plot_table, stream_key

        name = default_stream(self) if stream is None else stream
        table = self[name]
        key = stream_key(self.flow, name, table.column_names)
        return plot_table(table, name, key, value=value, by=by, time=time, max_lines=max_lines, y_label=y_label, ax=ax)


def read_stream(flow: Graph, sinks: Mapping[str, Sink], routes: Mapping[str, list[str]], stream: str) -> pa.Table:
    """Read all records of a stream from a sink that supports it; KeyError if none does."""
    schemas = flow.result_schemas()
    if not isinstance(stream, str):
        raise KeyError(f"results are read by the name of a stream, got {stream!r}; streams are {', '.join(schemas)}")
    if stream not in schemas:
        raise KeyError(f"no stream {stream!r}; streams are {', '.join(schemas)}{did_you_mean(stream, schemas)}")
    refused = KeyError(
        f"the stream {stream!r} ends in no sink, so that its records are not kept: end it in one, as with "
        'flow.sink("kept", …)'
    )
    for name in routes.get(stream, ()):
        try:
            table = sinks[name].table(stream)
        except KeyError as error:
            refused = error
        else:
            return table if table.num_columns else schemas[stream].empty_table()
    raise refused
