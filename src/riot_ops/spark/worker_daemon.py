"""The process that Spark forks its Python workers from, having read what each of them would read for itself.

Spark's own one reads nothing beforehand, as what is read might start threads, which do not live on in a fork. Arrow and
NumPy know of forks. The call of a kernel reads what numba leaves until then, half a second of work.

A worker collects garbage behind each of its tasks. What has been read here is none: it is taken out of the collector's
sight, as going through it takes longer than a small task, and would make copies of memory that the workers share.

A task that the JVM has given up leaves a worker with nobody to tell: Spark's prints the broken pipe, ours ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import socket

import numpy as np
import pandas as pd  # noqa: F401
from pyspark import daemon

from riot_ops.kernels.stats.latest import latest_rows
from riot_ops.spark import dataframe_transform as adapters  # noqa: F401
from riot_ops.spark import (
    source,  # noqa: F401
    stage,  # noqa: F401
)
from riot_ops.spark.worker_gc import settle

#: What Spark's workers read for a task with state.
OF_SPARK = ("pyspark.worker", "pyspark.sql.streaming.proto.StateMessage_pb2", "pyarrow.pandas_compat")

_of_spark = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Spark's worker for one task; 1, for a worker's end, where the JVM has hung up."""
    try:
        return _of_spark(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    latest_rows(np.zeros(1, np.int64), 1)
    for name in OF_SPARK:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    settle()
    daemon.manager()
