"""Options of Spark's readers and writers, which are texts, as the parameters of sources and sinks."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from datetime import timedelta
from typing import Any

import msgspec

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.secret import Secret, is_secret_type

__all__ = ["arguments", "count_option", "text_option"]

#: Mappings whose values may be secrets, and so are passed as secrets.
SECRET_MAPPINGS = ("headers", "storage_options")


def arguments(name: str, make: Callable[..., Any], options: Mapping[str, str], own: tuple[str, ...]) -> dict[str, Any]:
    """Convert options to the arguments of a class or function.

    An option is named like a parameter, in any case and with or without underscores. Names are separated by commas. A
    secret is given as text, or by the name of an environment variable in the option with ``Env`` after its name. An
    entry of a mapping is an option of its own: ``headers.X-Tenant``. ``path``, which ``load(path)`` and ``save(path)``
    set, stands for ``folder``.

    Parameters
    ----------
    name : str
        Name of the format, for errors.
    make : class or function
    options : mapping of str to str
    own : tuple of str
        Names of options that others read.

    Examples
    --------
    >>> def make(url: str, tags: tuple[str, ...] = (), batch_size: int = 10): ...
    >>> arguments("riot_x", make, {"URL": "http://x", "batchSize": "5", "tags": "a, b"}, ())
    {'url': 'http://x', 'batch_size': 5, 'tags': ('a', 'b')}
    """
    # the fields of a dataclass may be declared in several modules, whose names their types use
    function = getattr(make, "__init__") if isinstance(make, type) and not is_dataclass(make) else make  # noqa: B009
    hints = typing.get_type_hints(function, include_extras=True)
    kinds = {
        n: hints.get(n, Any)
        for n, p in inspect.signature(make).parameters.items()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    by_label = {_label(n): n for n in kinds}
    if "path" not in by_label and "folder" in by_label:
        by_label["path"] = by_label["folder"]
    found: dict[str, Any] = {}
    for option, text in options.items():
        if _label(option) in map(_label, own):
            continue
        label, _, entry = option.partition(".")
        known = by_label.get(_label(label))
        if known is not None and entry and _is_mapping(kinds[known]):
            value: Any = Secret(text) if known in SECRET_MAPPINGS else text
            found.setdefault(known, {})[entry] = value
            continue
        secret = by_label.get(_label(option).removesuffix("env"))
        if known is None and secret is not None and is_secret_type(kinds[secret]) and _label(option).endswith("env"):
            found[secret] = Secret.env(text)
            continue
        if known is None or entry:
            raise ConfigError(
                f"{name} has no option {option!r}; known are {', '.join((*kinds, *own))}{did_you_mean(option, kinds)}"
            )
        found[known] = _converted(name, option, text, known, kinds[known])
    return found


def _converted(name: str, option: str, text: str, parameter: str, kind: Any) -> Any:
    if is_secret_type(kind):
        return Secret(text)
    members = _members(kind)
    if parameter in ("path", "folder") or timedelta in members:
        return text
    if any(typing.get_origin(one) is tuple for one in members) and not text.lstrip().startswith("["):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"option {option!r} of {name} cannot be {text!r}: {error}") from None
    except TypeError:  # a type that has no form as text; the class checks it
        return text


def text_option(options: Mapping[str, str], name: str) -> str | None:
    """Return an option in any case; None if it is not given."""
    return next((v for k, v in options.items() if _label(k) == _label(name)), None)


def count_option(options: Mapping[str, str], name: str) -> int | None:
    """Return an option that is a whole number, 1 or more; None if it is not given."""
    text = text_option(options, name)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"option {name.lower()!r} must be a whole number >= 1, got {text!r}")
    return int(text)


def _label(name: str) -> str:
    return re.sub("_", "", name).lower()


def _members(kind: Any) -> list[Any]:
    if typing.get_origin(kind) is typing.Annotated:
        return _members(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [one for part in typing.get_args(kind) for one in _members(part)]
    return [kind]


def _is_mapping(kind: Any) -> bool:
    return any(isinstance(o := typing.get_origin(one), type) and issubclass(o, Mapping) for one in _members(kind))
