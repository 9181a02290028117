"""The requests that a manager answers, and their forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from riot_ops.core.errors import ConfigError, describe_validation_error, did_you_mean

__all__ = ["decode_request", "parse_request"]


class _Form(msgspec.Struct, forbid_unknown_fields=True):
    """The form of a request without arguments."""


class _Named(_Form):
    name: str


class _Show(_Form):
    form: Literal["mermaid", "svg"]


class _Explain(_Form):
    dataflow: dict[str, Any]
    sources: dict[str, Any] = msgspec.field(default_factory=dict)
    sinks: dict[str, Any] = msgspec.field(default_factory=dict)
    fold: bool = False
    flag_warm: bool = False


class _Dataflow(_Explain):
    name: str | None = None
    owner: str | None = None
    on_slow: str = "detach"
    on_failure: str = "detach"


class _Submit(_Form):
    dataflows: list[_Dataflow]


FORMS: dict[str, type[_Form]] = {
    "submit": _Submit,
    "explain": _Explain,
    **dict.fromkeys(("remove", "pause", "resume"), _Named),
    **dict.fromkeys(("list", "stats", "defragment", "stop"), _Form),
    "show": _Show,
}


def decode_request(line: bytes) -> dict[str, Any]:
    r"""Decode the request in a line.

    >>> decode_request(b'{"do": "list"}'), parse_request(decode_request(b'{"do": "list"}'))
    ({'do': 'list'}, ('list', {}))
    """
    try:
        request = msgspec.json.decode(line)
        if b"\\ud" in line.lower():  # perhaps a lone surrogate, which no file can hold
            json.dumps(request, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"a request must be a line of JSON: {error}") from None
    if not isinstance(request, dict):
        raise ConfigError(f"a request must be a JSON object, got {type(request).__name__}")
    return request


def parse_request(request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Check the form of a request; return what it does, and its arguments."""
    do = request.get("do")
    if not isinstance(do, str) or do not in FORMS:
        hint = did_you_mean(do, FORMS) if isinstance(do, str) else ""
        raise ConfigError(f"a request's 'do' must be one of {', '.join(FORMS)}, got {do!r}{hint}")
    given = {name: value for name, value in request.items() if name != "do"}
    try:
        found = msgspec.convert(given, FORMS[do])
    except msgspec.ValidationError as error:
        why = describe_validation_error(error, given, {"form": ("mermaid", "svg")})
        if "unknown field" in why:
            kind = _Dataflow if "dataflows[" in why else FORMS[do]
            why += f"; known are {', '.join(kind.__struct_fields__) or 'none'}"
        raise ConfigError(f"{do}: {why}") from None
    if isinstance(found, _Submit):
        return do, {"dataflows": [msgspec.structs.asdict(one) for one in found.dataflows]}
    return do, msgspec.structs.asdict(found)
