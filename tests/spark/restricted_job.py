"""A dataflow on a platform that permits little: ``restricted_job.py <folder>``.

It starts a Spark Connect server of its own, whose workers come from Spark's daemon and have no cache that can be
written. The client may set nothing, and start queries with one trigger only.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from riot_ops.ingest.memory_source import MemorySource
from riot_ops.spark import features
from riot_ops.spark.session_check import PROVIDER, ROCKSDB
from tests.spark.connect_job import ROWS, dataflow, read, restricted, values


def caches(batches):
    """Return where a worker keeps machine code, and how the process began from which it was forked."""
    import os

    from riot_ops.kernels.code_cache import cache_root

    for _ in batches:
        pass
    begun = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode()
    yield pa.RecordBatch.from_pydict({"cache": [str(cache_root())], "daemon": [begun]})


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    from riot_ops.spark import configure

    builder = SparkSession.builder.remote("local[2]").config(PROVIDER, ROCKSDB)  # which the platform has set
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    (found,) = spark.range(0, 1, 1, 1).mapInArrow(caches, "cache string, daemon string").collect()
    assert not found.cache.startswith("/dev/null"), found
    assert "pyspark.daemon" in found.daemon and "riot_ops" not in found.daemon.replace("\0", " "), found

    wanted = dataflow().run(ROWS)
    where = {"out": folder / "out", "checkpoint": folder / "checkpoint"}
    with restricted(spark, allowed=()) as refused:
        configure(spark)
        for rows in (ROWS[:24], ROWS):
            query = dataflow().start(spark, MemorySource(rows), max_records=10, memory="small", **where)
            query.wait("5min")
    assert PROVIDER in refused and len({*refused}) >= 3, refused
    for name in ("smooth", "mean"):
        assert read(where["out"], name) == values(wanted[name].to_pylist()), name
    spark.stop()


if __name__ == "__main__":
    assert features.READ_LIMITS, "with the only trigger our sources need Spark 4.2"
    main(Path(sys.argv[1]))
