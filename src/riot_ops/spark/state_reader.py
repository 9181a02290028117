"""Reads state from checkpoints: of a query through Spark's state data source, or of a local run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from riot_ops.core.errors import ConfigError, StateError, excerpt
from riot_ops.core.paths import as_uri, local_path, scheme_of
from riot_ops.runtime.checkpoint import Checkpoint
from riot_ops.runtime.snapshot import unpack_snapshot
from riot_ops.runtime.state_table import concat_tables, read_checkpoint_state, state_of_step, state_table
from riot_ops.spark.locations import current_generation, generation_folder, server_path
from riot_ops.spark.session_check import is_connect
from riot_ops.spark.stage import ENDED_SOURCES, HEAD_KEY, NOTES_KEY, OWNER_BUCKET, Head, Link
from riot_ops.spark.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["has_own_state", "read_buckets", "read_notes", "read_state"]

#: Snapshots of each step in a part of the state, in order.
Snapshots = dict[str, list[bytes]]


def read_state(checkpoint: str | Path, step: str, spark: SparkSession | None = None) -> pa.Table | DataFrame:
    """Read the state of a step as of the last committed micro-batch or epoch.

    Parameters
    ----------
    checkpoint : path or URI
        Of ``flow.start``, ``flow.frames``, ``transform``, a ``stateful_processor``, or of a local run.
    step : str
        The step's id in its dataflow; for ``transform`` and ``stateful_processor`` the task's name.
    spark : SparkSession, optional
        Makes the result a DataFrame. The state of a query on Spark always needs a session: by default the active one.

    Returns
    -------
    pyarrow.Table or DataFrame
        One row per key, with the fields of the key and of the state, see
        :func:`riot_ops.runtime.state_table.state_table`. A task with one state for all keys has a row per
        bucket.

    Raises
    ------
    StateError
        If there is no checkpoint, or it is damaged.
    KeyError
        If the step is unknown or has no state.
    ConfigError
        If a session is needed and there is none.

    Examples
    --------
    >>> import riot_ops as ro
    >>> from tempfile import TemporaryDirectory
    >>> flow = ro.Dataflow("smooth")
    >>> readings = flow.source("readings", schema={"device": "string", "value": "double"})
    >>> _ = flow.sink("out", readings.key_by("device").apply(ro.tasks.MovingAverage(window=2), id="mean"))
    >>> rows = [{"device": "a", "value": 1.0}, {"device": "a", "value": 3.0}, {"device": "b", "value": 9.0}]
    >>> with TemporaryDirectory() as folder:
    ...     _ = flow.start(spark, rows, checkpoint=folder).wait()
    ...     state = read_state(folder, "mean", spark)
    ...     sorted(row.device for row in state.collect())
    ['a', 'b']
    """
    local = local_path(checkpoint) if scheme_of(checkpoint) in ("", "file") else None
    if local is not None and Checkpoint(local).exists():
        table = read_checkpoint_state(local, step)
    else:
        session = spark or SparkSession.getActiveSession()
        if session is None:
            raise ConfigError("the state of a query on Spark is read by Spark: read_state(…, spark=) needs a session")
        table = _of_query(session, server_path(checkpoint) if is_connect(session) else as_uri(checkpoint), step)
    if spark is None:
        return table
    schema = pa.schema([f.with_type(spark_type(f.type)) for f in table.schema])
    return spark.createDataFrame(table.cast(schema))


def _of_query(spark: SparkSession, folder: str, step: str) -> pa.Table:
    folder = generation_folder(folder, current_generation(spark, folder))
    parts: dict[str, list[list[bytes]]] = {}
    for number, variable in _operators(spark, folder):
        for snapshots in _snapshots(_rows(spark, folder, number, variable), variable, folder):
            for name, data in snapshots.items():
                parts.setdefault(name, []).append(data)
    found = state_of_step(parts, step, folder)
    return concat_tables(state_table(data, f" of step {step!r}") for data in found)


def read_buckets(spark: SparkSession, folder: str) -> dict[str, dict[int, list[bytes]]]:
    """Return the snapshots of each step by bucket, as of the last committed micro-batch of a query's checkpoint."""
    _refuse_other_state(spark, folder)
    found: dict[str, dict[int, list[bytes]]] = {}
    for number, variable in _operators(spark, folder):
        for bucket, snapshots in _bucket_snapshots(_rows(spark, folder, number, variable), folder):
            for step, data in snapshots.items():
                found.setdefault(step, {})[bucket] = data
    return found


def read_notes(spark: SparkSession, folder: str) -> tuple[dict[str, Any], bytes] | None:
    """Return owner and notes in the state of a query that the user started; None if it has none."""
    for number, variable in _own_operators(spark, folder):
        if variable == "chain":
            own = {at: bytes(data) for bucket, at, data in _rows(spark, folder, number, variable) if bucket < 0}
            if NOTES_KEY[0] in own:
                return json.loads(own[HEAD_KEY[0]]), own[NOTES_KEY[0]]
    return None


