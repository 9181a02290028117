"""A connection to Kafka brokers: its parameters, the settings of librdkafka, and its errors in words."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConfigError, ConnectorError, MissingExtraError, excerpt, value_text
from riot_ops.core.parameters import OWN_CHECK, Duration, Names, as_names, as_timedelta, check_parameters
from riot_ops.core.secret import Secret

__all__ = ["Client", "ErrorLog", "KafkaConnection", "confluent_kafka", "connector_error"]

USERNAME = "RIOT_OPS_KAFKA_USERNAME"
PASSWORD = "RIOT_OPS_KAFKA_PASSWORD"  # noqa: S105 (the name of a variable)

#: Settings of librdkafka that parameters make, with these.
OWN_OPTIONS = {
    "bootstrap.servers": "servers",
    "metadata.broker.list": "servers",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "ssl.ca.location": "ca_file",
    "ssl.certificate.location": "certificate",
    "ssl.key.location": "private_key",
    "client.id": "client_id",
    "logger": "the logging of Python",
}
#: Settings whose values must be secrets.
SECRET_OPTION = re.compile(r"(password|secret|oauthbearer\.config|\.pem|jaas.*|private\.key\S*|assertion\S*|token)$")
LOGIN_IN_ADDRESS = re.compile(r"//[^/@\s]*:[^/@\s]*@")
#: How brokers answer a client without a certificate, or with one that they do not accept.
REFUSED_CERTIFICATE = re.compile(r"SSL routines:.*alert (\w+ )*(certificate|unknown ca|decrypt error|access denied)\b")
FILES_REMEDY = (
    "check ca_file, certificate and private_key (PEM), that the two belong together, and ssl.key.password in "
    "client_options"
)
SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@,\[\]]+):(\d{1,5})")

_LOG = logging.getLogger(__name__)


def confluent_kafka() -> Any:
    """Import confluent-kafka."""
    try:
        import confluent_kafka as module
        import confluent_kafka.admin
    except ImportError:
        raise MissingExtraError("Kafka", "kafka") from None
    return module


@dataclass(frozen=True, kw_only=True)
class KafkaConnection:
    """The addresses of brokers, and how to log in.

    Parameters
    ----------
    servers : tuple of str
        ``host:port`` of one broker or more; the others are found through these.
    security_protocol : "plaintext", "ssl", "sasl_plaintext" or "sasl_ssl", default "plaintext"
        Whether connections use TLS (``ssl``) and a login (``sasl``).
    sasl_mechanism : "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER" or "GSSAPI", or None
        How to log in; by default PLAIN.
    username : str or None, default the environment variable RIOT_OPS_KAFKA_USERNAME
    password : Secret or None, default the environment variable RIOT_OPS_KAFKA_PASSWORD
    ca_file : str or None, default the system's authorities
        File with the certificates of trusted authorities, for TLS.
    certificate : str or None
        File with the client's certificate (PEM), for brokers that identify clients by certificates.
    private_key : str or None, default the file of the certificate
        File with the private key of the certificate.
    client_id : str, default "riot_ops"
        Name of the client in the logs and quotas of the brokers.
    timeout : timedelta or text such as "10s", default 1 minute
        How long to wait for an answer of the brokers.
    client_options : mapping of str to str, number, bool or Secret, default {}
        Further settings of librdkafka, such as ``{"fetch.min.bytes": 100_000}``; those that a parameter makes are
        refused. Passwords, tokens and keys must be secrets.
    """

    servers: Names
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] | None = None
    username: str | None = None
    password: Secret | None = None
    ca_file: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    client_id: str = "riot_ops"
    timeout: Duration = timedelta(minutes=1)
    client_options: Annotated[Mapping[str, Any], OWN_CHECK] = field(default_factory=dict, hash=False)

    #: Settings that further parameters of a subclass make.
    own_options: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        check_parameters(self)
        self.validate()

    def validate(self) -> None:
        name = type(self).__name__
        if not self.servers:
            raise ConfigError(f"{name}: servers must not be empty; give 'host:port' of a broker")
        for server in as_names(self.servers):
            found = SERVER.fullmatch(server)
            if found is None or not 0 < int(found[2]) < 65_536:
                # what stands before an @ may be a password
                shown = "a text with '@'" if "@" in server else repr(excerpt(server, 100))
                raise ConfigError(f"{name}: servers must be 'host:port' each, as 'localhost:9092', got {shown}")
        tls, sasl = self.security_protocol.endswith("ssl"), self.security_protocol.startswith("sasl")
        for option in ("ca_file", "certificate", "private_key"):
            if getattr(self, option) is not None and not tls:
                raise ConfigError(
                    f"{name}: {option} needs security_protocol 'ssl' or 'sasl_ssl', got {self.security_protocol!r}"
                )
        for option in ("sasl_mechanism", "username", "password"):
            if getattr(self, option) is not None and not sasl:
                raise ConfigError(
                    f"{name}: {option} needs security_protocol 'sasl_ssl' or 'sasl_plaintext', "
                    f"got {self.security_protocol!r}"
                )
        if self.private_key is not None and self.certificate is None:
            raise ConfigError(
                f"{name}: private_key = {self.private_key!r} needs certificate, the file with the client's certificate"
            )
        if not self.client_id:
            raise ConfigError(f"{name}: client_id must not be empty")
        duration_seconds("timeout", self.timeout)
        self._check_options()

    def _check_options(self) -> None:
        name, given = type(self).__name__, self.client_options
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise ConfigError(f"{name}: client_options must be a mapping of names to values, got {value_text(given)}")
        for key, value in given.items():
            if parameter := (OWN_OPTIONS | dict(self.own_options)).get(key):
                raise ConfigError(f"{name}: client_options must not hold {key!r}, which {parameter} makes")
            if SECRET_OPTION.search(key) or (isinstance(value, str) and LOGIN_IN_ADDRESS.search(value)):
                if not isinstance(value, Secret):
                    raise ConfigError(f"{name}: client_options[{key!r}] must be a Secret, such as Secret.env('NAME')")
            elif not isinstance(value, str | int | float | Secret):
                raise ConfigError(
                    f"{name}: client_options[{key!r}] must be a text, a number, a bool or a Secret, "
                    f"got {value_text(value)}"
                )
        if given:
            self._try_options()

    def _try_options(self) -> None:
        """Raise if librdkafka does not know an option, or not its value."""
        try:
            module = confluent_kafka()
        except MissingExtraError:
            return  # the workers may have it
        options = {key: value for key, value in self.client_options.items() if not isinstance(value, Secret)}
        try:
            self._try_client(module, {"bootstrap.servers": "localhost:1", "log_level": 0, **options})
        except module.KafkaException as error:
            text = error.args[0].str() if error.args else str(error)
            raise ConfigError(f"{type(self).__name__}: client_options: {text}") from None
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{type(self).__name__}: client_options: {error}") from None

    def _try_client(self, module: Any, settings: Mapping[str, Any]) -> None:
        module.admin.AdminClient(dict(settings))

    @property
    def timeout_seconds(self) -> float:
        return as_timedelta(self.timeout).total_seconds()

    @property
    def address(self) -> str:
        """The servers as one text."""
        return ",".join(as_names(self.servers))

    def settings(self) -> dict[str, Any]:
        """Return the settings of librdkafka for a client, secrets included."""
        found: dict[str, Any] = {
            "bootstrap.servers": self.address,
            "security.protocol": self.security_protocol,
            "client.id": self.client_id,
            "socket.connection.setup.timeout.ms": int(max(1.0, min(self.timeout_seconds, 30.0)) * 1000),
            "reconnect.backoff.max.ms": 1000,
        }
        if self.security_protocol.startswith("sasl"):
            username = os.environ.get(USERNAME) if self.username is None else self.username
            password = os.environ.get(PASSWORD) if self.password is None else self.password.reveal()
            found["sasl.mechanism"] = self.sasl_mechanism or "PLAIN"
            if found["sasl.mechanism"] in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") and not (username and password):
                raise ConfigError(
                    f"the login at {self.address} needs username= and password=Secret.env(...), or the environment "
                    f"variables {USERNAME} and {PASSWORD}"
                )
            found |= {key: v for key, v in (("sasl.username", username), ("sasl.password", password)) if v is not None}
        files = {"ssl.ca.location": self.ca_file, "ssl.certificate.location": self.certificate,
                 "ssl.key.location": self.private_key or self.certificate}  # fmt: skip
        found |= {key: path for key, path in files.items() if path is not None}
        return found | {k: v.reveal() if isinstance(v, Secret) else v for k, v in self.client_options.items()}

    def key(self) -> tuple[Any, ...]:
        """Return what clients with equal settings have in common, to share them in a process."""
        return tuple(sorted((name, str(value)) for name, value in self.settings().items()))

    def client(self, make: Any, settings: Mapping[str, Any] | None = None) -> Client:
        """Create a client of confluent-kafka by a function, such as its class ``Consumer``."""
        module, log = confluent_kafka(), ErrorLog()
        for option in ("ca_file", "certificate", "private_key"):
            path = getattr(self, option)
            if path is not None and not os.access(path, os.R_OK):
                raise ConnectorError(f"Kafka at {self.address}: {option} = {path!r} cannot be read")
        given = {"error_cb": log.add, "log_level": 3, **self.settings(), **(settings or {})}
        try:
            return Client(make(given, logger=_QuietLog()), log, self)
        except module.KafkaException as error:  # a file that cannot be read, for instance
            text = error.args[0].str()
            remedy = f"; {FILES_REMEDY}" if "ssl." in text or "SSL" in text else ""
            raise ConnectorError(f"no client of Kafka at {self.address}: {text}{remedy}") from None

    def literal_secrets(self) -> bool:
        """Whether a secret is given by its value."""
        values = [getattr(self, f.name) for f in fields(self)] + list(self.client_options.values())
        return any(isinstance(value, Secret) and value.variable is None for value in values)


class _QuietLog:
    """What librdkafka logs, for those who look for it: lost connections, for example, which it opens again."""

    def log(self, level: int, text: str, *arguments: object) -> None:
        _LOG.debug(text, *arguments)


class Client:
    """A client of confluent-kafka, with the errors of its connections.

    A forked child has none of the threads of librdkafka, and would wait for them for ever when it destroys a client
    of its parent: it never does.
    """

    def __init__(self, raw: Any, log: ErrorLog, connection: KafkaConnection) -> None:
        self.raw, self.log, self.connection = raw, log, connection
        _CLIENTS.add(self)

    def error(self, what: str, error: Exception | Any) -> ConnectorError:
        """Return a ``KafkaException`` or ``KafkaError`` as :class:`ConnectorError`."""
        cause = error.args[0] if isinstance(error, Exception) else error
        return connector_error(self.connection, what, cause, self.log)


_CLIENTS: weakref.WeakSet[Client] = weakref.WeakSet()


def _in_child() -> None:
    for client in list(_CLIENTS):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client.raw))  # a reference that never ends
    _CLIENTS.clear()


os.register_at_fork(after_in_child=_in_child)


class ErrorLog:
    """The last error of each kind that librdkafka has reported for the connections of a client."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def add(self, error: Any) -> None:
        """Note an error; librdkafka calls it."""
        # a broker refuses a client's certificate after the client's side of the handshake: as a lost connection
        name = "_SSL" if REFUSED_CERTIFICATE.search(error.str()) else error.name()
        self._found[name] = error

    def cause(self, error: Any) -> str:
        """Return the name of the error that helps most to find what is wrong."""
        if (fatal := self.fatal()) is not None:
            return "_SSL" if fatal is self._found.get("_SSL") else str(fatal.name())
        return "_RESOLVE" if "_RESOLVE" in self._found else str(error.name())

    @property
    def is_down(self) -> bool:
        """Whether all brokers were out of reach, at some time since :meth:`clear`."""
        return "_ALL_BROKERS_DOWN" in self._found

    def clear(self) -> None:
        """Forget all errors."""
        self._found.clear()

    def fatal(self) -> Any:
        """Return an error that does not go away by waiting: a refused login or certificate."""
        return next((self._found[name] for name in ("_AUTHENTICATION", "_SSL") if name in self._found), None)

    def text(self) -> str:
        """Return the errors in words."""
        lasting = {name: e for name, e in self._found.items() if name != "_ALL_BROKERS_DOWN"} or self._found
        return "; ".join(clean(error.str()) for error in lasting.values())


