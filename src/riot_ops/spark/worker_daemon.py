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

from pyspark import daemon

from riot_ops.spark.worker_gc import freeze_once

#: Modules of this library that workers import, and those that Spark's workers import for a task with state.
OWN = ("riot_ops.spark.dataframe_transform", "riot_ops.spark.source", "riot_ops.spark.stage")
OF_SPARK = ("pandas", "pyspark.worker", "pyspark.sql.streaming.proto.StateMessage_pb2", "pyarrow.pandas_compat")

_of_spark = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run Spark's worker for one task; returns 1, which ends the worker, if the JVM has closed the connection."""
    try:
        return _of_spark(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


def import_modules() -> None:
    """Import what workers need, with the compiler, and freeze it."""
    gc.disable()  # looking for garbage takes an eighth of the time of imports, which leave hardly any
    import numpy as np

    from riot_ops.kernels.arrays.latest_rows import latest_rows
    from riot_ops.kernels.changeover import compile_immediately

    for name in OWN:
        importlib.import_module(name)
    compile_immediately()
    latest_rows(np.zeros(1, np.int64), 1)
    for name in OF_SPARK:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    freeze_once()
    gc.enable()


if __name__ == "__main__":
    daemon.worker = worker
    import_modules()
    daemon.manager()
