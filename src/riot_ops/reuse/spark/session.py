"""Fragments as streaming queries of a Spark session."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from py4j.protocol import Py4JError

from riot_ops.core.buffering import interval_seconds
from riot_ops.core.checks import check_count, check_seconds
from riot_ops.core.errors import ConnectorError
from riot_ops.reuse.spark.backend import FragmentsBackend
from riot_ops.reuse.spark.fragment import Fragment, Options, Running
from riot_ops.spark.dataframe_transform import usual_fuse
from riot_ops.spark.pickling import packed_sink, packed_source
from riot_ops.spark.query import cause_of, is_active
from riot_ops.spark.runner import staged
from riot_ops.spark.session import PARTITIONS, active, block_batches, settings_of_query, usual_partitions
from riot_ops.spark.session_check import check_session, is_connect, is_stopped, refuse_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkBackend"]


class SparkBackend(FragmentsBackend):
    """Runs shared dataflows as streaming queries on Spark.

    New steps start as a query of their own, a *fragment*; one that runs is never stopped for them. It hands streams to
    the new one, and to the dataflows' sinks, through its topic: a folder that it commits with each micro-batch.

    Parameters
    ----------
    spark : SparkSession
    folder : path
        Where all is kept: of this back end alone, on a disk that driver and workers share. A back end over a folder
        that is there goes on from it, where its manager takes its dataflows up again.
    trigger : str, default "0.2 seconds"
        How often a query looks for records. Actions need not wait for that, nor does a query that reads one other.
    partitions : int, optional
        Of the stages of queries that begin; by default the session's ``spark.sql.shuffle.partitions``. One that goes on
        after a restart keeps the number that it has, until it becomes another (``manager.defragment()``).
    max_records : int, optional
        Most records of a source in a micro-batch.
    queue_bytes : int, default 67108864
        A query waits while others have more than so much of its topic to read.
    behind_bytes : int, default 4294967296
        Where a query need not wait for a dataflow's sinks, how far these may be behind.
    patience_s : float, seconds, default 60
        How long an action waits for the micro-batch in which it takes effect.
    tries : int, default 3
        How often in a row a query that fails is started again, before those that use it get nothing more.
        Where it fails as a step of it has raised, it goes on without that, and only those that use it get nothing more.
    join : bool, default True
        Whether new steps for which a query that runs has a stage come to be in that. Otherwise they always start as a
        query of their own, but for what takes the records of a source that is read already.
    max_queries : int, optional
        Where more run, such as read each other become one (``manager.defragment()``), no more of them than it takes;
        and when dataflows go, a query of which a shuffle, or half of the stages, is for nobody becomes a smaller one.
        By default both are left to the user.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: str | Path,
        *,
        trigger: str = "0.2 seconds",
        partitions: int | None = None,
        max_records: int | None = None,
        queue_bytes: int = 64 << 20,
        behind_bytes: int = 4 << 30,
        patience_s: float = 60.0,
        tries: int = 3,
        max_queries: int | None = None,
        join: bool = True,
    ) -> None:
        least = {"max_records": 1, "partitions": 1, "queue_bytes": 1, "behind_bytes": 1, "tries": 0, "max_queries": 1}
        given = max_records, partitions, queue_bytes, behind_bytes, tries, max_queries
        for name, number in zip(least, given, strict=True):
            if number is not None:
                check_count(name, number, least[name])
        every_s = interval_seconds(trigger)
        check_seconds("patience_s", patience_s)
        refuse_connect(is_connect(spark), "a SparkBackend")
        check_session(spark, keeps_state=True)
        self._spark = spark
        partitions = usual_partitions(spark) if partitions is None else partitions
        fuse: Literal["exact", "coarse"] = "coarse" if usual_fuse(partitions) == "coarse" else "exact"
        options = Options(partitions, max_records, queue_bytes, every_s)
        super().__init__(self._started, folder, options, fuse, behind_bytes, patience_s, tries, max_queries, join)

    @property
    def error(self) -> ConnectorError | None:
        """Set where its Spark is gone: nothing runs any more, and another one over the folder goes on."""
        return ConnectorError("Spark is gone, and all queries with it") if is_stopped(self._spark) else None

    def _started(self, fragment: Fragment, options: Options) -> Running:
        reader, processors, end = fragment.parts(options)
        spark, label = self._spark, f"riot_ops_{uuid.uuid4().hex}"
        with active(spark):
            spark.dataSource.register(packed_source(label, reader))
            frame = staged(spark, spark.readStream.format(label).load(), processors)
            spark.dataSource.register(packed_sink(label + "_end", end))
            writer = (
                frame.writeStream.format(label + "_end")
                .option("checkpointLocation", str(fragment.folder / "checkpoint"))
                .queryName(f"{fragment.name}-{label[-8:]}")
            )
            with settings_of_query(spark, {PARTITIONS: str(fragment.spec.partitions), **block_batches(spark)}):
                return _Query(writer.start())


class _Query:
    """A query of Spark's."""

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
        return None if error is None else cause_of(str(error))[1]
