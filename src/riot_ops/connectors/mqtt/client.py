"""A connection to an MQTT broker, driven from the caller's own thread."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
import uuid
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import urlsplit

from riot_ops.connectors.mqtt.folder import folder_of
from riot_ops.connectors.retry import Failure, retrying
from riot_ops.core.errors import ConfigError, ConnectorError, MissingExtraError
from riot_ops.core.parameters import Count, Positive, check_parameters
from riot_ops.core.secret import Secret

__all__ = ["Link", "MqttConnection", "adjusted", "paho_client", "unique"]

#: Default port of each kind of URL.
PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
#: Broker inside this process, for tests: see :mod:`riot_ops.connectors.mqtt.memory`.
MEMORY = "memory"
#: Broker made of files, where there is no server: see :mod:`riot_ops.connectors.mqtt.folder`.
FOLDER = "file"

USERNAME = "RIOT_OPS_MQTT_USERNAME"
PASSWORD = "RIOT_OPS_MQTT_PASSWORD"  # noqa: S105 (the name of a variable)

#: Longest wait for one answer while connecting.
ANSWER_S = 10.0

#: Refusals that time may cure: the broker is unavailable, busy, shutting down, over a quota or a rate.
PASSING = {0x03, 0x80, 0x83, 0x88, 0x89, 0x8B, 0x97, 0x9F}
#: Another client has connected under the same name.
TAKEN_OVER = 0x8E
#: A connection that ends sooner is short; after so many short ones in a row it is no accident.
SHORT_S = 10.0
MOST_SHORT = 12
#: Pause after the first short connection, and at most.
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
#: Packets read at once before others get their turn.
MOST_PACKETS = 256


@dataclass(frozen=True, kw_only=True)
class MqttConnection:
    """Where a broker is, and how to log in there.

    Parameters
    ----------
    url : str
        ``mqtt://host:port``, ``mqtts://`` (TLS), ``ws://host:port/path`` or ``wss://`` (websockets;
        the path is ``/mqtt`` by default), without user and password. ``memory://name`` is a broker
        inside this process, for tests; ``file:///folder`` one made of files, which needs no server.
    username : str or None, default the environment variable RIOT_OPS_MQTT_USERNAME
    password : Secret or None, default the environment variable RIOT_OPS_MQTT_PASSWORD
    ca_file : str or None, default the system's authorities
        File with the certificates of the authorities to trust, for TLS.
    client_id : str or None
        Name at the broker. Where several processes publish, a random part is added: a broker ends
        the connection of the elder of two clients with one name.
    protocol : "5" or "3.1.1", default "5"
        Version of MQTT.
    keepalive_s : int, seconds, default 60
        Longest silence between client and broker.
    in_flight : int, >= 1, default 100
        Most messages on their way without an acknowledgement.
    timeout_s : float, seconds, default 60
        How long to try to reach the broker, or to wait for an acknowledgement, before giving up.
    """

    url: str
    username: str | None = None
    password: Secret | None = None
    ca_file: str | None = None
    client_id: str | None = None
    protocol: Literal["5", "3.1.1"] = "5"
    keepalive_s: Count = 60
    in_flight: Count = 100
    timeout_s: Positive = 60.0

    def __post_init__(self) -> None:
        check_parameters(self)
        self.validate()

    def validate(self) -> None:
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError:  # its text may show the URL, and the URL a password
            raise ConfigError("url is not a URL with a port between 1 and 65535") from None
        if "@" in parts.netloc:
            raise ConfigError(
                "url must not hold user or password, which would then stand in logs and descriptors; "
                f"give username= and password=Secret.env(...), or set {USERNAME} and {PASSWORD}"
            )
        if parts.scheme == FOLDER:
            folder_of(self.url)
        elif parts.scheme not in (*PORTS, MEMORY) or not parts.hostname:
            kind = f", got {parts.scheme}:…" if parts.scheme else ""  # more of it may be a password
            raise ConfigError(f"url must be {', '.join(f'{s}://host:port' for s in PORTS)}{kind}")
        elif (
            parts.query or parts.fragment or port == 0 or (parts.path.strip("/") and parts.scheme not in ("ws", "wss"))
        ):
            raise ConfigError(  # without its text, in which there may be a password
                "url must have no more than scheme, host and a port from 1 (ws: and a path), as mqtt://host:1883; "
                "a login is given as username= and password=Secret.env(...)"
            )
        if self.ca_file is not None and parts.scheme not in ("mqtts", "wss"):
            raise ConfigError(f"ca_file is for mqtts:// and wss://, got url {self.url!r}")
        if not 0 < self.in_flight <= 65_535:
            raise ConfigError(f"in_flight must be between 1 and 65535, got {self.in_flight}")
        if self.client_id == "":
            raise ConfigError("client_id must not be empty")

    @property
    def connection(self) -> MqttConnection:
        """The connection alone, of something that has one."""
        if type(self) is MqttConnection:
            return self
        return MqttConnection(**{f.name: getattr(self, f.name) for f in fields(MqttConnection)})

    @property
    def place(self) -> tuple[str, str, int, str]:
        """Scheme, host, port and path of the URL."""
        parts = urlsplit(self.url)
        return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0), parts.path or "/mqtt"

    @property
    def broker(self) -> str:
        """The URL in full: with the port that it has by default, the host in small letters."""
        scheme, host, port, path = self.place
        return f"{scheme}://{host}:{port}{path * (scheme in ('ws', 'wss'))}" if scheme in PORTS else self.url

    @property
    def login(self) -> tuple[str | None, str | None]:
        """User and password, from the parameters or else the environment."""
        secret = self.password or (Secret.env(PASSWORD) if os.environ.get(PASSWORD) else None)
        user = self.username or os.environ.get(USERNAME) or None
        return user, None if secret is None else secret.reveal()


def paho_client() -> Any:
    """The module ``paho.mqtt.client``."""
    try:
        from paho.mqtt import client
    except ImportError:
        raise MissingExtraError("MQTT", "mqtt") from None
    return client


class Link:
    """A paho client without a thread of its own: it reads and writes while :meth:`wait` is called.

    Subclasses set callbacks on :attr:`client` and override :meth:`connected`.

    Parameters
    ----------
    connection : MqttConnection
    client_id : str
    session_s : int
        How long the broker keeps the session of a client that is away; 0: not at all.
    stop : threading.Event, optional
        Ends the attempts to connect.
    client_type : type, optional
        Subclass of paho's ``Client``.
    """

    def __init__(
        self,
        connection: MqttConnection,
        client_id: str,
        session_s: int,
        stop: threading.Event | None = None,
        client_type: Any = None,
    ) -> None:
        paho = paho_client()
        self.connection = connection
        self.scheme, self._host, self._port, path = connection.place
        self._client_id = client_id
        self._session_s = session_s
        self._stop = stop or threading.Event()
        self._opened = False
        self._known = False  # whether the broker has ever answered
        self._began, self._short = 0.0, 0  # the last connection, and how many short ones there were
        self._taken_over = False
        self._answer: Any = None  # the broker's to CONNECT
        self.window = connection.in_flight
        self.largest: int | None = None  # packet that the broker takes
        five = connection.protocol == "5"
        self.five = five
        self.client = (client_type or paho.Client)(
            paho.CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=paho.MQTTv5 if five else paho.MQTTv311,
            clean_session=None if five else session_s == 0,
            transport="websockets" if self.scheme in ("ws", "wss") else "tcp",
            reconnect_on_failure=False,
        )
        self.client.max_inflight_messages_set(0)  # the window is kept here
        self.client.connect_timeout = min(ANSWER_S, connection.timeout_s)
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        if self.scheme in ("ws", "wss"):
            self.client.ws_set_options(path=path)
        if self.scheme in ("mqtts", "wss"):
            try:
                self.client.tls_set(ca_certs=connection.ca_file)
            except OSError as error:  # a missing file, or one without certificates
                raise ConnectorError(f"the CA file {connection.ca_file} cannot be used: {error}") from None
        user, password = connection.login
        if user is not None or password is not None:
            self.client.username_pw_set(user or "", password)
        self._user = user

    def connected(self, session_present: bool) -> None:
        """The broker has accepted a connection; called before anything else is sent or received."""

    def enough(self) -> bool:
        """Whether to read no more for the moment."""
        return False

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        return self.client.socket() is not None and self._answer is not None

    # -- connecting --------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, with growing pauses between attempts, until the time limit.

        Raises :class:`ConnectorError`; at once where waiting cannot help.
        """
        self._calm_down()
        until = time.monotonic() + self.connection.timeout_s
        retrying(
            f"the MQTT broker {self.connection.url}",
            lambda: self._connect(until),
            lambda error: Failure(str(error), error.retryable) if isinstance(error, ConnectorError) else None,
            self.connection.timeout_s,
            sleep=self._pause,
        )

    def _calm_down(self) -> None:
        """Pause where connections do not last, as when two clients of one name drive each other out."""
        if not self._known or time.monotonic() - self._began >= SHORT_S:
            self._short = 0
            return
        self._short += 1
        if self._short >= MOST_SHORT:
            raise ConnectorError(
                f"the MQTT broker {self.connection.url} has ended {self._short} connections soon after they began; "
                f"does another client use the client_id {self._client_id!r}?",
                retryable=True,
            )
        self._pause(min(FIRST_PAUSE_S * 2.0 ** (self._short - 1), LONGEST_PAUSE_S))

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise ConnectorError(f"the connection to {self.connection.url} is being closed", retryable=True)

    def _connect(self, until: float) -> None:
        self.drop()
        if self._taken_over:  # to come back would only drive the other one out
            raise ConnectorError(f"another client has connected as {self._client_id!r}; each needs its own client_id")
        try:
            if self._opened:
                self.client.reconnect()
            else:
                self.client.connect(self._host, self._port, self.connection.keepalive_s, **self._connect_options())
                self._opened = True
        except ssl.SSLCertVerificationError as error:
            hint = "" if self.connection.ca_file or "expired" in error.verify_message else "; see ca_file"
            raise ConnectorError(f"its certificate is not accepted: {error.verify_message}{hint}") from None
        except ssl.SSLError as error:
            raise ConnectorError(f"it does not speak TLS as expected: {error.reason or error}") from None
        except socket.gaierror:
            raise ConnectorError(f"the host {self._host!r} is unknown", retryable=self._known) from None
        except ConnectionRefusedError:
            raise ConnectorError("it refuses connections; is it running?", retryable=True) from None
        except OSError as error:
            raise ConnectorError(f"it cannot be reached: {error}", retryable=True) from None
        until = min(until, time.monotonic() + ANSWER_S)
        while self._answer is None:
            if self.client.socket() is None:
                raise ConnectorError("it closed the connection instead of answering", retryable=True)
            if time.monotonic() > until:
                raise ConnectorError("it does not answer", retryable=True)
            self.wait(0.1)
        if self._answer.is_failure:
            who = "without user" if self._user is None else f"of the user {self._user!r}"
            passing = self._answer.value in PASSING
            raise ConnectorError(f"it refuses the login {who}: {self._answer}", retryable=passing)
        self._known, self._began = True, time.monotonic()

    def _connect_options(self) -> dict[str, Any]:
        if not self.five:
            return {}
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = self._session_s
        properties.ReceiveMaximum = self.connection.in_flight
        # never a clean start: some brokers keep a session so opened in memory only
        return {"clean_start": self._session_s == 0, "properties": properties}

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._answer = reason
        if reason.is_failure:
            return
        self.window = min(self.connection.in_flight, getattr(properties, "ReceiveMaximum", 65_535))
        self.largest = getattr(properties, "MaximumPacketSize", None)
        self.connected(flags.session_present)

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._taken_over = flags.is_disconnect_packet_from_server and reason.value == TAKEN_OVER

    # -- reading and writing -----------------------------------------------------------------------

    def wait(self, seconds: float, most: int = MOST_PACKETS) -> None:
        """Wait until something can be read or written, and do it; returns early if so.

        Without a connection it returns at once.
        """
        client, sock = self.client, self.client.socket()
        if sock is None or sock.fileno() < 0:
            return
        poller = select.poll()  # select() fails from the 1024th file on
        poller.register(sock, select.POLLIN | (select.POLLOUT if client.want_write() else 0))
        buffered = getattr(sock, "pending", int)  # decrypted bytes, which poll does not see
        found = poller.poll(0 if buffered() else seconds * 1000)
        events = found[0][1] if found else 0
        if events & select.POLLOUT:
            client.loop_write()
            poller.modify(sock, select.POLLIN)
        readable = bool(events & ~select.POLLOUT) or buffered()
        while readable and most > 0 and not self.enough():
            client.loop_read()
            most -= 1
            readable = client.socket() is sock and (buffered() or poller.poll(0))
        client.loop_misc()

    def drop(self) -> None:
        """Close the socket without ceremony."""
        self._answer = None
        sock = self.client.socket()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()

    def close(self) -> None:
        """Say goodbye and close; what the broker keeps of the session, it keeps."""
        if self.up:
            self.client.disconnect()
            until = time.monotonic() + 1.0
            while self.client.socket() is not None and time.monotonic() < until:
                self.wait(0.05)
        self.drop()


def adjusted(name: str, methods: dict[str, Any]) -> Any:
    """A subclass of paho's ``Client`` with other methods, which it must have."""
    base = paho_client().Client
    for method in methods:
        if not hasattr(base, method):
            raise ConnectorError(f"this version of paho-mqtt has no {method}; pip install 'riot_ops[mqtt]'")
    return type(name, (base,), methods)


def unique(client_id: str | None) -> str:
    """A client id that no other process has."""
    return f"{client_id or 'riot_ops'}-{uuid.uuid4().hex[:12]}"
