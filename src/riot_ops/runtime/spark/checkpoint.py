"""What riot_ops keeps beside Spark's own checkpoint: a manifest of the dataflow that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riot_ops.dataflow import Dataflow
from riot_ops.errors import StateError
from riot_ops.plan import Plan, plan
from riot_ops.state import task_identity
from riot_ops.task import KeyedTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ends", "exists", "forget", "next_batch", "open_checkpoint"]

MANIFEST = "riot_ops.json"
FORMAT = 1
FEW_PARTITIONS = 4


class Manifest(msgspec.Struct):
    """What must agree for a checkpoint to be continued; ``state`` by step."""

    format: int
    flow: str
    partitions: int
    order: str
    fuse: str
    state: dict[str, dict[str, Any]]


def exists(spark: SparkSession, folder: str) -> bool:
    """Whether there is a checkpoint of riot_ops in a folder."""
    system, path = _hadoop(spark, f"{folder}/{MANIFEST}")
    return bool(system.exists(path))


def open_checkpoint(
    spark: SparkSession, folder: str, flow: Dataflow, partitions: int | None, order: str, fuse: str
) -> tuple[Plan, int]:
    """Check that a checkpoint is this dataflow's own, or make it so; the plan and the number of partitions."""
    found = _read(spark, folder) if exists(spark, folder) else None
    if fuse == "auto" and found is not None:
        fuse = found.fuse
    if partitions is None:
        usual = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
        partitions = usual if found is None else found.partitions
    if fuse == "auto":
        fuse = "coarse" if partitions <= FEW_PARTITIONS else "exact"
    stages = plan(flow, fuse=fuse)  # type: ignore[arg-type]
    state = {
        s.id: task_identity(s.operator) | {"key": list(s.key), "stage": stage.index}
        for stage in stages.stages[1:]
        for s in stage.steps
        if isinstance(s.operator, KeyedTask)
    }
    now = Manifest(FORMAT, stages.flow.name, partitions, order, fuse, state)
    if found is None:
        _write(spark, folder, now)
    else:
        _check(folder, found, now)
    return stages, partitions


def _check(folder: str, then: Manifest, now: Manifest) -> None:
    for name in ("partitions", "order", "fuse"):
        old, new = getattr(then, name), getattr(now, name)
        if old != new:
            raise StateError(
                f"the checkpoint {folder} was written with {name}={old!r} and cannot be continued with {new!r}; "
                "use the old value or a new checkpoint"
            )
    for step in sorted({*then.state, *now.state}):
        old, new = then.state.get(step), now.state.get(step)
        if old != new:
            raise StateError(
                f"the checkpoint {folder} holds other state for step {step!r}: {_difference(old, new)}; "
                "use the old dataflow or a new checkpoint"
            )


def _difference(then: dict[str, Any] | None, now: dict[str, Any] | None) -> str:
    if then is None or now is None:
        return "it has none" if then is None else "the dataflow has no such step"
    a = {**then, **then["parameters"]}
    b = {**now, **now["parameters"]}
    return "; ".join(
        f"{n} was {a.get(n)!r} and is {b.get(n)!r}"
        for n in sorted({*a, *b})
        if n != "parameters" and a.get(n) != b.get(n)
    )


def next_batch(spark: SparkSession, folder: str) -> int:
    """The number of the micro-batch that a query continues with."""
    system, path = _hadoop(spark, f"{folder}/commits")
    names = [entry.getPath().getName() for entry in system.listStatus(path)] if system.exists(path) else []
    return max((int(name) for name in names if name.isdigit()), default=-1) + 1


def forget(spark: SparkSession, folder: str) -> None:
    """Remove what a query left that has committed nothing: what it was to do first, and with which settings.

    Otherwise Spark would take those up again, even if they were why it failed. Where sources began stays noted.
    """
    for name in ("offsets", "state", MANIFEST):
        system, path = _hadoop(spark, f"{folder}/{name}")
        system.delete(path, True)


def ends(spark: SparkSession, folder: str, batch: int) -> list[str]:
    """Where a micro-batch ends in each source, from Spark's log, whose first two lines tell of other things."""
    return _text(spark, f"{folder}/offsets/{batch}").splitlines()[2:]


# -- the file, wherever Spark keeps its checkpoints ------------------------------------------------


def _read(spark: SparkSession, folder: str) -> Manifest:
    try:
        found = msgspec.json.decode(_text(spark, f"{folder}/{MANIFEST}"), type=Manifest)
    except msgspec.MsgspecError as error:
        raise StateError(f"the manifest {folder}/{MANIFEST} is damaged: {error}; use a new checkpoint") from None
    if found.format != FORMAT:
        raise StateError(
            f"the checkpoint {folder} has format {found.format}, this version reads {FORMAT}; use a new checkpoint"
        )
    return found


def _write(spark: SparkSession, folder: str, manifest: Manifest) -> None:
    """Write a file under another name and rename it, so that there is none that is not whole."""
    system, path = _hadoop(spark, f"{folder}/{MANIFEST}")
    _, hidden = _hadoop(spark, f"{folder}/.{MANIFEST}")
    stream = system.create(hidden, True)
    try:
        stream.write(bytearray(msgspec.json.format(msgspec.json.encode(manifest))))
    finally:
        stream.close()
    if not system.rename(hidden, path):
        raise StateError(f"cannot write the manifest {folder}/{MANIFEST}")


def _text(spark: SparkSession, path: str) -> str:
    system, where = _hadoop(spark, path)
    stream = system.open(where)
    try:
        return bytes(stream.readAllBytes()).decode("utf-8")
    finally:
        stream.close()


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm  # noqa: SLF001 (PySpark offers no file API of its own)
    where = jvm.org.apache.hadoop.fs.Path(path)
    return where.getFileSystem(spark._jsc.hadoopConfiguration()), where  # noqa: SLF001
