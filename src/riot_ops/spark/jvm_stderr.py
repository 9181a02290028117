"""The JVM's standard error, without what Spark's helper of stateful stages tells of its own steps.

For each stateful stage of a query Spark starts a Python process that looks at the processor, and that prints half a
dozen lines which no setting turns off; the JVM hands them on. All else goes through as it comes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkConf

__all__ = ["Hush", "start_jvm"]

HELPER = b"Streaming TransformWithStateInPandas Python worker"
#: How its lines begin; an empty one follows each.
TOLD = (b"Starting " + HELPER, HELPER)

#: Seconds for what is still under way when Python ends.
DRAIN_SECONDS = 1.0


class Hush:
    r"""Takes the helper's lines out of bytes that come in pieces.

    >>> hush = Hush()
    >>> hush(b"Starting Streaming TransformWithStateInPandas Python worker.\n\nWARN: no space\nERR")
    b'WARN: no space\nERR'
    >>> hush(b"OR\n\nStreaming Transform"), hush(b"WithStateInPandas Python worker received parameters\n\nend\n")
    (b'OR\n\n', b'end\n')
    """

    def __init__(self) -> None:
        self.held = b""  # the beginning of a line that may be the helper's
        self._within = False  # whether the beginning of the line under way has been passed on
        self._empty = 0  # lines of the helper behind which the empty one has not come yet

    def __call__(self, data: bytes) -> bytes:
        """What is to be passed on by now."""
        *lines, rest = (self.held + data).split(b"\n")
        passed = [line + b"\n" for line in lines if not self._told(line)]
        if not self._within and any(told.startswith(rest[: len(told)]) for told in TOLD):
            self.held = rest
        else:
            self.held, self._within = b"", True
            passed.append(rest)
        return b"".join(passed)

    def _told(self, line: bytes) -> bool:
        if self._within:
            self._within = False
            return False
        if line.startswith(TOLD):
            self._empty += 1
            return True
        if not line and self._empty:
            self._empty -= 1
            return True
        return False


def start_jvm(conf: SparkConf) -> None:
    """Start the JVM of this process unless it runs, with its standard error through a :class:`Hush`."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:  # noqa: SLF001 (PySpark has no public word for it)
        return
    try:
        target = os.dup(2)
    except OSError:  # there is none
        return
    source, end = os.pipe()
    busy = threading.Lock()
    thread = threading.Thread(target=_pass_on, args=(source, target, busy), daemon=True, name="riot_ops-spark-stderr")
    thread.start()
    atexit.register(_drain, thread, source, busy)
    try:
        gateway = launch_gateway(conf, {"stderr": end})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(end)
        thread.join(DRAIN_SECONDS)  # why it did not start
        raise
    os.close(end)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001


def _pass_on(source: int, target: int, busy: threading.Lock) -> None:
    hush, data = Hush(), b"."
    while data:
        select.select([source], [], [])
        with busy:
            data = os.read(source, 1 << 16)
            left = hush(data) if data else hush.held
            with contextlib.suppress(OSError):  # the terminal is gone: the JVM must not wait for it
                while left:
                    left = left[os.write(target, left) :]


def _drain(thread: threading.Thread, source: int, busy: threading.Lock) -> None:
    """Wait until what the JVM has written is where it belongs; the thread ends with the process."""
    until = time.monotonic() + DRAIN_SECONDS
    while thread.is_alive() and time.monotonic() < until and select.select([source], [], [], 0)[0]:
        time.sleep(0.01)
    with busy:
        pass
