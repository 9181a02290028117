"""Requests to HTTP servers: address, login, retries, and errors without secrets."""

from __future__ import annotations

import base64
import gzip
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from riot_ops.connectors.retry import Failure, retry, shared_client
from riot_ops.connectors.tls import client_context
from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConfigError, ConnectorError, MissingExtraError, escape_control, excerpt
from riot_ops.core.parameters import OWN_CHECK, Duration, as_timedelta, check_parameters
from riot_ops.core.secret import Secret

__all__ = ["HTTPConnection"]

#: Answers after which the same request may succeed: timeout, too early, too many requests; and all from 500 on.
TRANSIENT_STATUS = {408, 425, 429}
SERVER_ERROR = 500
#: Parts of names of headers and parameters whose values are probably secrets.
SECRET_WORDS = ("auth", "cookie", "key", "password", "secret", "signature", "token")
#: Headers whose names have such a part, but hold no secret.
PLAIN_HEADERS = {"idempotency-key", "www-authenticate"}
#: Maximum number of characters of an answer in an error.
ANSWER_LENGTH = 300
MAX_CONNECTIONS = 8

Headers = tuple[tuple[str, str | Secret], ...]


@dataclass(frozen=True, kw_only=True)
class HTTPConnection:
    """The address of an HTTP server, and how to log in.

    Parameters
    ----------
    url : str
        ``http://host:port/path`` or ``https://``, without a login. A parameter of the address whose name is that of a
        secret, such as ``token``, is refused.
    username : str or None
    password : Secret or None
        With ``username``: the login of basic authentication.
    token : Secret or None
        Sent as ``Authorization: Bearer …``.
    headers : mapping of str to str or Secret, optional
        Further headers of each request. One that looks like a login must be a :class:`~riot_ops.Secret`.
    compression : "none" or "gzip", default "none"
        Codec of the body of a request.
    ca_file : str or None, default the system's authorities
        File with the certificates of trusted authorities, for TLS.
    certificate : str or None
        File with the client's certificate (PEM).
    private_key : str or None, default the file of the certificate
        File with the private key of the certificate.
    timeout : timedelta or text such as "10s", default 30 seconds
        How long to wait for a connection, and how long for an answer.
    retry : timedelta or text such as "1min", default 1 minute
        How long a request is repeated that was not answered, or was answered with status 408, 425, 429 or 500 and
        above. The pauses grow from 0.1 s to 5 s; where the server sends ``Retry-After``, they are at least that long.
    """

    url: str
    username: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    headers: Annotated[Mapping[str, Any] | tuple[tuple[str, Any], ...], OWN_CHECK] = ()
    compression: str = "none"
    ca_file: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    timeout: Duration = timedelta(seconds=30)
    retry: Duration = timedelta(minutes=1)

    def __post_init__(self) -> None:
        check_parameters(self)
        object.__setattr__(self, "headers", _checked_headers(self.headers))
        self.validate()

    def validate(self) -> None:
        """Raise a ConfigError for parameters that do not fit together."""
        try:
            parts = urlsplit(self.url)
            _ = parts.port
        except ValueError:  # its text may show the URL
            raise ConfigError("url is not a URL with a port between 1 and 65535") from None
        if "@" in parts.netloc:
            raise ConfigError(
                "url must not hold user or password, which would then appear in logs; "
                "give username= and password=Secret.env(...)"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
            kind = f", got {parts.scheme}:…" if parts.scheme else ""
            raise ConfigError(f"url must be http://host:port/path or https://host:port/path{kind}")
        for name, _ in parse_qsl(parts.query, keep_blank_values=True):
            if any(word in name.lower() for word in SECRET_WORDS):
                raise ConfigError(
                    f"url has the parameter {name!r}, which may be a secret; give token= or headers= with a Secret"
                )
        for option in ("ca_file", "certificate", "private_key"):
            if getattr(self, option) is not None and parts.scheme != "https":
                raise ConfigError(f"{option} is for https://, got url {self.label!r}")
        if self.private_key is not None and self.certificate is None:
            raise ConfigError("private_key needs certificate, the file with the client's certificate")
        if (self.username is None) != (self.password is None):
            raise ConfigError("username and password belong together: give both or neither")
        if self.compression not in ("none", "gzip"):
            raise ConfigError(f"compression must be 'none' or 'gzip', got {self.compression!r}")
        if self.token is not None and self.username is not None:
            raise ConfigError("give either token or username and password, not both")
        if not timedelta(milliseconds=1) <= as_timedelta(self.timeout):
            raise ConfigError("timeout must be at least '1ms'")
        duration_seconds("retry", self.retry, zero=True)

    @property
    def label(self) -> str:
        """The address for messages: without parameters."""
        return self.url.partition("?")[0]

    #: What stands before the token in its header.
    token_scheme = "Bearer"  # noqa: S105
    #: The parameters that say where records go, for the error of a server that does not know that place.
    place_options: ClassVar[tuple[str, ...]] = ("url",)

    def send(self, verb: str, url: str, body: bytes, headers: Mapping[str, str], what: str) -> None:
        """Send a request, again after transient failures, until the server accepts it.

        Parameters
        ----------
        verb : str
            ``POST`` or ``PUT``.
        url : str
            Where to; the label of the error is its part before parameters.
        body : bytes
        headers : mapping of str to str
            Headers beside those of the connection.
        what : str
            What the body has, for the error.

        Raises
        ------
        ConnectorError
            If the server refuses it, or cannot be reached, or does not accept it in the time of ``retry``.
        """
        where = url.partition("?")[0]
        try:
            client = shared_client(_Client, self.ca_file, self.certificate, self.private_key, _seconds(self.timeout))
        except ConnectorError as error:
            raise ConnectorError(f"{what} cannot be sent to {where}: {error}") from None
        assert isinstance(self.headers, tuple)
        own = {name: _reveal(value) for name, value in self.headers}
        secrets = [s.reveal() for s in (self.password, self.token, *(v for _, v in self.headers)) if _is_secret(s)]
        if self.token is not None:
            own["Authorization"] = f"{self.token_scheme} {self.token.reveal()}"
        elif self.username is not None and self.password is not None:
            own |= client.basic(f"{self.username}:{self.password.reveal()}")
        if self.compression == "gzip":
            body, own = gzip.compress(body, compresslevel=1, mtime=0), {**own, "Content-Encoding": "gzip"}

        def call() -> None:
            answer = client.request(verb, url, body, {**own, **headers})
            if not 200 <= answer.status < 300:
                raise _RefusedError(_explain(answer, secrets, client, self.place_options))

        retry(f"{what} cannot be sent to {where}", call, client.explain, _seconds(self.retry))


class _RefusedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _explain(answer: Any, secrets: Sequence[str], client: _Client, places: Sequence[str]) -> Failure:
    """Say why an answer is not a success."""
    text = answer.data.decode("utf-8", "replace").strip()
    for secret in secrets:
        text = text.replace(secret, "***")
    said = f": {escape_control(excerpt(text, ANSWER_LENGTH))}" if text else ""
    transient = answer.status in TRANSIENT_STATUS or answer.status >= SERVER_ERROR
    remedy = ""
    if answer.status in (401, 403):
        remedy = " (check token=, or username= and password=)"
    elif answer.status in (404, 405):
        remedy = f" (check {', '.join(f'{name}=' for name in places)})"
    elif answer.status == 413:
        remedy = " (give a smaller batch_size=)"
    elif 300 <= answer.status < 400:
        remedy = " (redirects are not followed: give the address that it leads to as url=)"
    message = f"the server answers {answer.status} {answer.reason or ''}".rstrip() + remedy + said
    return Failure(message, transient, client.retry_after(answer.headers.get("Retry-After")) if transient else None)


class _Client:
    """Connections to servers; one per process and set of options."""

    def __init__(self, ca_file: str | None, certificate: str | None, private_key: str | None, timeout_s: float) -> None:
        try:
            import urllib3
        except ImportError:
            raise MissingExtraError("HTTP", "http") from None
        self._http = urllib3
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._files = ca_file, certificate, private_key
        self._check_files()
        self._pool = urllib3.PoolManager(  # which reads them for each connection: they may be renewed
            maxsize=MAX_CONNECTIONS,
            retries=False,
            timeout=urllib3.Timeout(connect=timeout_s, read=timeout_s),
            ca_certs=ca_file,
            cert_file=certificate,
            key_file=private_key,
        )

    def _check_files(self) -> None:
        if any(self._files):
            client_context(*self._files)

    def request(self, verb: str, url: str, body: bytes, headers: Mapping[str, str]) -> Any:
        return self._pool.request(verb, url, body=body, headers=dict(headers), redirect=False)

    def basic(self, login: str) -> dict[str, str]:
        return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}

    def retry_after(self, text: str | None) -> float | None:
        """Return the seconds that a header ``Retry-After`` asks for; None if it is missing or malformed."""
        if text is None:
            return None
        try:
            return float(self._http.Retry().parse_retry_after(text))
        except self._http.exceptions.InvalidHeader:
            return None

    def explain(self, error: Exception) -> Failure | None:
        if isinstance(error, _RefusedError):
            return error.failure
        known = self._http.exceptions
        if isinstance(error, known.SSLError | known.ProtocolError):
            try:
                self._check_files()
            except ConnectorError as found:
                return Failure(str(found), transient=False)
        if isinstance(error, known.SSLError):
            is_plain = "WRONG_VERSION_NUMBER" in str(error) or "HTTP_REQUEST" in str(error)
            remedy = "does the server talk TLS? give http:// if not" if is_plain else "check ca_file= and certificate="
            return Failure(f"TLS fails: {error} ({remedy})", transient=False)
        if isinstance(error, known.NameResolutionError):
            return Failure("its host is unknown (check url=)", transient=True)
        if isinstance(error, known.ConnectTimeoutError | known.NewConnectionError):
            return Failure("the server cannot be reached (is it running? check url=)", transient=True)
        if isinstance(error, known.ReadTimeoutError):
            return Failure(f"the server does not answer within {self._timeout_s:g} s", transient=True)
        if isinstance(error, known.HTTPError):
            return Failure(f"the connection breaks ({type(error).__name__})", transient=True)
        if isinstance(error, OSError):
            return Failure(f"{type(error).__name__}: {error.strerror or error}", transient=False)
        return None

    def close(self) -> None:
        self._pool.clear()


def _checked_headers(given: Any) -> Headers:
    """Return headers as pairs; ConfigError for one that cannot be sent, or shows a secret."""
    pairs = tuple(given.items()) if isinstance(given, Mapping) else tuple(given) if isinstance(given, tuple) else None
    if pairs is None or any(not isinstance(one, tuple) or len(one) != 2 for one in pairs):
        raise ConfigError("headers must be a mapping of names to texts or Secrets")
    for name, value in pairs:
        if not isinstance(name, str) or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"headers: a name must have ASCII letters, digits, '-' and '_' only, got {name!r}")
        if isinstance(value, Secret):
            continue
        lower = name.lower()
        if lower not in PLAIN_HEADERS and any(word in lower for word in SECRET_WORDS):
            raise ConfigError(f"headers: {name} must be a Secret: give Secret.env('NAME') or Secret('...')")
        if not isinstance(value, str) or not value.isprintable() or not value.isascii():
            raise ConfigError(f"headers: {name} must be printable ASCII text or a Secret")
    return pairs


def _is_secret(value: Any) -> bool:
    return isinstance(value, Secret)


def _reveal(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def _seconds(value: Duration) -> float:
    return as_timedelta(value).total_seconds()
