"""Checks of database URLs, which must not contain secrets."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.secret import Secret

__all__ = ["BACKENDS", "SAFE_PARAMETERS", "check_sql_url"]

BACKENDS = ("sqlite", "postgresql", "mysql", "mariadb", "oracle", "mssql")
#: The allowed parameters of a URL; none holds a secret, since logs, descriptors and errors show the URL.
SAFE_PARAMETERS = {
    *("application_name", "charset", "collation", "connect_timeout", "connection_timeout", "mode", "schema", "timeout"),
    *("gssencmode", "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert", "target_session_attrs"),
    *("ssl_ca", "ssl_cert", "ssl_check_hostname", "ssl_key", "ssl_verify_cert", "ssl_verify_identity"),
    *("applicationintent", "driver", "encrypt", "trustservercertificate", "trusted_connection"),
    *("cache", "immutable", "nolock", "service_name", "uri", "vfs"),
}


def check_sql_url(name: str, url: str, others: str = "", *, credential: Secret | None = None) -> None:
    """Raise unless ``url`` is the address of a database without a secret; the error does not show it.

    >>> check_sql_url("store", "postgresql://me:pa55@host/db")
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: store holds a password; leave it out there and give it as credential, a Secret
    """
    scheme = url.partition(":")[0]
    backend = scheme.partition("+")[0]
    if "://" not in url or backend not in BACKENDS:
        known = f"{others}, or " if others else ""
        shown = f", got {scheme}:…" if scheme.isidentifier() and "://" in url else ""
        raise ConfigError(
            f"{name} must be {known}the address of a database ({', '.join(k + '://' for k in BACKENDS)}){shown}"
            f"{did_you_mean(backend, BACKENDS)}"
        )
    problem = _secret_in(url)
    if problem:
        raise ConfigError(f"{name} {problem}; leave it out there and give it as credential, a Secret")
    if backend == "sqlite" and credential is not None:
        raise ConfigError(f"{name}: SQLite has no users and takes no credential; leave it out")


def _secret_in(url: str) -> str:
    """Say where the URL of a database contains a secret or may contain one; empty if nowhere."""
    try:
        parts = urlsplit(url)
        password, _ = parts.password, parts.port
        found = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:  # its text may show the URL
        return "has an invalid port or parameter, which may be a password"
    if password is not None or ":" in unquote(parts.username or ""):
        return "holds a password"
    if parts.fragment or ";" in url:
        return "has a '#' or ';', which a password may follow"
    for key, value in found:
        if key.lower() not in SAFE_PARAMETERS or "=" in value:
            return f"has a parameter that may hold a password (allowed are {', '.join(sorted(SAFE_PARAMETERS))})"
    return ""