def _refuse_other_state(spark: SparkSession, folder: str) -> None:
    """Raise :class:`StateError` if operators that are not ours keep state in the checkpoint of a query."""
    try:
        rows = spark.read.format("state-metadata").load(folder).select("operatorName", "operatorProperties").collect()
    except Exception as error:  # of PySpark or of Py4J
        raise _unreadable(folder, error) from None
    if other := sorted({name for name, text in rows if not _variables(text)}):
        raise StateError(
            f"the checkpoint {folder} has state of Spark's own operators ({', '.join(other)}), which cannot be moved: "
            "start the changed query with a new checkpoint, or write the stream first and do the rest in another query"
        )


def _variables(text: str | None) -> set[str]:
    """Return the names of our state variables in the properties of an operator."""
    return {v["stateName"] for v in json.loads(text or "{}").get("stateVariables", ())} & {"chain", "state"}


def _operators(spark: SparkSession, folder: str) -> list[tuple[int, str]]:
    """Return the numbers of our operators in a query with the names of their state variables; it must have some."""
    found = _own_operators(spark, folder)
    if not found:
        raise StateError(f"{folder} is no checkpoint of a query with state of this library's tasks")
    return found


def _own_operators(spark: SparkSession, folder: str) -> list[tuple[int, str]]:
    try:
        rows = spark.read.format("state-metadata").load(folder).select("operatorId", "operatorProperties").collect()
    except Exception as error:  # of PySpark or of Py4J
        raise _unreadable(folder, error) from None
    return sorted({(number, name) for number, text in rows for name in _variables(text)})


def has_own_state(spark: SparkSession, folder: str) -> bool:
    """Whether a query, in whose checkpoint there is state, has some of this library's tasks."""
    return bool(_own_operators(spark, folder))


def _rows(spark: SparkSession, folder: str, operator: int, variable: str) -> list[tuple[Any, ...]]:
    """Return bucket, generation and data of each entry; only the data of state by key."""
    picked = ("key.bucket", "user_map_key.generation", "user_map_value.data")
    try:
        state = spark.read.format("statestore").option("operatorId", operator).option("stateVarName", variable)
        found = state.load(folder).select(*(picked if variable == "chain" else ("value.data",)))
        return [tuple(row) for row in found.collect()]
    except Exception as error:  # of PySpark or of Py4J
        raise _unreadable(folder, error) from None


def _snapshots(rows: list[tuple[Any, ...]], variable: str, folder: str) -> Iterable[Snapshots]:
    """Yield the snapshots of each bucket, or of each key."""
    if variable == "state":
        for (data,) in rows:
            yield {unpack_snapshot(bytes(data))[0]["task"]: [bytes(data)]}
        return
    for _, snapshots in _bucket_snapshots(rows, folder):
        yield snapshots


def _bucket_snapshots(rows: list[tuple[Any, ...]], folder: str) -> Iterable[tuple[int, Snapshots]]:
    """Yield the buckets of a query with their snapshots."""
    buckets: dict[int, dict[int, bytes]] = {}
    for bucket, generation, data in rows:
        buckets.setdefault(bucket, {})[generation] = bytes(data)
    for bucket, stored in sorted(buckets.items()):
        if bucket != OWNER_BUCKET:
            yield bucket, chain_snapshots(stored, f"the state of bucket {bucket} in {folder} is damaged")


def chain_snapshots(stored: dict[int, bytes], damaged: str) -> Snapshots:
    """Return the snapshots in the links of a bucket's chain."""
    found: Snapshots = {}
    try:
        head = msgspec.msgpack.decode(stored[HEAD_KEY[0]], type=Head)
        token = None
        for generation in range(head.base, head.generation + 1):
            link = msgspec.msgpack.decode(stored[generation], type=Link)
            if token not in (None, link.previous):
                raise StateError(f"{damaged}: link {generation} is not of the chain")
            token = link.token
            for name, data in link.states.items():
                if name != ENDED_SOURCES:
                    found.setdefault(name, []).append(data)
    except (KeyError, msgspec.MsgspecError) as error:
        raise StateError(
            f"{damaged}: {error if isinstance(error, msgspec.MsgspecError) else 'a link is missing'}"
        ) from None
    if token != head.token:
        raise StateError(f"{damaged}: its newest link is not the last written one")
    return found


def _unreadable(folder: str, error: Exception) -> StateError:
    first = next(iter(str(getattr(error, "java_exception", error)).splitlines()), type(error).__name__)
    return StateError(f"{folder} is no checkpoint that Spark can read the state of: {excerpt(first)}")
