"""Whole dataflows on a user's own Spark DataFrames: one stream as a DataFrame, or all streams from one read.

The functions are lazy, DataFrames in and DataFrames out; only :meth:`Frames.write_each` starts a query.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from riot_ops.core.buffering import AVAILABLE_NOW, Buffering, as_buffering, check_trigger, spark_interval
from riot_ops.core.checks import check_transform_options
from riot_ops.core.errors import ConfigError, did_you_mean, value_text
from riot_ops.core.ipc import decode
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.parameters import Duration
from riot_ops.core.paths import as_uri
from riot_ops.core.schema import ERRORS, ERRORS_STREAM
from riot_ops.graph.graph import Graph
from riot_ops.graph.plan import plan
from riot_ops.runtime.batches import ORDERS
from riot_ops.runtime.binding import bind_sources
from riot_ops.runtime.error_column import ERROR_COLUMN, accepted_rows, drop_error_column, to_rejected_records
from riot_ops.runtime.fingerprint import fingerprint
from riot_ops.runtime.restart import Restart, RestartReport, check_restart, source_kind
from riot_ops.spark.checkpoint import SparkCheckpoint
from riot_ops.spark.dataframe_transform import (
    PASSED_THROUGH,
    Order,
    StageChain,
    default_fuse,
    inspect_frame,
    resolve_order,
    unpack_stream,
)
from riot_ops.spark.driver_files import check_driver_files
from riot_ops.spark.features import to_arrow_schema
from riot_ops.spark.locations import current_generation, server_path
from riot_ops.spark.manifest import describe_query
from riot_ops.spark.session import core_count, default_partitions
from riot_ops.spark.session_check import check_session, is_connect, refuse_connect
from riot_ops.spark.types import spark_type
from riot_ops.spark.user_checkpoint import UserCheckpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Frames", "frames", "transform_flow"]

Fuse = Literal["auto", "exact", "coarse"]
#: Spark's setting for the rows that its cache stores and reads together.
CACHED_ROWS = "spark.sql.inMemoryColumnarStorage.batchSize"


def transform_flow(
    flow: Graph,
    df: DataFrame,
    *,
    on_error: Literal["column", "drop"] = "column",
    order: Order = "auto",
    partitions: int | None = None,
    fuse: Fuse = "auto",
    buffering: Buffering | str | None = None,
    streaming: bool | None = None,
) -> DataFrame:
    """Apply a dataflow with one source and one stream of results to a batch or streaming DataFrame.

    Parameters
    ----------
    df : DataFrame
        Has the columns that the source declares; ``seq`` may be missing.
    on_error : "column" or "drop", default "column"
        As for :func:`riot_ops.spark.transform`: a row rejected by any task comes out with a JSON text in the
        column ``_error`` and nulls elsewhere, or is dropped with a warning.
    order, partitions, fuse, buffering, streaming
        As for :func:`frames`.

    Raises
    ------
    ConfigError
        If the dataflow has several sources or streams, or the DataFrame does not fit its source.
    """
    check_transform_options(on_error, order, partitions)
    sources, results = [n.id for n in flow.nodes_of_kind("source")], _results(flow)
    if len(sources) != 1 or len(results) != 1:
        raise ConfigError(
            f"transform is for one source and one stream in a sink, but the dataflow {flow.name!r} has the sources "
            f"{', '.join(sources)} and the streams {', '.join(results)}: use flow.frames, which returns all of them"
        )
    made = frames(flow, df, order=order, partitions=partitions, fuse=fuse, buffering=buffering, streaming=streaming)
    (stream,) = results
    result = made.schema(stream)
    if ERROR_COLUMN in result.names:
        raise ConfigError(f"the stream {stream!r} has a field {ERROR_COLUMN!r}, which is for rejected rows; rename it")
    if on_error == "column":
        result = result.append(pa.field(ERROR_COLUMN, pa.string()))
    return unpack_stream(made.packed, stream, result)


def frames(
    flow: Graph,
    source: DataFrame | Mapping[str, DataFrame],
    *,
    order: Order = "auto",
    partitions: int | None = None,
    fuse: Fuse = "auto",
    buffering: Buffering | str | None = None,
    streaming: bool | None = None,
) -> Frames:
    """Return all streams of a dataflow over batch or streaming DataFrames, from one read of them.

    Parameters
    ----------
    source : DataFrame, or mapping of source name to DataFrame
        Each has the columns that its source declares; ``seq`` may be missing. Rows with a text in a column
        ``_error``, which an earlier ``transform`` rejected, bypass the dataflow into its errors stream.
    order : "auto", "arrival" or "event_time", default "auto"
        Order of a key's rows within a micro-batch: by ``seq``, or by ``event_time`` first. "auto": by event time
        if a DataFrame has no ``seq``, and it or a task after it makes an event time.
    partitions : int, optional
        Buckets of keys; by default ``spark.sql.shuffle.partitions``, and in a streaming query that continues, the
        number that it began with.
    fuse : "auto", "exact" or "coarse", default "auto"
        See :func:`riot_ops.graph.plan.plan`; "auto" is "coarse" up to four partitions, and "exact" beyond. Without
        ``partitions`` the number of cores decides, which does not change with a setting of the session.
    buffering : Buffering, "throughput", "latency" or "immediate", optional
        Size and compression of the packed blocks; see :class:`riot_ops.Buffering`.
    streaming : bool, optional
        Whether these are streaming DataFrames. Needed in a function of a declarative pipeline, where DataFrames must
        not be asked, and where their schema must come from ``df.to(schema)``.

    Raises
    ------
    ConfigError
        If a source is unknown, missing, or has other fields than the dataflow declares.
    """
    check_transform_options("column", order, partitions)
    buffering = as_buffering(buffering)
    if fuse not in ("auto", "exact", "coarse"):
        raise ConfigError(f"fuse must be 'auto', 'exact' or 'coarse', got {fuse!r}")
    bound, schemas, streaming = _bind(flow, source, streaming)
    first = next(iter(bound.values()))
    keyed = any(isinstance(node.task, KeyedOperator) for node in flow.nodes_of_kind("task"))
    check_session(first.sparkSession, keeps_state=streaming and keyed)
    if fuse == "auto":
        fuse = default_fuse(partitions or core_count(first.sparkSession))
    unnumbered = {name for name, schema in schemas.items() if "seq" not in schema.names}
    order = resolve_order(flow, unnumbered, order)
    owner = {"the plan": {"fuse": fuse}, **fingerprint(flow)}
    stages, kinds = plan(flow, fuse=fuse), dict.fromkeys(bound, source_kind(first))
    notes = describe_query(flow, stages, order, fuse, kinds) if streaming and keyed else None
    chain = StageChain(stages, ORDERS[order], partitions, buffering, owner, notes)
    packed = chain.apply(bound, streaming)
    return Frames(flow, packed, streaming, not unnumbered, (partitions, order, fuse), kinds, chain.query_owner())


class Frames(Mapping[str, "DataFrame"]):
    """The streams of a dataflow over DataFrames, by name: those that end in a sink, and ``errors``.

    Each is a DataFrame, decoded from the packed blocks that the dataflow ends in. An action on one of them runs the
    dataflow; :meth:`write_each` runs it once for all.

    Attributes
    ----------
    names : tuple of str
        The streams.
    packed : DataFrame
        The packed blocks.
    restart : RestartReport or None
        What ``restart="compatible"`` of :meth:`write_each` or :meth:`continue_from` has kept of the checkpoint.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("smooth")
    >>> readings = flow.source("readings", schema={"device": "string", "value": "double"})
    >>> _ = flow.sink("out", readings.key_by("device").apply(ro.tasks.MovingAverage(window=2), id="mean"))
    >>> df = spark.createDataFrame([(0, "a", 1.0), (1, "a", 3.0)], "seq long, device string, value double")
    >>> frames = flow.frames(df)
    >>> frames.names
    ('mean', 'errors')
    >>> frames["mean"].select("device", "value").collect()
    [Row(device='a', value=2.0)]
    """

    def __init__(
        self,
        flow: Graph,
        packed: DataFrame,
        streaming: bool,
        numbered: bool,
        options: tuple[int | None, str, str] = (None, "arrival", "coarse"),
        kinds: Mapping[str, str] | None = None,
        owner: dict[str, Any] | None = None,
    ) -> None:
        schemas = flow.result_schemas()
        self.names: tuple[str, ...] = (*_results(flow), ERRORS_STREAM)
        self.packed = packed
        self._flow = flow
        self._streaming = streaming
        self._options = options
        self._kinds = dict(kinds or {})
        self._owner = owner or {}
        self.restart: RestartReport | None = None
        self._numbered = numbered
        self._schemas = {name: _spark_schema(schemas[name], numbered) for name in self.names}

    def schema(self, name: str) -> pa.Schema:
        """Return the schema of a stream; types that Spark lacks are widened, and all fields are nullable."""
        if name in self._schemas:
            return self._schemas[name]
        if name in self._flow.nodes and self._flow.nodes[name].kind != "sink":
            raise KeyError(f'the stream {name!r} ends in no sink: end it in one, as with flow.sink("kept", …)')
        raise KeyError(f"no stream {name!r}; streams are {', '.join(self.names)}{did_you_mean(str(name), self.names)}")

    def __getitem__(self, name: str) -> DataFrame:
        return _select_stream(self.packed, name, self.schema(name), self._numbered)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<Frames of {self._flow.name!r}: {', '.join(self.names)}>"

    def write_each(
        self,
        function: Callable[[str, DataFrame, int], Any],
        *,
        checkpoint: str | Path | None = None,
        restart: Restart = "same",
        trigger: Duration | None = None,
    ) -> Any:
        """Hand each stream to a function, from one read of the source.

        For streaming DataFrames this starts one query, which computes and caches each micro-batch once and hands it
        over stream by stream. As with Spark's ``foreachBatch`` a micro-batch may come again after a crash, with the
        same number. For batch DataFrames the function is called once per stream, with number 0.

        Parameters
        ----------
        function : callable
            Gets the stream's name, a batch DataFrame and the number of the micro-batch.
        checkpoint : path or URI, optional
            Where Spark keeps position and state; a query started again with it continues. Ignored for batch
            DataFrames.
        restart : "same" or "compatible", default "same"
            Whether a query may continue from a checkpoint of a dataflow that differs, or with another number of shuffle
            partitions. "compatible" keeps the state of the steps that did not change, by their ids, and starts others
            empty; the attribute ``restart`` says which. Sources must stay, unless each DataFrame reads one source of
            Spark. Not over Spark Connect. See ``docs/howto/change.md``.
        trigger : timedelta or text such as "1s", optional
            Interval between micro-batches, also in Spark's notation (``"1 second"``), or ``"available now"`` to process
            what is there and end. Ignored for batch DataFrames.

        Returns
        -------
        StreamingQuery or None
            Spark's own handle; None for batch DataFrames, where the work is done on return.

        Raises
        ------
        StateError
            If the checkpoint is of another dataflow. Over Spark Connect the query itself then fails.
        """
        if not callable(function):
            raise ConfigError(
                f"write_each needs a function of (stream, DataFrame, batch number), got {value_text(function)}"
            )
        check_trigger(trigger, AVAILABLE_NOW)
        check_restart(restart, checkpoint)
        if not self._streaming:
            _batch_function(function, dict(self._schemas), self._numbered)(self.packed, 0)
            return None
        location, base = ("", 0) if checkpoint is None else self._open(checkpoint, restart)
        hand_over = _batch_function(function, dict(self._schemas), self._numbered, base)
        writer = self.packed.writeStream.foreachBatch(hand_over).queryName(self._flow.name)
        if location:
            writer = writer.option("checkpointLocation", location)
        if trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            writer = writer.trigger(processingTime=spark_interval(trigger))
        return writer.start()

    def continue_from(self, checkpoint: str | Path, *, restart: Restart = "same") -> str:
        """Return where a query that you start over these streams continues, for Spark's ``checkpointLocation``.

        While nothing has changed that is ``checkpoint``. A changed dataflow continues in a folder below it, as the same
        query of Spark's: Spark's numbers of micro-batches go on, so that its sinks write each once. Use it at every
        start of the query, while the query does not run. It serves ``flow.transform(df)`` too, if both get the same
        options.

        Parameters
        ----------
        checkpoint : path or URI
            That of the query. Each query has one of its own.
        restart : "same" or "compatible", default "same"
            As for :meth:`write_each`; the attribute ``restart`` says what is kept.

        Returns
        -------
        str
            The place of Spark's checkpoint.

        Raises
        ------
        StateError
            If the checkpoint is of another dataflow and ``restart`` is "same"; or if the state would be misread, or
            cannot be moved because Spark's own operators in the query keep state as well.
        ConfigError
            For batch DataFrames, and over Spark Connect, which does not reach the checkpoint.
        """
        check_restart(restart, checkpoint)
        if not self._streaming:
            raise ConfigError("continue_from is for streaming DataFrames: a batch DataFrame has no checkpoint")
        spark = self.packed.sparkSession
        refuse_connect(is_connect(spark), "continue_from")
        kept = UserCheckpoint(spark, checkpoint, self._kinds)
        keyed = any(isinstance(node.task, KeyedOperator) for node in self._flow.nodes_of_kind("task"))
        if kept.exists() and (keyed or kept.keeps_state()):  # else Spark's own restart takes any dataflow
            if restart == "compatible":
                self._change(kept)
            else:
                kept.open(self._flow, *self._options, kinds=self._kinds)
        return as_uri(checkpoint) if kept.location == kept.folder else kept.location

    def _change(self, kept: SparkCheckpoint) -> None:
        """Let these streams continue from the checkpoint of a dataflow that may differ."""
        partitions, order, fuse = self._options
        shuffles, sources = default_partitions(self.packed.sparkSession), dict.fromkeys(self._kinds)
        self.restart = kept.change(
            self._flow,
            sources,
            self._kinds,
            partitions or shuffles,
            order,
            fuse,
            owner=self._owner,
            shuffle_partitions=shuffles,
        )

    def _open(self, checkpoint: str | Path, restart: Restart) -> tuple[str, int]:
        """Return where Spark continues, and the number of the micro-batch that it calls 0."""
        spark = self.packed.sparkSession
        if is_connect(spark):
            refuse_connect(restart == "compatible", 'restart="compatible"')
            place = server_path(checkpoint)
            refuse_connect(current_generation(spark, place) > 0, "a checkpoint that a restart has changed")
            return place, 0
        kept = SparkCheckpoint(spark, checkpoint)
        keyed = any(isinstance(node.task, KeyedOperator) for node in self._flow.nodes_of_kind("task"))
        check_driver_files(spark, self._flow, checkpoint=kept.local if keyed else None)
        if kept.exists() and not kept.next_batch():
            kept.forget_dataflow()
        if restart == "compatible" and kept.exists():
            self._change(kept)
        kept.open(self._flow, *self._options, kinds=self._kinds)
        return (as_uri(checkpoint) if kept.location == kept.folder else kept.location), kept.base


def _batch_function(
    function: Callable[[str, DataFrame, int], Any], schemas: dict[str, pa.Schema], numbered: bool, base: int = 0
) -> Callable[[DataFrame, int], None]:
    """Return the function for ``foreachBatch``; it may be pickled, so it holds nothing of this session."""

    def hand_over(packed: DataFrame, number: int) -> None:
        with _cached_blocks(packed) as nonempty:
            for name, schema in schemas.items():
                function(name, _select_stream(packed, name, schema, numbered, nonempty), base + number)

    return hand_over


@contextlib.contextmanager
def _cached_blocks(packed: DataFrame) -> Iterator[frozenset[str]]:
    """Compute the blocks of a micro-batch once; yields the names of their streams.

    Each block is a batch of Spark's cache, so reading one stream skips the blocks of the others.
    """
    conf = packed.sparkSession.conf
    before = str(conf.get(CACHED_ROWS))
    packed.persist()
    try:
        conf.set(CACHED_ROWS, "1")
        try:  # compute all rows, even those that the function ignores, so that state advances
            ((streams,),) = packed.selectExpr("collect_set(stream)").collect()
        finally:
            conf.set(CACHED_ROWS, before)
        yield frozenset(streams)
    finally:
        packed.unpersist()


def _results(flow: Graph) -> list[str]:
    """Return the streams that end in a sink."""
    return list(dict.fromkeys(e.source for n in flow.nodes_of_kind("sink") for e in flow.inputs(n.id)))


def _bind(flow: Graph, source: Any, streaming: bool | None) -> tuple[dict[str, DataFrame], dict[str, pa.Schema], bool]:
    """Return a DataFrame of the declared columns for each source, with the column of errors if there is one.

    Also returns their schemas, and whether they are streaming.
    """
    flow.validate()
    given = source if isinstance(source, Mapping) else {"": source}
    kinds = {}
    for name, df in given.items():
        if not (hasattr(df, "sparkSession") and hasattr(df, "mapInArrow")):
            where = f"the source {name!r}" if name else "the source"
            raise ConfigError(
                f"{where} must be a Spark DataFrame, got {value_text(df)}; flow.start takes other sources"
            )
        _, kinds[name] = inspect_frame(df, streaming)
    bound = bind_sources(flow, source)
    if len(set(kinds.values())) > 1:
        found = ", ".join(f"{name} is {'streaming' if kind else 'batch'}" for name, kind in kinds.items())
        raise ConfigError(f"the sources must be all streaming or all batch DataFrames, but {found}")
    for name, df in bound.items():
        given_frame = source[name] if isinstance(source, Mapping) else source
        if ERROR_COLUMN in given_frame.columns and ERROR_COLUMN not in df.columns:
            bound[name] = given_frame.to(StructType([*df.schema, given_frame.schema[ERROR_COLUMN]]))
    schemas = {name: to_arrow_schema(df.schema) for name, df in bound.items()}
    for schema in schemas.values():
        drop_error_column(schema)
    return bound, schemas, next(iter(kinds.values()))


def _spark_schema(schema: pa.Schema, numbered: bool) -> pa.Schema:
    fields = [f.with_nullable(True).with_type(spark_type(f.type)) for f in schema]
    return pa.schema([f for f in fields if numbered or f.name != "seq" or schema.equals(ERRORS)])


def _select_stream(
    packed: DataFrame, name: str, schema: pa.Schema, numbered: bool, nonempty: Set[str] | None = None
) -> DataFrame:
    """Return the rows of one stream; ``nonempty`` are the streams that have blocks, if known."""
    wanted = {name, PASSED_THROUGH} if name == ERRORS_STREAM else {name}
    found = wanted if nonempty is None else wanted & nonempty
    blocks = packed.where(" or ".join(f"stream = '{one}'" for one in sorted(found)) or "false")
    read = _decoder(name == ERRORS_STREAM, schema, numbered)
    return blocks.mapInArrow(read, from_arrow_schema(schema))


def _decoder(
    errors: bool, schema: pa.Schema, numbered: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for blocks in rows:
            for stream, payload in zip(blocks.column("stream").to_pylist(), blocks.column("payload"), strict=True):
                for batch in decode(payload.as_buffer()):
                    if stream == PASSED_THROUGH:
                        batch = to_rejected_records(batch)
                    if errors and not numbered:  # the number was added by this library
                        batch = batch.drop_columns(["seq"])
                    yield from accepted_rows(batch, schema)

    return read
