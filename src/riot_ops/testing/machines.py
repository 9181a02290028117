"""Machines for tests: groups of processes with folders, and where root runs them a network, of their own."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from riot_ops.core.errors import ConnectorError

__all__ = ["Machine", "Network", "can_isolate_folders", "can_isolate_networks", "remove_abandoned"]

#: Environment variable of all processes of a machine: by it they are found, whoever started them.
MARK = "RIOT_OPS_MACHINE"
#: Folders that the processes of all programs write to, which a machine has for itself.
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (they are hidden, not used)
ENDING_SECONDS, ORPHAN_SECONDS = 10.0, 0.5
#: Numbers of the networks of this process.
_NUMBERS = itertools.count()


@functools.cache
def can_isolate_folders() -> bool:
    """Whether this system has mount namespaces for processes."""
    return _succeeds([*_unshare(), "mount", "-t", "tmpfs", "none", "/mnt"])


@functools.cache
def can_isolate_networks() -> bool:
    """Whether this process may make network namespaces with ``ip``: it runs as root, and the kernel lets it."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"riot-try-{os.getpid()}"
    made = _succeeds(["ip", "netns", "add", name]) and _succeeds(["ip", "netns", "exec", name, "true"])
    return _succeeds(["ip", "netns", "del", name]) and made


def _unshare() -> list[str]:
    return ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-mr"]


