"""A connection to an MQTT broker, driven by the thread of the caller."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import urlsplit

from riot_ops.connectors.mqtt.buffered_client import client_subclass, paho_client
from riot_ops.connectors.mqtt.folder import folder_of
from riot_ops.connectors.retry import Failure, retry
from riot_ops.connectors.tls import client_context
from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConfigError, ConnectorError, excerpt
from riot_ops.core.parameters import Count, Duration, as_timedelta, check_parameters
from riot_ops.core.secret import Secret

__all__ = ["MQTTConnection", "PahoLink", "unique_client_id", "whole_seconds"]

#: Default port of each URL scheme.
PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
#: Scheme of a broker inside this process, for tests: see :mod:`riot_ops.connectors.mqtt.memory`.
MEMORY = "memory"
#: Scheme of a broker made of files, which needs no server: see :mod:`riot_ops.connectors.mqtt.folder`.
FOLDER = "file"

#: Longest topic and longest will.
MAX_TEXT_BYTES = 65_535
#: Maximum of the seconds that the protocol has for the keep alive, and for the expiry of a message and a session.
MAX_KEEPALIVE_S = 65_535
MAX_EXPIRY_S = 2**32 - 1

USERNAME = "RIOT_OPS_MQTT_USERNAME"
PASSWORD = "RIOT_OPS_MQTT_PASSWORD"  # noqa: S105 (the name of a variable)

#: Timeout of one response while connecting.
RESPONSE_TIMEOUT_S = 10.0
#: Seconds between two looks at ``stop`` while connecting.
STOP_CHECK_S = 0.1
#: Longest wait for the broker to close the connection after DISCONNECT. Before that, it may still have acknowledgements
#: to read, which are lost if the client closes the socket with unread bytes, or connects again.
CLOSE_WAIT_S = 5.0

#: Reason codes of transient refusals: the broker is unavailable, busy, shutting down, over a quota or a rate.
TRANSIENT_CODES = {0x03, 0x80, 0x83, 0x88, 0x89, 0x8B, 0x97, 0x9F}
#: Reason code: another client has connected with the same client id.
TAKEN_OVER = 0x8E
#: A connection that ends within this time counts as short; this many short ones in a row raise an error.
SHORT_CONNECTION_S = 10.0
MAX_SHORT_CONNECTIONS = 12
#: Pause after the first short connection, and maximum pause.
FIRST_PAUSE_S = 0.05
MAX_PAUSE_S = 1.0
#: Maximum number of packets read in one call of :meth:`PahoLink.wait`.
MAX_PACKETS = 256
#: Minimum time between two log messages about connections of a client after the first one.
LOG_SECONDS = 10.0

_LOG = logging.getLogger(__name__)


def whole_seconds(name: str, value: Duration, maximum: int = MAX_EXPIRY_S) -> int:
    """Return the seconds of a duration that the protocol sends as a number.

    >>> whole_seconds("keepalive", "1min", 65_535)
    60
    >>> whole_seconds("keepalive", "500ms", 65_535)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: keepalive must be a whole number of seconds from '1s' to '65535s', got '0.5s'
    """
    seconds, rest = divmod(as_timedelta(value), timedelta(seconds=1))
    if rest or not 1 <= seconds <= maximum:
        given = as_timedelta(value).total_seconds()
        raise ConfigError(f"{name} must be a whole number of seconds from '1s' to '{maximum}s', got '{given:g}s'")
    return seconds


@dataclass(frozen=True, kw_only=True)
class MQTTConnection:
    """The address of a broker, and how to log in.

    Parameters
    ----------
    url : str
        ``mqtt://host:port``, ``mqtts://`` (TLS), ``ws://host:port/path`` or ``wss://`` (websockets; the default path is
        ``/mqtt``), without user and password. ``memory://name`` is a broker inside this process, for tests;
        ``file:///folder`` is a broker made of files, which needs no server.
    username : str or None, default the environment variable RIOT_OPS_MQTT_USERNAME
    password : Secret or None, default the environment variable RIOT_OPS_MQTT_PASSWORD
    ca_file : str or None, default the system's authorities
        File with the certificates of trusted authorities, for TLS.
    certificate : str or None
        File with the client's certificate (PEM, with those of intermediate authorities), for brokers that identify
        clients by certificates.
    private_key : str or None, default the file of the certificate
        File with the private key of the certificate, without a passphrase. It is read where the connection is opened,
        on Spark also in the workers.
    will_topic : str or None
        Topic of the will: the message that the broker publishes once the connection ends without a disconnect.
    will_payload : str, default ""
        The will's message.
    will_qos : 0, 1 or 2, default 1
    will_retain : bool, default False
        Whether the broker keeps the will for later subscribers.
    client_id : str or None
        Name of the client at the broker. Publishers add a random part to it, since a broker closes the older one of two
        connections with the same id.
    protocol : "5" or "3.1.1", default "5"
        Version of MQTT.
    keepalive : timedelta or text such as "10s", default 1 minute
        Maximum time, in whole seconds up to 65,535, without a packet between client and broker.
    max_in_flight : int, >= 1, default 100
        Maximum number of unacknowledged messages.
    timeout : timedelta or text such as "10s", default 1 minute
        How long to try to reach the broker, and how long to wait for an acknowledgement.
    """

    url: str
    username: str | None = None
    password: Secret | None = None
    ca_file: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    will_topic: str | None = None
    will_payload: str = ""
    will_qos: Literal[0, 1, 2] = 1
    will_retain: bool = False
    client_id: str | None = None
    protocol: Literal["5", "3.1.1"] = "5"
    keepalive: Duration = timedelta(minutes=1)
    max_in_flight: Count = 100
    timeout: Duration = timedelta(minutes=1)

    def __post_init__(self) -> None:
        check_parameters(self)
        self.validate()

    def validate(self) -> None:
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError:  # its text may show the URL, which may contain a password
            raise ConfigError("url is not a URL with a port between 1 and 65535") from None
        if "@" in parts.netloc:
            raise ConfigError(
                "url must not hold user or password, which would then appear in logs and descriptors; "
                f"give username= and password=Secret.env(...), or set {USERNAME} and {PASSWORD}"
            )
        if parts.scheme == FOLDER:
            folder_of(self.url)
        elif parts.scheme not in (*PORTS, MEMORY) or not parts.hostname:
            kind = f", got {parts.scheme}:…" if parts.scheme else ""  # the rest may be a password
            raise ConfigError(f"url must be {', '.join(f'{s}://host:port' for s in PORTS)}{kind}")
        elif (
            parts.query or parts.fragment or port == 0 or (parts.path.strip("/") and parts.scheme not in ("ws", "wss"))
        ):
            raise ConfigError(  # does not show the URL, which may contain a password
                "url must have only scheme, host and a port from 1 (ws: and a path), as mqtt://host:1883; "
                "give a login as username= and password=Secret.env(...)"
            )
        for option in ("ca_file", "certificate", "private_key"):
            if getattr(self, option) is not None and parts.scheme not in ("mqtts", "wss"):
                raise ConfigError(f"{option} is for mqtts:// and wss://, got url {self.url!r}")
        if self.private_key is not None and self.certificate is None:
            raise ConfigError(
                f"private_key = {self.private_key!r} needs certificate, the file with the client's certificate"
            )
        self._check_will(parts.scheme)
        if not 0 < self.max_in_flight <= 65_535:
            raise ConfigError(f"max_in_flight must be between 1 and 65535, got {self.max_in_flight}")
        if self.client_id == "":
            raise ConfigError("client_id must not be empty")
        whole_seconds("keepalive", self.keepalive, MAX_KEEPALIVE_S)
        duration_seconds("timeout", self.timeout)

    def _check_will(self, scheme: str) -> None:
        if self.will_topic is None:
            for option in ("will_payload", "will_qos", "will_retain"):
                if (value := getattr(self, option)) != getattr(MQTTConnection, option):
                    raise ConfigError(f"{option} = {value!r} needs will_topic, the topic of the will")
            return
        if scheme not in PORTS:
            raise ConfigError(f"will_topic is for brokers with connections, such as mqtt://, got url {self.url!r}")
        if not self.will_topic or set(self.will_topic) & set("+#\0") or len(self.will_topic.encode()) > MAX_TEXT_BYTES:
            raise ConfigError(
                "will_topic must be the name of a topic, of at most 65,535 bytes, without '+', '#' and NUL, "
                f"got {excerpt(self.will_topic, 100)!r}"
            )
        if len(self.will_payload.encode()) > MAX_TEXT_BYTES:
            raise ConfigError("will_payload must have at most 65,535 bytes")

    @property
    def timeout_seconds(self) -> float:
        return as_timedelta(self.timeout).total_seconds()

    @property
    def connection(self) -> MQTTConnection:
        """The connection alone, for a subclass with more parameters."""
        if type(self) is MQTTConnection:
            return self
        return MQTTConnection(**{f.name: getattr(self, f.name) for f in fields(MQTTConnection)})

    @property
    def address(self) -> tuple[str, str, int, str]:
        """Scheme, host, port and path of the URL."""
        parts = urlsplit(self.url)
        return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0), parts.path or "/mqtt"

    @property
    def broker(self) -> str:
        """The normalised URL: with the default port, and the host in lower case."""
        scheme, host, port, path = self.address
        return f"{scheme}://{host}:{port}{path * (scheme in ('ws', 'wss'))}" if scheme in PORTS else self.url

    @property
    def credentials(self) -> tuple[str | None, str | None]:
        """User and password, from the parameters or otherwise from the environment."""
        secret = self.password or (Secret.env(PASSWORD) if os.environ.get(PASSWORD) else None)
        user = self.username or os.environ.get(USERNAME) or None
        return user, None if secret is None else secret.reveal()


class PahoLink:
    """A connection through paho's client without its thread: it reads and writes in calls of :meth:`wait`.

    Subclasses set callbacks on :attr:`client` and override :meth:`connected`.

    Parameters
    ----------
    connection : MQTTConnection
    client_id : str
    session_s : int
        How long the broker keeps the session of a disconnected client; 0: not at all.
    stop : threading.Event, optional
        Setting it ends the attempts to connect.
    client_type : type, optional
        A :func:`~riot_ops.connectors.mqtt.buffered_client.client_subclass`.
    """

    def __init__(
        self,
        connection: MQTTConnection,
        client_id: str,
        session_s: int,
        stop: threading.Event | None = None,
        client_type: Any = None,
    ) -> None:
        paho = paho_client()
        self.connection = connection
        self.scheme, self._host, self._port, path = connection.address
        self._client_id = client_id
        self._session_s = session_s
        self._stop = stop or threading.Event()
        self._opened = False
        self._reached = False  # whether the broker has ever accepted a connection
        self._connected_at, self._short = 0.0, 0  # of the last connection, and the number of short ones in a row
        self._first_short_at = 0.0  # when the first of these began
        self._taken_over = self._closing = False
        self._lost_at: float | None = None
        self._logged_at = -LOG_SECONDS
        self._response: Any = None  # the broker's reason code of CONNACK
        self.window = connection.max_in_flight
        self.numbers_subscriptions = False  # whether the broker names the subscriptions of each message
        self.max_packet: int | None = None  # bytes of a packet that the broker accepts
        is_v5 = connection.protocol == "5"
        self.is_v5 = is_v5
        self.client = (client_type or client_subclass("LinkClient", {}))(
            paho.CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=paho.MQTTv5 if is_v5 else paho.MQTTv311,
            clean_session=None if is_v5 else session_s == 0,
            transport="websockets" if self.scheme in ("ws", "wss") else "tcp",
            reconnect_on_failure=False,
        )
        self.client.max_inflight_messages_set(0)  # this class limits the window
        self.client.connect_timeout = min(RESPONSE_TIMEOUT_S, connection.timeout_seconds)
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        if self.scheme in ("ws", "wss"):
            self.client.ws_set_options(path=path)
        if self.scheme in ("mqtts", "wss"):
            self.client.tls_set_context(
                client_context(connection.ca_file, connection.certificate, connection.private_key)
            )
        if connection.will_topic is not None:
            self.client.will_set(
                connection.will_topic, connection.will_payload, connection.will_qos, connection.will_retain
            )
        user, password = connection.credentials
        if user is not None or password is not None:
            self.client.username_pw_set(user or "", password)
        self._user = user
        self._wake_pair: tuple[socket.socket, socket.socket] | None = None

    def connected(self, session_present: bool) -> None:
        """Handle a new connection; called before any other packet is sent or received."""

    def is_full(self) -> bool:
        """Whether to stop reading for now."""
        return False

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self.client.socket() is not None and self._response is not None

    # -- connecting --------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, with growing pauses between attempts, until the time limit.

        Raises :class:`ConnectorError`; immediately if the error is permanent.
        """
        self._back_off()
        until = time.monotonic() + self.connection.timeout_seconds
        retry(
            f"the MQTT broker {self.connection.url}",
            lambda: self._connect(until),
            lambda error: Failure(str(error), error.retryable) if isinstance(error, ConnectorError) else None,
            self.connection.timeout_seconds,
            sleep=self._pause,
        )

    def _back_off(self) -> None:
        """Pause after short connections, as when two clients with the same id displace each other."""
        if not self._reached or time.monotonic() - self._connected_at >= SHORT_CONNECTION_S:
            self._short = 0
            return
        self._short += 1
        if self._short == 1:
            self._first_short_at = self._connected_at
        if self._short >= MAX_SHORT_CONNECTIONS:
            raise ConnectorError(
                f"the MQTT broker {self.connection.url} has ended {self._short} connections soon after they began; "
                f"does another client use the client_id {self._client_id!r}?",
                retryable=True,
            )
        self._pause(min(FIRST_PAUSE_S * 2.0 ** (self._short - 1), MAX_PAUSE_S))

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise ConnectorError(f"the connection to {self.connection.url} is being closed", retryable=True)

    def _connect(self, until: float) -> None:
        self.drop()
        if self._taken_over:  # connecting again would displace the other client
            raise ConnectorError(f"another client has connected as {self._client_id!r}; each needs its own client_id")
        try:
            self._interruptible(self._open_socket)
        except ssl.SSLCertVerificationError as error:
            hint = "" if self.connection.ca_file or "expired" in error.verify_message else "; see ca_file"
            raise ConnectorError(f"its certificate is not accepted: {error.verify_message}{hint}") from None
        except ssl.SSLError as error:
            raise ConnectorError(f"it does not speak TLS as expected: {error.reason or error}") from None
        except socket.gaierror:
            raise ConnectorError(f"the host {self._host!r} is unknown; check url", retryable=self._reached) from None
        except ConnectionRefusedError:
            raise ConnectorError("it refuses connections; is it running?", retryable=True) from None
        except OSError as error:
            raise ConnectorError(f"it cannot be reached: {error}; check url", retryable=True) from None
        until = min(until, time.monotonic() + RESPONSE_TIMEOUT_S)
        while self._response is None:
            if self.client.socket() is None:
                hint = ""
                if self.scheme in ("mqtts", "wss"):
                    given = self.connection.certificate is not None
                    hint = "; does it accept the certificate?" if given else "; does it want a certificate?"
                raise ConnectorError(f"it closed the connection instead of answering{hint}", retryable=True)
            if time.monotonic() > until:
                raise ConnectorError("it does not answer; is it an MQTT broker? check url", retryable=True)
            if self._stop.is_set():
                raise ConnectorError("the connection is being closed", retryable=True)
            self.wait(STOP_CHECK_S)
        if self._response.is_failure:
            user = "without user" if self._user is None else f"of the user {self._user!r}"
            transient = self._response.value in TRANSIENT_CODES
            hint = "" if transient else "; check username and password"
            raise ConnectorError(f"it refuses the login {user}: {self._response}{hint}", retryable=transient)
        self._reached, self._connected_at = True, time.monotonic()

    def _open_socket(self) -> None:
        if self._opened:
            self.client.reconnect()
            return
        self.client.connect(
            self._host,
            self._port,
            whole_seconds("keepalive", self.connection.keepalive, MAX_KEEPALIVE_S),
            **self._connect_options(),
        )
        self._opened = True

    def _interruptible(self, call: Callable[[], None]) -> None:
        """Run a call that blocks in a thread of its own, so that ``stop`` and Ctrl-C end the wait for it.

        Looking up a name, connecting, and the handshakes of TLS and websockets wait in paho for up to the timeout of a
        response each. A connection that comes after the wait has ended is closed.
        """
        lock, done = threading.Lock(), threading.Event()
        failures: list[Exception] = []
        is_abandoned = False

        def run() -> None:
            try:
                call()
            except Exception as error:
                failures.append(error)
            with lock:
                done.set()
                if is_abandoned:
                    self.drop()

        threading.Thread(target=run, daemon=True, name=f"riot_ops-mqtt-connect-{self._client_id}").start()
        try:
            while not done.wait(STOP_CHECK_S):
                if self._stop.is_set():
                    raise ConnectorError("the connection is being closed", retryable=True)
        except BaseException:
            with lock:
                is_abandoned = True
                if done.is_set():
                    self.drop()
            raise
        if failures:
            raise failures[0]

    def _connect_options(self) -> dict[str, Any]:
        if not self.is_v5:
            return {}
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = self._session_s
        properties.ReceiveMaximum = self.connection.max_in_flight
        # no clean start for lasting sessions: some brokers would keep them in memory only
        return {"clean_start": self._session_s == 0, "properties": properties}

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._response = reason
        if reason.is_failure:
            return
        self.window = min(self.connection.max_in_flight, getattr(properties, "ReceiveMaximum", 65_535))
        self.max_packet = getattr(properties, "MaximumPacketSize", None)
        self.numbers_subscriptions = self.is_v5 and bool(getattr(properties, "SubscriptionIdentifierAvailable", 1))
        self._log_connection()
        self.connected(flags.session_present)

    def _log_connection(self) -> None:
        """Say that there is a connection: the first one, and of later ones at most one in 10 s."""
        now = time.monotonic()
        if self._lost_at is None:
            _LOG.info("connected to the MQTT broker %s as %r", self.connection.url, self._client_id)
        elif now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            _LOG.info(
                "connected again to the MQTT broker %s as %r, %.1f s after the connection was lost",
                self.connection.url, self._client_id, now - self._lost_at,
            )  # fmt: skip

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._taken_over = flags.is_disconnect_packet_from_server and reason.value == TAKEN_OVER
        if not self._closing:
            self._lost_at = time.monotonic()

    # -- reading and writing -----------------------------------------------------------------------

    def enable_wake(self) -> None:
        """Allow :meth:`wake`, until :meth:`close`."""
        self._wake_pair = socket.socketpair()
        for one in self._wake_pair:
            one.setblocking(False)

    def wake(self) -> None:
        """End the wait in :meth:`wait`, or the next one; may be called from any thread."""
        if self._wake_pair is not None:
            with contextlib.suppress(OSError):  # it is full, which wakes as well, or closed
                self._wake_pair[1].send(b"1")

    def wait(self, seconds: float, max_packets: int = MAX_PACKETS) -> None:
        """Wait until the socket is readable or writable, then read and write.

        Returns immediately without a connection, and after :meth:`wake`.
        """
        client, sock = self.client, self.client.socket()
        if sock is None or sock.fileno() < 0:
            return
        poller = select.poll()  # select() fails from the 1024th file on
        poller.register(sock, select.POLLIN | (select.POLLOUT if client.want_write() else 0))
        woken = None if self._wake_pair is None else self._wake_pair[0]
        if woken is not None:
            poller.register(woken, select.POLLIN)
        unread = client.unread  # which poll does not see
        found = dict(poller.poll(0 if unread() else seconds * 1000))
        events = found.get(sock.fileno(), 0)
        if woken is not None:
            if woken.fileno() in found:
                woken.recv(4096)
            poller.unregister(woken)
        if events & select.POLLOUT:
            client.loop_write()
            poller.modify(sock, select.POLLIN)
        readable = bool(events & ~select.POLLOUT) or unread()
        while readable and max_packets > 0 and not self.is_full():
            client.loop_read()
            max_packets -= 1
            readable = client.socket() is sock and (unread() or poller.poll(0))
        client.loop_misc()

    def drop(self) -> None:
        """Close the socket without DISCONNECT."""
        self._response = None
        sock = self.client.socket()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()

    def close(self) -> None:
        """Disconnect and close; the broker keeps the session as agreed."""
        self._closing = True
        if self.is_connected:
            until = time.monotonic() + CLOSE_WAIT_S
            # paho closes its socket once it has sent DISCONNECT: a second descriptor keeps the connection open
            with socket.socket(fileno=os.dup(self.client.socket().fileno())) as kept:
                self.client.disconnect()
                while self.client.socket() is not None and time.monotonic() < until:
                    self.wait(0.05)
                if self.scheme in ("ws", "wss"):  # where brokers leave it to the client to end the connection
                    with contextlib.suppress(OSError):
                        kept.shutdown(socket.SHUT_WR)
                _read_to_end(kept, until)
        self.drop()
        if self._wake_pair is not None:
            for one in self._wake_pair:
                one.close()
            self._wake_pair = None


def _read_to_end(sock: socket.socket, until: float) -> None:
    """Drop what arrives until the other side closes the connection, or until a time of the monotonic clock."""
    with contextlib.suppress(OSError):  # also a timeout
        while (left := until - time.monotonic()) > 0:
            sock.settimeout(left)
            if not sock.recv(65_536):
                return


def unique_client_id(client_id: str | None) -> str:
    """Add a random part to a client id, so that no other process has it."""
    return f"{client_id or 'riot_ops'}-{uuid.uuid4().hex[:12]}"
