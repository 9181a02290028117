"""Reads state from checkpoints: of a query on Spark by Spark's own source of state, or of a run in process."""

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
from riot_ops.runtime.state_table import of_step, saved_state, stacked, state_table
from riot_ops.spark.stage import ENDED, HEAD, OWNERS, Head, Link
from riot_ops.spark.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["read_state"]

#: Snapshots of the steps in a part of the state, in order.
Snapshots = dict[str, list[bytes]]


def read_state(checkpoint: str | Path, step: str, spark: SparkSession | None = None) -> pa.Table | DataFrame:
    """The state of a step as of the last micro-batch, or epoch, that was committed.

    Parameters
    ----------
    checkpoint : path or URI
        Of ``flow.start``, ``flow.frames``, ``transform``, a ``stateful_processor``, or of a run in process.
    step : str
        The step's id in its dataflow; of ``transform`` and ``stateful_processor`` the task's name.
    spark : SparkSession, optional
        Makes the result a DataFrame. State of a query on Spark needs a session in any case: by default the active one.

    Returns
    -------
    pyarrow.Table or DataFrame
        One row per key, with the fields of the key and of the state, see
        :func:`riot_ops.runtime.state_table.state_table`. Where a task has one state for all keys, it is a row per
        bucket.

    Raises
    ------
    StateError
        Where there is no checkpoint, or it is damaged.
    KeyError
        Where the step is none of those with state.
    ConfigError
        Without a session.
    """
    local = local_path(checkpoint) if scheme_of(checkpoint) in ("", "file") else None
    if local is not None and Checkpoint(local).holds_something():
        table = saved_state(local, step)
    else:
        session = spark or SparkSession.getActiveSession()
        if session is None:
            raise ConfigError("the state of a query on Spark is read by Spark: read_state(…, spark=) needs a session")
        table = _of_query(session, as_uri(checkpoint), step)
    if spark is None:
        return table
    schema = pa.schema([f.with_type(spark_type(f.type)) for f in table.schema])
    return spark.createDataFrame(table.cast(schema))


def _of_query(spark: SparkSession, folder: str, step: str) -> pa.Table:
    parts: dict[str, list[list[bytes]]] = {}
    for number, variable in _operators(spark, folder):
        for snapshots in _snapshots(_rows(spark, folder, number, variable), variable, folder):
            for name, data in snapshots.items():
                parts.setdefault(name, []).append(data)
    found = of_step(parts, step, folder)
    return stacked(state_table(data, f" of step {step!r}") for data in found)


def _operators(spark: SparkSession, folder: str) -> list[tuple[int, str]]:
    """The numbers of our operators in a query, and the names of their variables."""
    try:
        rows = spark.read.format("state-metadata").load(folder).select("operatorId", "operatorProperties").collect()
    except Exception as error:  # in the classes of PySpark, or of what it talks to Java with
        raise _unreadable(folder, error) from None
    found = set()
    for number, text in rows:
        variables = {v["stateName"] for v in json.loads(text or "{}").get("stateVariables", ())}
        found |= {(number, name) for name in variables & {"chain", "state"}}
    if not found:
        raise StateError(f"{folder} is no checkpoint of a query with state of this library's tasks")
    return sorted(found)


def _rows(spark: SparkSession, folder: str, operator: int, variable: str) -> list[tuple[Any, ...]]:
    """Bucket, generation and data; of state key by key the data alone."""
    picked = ("key.bucket", "user_map_key.generation", "user_map_value.data")
    try:
        state = spark.read.format("statestore").option("operatorId", operator).option("stateVarName", variable)
        found = state.load(folder).select(*(picked if variable == "chain" else ("value.data",)))
        return [tuple(row) for row in found.collect()]
    except Exception as error:  # in the classes of PySpark, or of what it talks to Java with
        raise _unreadable(folder, error) from None


def _snapshots(rows: list[tuple[Any, ...]], variable: str, folder: str) -> Iterable[Snapshots]:
    """The snapshots of each bucket, or of each key."""
    if variable == "state":
        for (data,) in rows:
            yield {unpack_snapshot(bytes(data))[0]["task"]: [bytes(data)]}
        return
    buckets: dict[int, dict[int, bytes]] = {}
    for bucket, generation, data in rows:
        buckets.setdefault(bucket, {})[generation] = bytes(data)
    for bucket, stored in sorted(buckets.items()):
        if bucket != OWNERS:
            yield _chained(stored, f"the state of bucket {bucket} in {folder} is damaged")


def _chained(stored: dict[int, bytes], damaged: str) -> Snapshots:
    """The snapshots in the links of a bucket's chain."""
    found: Snapshots = {}
    try:
        head = msgspec.msgpack.decode(stored[HEAD[0]], type=Head)
        token = None
        for generation in range(head.base, head.generation + 1):
            link = msgspec.msgpack.decode(stored[generation], type=Link)
            if token not in (None, link.previous):
                raise StateError(f"{damaged}: link {generation} is not of the chain")
            token = link.token
            for name, data in link.states.items():
                if name != ENDED:
                    found.setdefault(name, []).append(data)
    except (KeyError, msgspec.MsgspecError) as error:
        raise StateError(
            f"{damaged}: {error if isinstance(error, msgspec.MsgspecError) else 'a link is missing'}"
        ) from None
    if token != head.token:
        raise StateError(f"{damaged}: its newest link is not the one that was written last")
    return found


def _unreadable(folder: str, error: Exception) -> StateError:
    first = next(iter(str(getattr(error, "java_exception", error)).splitlines()), type(error).__name__)
    return StateError(f"{folder} is no checkpoint that Spark can read the state of: {excerpt(first)}")
