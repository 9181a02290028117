"""Files and parameters of an application, from ``--input NAME=FILE`` and ``--set NAME=VALUE``."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.file_paths import is_remote
from riot_ops.core.parameters import describe_mismatch, duration
from riot_ops.core.paths import local_path
from riot_ops.core.storage import Address
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.applications import Application

__all__ = ["ConfiguredApplication", "configure", "parse_assignments", "parse_settings", "place_to_read"]


def place_to_read(text: str | Path, option: str) -> Path | Address:
    """Return the path or address that an option gives.

    >>> place_to_read("s3://plant/day.csv", "--input"), place_to_read("file:///day.csv", "--input")
    (Address('s3://plant/day.csv'), PosixPath('/day.csv'))
    """
    return Address.of(text, {}, option) if is_remote(text) else local_path(text, option)


def parse_assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parse ``NAME=VALUE`` texts into values by name.

    >>> parse_assignments(["window=100", "by=a=b"], "--set")
    {'window': '100', 'by': 'a=b'}
    """
    values: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise ConfigError(f"{option} takes NAME=VALUE, got {text!r}")
        if name in values:
            raise ConfigError(f"{option} {name} is given twice: {values[name]!r} and {value!r}")
        values[name] = value
    return values


def parse_settings(builder: Callable[..., Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Convert the texts of a builder's parameters to the types that it declares.

    The parts of a tuple are separated by commas, a duration is written as in ``1h30m``, None as an empty text.

    >>> def build(*, window: int = 5, pages: tuple[str, ...] = (), every: timedelta | None = None): ...
    >>> parse_settings(build, {"window": "7", "pages": "a,b", "every": "2s"})
    {'window': 7, 'pages': ('a', 'b'), 'every': datetime.timedelta(seconds=2)}
    """
    dtypes = typing.get_type_hints(builder)
    known = [p.name for p in inspect.signature(builder).parameters.values() if p.kind is p.KEYWORD_ONLY]
    parameters = {}
    for name, text in texts.items():
        if name not in known:
            raise ConfigError(
                f"{builder.__name__} has no parameter {name!r}; it has {', '.join(known)}{did_you_mean(name, known)}"
            )
        try:
            parameters[name] = _convert(text, dtypes[name])
        except (msgspec.ValidationError, ValueError) as error:
            raise ConfigError(f"--set {name}={text}: {describe_mismatch(error, text, dtypes[name])}") from None
    return parameters


@dataclass(frozen=True)
class ConfiguredApplication:
    """An application with its parameters, the dataflow built with them, and the files of its sources by name."""

    parameters: Mapping[str, Any]
    flow: Dataflow
    files: Mapping[str, Path | Address]


def configure(application: Application, inputs: Sequence[str], settings: Sequence[str]) -> ConfiguredApplication:
    """Configure an application from the values of ``--input`` and ``--set``.

    An input is ``FILE`` or ``NAME=FILE``, where ``NAME`` is a source, or a parameter that names a file.
    """
    known = [*application.inputs, *application.optional_inputs, *application.files]
    files: dict[str, Path | Address] = {}
    unnamed = []

    def add(name: str, path: str) -> None:
        if name in files:
            raise ConfigError(f"--input gives {name} twice: {files[name]} and {path}")
        # a parameter names a file for a task, which opens it as a path
        files[name] = (local_path if name in application.files else place_to_read)(path, "--input")

    for text in inputs:
        name, sign, path = text.partition("=")
        if sign and name in known:
            add(name, path)
        elif sign and name.isidentifier() and not Path(text).exists():
            raise ConfigError(
                f"--input {text}: {application.name} has no input {name!r}; it has {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            )
        else:
            unnamed.append(text)
    parameters = parse_settings(application.builder, parse_assignments(settings, "--set"))
    parameters |= {name: str(files.pop(name)) for name in application.files if name in files}
    flow = application.builder(**parameters)
    # the sources may depend on the parameters
    sources = [node.id for node in flow.nodes_of_kind("source")]
    for text in unnamed:
        if len(sources) > 1 and not application.shared_file:
            raise ConfigError(
                f"{application.name} reads {', '.join(sources)}: name one, as in --input {sources[0]}={text}"
            )
        for name in sources:
            add(name, text)
    for name in files:
        if name not in sources:
            raise ConfigError(
                f"--input {name}: with these parameters {application.name} reads {', '.join(sources)} "
                "(--input NAME=FILE)"
            )
    missing = [name for name in sources if name not in files]
    if files and missing:
        raise ConfigError(f"{application.name} reads {', '.join(sources)}: --input {missing[0]}=FILE is missing")
    return ConfiguredApplication(parameters, flow, files)


def _convert(text: str, dtype: Any) -> Any:
    choices = typing.get_args(dtype) if typing.get_origin(dtype) in (typing.Union, types.UnionType) else (dtype,)
    if type(None) in choices and not text:
        return None
    problem: Exception = ValueError(f"{text!r} is none of {dtype}")
    for choice in sorted(
        (c for c in choices if c is not type(None)), key=lambda c: c is str
    ):  # str last, since it takes any text
        try:
            return _convert_to(text, choice)
        except (msgspec.ValidationError, ValueError) as error:
            problem = error
    raise problem


def _convert_to(text: str, dtype: Any) -> Any:
    if dtype is timedelta:
        return duration(text)
    if typing.get_origin(dtype) is tuple:
        inner = typing.get_args(dtype)
        parts = text.split(",") if text else []
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_convert(part.strip(), inner[0]) for part in parts)
        if len(parts) != len(inner):
            raise ValueError(f"{text!r} must have {len(inner)} parts, separated by commas")
        return tuple(_convert(part.strip(), part_dtype) for part, part_dtype in zip(parts, inner, strict=True))
    if dtype is Any:
        return text
    return msgspec.convert(text, dtype, strict=False)
