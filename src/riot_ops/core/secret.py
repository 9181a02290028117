"""Passwords, keys and tokens that never appear in a repr, a log, an error or a descriptor."""

from __future__ import annotations

import os
import re
import typing
from typing import Any

from riot_ops.core.errors import ConfigError

__all__ = [
    "Secret",
    "check_secret",
    "is_secret_type",
    "literal_secrets",
    "names_secret",
    "secret_from_json",
    "secret_to_json",
]

#: Parts of the names of settings with a secret, and ends of names that have such a part, but hold none.
_SECRET_NAME = re.compile(
    r"(?i)passw|passphrase|secret|token|credential|authorization|cookie"
    r"|(account|api|access|master|shared|storage)[-_.]?key(?![-_]id)"
    r"|connection[-_]string"
)
_PLAIN_NAME = re.compile(
    r"(?i)^google_application_credentials$|[-_.](at|enabled|expiry|file|id|loading|path|timeout|type|ttl|uri|url)$|[-_]ms$"
)
_HOW = "give Secret.env('NAME') or Secret('...')"


class Secret:
    """A value that is used but never shown.

    ``Secret("...")`` holds the value itself; ``Secret.env("NAME")`` reads an environment variable at each use, on the
    machine that uses it. JSON and the identity of state contain only ``{"env": "NAME"}``; they omit a literal value.

    A task is sent to worker processes together with its secrets: with the value in the first form, with only the name
    of the variable in the second, which is therefore preferable on a cluster.

    Parameters
    ----------
    value : str
        The secret; not empty.

    Examples
    --------
    >>> Secret("pa55")
    Secret('***')
    >>> f"{Secret('pa55')}, {Secret.env('BROKER_PASSWORD')!r}"
    "***, Secret.env('BROKER_PASSWORD')"
    >>> Secret("pa55").reveal()
    'pa55'
    """

    __slots__ = ("_value", "_variable")
    _value: str | None
    _variable: str | None

    def __init__(self, value: str) -> None:
        if not isinstance(value, str) or not value:
            raise ConfigError("a secret must be a text that is not empty")
        object.__setattr__(self, "_value", value)
        object.__setattr__(self, "_variable", None)

    @classmethod
    def env(cls, name: str) -> Secret:
        """Refer to an environment variable, which is read at each use."""
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            # an invalid name may be the secret itself, passed by mistake: do not show it
            raise ConfigError("Secret.env takes the name of an environment variable: letters, digits and '_'")
        secret = cls.__new__(cls)
        object.__setattr__(secret, "_value", None)
        object.__setattr__(secret, "_variable", name)
        return secret

    @property
    def variable(self) -> str | None:
        """The name of the environment variable; None for a literal value."""
        return self._variable

    def reveal(self) -> str:
        """Return the value; :class:`ConfigError` if its environment variable is not set."""
        if self._variable is None:
            assert self._value is not None
            return self._value
        value = os.environ.get(self._variable)
        if not value:
            state = "is empty" if value == "" else "is not set"
            raise ConfigError(f"the environment variable {self._variable}, which holds a secret, {state}")
        return value

    def __repr__(self) -> str:
        return "Secret('***')" if self._variable is None else f"Secret.env({self._variable!r})"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return (self._value, self._variable) == (other._value, other._variable)

    def __hash__(self) -> int:
        return hash((self._value, self._variable))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a Secret cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Secret cannot be changed")

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (Secret, (self.reveal(),)) if self._variable is None else (Secret.env, (self._variable,))


def check_secret(owner: str, name: str, value: Any) -> Secret | None:
    """Return the value if it is a secret or None; otherwise raise an error that does not show it.

    For connectors that are not tasks; tasks check their parameters by type.
    """
    if value is None or isinstance(value, Secret):
        return value
    raise ConfigError(f"{owner}: {name} must be a Secret, got {type(value).__name__}; {_HOW}")


def is_secret_type(declared: Any) -> bool:
    """Whether a parameter of this type may be a secret.

    >>> is_secret_type(Secret | None), is_secret_type(str)
    (True, False)
    """
    return declared is Secret or Secret in typing.get_args(declared)


def literal_secrets(owner: object) -> list[str]:
    """Return the parameters of an object, such as a task, that are secrets given by value, also within a parameter.

    >>> from types import SimpleNamespace as Parameters
    >>> literal_secrets(Parameters(a=Secret("x"), b=Secret.env("B"), table=Parameters(credential=Secret("y"))))
    ['a', 'table.credential']
    """
    found = []
    for name, value in vars(owner).items():
        if isinstance(value, Secret):
            found += [name] if value.variable is None else []
        elif name == "table" and hasattr(value, "__dict__"):
            found += [f"{name}.{inner}" for inner in literal_secrets(value)]
    return found


def names_secret(name: str) -> bool:
    """Whether a setting of this name, of a store or a catalogue, has a value that must not be shown.

    >>> names_secret("s3.secret-access-key"), names_secret("s3.access-key-id"), names_secret("oauth2-server-uri")
    (True, False, False)
    """
    return _SECRET_NAME.search(name) is not None and _PLAIN_NAME.search(name) is None


def secret_to_json(secret: Secret) -> dict[str, str] | None:
    """Return ``{"env": NAME}``, or None for a literal value, which must not be written."""
    return None if secret.variable is None else {"env": secret.variable}


def secret_from_json(owner: str, name: str, data: Any) -> Secret | None:
    """Read the result of :func:`secret_to_json`; the error for other data does not show it."""
    if data is None:
        return None
    if isinstance(data, dict) and list(data) == ["env"]:
        return Secret.env(data["env"])
    raise ConfigError(f'{owner}: {name} must be {{"env": NAME}} in a descriptor, which holds no secrets')