def _succeeds(command: Sequence[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode:
        raise ConnectorError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """A bridge on this computer, to which each machine is connected from a network namespace of its own.

    Attributes
    ----------
    host : str
        Address of this computer in the network.
    """

    def __init__(self) -> None:
        _remove_networks()
        self._bridge = f"riot{os.getpid()}b{next(_NUMBERS)}"
        used = _ip("-4", "-o", "addr")
        parts = [n for n in range(1, 255) if f" 10.211.{n}." not in used]
        self._prefix = f"10.211.{random.choice(parts)}"  # noqa: S311
        self.host = f"{self._prefix}.1"
        self._spaces: list[str] = []
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self.host}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
        except ConnectorError:
            self.close()
            raise

    def connect(self, name: str) -> tuple[str, str]:
        """Make a namespace that is connected to the bridge; returns its name and its address."""
        number = len(self._spaces) + 1
        space, address = f"riot-{os.getpid()}-{self._prefix.rpartition('.')[2]}-{name}", f"{self._prefix}.{10 + number}"
        outer, inner = f"{self._bridge[4:]}v{number}", "eth0"
        _ip("netns", "add", space)
        self._spaces.append(space)
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", space)
        _ip("link", "set", outer, "master", self._bridge, "up")
        _ip("-n", space, "addr", "add", f"{address}/24", "dev", inner)
        _ip("-n", space, "link", "set", inner, "up")
        _ip("-n", space, "link", "set", "lo", "up")
        return space, address

    def close(self) -> None:
        """Remove bridge and namespaces; may be called twice."""
        spaces, self._spaces = self._spaces, []
        for command in (*(["netns", "del", space] for space in spaces), ["link", "del", self._bridge]):
            with contextlib.suppress(ConnectorError):
                _ip(*command)


def remove_abandoned(prefix: str) -> None:
    """End the processes of machines whose names have a prefix, and remove namespaces and bridges of ended processes."""
    while found := _marked(prefix, "", begins=True):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    if can_isolate_networks():
        _remove_networks()


def _remove_networks() -> None:
    """Remove namespaces and bridges of processes that were killed."""
    for line in _ip("netns", "list").splitlines():
        found = re.match(r"riot-(\d+)-\S+", line)
        if found and not Path("/proc", found[1]).exists():
            with contextlib.suppress(ConnectorError):
                _ip("netns", "del", found[0])
    for found in re.finditer(r"\briot(\d+)b\d+(?=:)", _ip("-o", "link", "show", "type", "bridge")):
        if not Path("/proc", found[1]).exists():
            with contextlib.suppress(ConnectorError):
                _ip("link", "del", found[0])


class Machine:
    """A group of processes that share folders and an address, as on a computer of their own.

    Its processes do not see what others put into the temporary folders of this computer, nor the ``hidden`` folders;
    the Python environment, Java and the program files of this computer are the same for all. riot_ops is installed as
    a copy in the machine's own folder. Where the system has no mount namespaces, only the paths are separate.

    Parameters
    ----------
    name : str
        Unique on this computer, as processes are found by it.
    folder : Path
        The machine's own folder.
    hidden : sequence of Path
        Folders of others.
    shared : sequence of Path
        Folders within hidden ones that stay visible, as a volume that several machines have mounted.
    installed : bool, default True
        Whether the machine has a copy of riot_ops in its folder.
    network : Network, optional
        By default the machine has the loopback network of this computer.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        hidden: Iterable[Path] = (),
        shared: Iterable[Path] = (),
        installed: bool = True,
        network: Network | None = None,
    ) -> None:
        self.name = name
        self._shared = [*shared]
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self._space, self.host = ("", "127.0.0.1") if network is None else network.connect(name)
        for part in ("tmp", "cache", "work"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        if installed:
            self._install()
        self._hidden = [*dict.fromkeys([*map(Path, TEMPORARY), Path(tempfile.gettempdir()), *hidden])]

    def _install(self) -> None:
        package = Path(__file__).resolve().parents[1]
        target = self.folder / "site" / package.name
        if not target.exists():
            shutil.copytree(package, target, ignore=shutil.ignore_patterns("__pycache__"))

    def environment(self) -> dict[str, str]:
        """Return the environment of its processes."""
        folders = {
            "TMPDIR": self.folder / "tmp",
            "XDG_CACHE_HOME": self.folder / "cache",
            "SPARK_LOCAL_DIRS": self.folder / "tmp",
            "SPARK_WORKER_DIR": self.folder / "work",
            "PYTHONPATH": self.folder / "site",
        }
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
        return kept | {name: str(path) for name, path in folders.items()} | {MARK: self.name}

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start a process in the machine; ``log`` gets its output."""
        wrapped = list(command)
        if can_isolate_folders():
            script = self.folder / "enter.sh"
            script.write_text(self._script(environment), encoding="utf-8")
            wrapped = [*_unshare(), "bash", str(script), *wrapped]
        if self._space:
            wrapped = ["ip", "netns", "exec", self._space, *wrapped]
        if shutil.which("setpriv"):  # do not outlive a test process that is killed
            wrapped = ["setpriv", "--pdeathsig", "KILL", *wrapped]
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603
                wrapped,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment() | dict(environment),
                cwd=self.folder,
            )
        self.processes.append(process)
        return process

    def _script(self, environment: Mapping[str, str]) -> str:
        """Return the commands that hide folders; the last one becomes the process."""
        kept = [
            self.folder,
            *self._shared,
            Path(sys.prefix),
            Path(sys.base_prefix),
            Path(sys.executable).resolve().parents[1],
        ]
        kept += [Path(environment[name]) for name in ("JAVA_HOME", "SPARK_HOME") if name in environment]
        lines = ["set -e"]
        hidden = [folder for folder in self._hidden if folder.is_dir()]
        views: list[tuple[str, str]] = []
        # the views are made before the first folder is hidden, and lie where nothing is
        lines += ["mount -t tmpfs none /mnt"]
        for number, folder in enumerate(hidden):
            view = f"/mnt/{number}"
            lines += [f"mkdir -m 1777 {view}"]
            for one in dict.fromkeys(kept):
                if folder in one.parents:
                    inner = shlex.quote(f"{view}/{one.relative_to(folder)}")
                    lines += [f"mkdir -p {inner}", f"mount --rbind {shlex.quote(str(one))} {inner}"]
            views.append((view, shlex.quote(str(folder))))
        # outer folders first: an inner one is then in the view of the outer, if it is there at all
        for view, folder_name in sorted(views, key=lambda pair: pair[1].count("/")):
            lines += [f"[ ! -d {folder_name} ] || mount --rbind {view} {folder_name}"]
        return "\n".join([*lines, 'cd "$TMPDIR"', 'exec "$@"', ""])

    def pids(self, word: str = "") -> list[int]:
        """Return the processes of the machine whose command line contains a word."""
        return _marked(self.name, word)

    def kill(self, word: str = "") -> int:
        """Kill the processes whose command line contains a word, at once; returns how many."""
        found = self.pids(word)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reap()
        return len(found)

    def stop(self) -> None:
        """End all processes in an orderly way, and kill those that stay; may be called twice."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + ENDING_SECONDS
        while time.monotonic() < until and self.pids():
            self._reap()
            if not self.processes:  # those that they started may end a little later
                until = min(until, time.monotonic() + ORPHAN_SECONDS)
            time.sleep(0.05)
        while self.kill():  # until the system has removed them
            time.sleep(0.01)

    def _reap(self) -> None:
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
        self.processes = [process for process in self.processes if process.poll() is None]


def _marked(name: str, word: str, *, begins: bool = False) -> list[int]:
    found, mark = [], f"{MARK}={name}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            texts = (entry / "environ").read_bytes().split(b"\0")
            if not any(text.startswith(mark) if begins else text == mark for text in texts):
                continue
            line = (entry / "cmdline").read_bytes()
            if line and word.encode() in line:  # an ended process has none
                found.append(int(entry.name))
    return found
