"""From what a user passes to a run to the sources and sinks of the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_ops.dataflow import Dataflow
from riot_ops.errors import ConfigError, did_you_mean
from riot_ops.graph import ERRORS_STREAM
from riot_ops.paths import local_path
from riot_ops.sink import MemorySink, ParquetSink, Sink
from riot_ops.source import MemorySource, Source, Split, WrappedSource

__all__ = ["bind_sinks", "bind_sources", "end_sinks", "read_back"]


def bind_sources(flow: Dataflow, given: Any) -> dict[str, Any]:
    """The source for each source node, by id; it delivers the fields that the node declares, and no more."""
    names = [n.id for n in flow.kind("source")]
    if given is None:
        raise ConfigError(f"the dataflow {flow.name!r} needs a source for {', '.join(map(repr, names))}")
    if not isinstance(given, Mapping):
        if len(names) != 1:
            raise ConfigError(
                f"the dataflow {flow.name!r} has {len(names)} sources "
                f"({', '.join(names)}): pass a mapping of name to source"
            )
        given = {names[0]: given}
    for name in given:
        if name not in names:
            raise ConfigError(f"the dataflow {flow.name!r} has no source {name!r}{did_you_mean(name, names)}")
    missing = [n for n in names if n not in given]
    if missing:
        raise ConfigError(f"the dataflow {flow.name!r} needs a source for {', '.join(map(repr, missing))}")
    bound = {}
    for name in names:
        node_schema = flow.nodes[name].schema
        assert node_schema is not None
        source = _as_source(given[name], node_schema)
        fit = _fit_source if isinstance(source, Source) else _fit_frame
        bound[name] = fit(name, source, node_schema)
    return bound


def _as_source(given: Any, schema: pa.Schema) -> Any:
    if isinstance(given, list):
        if not all(isinstance(r, Mapping) for r in given):
            raise ConfigError("a list as source must hold dicts, one per record")
        plain = schema if given and "seq" in given[0] else pa.schema([f for f in schema if f.name != "seq"])
        try:
            return MemorySource([dict(r) for r in given], plain)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ConfigError(f"the records do not fit the source's schema: {error}") from None
    if isinstance(given, (pa.Table, pa.RecordBatch)):
        return MemorySource(given)
    if isinstance(given, Source) or hasattr(given, "sparkSession"):
        return given
    raise ConfigError(
        f"cannot read from {type(given).__name__}; a source is a riot_ops source, an Arrow table, "
        "a list of dicts or, on Spark, a DataFrame"
    )


def _fit_source(name: str, source: Source, schema: pa.Schema) -> Source:
    have = source.schema
    _check_fields(name, have.names, schema)
    _check_types(name, have, schema)
    return source if set(have.names) == set(schema.names) else _Projection(source, schema)


def _fit_frame(name: str, frame: Any, schema: pa.Schema) -> Any:
    """The declared columns of a Spark DataFrame; ``seq`` may be missing, its rows are then numbered."""
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = schema if "seq" in frame.columns else pa.schema([f for f in schema if f.name != "seq"])
    _check_fields(name, frame.columns, wanted)
    picked = frame.select(*("`{}`".format(n.replace("`", "``")) for n in wanted.names))
    _check_types(name, to_arrow_schema(picked.schema, timezone="UTC"), wanted)
    return picked


def _check_fields(name: str, have: list[str], want: pa.Schema) -> None:
    for field in want.names:
        if have.count(field) != 1:
            number = "lacks the field" if field not in have else f"has {have.count(field)} fields"
            raise ConfigError(
                f"the source {name!r} {number} {field!r}; it has {', '.join(have)}{did_you_mean(field, have)}"
            )


def _check_types(name: str, have: pa.Schema, want: pa.Schema) -> None:
    for field in want:
        if have.field(field.name).type != field.type:
            raise ConfigError(
                f"the source {name!r}: the field {field.name!r} is {have.field(field.name).type}, "
                f"the dataflow declares {field.type}"
            )


class _Projection(WrappedSource):
    """Some fields of a source."""

    def __init__(self, source: Source, schema: pa.Schema) -> None:
        super().__init__(source)
        self._schema = pa.schema([source.schema.field(name) for name in schema.names])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for batch in self.source.read(split):
            yield batch.select(self._schema.names)


def bind_sinks(flow: Dataflow, sinks: Any, out: str | Path | None) -> tuple[dict[str, Sink], dict[str, list[str]]]:
    """The sinks by name, each once, and which of them each stream ends in.

    A sink node gets the sink given for it; by default all share Parquet files below ``out``, or
    memory. The errors stream goes to the sink named ``errors``, or else to the first.
    """
    names = [n.id for n in flow.kind("sink")]
    if sinks is not None and out is not None:
        raise ConfigError("give either sinks or out, not both")
    if sinks is None:
        sinks = ParquetSink(local_path(out, "out")) if out is not None else MemorySink()
    if isinstance(sinks, Sink):
        sinks = dict.fromkeys(names, sinks)
    for name, sink in sinks.items():
        if name not in names and name != ERRORS_STREAM:
            raise ConfigError(f"the dataflow {flow.name!r} has no sink {name!r}{did_you_mean(name, names)}")
        if not isinstance(sink, Sink):
            raise ConfigError(f"sink {name!r}: expected a riot_ops sink, got {type(sink).__name__}")
    missing = [n for n in names if n not in sinks]
    if missing:
        raise ConfigError(f"the dataflow {flow.name!r} needs a sink for {', '.join(map(repr, missing))}")
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
    return {name: sink.bound(ending[name]) for name, sink in distinct.items()}, routes


def end_sinks(flow: Dataflow, sinks: Mapping[str, Sink], routes: Mapping[str, list[str]]) -> None:
    """Tell the sinks that a run is over, and which streams end in them."""
    schemas = flow.schemas()
    for name, sink in sinks.items():
        sink.end({stream: schemas[stream] for stream, targets in routes.items() if name in targets})


def read_back(flow: Dataflow, sinks: Mapping[str, Sink], routes: Mapping[str, list[str]], stream: str) -> pa.Table:
    """All records of a stream, from a sink that gives them back; KeyError where there is none."""
    schemas = flow.schemas()
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
