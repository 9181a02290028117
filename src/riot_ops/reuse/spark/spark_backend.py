"""Shared dataflows as streaming queries of a Spark session."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from riot_ops.core.buffering import interval_seconds
from riot_ops.core.checks import check_count, duration_seconds
from riot_ops.core.errors import ConnectorError
from riot_ops.core.parameters import Duration
from riot_ops.reuse.spark.backend import FragmentsBackend
from riot_ops.reuse.spark.fragment import Fragment, QueryOptions, RunningQuery
from riot_ops.spark.dataframe_transform import chain_stages, default_fuse
from riot_ops.spark.exceptions import Py4JError, find_cause
from riot_ops.spark.pickling import pickled_sink, pickled_source
from riot_ops.spark.query import is_active
from riot_ops.spark.session import PARTITIONS, active_session, block_batch_settings, default_partitions, query_settings
from riot_ops.spark.session_check import check_session, is_connect, is_stopped, refuse_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkBackend", "SparkQuery"]


class SparkBackend(FragmentsBackend):
    """Runs shared dataflows as streaming queries on Spark.

    New steps start as a query of their own, a *fragment*, and no running query is stopped for them. A query hands
    streams to other queries, and to the dataflows' sinks, through its topic: a folder that it commits to with each
    micro-batch.

    Parameters
    ----------
    spark : SparkSession
    folder : path
        The folder for all state, used by this back end alone, on a disk that the driver and the workers share. A back
        end over an existing folder resumes once its manager submits the dataflows again.
    trigger : timedelta or text such as "1s", default "200ms"
        How often a query looks for records. Actions do not wait for the trigger, nor does a query that reads only one
        other query.
    partitions : int, optional
        Number of partitions of the stages of new queries; by default the session's ``spark.sql.shuffle.partitions``. A
        query that resumes after a restart keeps its number until it is replaced (``manager.defragment()``).
    max_records : int, optional
        Maximum number of records of a source in a micro-batch.
    max_queue_bytes : int, default 64 MiB
        A query waits while other queries have more unread bytes than this in its topic.
    max_lag_bytes : int, default 4 GiB
        How far a dataflow's sinks may lag where queries do not wait for them.
    patience : timedelta or text such as "1min", default "1min"
        How long an action waits for the micro-batch in which it takes effect.
    max_tries : int, default 3
        How often in a row a query that fails is restarted before the dataflows that use it fail. If it fails because a
        step raised, it restarts without that step, and only the dataflows that use the step fail.
    max_queries : int, optional
        If more queries run, as many as necessary of those that read each other are merged (``manager.defragment()``).
        When dataflows are removed, a query in which a shuffle, or half of the stages, is not needed any more is
        replaced by a smaller one. By default neither happens without the user.
    join : bool, default True
        Whether new steps join a running query that has a stage for them. Otherwise they always start as a query of
        their own, except for steps on a source that is read already.

    Examples
    --------
    >>> import tempfile
    >>> from riot_ops.reuse import ReuseManager, SparkBackend
    >>> folder = tempfile.mkdtemp()
    >>> manager = ReuseManager(SparkBackend(spark, folder, trigger="100ms"))
    >>> manager.stats()["steps"]
    0
    >>> manager.close()
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: str | Path,
        *,
        trigger: Duration = "200ms",
        partitions: int | None = None,
        max_records: int | None = None,
        max_queue_bytes: int = 64 << 20,
        max_lag_bytes: int = 4 << 30,
        patience: Duration = "1min",
        max_tries: int = 3,
        max_queries: int | None = None,
        join: bool = True,
    ) -> None:
        counts = {
            "max_records": max_records,
            "partitions": partitions,
            "max_queue_bytes": max_queue_bytes,
            "max_lag_bytes": max_lag_bytes,
            "max_queries": max_queries,
        }
        check_count(**{name: number for name, number in counts.items() if number is not None})
        check_count(0, max_tries=max_tries)
        every_s = interval_seconds(trigger)
        patience_s = duration_seconds("patience", patience)
        refuse_connect(is_connect(spark), "a SparkBackend")
        check_session(spark, keeps_state=True)
        self.spark = spark
        partitions = default_partitions(spark) if partitions is None else partitions
        fuse: Literal["exact", "coarse"] = "coarse" if default_fuse(partitions) == "coarse" else "exact"
        options = QueryOptions(partitions, max_records, max_queue_bytes, every_s)
        super().__init__(
            self._start_query, folder, options, fuse, max_lag_bytes, patience_s, max_tries, max_queries, join
        )

    @property
    def error(self) -> ConnectorError | None:
        """Error if its Spark is gone: no query runs any more, and another back end over the folder can resume."""
        return ConnectorError("Spark is gone, and all queries with it") if is_stopped(self.spark) else None

    def _start_query(self, fragment: Fragment, options: QueryOptions) -> RunningQuery:
        reader, processors, sink = fragment.query_parts(options)
        spark, label = self.spark, f"riot_ops_{uuid.uuid4().hex}"
        with active_session(spark):
            spark.dataSource.register(pickled_source(label, reader))
            frame = chain_stages(spark, spark.readStream.format(label).load(), processors)
            spark.dataSource.register(pickled_sink(label + "_end", sink))
            writer = (
                frame.writeStream.format(label + "_end")
                .option("checkpointLocation", str(fragment.folder / "checkpoint"))
                .queryName(f"{fragment.name}-{label[-8:]}")
            )
            with query_settings(spark, {PARTITIONS: str(fragment.spec.partitions), **block_batch_settings(spark)}):
                return SparkQuery(writer.start())


class SparkQuery:
    """A streaming query of Spark."""

    def __init__(self, streaming: Any) -> None:
        self._streaming = streaming

    @property
    def active(self) -> bool:
        return is_active(self._streaming)

    def stop(self) -> None:
        if self.active:
            self._streaming.stop()

    def failure(self) -> str | None:
        try:
            error = self._streaming.exception()
        except (Py4JError, OSError):
            return "Spark is gone"
        return None if error is None else find_cause(str(error))[1]
