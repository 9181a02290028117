"""The process from which Spark forks its Python workers, with the modules imported that each of them needs.

Spark's own daemon imports nothing in advance, as an import might start threads, which do not survive a fork. Arrow and
NumPy handle forks. Calling a kernel loads the rest of numba, which takes half a second.

A worker collects garbage after each of its tasks. The objects of these modules are not garbage: they are frozen, as
traversing them takes longer than a small task, and would copy memory pages that the workers share.

A task that the JVM has given up leaves a worker whose socket is closed: Spark's worker prints the broken pipe, ours
ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import socket

import numpy as np
import pandas as pd  # noqa: F401
from pyspark import daemon

from riot_ops.kernels.arrays.latest_rows import latest_rows
from riot_ops.kernels.changeover import compile_immediately
from riot_ops.spark import dataframe_transform as adapters  # noqa: F401
from riot_ops.spark import (
    source,  # noqa: F401
    stage,  # noqa: F401
)
from riot_ops.spark.worker_gc import freeze_once

#: Modules that Spark's workers import for a task with state.
OF_SPARK = ("pyspark.worker", "pyspark.sql.streaming.proto.StateMessage_pb2", "pyarrow.pandas_compat")

_of_spark = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run Spark's worker for one task; returns 1, which ends the worker, if the JVM has closed the connection."""
    try:
        return _of_spark(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    compile_immediately()
    latest_rows(np.zeros(1, np.int64), 1)
    for name in OF_SPARK:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    freeze_once()
    daemon.manager()