def clean(text: str) -> str:
    """Return a message of librdkafka without the name of its thread and without times.

    >>> clean("sasl_ssl://a:9092/bootstrap: Connect to a:9092 failed: Connection refused (after 0ms in state CONNECT)")
    'Connect to a:9092 failed: Connection refused'
    """
    text = re.sub(r" \((?:after [^()]*|[^()]*times? repeated[^()]*)\)|, \d+ identical error\(s\) suppressed", "", text)
    return re.sub(r"^(?:\w+://)?\S+/(?:bootstrap|\d+): ", "", text).strip()


REMEDIES = {
    "_AUTHENTICATION": "check username, password and sasl_mechanism",
    "SASL_AUTHENTICATION_FAILED": "check username, password and sasl_mechanism",
    "_SSL": "check ca_file, certificate and private_key, and that the broker talks TLS, with a certificate that is for "
    "this host, has not expired and is of an authority in ca_file",
    "_RESOLVE": "check the names of the servers",
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or check its name",
    "_UNKNOWN_TOPIC": "create the topic, or check its name",
    "_UNKNOWN_PARTITION": "check the number of the topic's partitions",
    "TOPIC_AUTHORIZATION_FAILED": "give the user access to the topic",
    "GROUP_AUTHORIZATION_FAILED": "give the user access to the group",
    "CLUSTER_AUTHORIZATION_FAILED": "give the user the right of idempotent writing",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "give the user access to the transactional_id",
    "_TIMED_OUT": "is the broker running, and does it talk the security_protocol?",
    "_TRANSPORT": "is the broker running, and does it talk the security_protocol?",
    "_ALL_BROKERS_DOWN": "is the broker running, and does it talk the security_protocol?",
    "_MSG_TIMED_OUT": "is the broker running?",
    "MSG_SIZE_TOO_LARGE": "raise message.max.bytes in client_options and max.message.bytes of the topic",
    "_FENCED": "another run writes with this transactional_id; each needs its own",
    "PRODUCER_FENCED": "another run writes with this transactional_id; each needs its own",
    "INVALID_PRODUCER_EPOCH": "another run writes with this transactional_id; each needs its own",
}


def connector_error(connection: KafkaConnection, what: str, error: Any, log: ErrorLog | None = None) -> ConnectorError:
    """Return an error of Kafka as :class:`ConnectorError`, with the address and a remedy.

    Parameters
    ----------
    connection : KafkaConnection
    what : str
        What was tried, such as ``"the topics cannot be listed"``.
    error : KafkaError
    log : ErrorLog, optional
        That of the client; it knows why connections fail.
    """
    cause = error if log is None else log.fatal() or error
    texts = [clean(cause.str())]
    if log is not None and log.text() and log.text() not in texts:
        texts.append(log.text())
    names = [cause.name() if log is None else log.cause(error), error.name()]
    remedy = next((REMEDIES[name] for name in names if name in REMEDIES), "")
    return ConnectorError(
        f"Kafka at {connection.address}: {what}: {'; '.join(texts)}{f'; {remedy}' if remedy else ''}",
        retryable=names[0] != "_SSL"
        and (cause.retriable() or cause.name() in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN")),
    )
